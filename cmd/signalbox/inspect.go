package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"runtime/debug"
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
		Short: "Exit 0 if a node replies to a GET with 200",
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
	command.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the reply")
	return command
}

// ownURL is the readiness probe of the node that this environment configures.
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

// stamped is set by the linker: -ldflags "-X main.stamped=v1.2.3".
var stamped string

// version is the version of this binary: as stamped, else as the go command noted it (go install …@v1.2.3), else "devel".
func version() string {
	if stamped != "" {
		return stamped
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// release is the version that this source is on the way to.
const release = "0.2.0"

var semantic = regexp.MustCompile(`^v?((?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*))(?:[-+].*)?$`)

// semanticVersion is the number of a version, without the commit that a build between
// two releases adds to it; release for a build that has no other number.
func semanticVersion(version string) string {
	found := semantic.FindStringSubmatch(version)
	if found == nil || found[1] == "0.0.0" { // a commit alone, or the go command's name for one
		return release
	}
	return found[1]
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(command.OutOrStdout(), "signalbox %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
