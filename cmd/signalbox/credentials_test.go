package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/internal/certs"
)

// secured is a node behind HTTPS that takes one token for all, and one for reading, and
// replies to /readyz without a token.
type secured struct {
	*httptest.Server
	ca, cert string // files
}

const (
	useToken  = "tok-use-7Hn2"
	readToken = "tok-read-93kd"
)

// newSecured starts it, in front of a plain node.
func newSecured(t *testing.T, plain string) secured {
	t.Helper()
	dir := t.TempDir()
	authority, err := certs.MakeAuthority(dir, false)
	must(t, err)
	node, err := certs.MakeNode(dir, "n1", nil, false)
	must(t, err)
	pair, err := tls.LoadX509KeyPair(node.Cert, node.Key)
	must(t, err)
	base, err := url.Parse(plain)
	must(t, err)
	behind := httputil.NewSingleHostReverseProxy(base)
	s := secured{ca: authority.Cert, cert: node.Cert}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(status int, code, detail string) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "code": code, "detail": detail})
		}
		switch header := r.Header.Get("Authorization"); {
		case r.URL.Path == "/readyz":
			fmt.Fprintln(w, "ready")
		case header == "Bearer "+readToken && r.Method != http.MethodGet:
			refuse(403, "forbidden", "The scope is read.")
		case header != "Bearer "+useToken && header != "Bearer "+readToken:
			refuse(401, "unauthenticated", "This node needs a token.")
		default:
			r.Header.Del("Authorization")
			behind.ServeHTTP(w, r)
		}
	}))
	s.Server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// run finds a cluster that asks for HTTPS and a token, and says what it lacks otherwise.
func TestRunWithCredentials(t *testing.T) {
	_, c, _ := startDev(t.Context(), t, 1)
	s := newSecured(t, c.bases[0])
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "token")
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	arguments := func(more ...string) []string {
		return append(append([]string{"run", "db", "--permits", "1", "--wait", "5s", "--addr", s.URL}, more...), "--", "true")
	}
	for _, tc := range []struct {
		name      string
		arguments []string
		variables []string
		status    int
		words     []string
	}{
		{"a file", arguments("--ca", s.ca, "--token-file", file(useToken+"\n")), nil, 0, nil},
		{"variables", arguments(), []string{"SIGNALBOX_CA", s.ca, "SIGNALBOX_API_TOKEN", useToken, "SIGNALBOX_TOKEN", "17"}, 0, nil},
		{"the variable's earlier name", arguments("--ca", s.ca), []string{"SIGNALBOX_TOKEN", useToken}, 0, nil},
		{"a file named by a variable", arguments("--ca", s.ca), []string{"SIGNALBOX_TOKEN", "17", "SIGNALBOX_TOKEN_FILE", file(useToken)}, 0, nil},
		{"no authority", arguments("--token-file", file(useToken)), nil, cli.StatusUnavailable, []string{"unknown authority", "--ca"}},
		{"no token", arguments("--ca", s.ca), nil, cli.StatusRefused, []string{"unauthenticated", "no token", "--token-file", "SIGNALBOX_API_TOKEN"}},
		{"the fencing token of an outer run", arguments("--ca", s.ca), []string{"SIGNALBOX_TOKEN", "17"}, cli.StatusRefused, []string{"unauthenticated", "no token", "SIGNALBOX_TOKEN is a fencing token"}},
		{"another token", arguments("--ca", s.ca), []string{"SIGNALBOX_TOKEN", "tok-wrong"}, cli.StatusRefused, []string{"unauthenticated", "--token-file"}},
		{"too small a scope", arguments("--ca", s.ca), []string{"SIGNALBOX_TOKEN", readToken}, cli.StatusRefused, []string{"forbidden", "The scope is read.", "ask an operator"}},
		{"plain HTTP", []string{"run", "db", "--addr", "n1:8701", "--", "true"}, []string{"SIGNALBOX_TOKEN", useToken}, cli.StatusUsage, []string{"--send-token-over-http", "n1:8701"}},
		{"HTTPS without it in the address", []string{"run", "db", "--wait", "5s", "--addr", strings.TrimPrefix(s.URL, "https://"), "--", "true"}, nil,
			cli.StatusRefused, []string{"takes HTTPS alone"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := command(t, tc.arguments, tc.variables...)
			if o.status != tc.status {
				t.Errorf("status %d, not %d: %s", o.status, tc.status, o.stderr)
			}
			if tc.status != 0 {
				o.refused(t, tc.words...)
			}
			if strings.Contains(o.stdout+o.stderr, "tok-") {
				t.Errorf("it shows a token: %q", o.stderr)
			}
		})
	}
}

// A node's own probe over HTTPS needs no token, and no authority but the node's own
// certificate; a probe of another node needs the authority.
func TestHealthcheckOverHTTPS(t *testing.T) {
	s := newSecured(t, "http://127.0.0.1:1")
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	must(t, err)
	for _, variables := range [][]string{
		{"SIGNALBOX_HTTP", "0.0.0.0:" + port, "SIGNALBOX_TLS_CERT", s.cert},
		{"SIGNALBOX_HTTP", "127.0.0.1:" + port, "SIGNALBOX_TLS_CERT", s.cert, "SIGNALBOX_CA", s.ca},
	} {
		if o := command(t, []string{"healthcheck"}, variables...); o.status != 0 || o.stdout != "ready\n" {
			t.Errorf("%v: %+v", variables, o)
		}
	}
	probe := []string{"healthcheck", "--url", s.URL + "/readyz"}
	if o := command(t, append(probe, "--ca", s.ca)); o.status != 0 || o.stdout != "ready\n" {
		t.Errorf("%+v", o)
	}
	command(t, probe).refused(t, "unknown authority", "--ca")
	command(t, append(probe, "--ca", "no/such.pem")).refused(t, "--ca", "no/such.pem")
	other := newSecured(t, "http://127.0.0.1:1")
	command(t, []string{"healthcheck"}, "SIGNALBOX_HTTP", "127.0.0.1:"+port, "SIGNALBOX_TLS_CERT", other.cert).refused(t, "unknown authority")
	command(t, []string{"healthcheck"}, "SIGNALBOX_HTTP", "127.0.0.1:"+port, "SIGNALBOX_TLS_CERT", "no/such.pem").refused(t, "no/such.pem")
}
