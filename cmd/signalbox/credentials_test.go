package main

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// secured is a single node that accepts only HTTPS and known tokens.
type secured struct {
	*client         // of an admin
	address  string // without a scheme
	ca, cert string // files
}

const (
	useToken   = "tok-use-7Hn2"
	readToken  = "tok-read-93kd"
	adminToken = "tok-admin-4c1Z"
)

// fileOf makes a file with this text.
func fileOf(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func newSecured(t *testing.T) secured {
	t.Helper()
	dir, tokens := makeCerts(t, "ca", "node n1"), ""
	for scope, token := range map[string]string{"use": useToken, "read": readToken, "admin": adminToken} {
		tokens += fmt.Sprintf("[[token]]\nname = \"%s\"\nhash = \"sha256:%x\"\nscopes = [\"%s\"]\n", scope, sha256.Sum256([]byte(token)), scope)
	}
	s := secured{address: fmt.Sprintf("127.0.0.1:%d", freePorts(t, 0)), ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "node-n1.pem")}
	startInProcess(t.Context(), t, "serve", "--data", t.TempDir(), "--min-free", "1MiB", "--http", s.address, "--tls-cert", s.cert,
		"--tls-key", filepath.Join(dir, "node-n1-key.pem"), "--tokens", fileOf(t, tokens)).awaitLog(t, "serving")
	s.client = admin(t, dir, fileOf(t, adminToken), "https://"+s.address)
	eventually(t, 20*time.Second, func() error {
		r, err := s.ask(t.Context(), 0, http.MethodGet, "/readyz", "")
		if err == nil && r.status != http.StatusOK {
			err = fmt.Errorf("status %d", r.status)
		}
		return err
	})
	return s
}

// TestCommandsOfASecuredNode runs commands with the right and with wrong credentials. Each refusal names its reason,
// shows no token, and changes no state.
func TestCommandsOfASecuredNode(t *testing.T) {
	s, backup := newSecured(t), filepath.Join(t.TempDir(), "state")
	s.must(t, 0, http.MethodPut, "/v1/semaphores/db", `{"permits":3}`, http.StatusCreated)
	ca, stranger := " --ca "+s.ca, " --ca "+filepath.Join(makeCerts(t, "ca"), "ca.pem")
	file := func(token string) string { return " --token-file " + fileOf(t, token+"\n") }
	use, wrong, admin := file(useToken), file("sbt_"+strings.Repeat("A", 43)), file(adminToken)
	https, bare, run := "--addr https://"+s.address, "--addr http://"+s.address, "run db --wait 0 "
	for _, c := range []struct {
		arguments string // "run db" ends with "-- true"
		variables []string
		status    int
		words     []string
	}{
		{run + https + ca + use, nil, 0, nil},
		{run + https, []string{"SIGNALBOX_CA", s.ca, "SIGNALBOX_API_TOKEN", useToken, "SIGNALBOX_TOKEN", "17"}, 0, nil},
		{run + https + ca, []string{"SIGNALBOX_TOKEN", useToken}, 0, nil}, // the variable's earlier name
		{run + https + ca, []string{"SIGNALBOX_TOKEN", "17", "SIGNALBOX_TOKEN_FILE", fileOf(t, useToken)}, 0, nil},
		{run + https + use, nil, cli.StatusUnreachable, []string{"unknown authority", "--ca"}},
		{run + https + stranger + use, nil, cli.StatusUnreachable, []string{"certificate signed by unknown authority"}},
		{run + https + ca, nil, cli.StatusRefused, []string{"401 unauthenticated", "no token", "--token-file", "SIGNALBOX_API_TOKEN"}},
		{run + https + ca, []string{"SIGNALBOX_TOKEN", "17"}, cli.StatusRefused,
			[]string{"401 unauthenticated", "no token", "SIGNALBOX_TOKEN is a fencing token"}}, // of an outer run
		{run + https + ca, []string{"SIGNALBOX_TOKEN", "tok-wrong"}, cli.StatusRefused, []string{"401 unauthenticated", "--token-file"}},
		{run + https + ca + wrong, nil, cli.StatusRefused, []string{"401 unauthenticated"}},
		{run + https + ca, []string{"SIGNALBOX_TOKEN", readToken}, cli.StatusRefused, []string{"403 forbidden", "scope", "ask an operator"}},
		{run + "--addr n1:8701", []string{"SIGNALBOX_TOKEN", useToken}, cli.StatusUsage, []string{"--send-token-over-http", "n1:8701"}},
		{run + bare + use, nil, cli.StatusRefused, []string{"takes HTTPS alone"}},
		{"run db --wait 5s --addr " + s.address, nil, cli.StatusRefused, []string{"takes HTTPS alone"}},
		{"ls -o name " + https + ca + use, nil, 0, []string{"db\n"}},
		{"ls " + https + ca, nil, cli.StatusRefused, []string{"401 unauthenticated"}},
		{"ls " + https + stranger + use, nil, cli.StatusUnreachable, []string{"Give the file with the cluster's authority by --ca."}},
		{"ls " + bare + use, nil, cli.StatusRefused, []string{"takes HTTPS alone"}},
		{"resize db 9 " + https + ca, nil, cli.StatusRefused, []string{"401 unauthenticated"}},
		{"backup " + backup + " " + https + ca + use, nil, cli.StatusRefused, []string{"403 forbidden"}},
		{"backup " + backup + " " + https + ca, nil, cli.StatusRefused, []string{"401 unauthenticated"}},
		{"backup " + backup + " " + https + ca + wrong, nil, cli.StatusRefused, []string{"401 unauthenticated"}},
		{"backup " + backup + " " + https + stranger + admin, nil, cli.StatusUnreachable, []string{"certificate signed by unknown authority"}},
		{"backup " + backup + " " + bare + admin, nil, cli.StatusRefused, []string{"takes HTTPS alone"}},
		{"backup " + backup + " " + https + ca + admin, nil, 0, nil},
		{"restore " + backup + " --yes " + https + ca + use, nil, cli.StatusRefused, []string{"403 forbidden"}},
		{"restore " + backup + " --yes " + https + ca + wrong, nil, cli.StatusRefused, []string{"401 unauthenticated"}},
		{"restore " + backup + " --yes " + https + stranger + admin, nil, cli.StatusUnreachable, []string{"certificate signed by unknown authority"}},
		{"restore " + backup + " --yes " + https + ca + admin, nil, 0, []string{"restored, at index"}},
	} {
		arguments := strings.Fields(c.arguments)
		if arguments[0] == "run" {
			arguments = append(arguments, "--", "true")
		}
		o := command(t, arguments, c.variables...)
		output := o.stdout + o.stderr
		if o.status != c.status || strings.Contains(output, "tok-") || strings.Contains(output, "sbt_") {
			t.Errorf("%v, %v: status %d, not %d, or it shows a token: %q", arguments, c.variables, o.status, c.status, output)
		}
		for _, words := range c.words {
			if !strings.Contains(output, words) {
				t.Errorf("%v, %v doesn't say %q: %q", arguments, c.variables, words, output)
			}
		}
		if c.status != 0 {
			o.refused(t)
		}
		if _, err := os.Stat(backup); arguments[0] == "backup" && (err == nil) != (c.status == 0) {
			t.Errorf("backup with status %d: %v", c.status, err)
		}
		if after := s.must(t, 0, http.MethodGet, "/v1/semaphores/db", "", http.StatusOK); after.Permits != 3 || after.Available != 3 {
			t.Errorf("%v changed the semaphore: %+v", arguments, after)
		}
	}
}

// A node's own probe over HTTPS needs no token, and trusts the node's certificate without the authority. A probe of
// another node needs the authority.
func TestHealthcheckOverHTTPS(t *testing.T) {
	s, other := newSecured(t), makeCerts(t, "ca", "node n1")
	_, port, err := net.SplitHostPort(s.address)
	must(t, err)
	for _, variables := range [][]string{
		{"SIGNALBOX_HTTP", "0.0.0.0:" + port, "SIGNALBOX_TLS_CERT", s.cert},
		{"SIGNALBOX_HTTP", "127.0.0.1:" + port, "SIGNALBOX_TLS_CERT", s.cert, "SIGNALBOX_CA", s.ca},
	} {
		if o := command(t, []string{"healthcheck"}, variables...); o.status != 0 || o.stdout != "Ok\n" {
			t.Errorf("%v: %+v", variables, o)
		}
	}
	probe := []string{"healthcheck", "--url", "https://" + s.address + "/readyz"}
	if o := command(t, append(probe, "--ca", s.ca)); o.status != 0 || o.stdout != "Ok\n" {
		t.Errorf("%+v", o)
	}
	command(t, probe).refused(t, "unknown authority", "--ca")
	command(t, append(probe, "--ca", filepath.Join(other, "ca.pem"))).refused(t, "unknown authority")
	command(t, append(probe, "--ca", "no/such.pem")).refused(t, "--ca", "no/such.pem")
	for cert, words := range map[string]string{filepath.Join(other, "node-n1.pem"): "unknown authority", "no/such.pem": "no/such.pem"} {
		command(t, []string{"healthcheck"}, "SIGNALBOX_HTTP", "127.0.0.1:"+port, "SIGNALBOX_TLS_CERT", cert).refused(t, words)
	}
}

// TestTokenFileOfClients: the variable with the file of the clients' token does not name the file to which "token new"
// writes.
func TestTokenFileOfClients(t *testing.T) {
	o := command(t, []string{"token", "new", "ci", "--keep"}, "SIGNALBOX_TOKEN_FILE", fileOf(t, "sent"))
	if o.status != 0 || !strings.Contains(o.stdout, "[[token]]") {
		t.Errorf("%+v", o)
	}
}
