package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/client/credentials"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// newHealthcheck makes the subcommand with which a container checks its node, since its image has no shell.
func newHealthcheck(lookup func(string) (string, bool)) *cobra.Command {
	var address, authorities string
	var timeout time.Duration
	var client *http.Client
	var probe *url.URL
	command := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit 0 if a node replies to a GET with 200",
		PreRunE: func(command *cobra.Command, _ []string) (err error) {
			if timeout <= 0 {
				return errors.New("--timeout must be above 0")
			}
			if client, err = cli.HTTPClient(credentials.Config{CA: authorities}, nil); err != nil {
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
			probe, err = credentials.ParseAddress(address)
			return err
		},
		RunE: func(command *cobra.Command, _ []string) error {
			request, err := http.NewRequestWithContext(command.Context(), http.MethodGet, probe.String(), nil)
			if err != nil {
				return err
			}
			response, err := client.Do(request)
			if err != nil {
				return cli.Explain(err)
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
		"what to get; default: /readyz of the node that "+variable("http")+" and "+variable("tls-cert")+" are of, else of "+variable("addr")+" if it names one node, else of port 8701")
	cli.AddCAFlag(command.Flags(), &authorities)
	command.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the reply")
	return command
}

// ownURL returns the URL of the readiness probe of the node in this environment. Several addresses are ignored: they are
// for clients, and don't say which node runs here.
func ownURL(lookup func(string) (string, bool)) string {
	address, _ := lookup(variable("http"))
	certificate, _ := lookup(variable("tls-cert"))
	if base, _ := lookup(variable("addr")); address == "" && certificate == "" && base != "" && !strings.Contains(base, ",") {
		return strings.TrimRight(cli.ShownAddress(base), "/") + "/readyz" // the probe needs no token
	}
	if address == "" {
		address = defaultConfig().httpAddress
	}
	if host, port, err := net.SplitHostPort(address); err == nil {
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			address = net.JoinHostPort("127.0.0.1", port)
		}
	}
	if certificate != "" {
		return "https://" + address + "/readyz"
	}
	return "http://" + address + "/readyz"
}

// ownClient returns a client that trusts only the certificate of this node, since the authority's file may not be on
// this machine. It uses a name from the certificate, because 127.0.0.1 may not be in the certificate.
func ownClient(path string) (*http.Client, error) {
	bundle, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(bundle)
	if block == nil {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	settings.RootCAs.AddCert(certificate)
	if len(certificate.DNSNames) > 0 {
		settings.ServerName = strings.Replace(certificate.DNSNames[0], "*", "any", 1)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: settings}}, nil
}

// release is the version of a build without a tag, which is the next version. scripts/release.sh refuses a tag with
// another number.
const release = "0.2.0"

// stamped is set by the linker: -ldflags "-X main.stamped=$(git describe --tags --long --always --dirty)".
var stamped string

// version returns the version of this binary and the commit from which it was built. Stamped values take precedence over
// the values that the go command has recorded. Without either, the commit is "unknown".
func version() (number, commit string) {
	if stamped != "" {
		return identify(stamped)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return identify("")
	}
	number, commit = identify(info.Main.Version)
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && commit == unknownCommit {
			commit = setting.Value[:min(len(setting.Value), 12)]
		}
	}
	return number, commit
}

const unknownCommit = "unknown"

var (
	semantic  = regexp.MustCompile(`^v?((?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*))(-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$`)
	described = regexp.MustCompile(`^(?:(.*)-\d+-g)?([0-9a-f]{7,40}(?:-dirty)?)$`)          // form of git describe: tag, commits since the tag, commit
	pseudo    = regexp.MustCompile(`^(v.*?)[-.](?:0\.)?\d{14}-([0-9a-f]{12}(?:\+dirty)?)$`) // pseudo-version of the go command, with the time of the commit
)

func identify(text string) (number, commit string) {
	number, commit = text, unknownCommit
	if found := described.FindStringSubmatch(text); found != nil {
		number, commit = found[1], found[2]
	} else if found := pseudo.FindStringSubmatch(text); found != nil {
		number, commit = found[1], found[2]
	}
	found := semantic.FindStringSubmatch(number)
	if found == nil || found[1] == "0.0.0" { // the commit has no earlier tag
		return release, commit
	}
	return found[1] + found[2], commit
}

// bareVersion returns the three numbers of a version, without a suffix such as -rc.1.
func bareVersion(number string) string {
	bare, _, _ := strings.Cut(number, "-")
	return bare
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the commit that it was built from",
		RunE: func(command *cobra.Command, _ []string) error {
			number, commit := version()
			_, err := fmt.Fprintf(command.OutOrStdout(), "signalbox %s commit %s %s %s/%s\n", number, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
