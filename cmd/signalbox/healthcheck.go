package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// newHealthcheck makes the subcommand by which a container image without a shell
// checks itself.
// lookup reads an environment variable.
func newHealthcheck(lookup func(string) (string, bool)) *cobra.Command {
	var url string
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit 0 if a node answers a GET with 200",
		RunE: func(command *cobra.Command, _ []string) error {
			if !command.Flags().Changed("url") {
				url = ownURL(lookup)
			}
			request, err := http.NewRequestWithContext(command.Context(), http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			client := http.Client{Timeout: timeout}
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
			if err != nil {
				return err
			}
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), strings.TrimSpace(string(body)))
			return err
		},
	}
	command.Flags().StringVar(&url, "url", "", "what to get; default: /readyz of the node that "+variable("http")+" is of, or of port 8701")
	command.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the answer")
	return command
}

// ownURL is where the node of this environment tells whether it is ready.
func ownURL(lookup func(string) (string, bool)) string {
	address, _ := lookup(variable("http"))
	if address == "" {
		address = defaultConfig().httpAddress
	}
	if host, port, err := net.SplitHostPort(address); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			address = net.JoinHostPort("127.0.0.1", port)
		}
	}
	return "http://" + address + "/readyz"
}
