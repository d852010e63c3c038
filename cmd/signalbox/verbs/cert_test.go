package verbs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cert runs the subcommand and returns what it printed.
func cert(arguments ...string) (string, error) {
	command := Cert()
	var out bytes.Buffer
	command.SetOut(&out)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(arguments)
	err := command.Execute()
	return out.String(), err
}

func TestCert(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	for _, c := range []struct {
		arguments, want string
	}{
		{"ca", "ca.pem ca-key.pem"},
		{"node n1 --host a.example,10.0.0.1 --host b.example", "node-n1.pem node-n1-key.pem"},
		{"client ci", "client-ci.pem client-ci-key.pem"},
		{"node n1 --overwrite", "node-n1.pem node-n1-key.pem"},
	} {
		out, err := cert(append(strings.Fields(c.arguments), "--dir", dir)...)
		if err != nil {
			t.Fatalf("cert %s: %v", c.arguments, err)
		}
		var names []string
		for line := range strings.Lines(out) {
			path := strings.TrimSpace(line)
			if _, err := os.Stat(path); err != nil {
				t.Errorf("cert %s printed %q: %v", c.arguments, path, err)
			}
			names = append(names, filepath.Base(path))
		}
		if strings.Join(names, " ") != c.want {
			t.Errorf("cert %s printed %q", c.arguments, out)
		}
	}
}

func TestCertRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := cert("ca", "--dir", dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arguments, want string
	}{
		{"", "cert takes ca, node or client"},
		{"ca", "ca.pem is there already: file already exists; with --overwrite all"},
		{"ca more", "unknown command"},
		{"node", "takes one argument, the id of a node, not 0"},
		{"node a b", "not 2"},
		{"node ../n1", `"../n1" can't be the name in a certificate`},
		{"node n1 --host http://x", `"http://x" is neither a host name nor an IP address`},
		{"client", "takes one argument, the name of a client, not 0"},
		{"node n1 --dir " + t.TempDir(), "there is no certificate authority in"},
	} {
		out, err := cert(append([]string{"--dir", dir}, strings.Fields(c.arguments)...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("cert %s: %q, %v; wanted %q", c.arguments, out, err, c.want)
		}
	}
}
