package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// makeCerts makes certificates with the subcommand, "ca" first, in a new folder.
func makeCerts(t testing.TB, kinds ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, kind := range kinds {
		if o := command(t, append([]string{"cert", "--dir", dir}, strings.Fields(kind)...)); o.status != 0 {
			t.Fatalf("cert %s: %+v", kind, o)
		}
	}
	return dir
}

// trusting returns the settings of a client that trusts the authority of a folder.
func trusting(t testing.TB, dir string) *tls.Config {
	t.Helper()
	bundle, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return &tls.Config{RootCAs: roots, ServerName: "localhost"}
}

// httpsClient returns a client that trusts the authority in dir and, if shows is not "", shows that certificate. It also
// returns the number of connections that the client has opened.
func httpsClient(t *testing.T, dir, shows string) (*http.Client, *atomic.Int64) {
	t.Helper()
	config := trusting(t, dir)
	if shows != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, shows+".pem"), filepath.Join(dir, shows+"-key.pem"))
		must(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	dialled := &atomic.Int64{}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}, dialled
}

// authorized adds a token to each request.
type authorized struct {
	token string
	next  http.RoundTripper
}

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+a.token)
	return a.next.RoundTrip(r)
}

// admin returns a client over HTTPS that trusts the authority in dir and sends the token in a file.
func admin(t testing.TB, dir, tokenFile string, bases ...string) *client {
	t.Helper()
	token, err := os.ReadFile(tokenFile)
	must(t, err)
	return &client{bases: bases, http: &http.Client{Transport: authorized{strings.TrimSpace(string(token)),
		&http.Transport{TLSClientConfig: trusting(t, dir)}}}}
}

// serial returns the serial number of the certificate that a node shows.
func serial(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	response, err := client.Get(url + "/livez")
	must(t, err)
	must(t, response.Body.Close())
	if response.StatusCode != http.StatusOK || response.TLS == nil {
		t.Fatalf("%s: %s", url, response.Status)
	}
	return response.TLS.PeerCertificates[0].SerialNumber.String()
}

// TestServeHTTPS runs a node with one certificate for peers and clients, and renews the certificate. New connections get
// the new certificate, and open connections go on. A broken file changes neither.
func TestServeHTTPS(t *testing.T) {
	dir := makeCerts(t, "ca", "node n1", "node n2", "client ci")
	cert, key, ca := filepath.Join(dir, "node-n1.pem"), filepath.Join(dir, "node-n1-key.pem"), filepath.Join(dir, "ca.pem")
	port := freePorts(t, 0, 1)
	url := fmt.Sprintf("https://localhost:%d", port)
	n := startInProcess(t.Context(), t, "serve", "--data", t.TempDir(), "--min-free", "1MiB",
		"--http", fmt.Sprintf("127.0.0.1:%d", port), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca,
		"--peer", fmt.Sprintf("127.0.0.1:%d", port+1), "--peer-cert", cert, "--peer-key", key, "--peer-ca", ca)
	n.awaitLog(t, "serving")

	named, _ := httpsClient(t, dir, "client-ci")
	kept, dialled := httpsClient(t, dir, "")
	first := serial(t, named, url)
	if got := serial(t, kept, url); got != first {
		t.Errorf("two certificates: %s and %s", first, got)
	}
	stranger, _ := httpsClient(t, dir, "node-n2")
	if response, err := stranger.Get(url + "/livez"); err == nil {
		t.Errorf("a node's certificate passes for a client's: %s", response.Status)
	}
	c := &client{bases: []string{url}, http: kept}
	for _, use := range []string{"api", "peer"} {
		found := regexp.MustCompile(`signalbox_certificate_days_left\{use="` + use + `"\} (\S+)`).FindStringSubmatch(metricsOf(t, c))
		if days, err := strconv.ParseFloat(found[1], 64); err != nil || days < 364 || days > 366 {
			t.Errorf("%s: %v days are left, %v", use, days, err)
		}
	}
	reload := func(words string) {
		t.Helper()
		before := strings.Count(n.stderr.String(), words)
		hangUp(t)
		eventually(t, 20*time.Second, func() error {
			if strings.Count(n.stderr.String(), words) < before+2 { // one for each use
				return fmt.Errorf("%q was not logged again", words)
			}
			return nil
		})
	}
	if o := command(t, []string{"cert", "node", "n1", "--dir", dir, "--overwrite"}); o.status != 0 {
		t.Fatalf("%+v", o)
	}
	reload("was read again")
	fresh, _ := httpsClient(t, dir, "")
	if second := serial(t, fresh, url); second == first {
		t.Error("a new connection gets the certificate before")
	}
	must(t, os.WriteFile(cert, []byte("broken"), 0o600))
	reload("can't be read again")
	late, _ := httpsClient(t, dir, "")
	if serial(t, late, url) != serial(t, fresh, url) {
		t.Error("a broken file has changed the certificate")
	}
	if got := serial(t, kept, url); got != first || dialled.Load() != 1 {
		t.Errorf("the open connection: %d were opened", dialled.Load())
	}
}

// TestServeNeedsAServersCertificate: the node refuses a client's certificate when it starts. Otherwise each client would
// refuse it later.
func TestServeNeedsAServersCertificate(t *testing.T) {
	dir, port := makeCerts(t, "ca", "client ci"), freePorts(t, 0, 1)
	command(t, []string{"serve", "--ephemeral", "--http", fmt.Sprintf("127.0.0.1:%d", port), "--peer", fmt.Sprintf("127.0.0.1:%d", port+1),
		"--tls-cert", filepath.Join(dir, "client-ci.pem"), "--tls-key", filepath.Join(dir, "client-ci-key.pem")}).
		refused(t, "--tls-cert", "client-ci.pem", "not a server's certificate")
}

// TestAddressOfAnotherPort: a client with the port for peers, or with https:// and a port of plain HTTP, learns that; the
// node need not be started.
func TestAddressOfAnotherPort(t *testing.T) {
	dir, port := makeCerts(t, "ca", "node n1"), freePorts(t, 0, 1, 2, 3)
	address := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", port+i) }
	cert, key, ca := filepath.Join(dir, "node-n1.pem"), filepath.Join(dir, "node-n1-key.pem"), filepath.Join(dir, "ca.pem")
	startInProcess(t.Context(), t, "serve", "--ephemeral", "--http", address(0), "--peer", address(1)).awaitLog(t, "serving")
	startInProcess(t.Context(), t, "serve", "--ephemeral", "--http", address(2), "--peer", address(3), "--peer-cert", cert, "--peer-key", key, "--peer-ca", ca).
		awaitLog(t, "serving")
	for url, words := range map[string]string{
		"https://" + address(0): "Give its address with http://.",
		"http://" + address(1):  "If this is the port for peers: clients use the HTTP port",
		"https://" + address(3): "This is the port for peers: clients use the HTTP port",
	} {
		status(t, "--addr", url, "--ca", ca).refused(t, words)
	}
}

// TestInsecureHTTPIsLoud: a node that serves everybody without protection logs a warning.
func TestInsecureHTTPIsLoud(t *testing.T) {
	port := freePorts(t, 0, 1)
	n := startInProcess(t.Context(), t, "serve", "--ephemeral", "--http", fmt.Sprintf("0.0.0.0:%d", port),
		"--peer", fmt.Sprintf("127.0.0.1:%d", port+1), "--insecure-http")
	n.awaitLog(t, "serving")
	if log := n.stderr.String(); !regexp.MustCompile(`\[WARN\].*--insecure-http.*missing="?--tls-cert`).MatchString(log) {
		t.Errorf("no warning:\n%s", log)
	}
}
