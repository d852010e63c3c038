package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/target"
	"github.com/signalbox/signalbox/internal/credentials"
)

// newHealthcheck makes the subcommand by which a container image without a shell
// checks itself.
// lookup reads an environment variable.
func newHealthcheck(lookup func(string) (string, bool)) *cobra.Command {
	var address, authorities string
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit 0 if a node replies to a GET with 200",
		RunE: func(command *cobra.Command, _ []string) error {
			client, err := target.HTTP(credentials.Config{CA: authorities}, nil)
			if err != nil {
				return err
			}
			if !command.Flags().Changed("url") {
				address = ownURL(lookup)
				if certificate, _ := lookup(variable("tls-cert")); certificate != "" && authorities == "" {
					if client, err = ownClient(certificate); err != nil {
						return err
					}
				}
			}
			client.Timeout = timeout
			request, err := http.NewRequestWithContext(command.Context(), http.MethodGet, address, nil)
			if err != nil {
				return err
			}
			response, err := client.Do(request)
			if err != nil {
				return target.Explain(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
			if err != nil {
				return err
			}
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s: %s", address, response.Status, strings.TrimSpace(string(body)))
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), strings.TrimSpace(string(body)))
			return err
		},
	}
	command.Flags().StringVar(&address, "url", "",
		"what to get; default: /readyz of the node that "+variable("http")+" and "+variable("tls-cert")+" are of, or of port 8701")
	target.AddCA(command.Flags(), &authorities)
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
	if certificate, _ := lookup(variable("tls-cert")); certificate != "" {
		return "https://" + address + "/readyz"
	}
	return "http://" + address + "/readyz"
}

// ownClient trusts the certificate of this node, and no other: its file is at hand, when
// that of its authority may not be, and its names need not be those of the loopback.
func ownClient(path string) (*http.Client, error) {
	bundle, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(bundle)
	if block == nil {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	own, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	settings.RootCAs.AddCert(own)
	if len(own.DNSNames) > 0 {
		settings.ServerName = strings.Replace(own.DNSNames[0], "*", "any", 1)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: settings}}, nil
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
