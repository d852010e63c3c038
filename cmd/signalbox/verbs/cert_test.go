package verbs

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
		out, err := executed(newCert(), append(strings.Fields(c.arguments), "--dir", dir)...)
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
	if _, err := executed(newCert(), "ca", "--dir", dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		arguments, want string
	}{
		{"", "cert needs one of: cluster, ca, node, client"},
		{"cluster", "cert cluster needs an ID"},
		{"cluster n1 a/b", `"a/b" can't be the name`},
		{"cluster n1=http://x", `"http://x" is neither a host name`},
		{"ca", "ca.pem is there already: file already exists; with --overwrite all"},
		{"ca more", `takes no arguments but flags: "more"`},
		{"node", "needs an ID"},
		{"node a b", `takes an ID, and not "b" too`},
		{"node ../n1", `"../n1" can't be the name in a certificate`},
		{"node n1 --host http://x", `"http://x" is neither a host name nor an IP address`},
		{"client", "needs a NAME"},
		{"node n1 --dir " + t.TempDir(), "there is no certificate authority in"},
	} {
		out, err := executed(newCert(), append([]string{"--dir", dir}, strings.Fields(c.arguments)...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" && !strings.HasPrefix(c.arguments, "cluster") {
			t.Errorf("cert %s: %q, %v; wanted %q", c.arguments, out, err, c.want)
		}
	}
}

// namesIn returns the names of the files in a folder.
func namesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestCertCluster: the first call makes all certificates. A later call makes only certificates that are missing, are
// damaged or lack a host. The folder of --to has no key of the authority.
func TestCertCluster(t *testing.T) {
	dir, to := filepath.Join(t.TempDir(), "authority"), filepath.Join(t.TempDir(), "secrets")
	for _, c := range []struct {
		before    func() error
		arguments string
		want      string // the names of the files written
	}{
		{nil, "n1=a.example,10.0.0.1 n2", "ca.pem ca-key.pem node-n1.pem node-n1-key.pem node-n2.pem node-n2-key.pem"},
		{nil, "n1=a.example,10.0.0.1 n2", ""},
		{nil, "n1=a.example n2=b.example", "node-n2.pem node-n2-key.pem"},
		{func() error { return os.WriteFile(filepath.Join(dir, "node-n1.pem"), nil, 0o600) }, "n1 n2", "node-n1.pem node-n1-key.pem"},
		{func() error { return os.Remove(filepath.Join(dir, "node-n2-key.pem")) }, "n1 n2", "node-n2.pem node-n2-key.pem"},
		{nil, "n1 n2 n3", "node-n3.pem node-n3-key.pem"},
	} {
		if c.before != nil {
			must(t, c.before())
		}
		out, err := executed(newCert(), append(strings.Fields("cluster --dir "+dir+" --to "+to), strings.Fields(c.arguments)...)...)
		if err != nil {
			t.Fatalf("%s: %v", c.arguments, err)
		}
		var names []string
		for line := range strings.Lines(out) {
			names = append(names, filepath.Base(strings.TrimSpace(line)))
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: wrote %q, not %q", c.arguments, got, c.want)
		}
	}
	if got, want := namesIn(t, to), "ca.pem node-n1-key.pem node-n1.pem node-n2-key.pem node-n2.pem node-n3-key.pem node-n3.pem"; got != want {
		t.Errorf("copied %q, not %q", got, want)
	}
	same := func(name, copied string) {
		from, err := os.ReadFile(filepath.Join(dir, name))
		to, copyErr := os.ReadFile(copied)
		if err != nil || copyErr != nil || !bytes.Equal(from, to) {
			t.Errorf("%s is not the same as %s: %v, %v", copied, name, err, copyErr)
		}
	}
	for _, name := range strings.Fields(namesIn(t, to)) {
		same(name, filepath.Join(to, name))
	}
	// The folder for a machine has files with the names that the unit of systemd loads.
	unit, err := os.ReadFile("../../../packaging/systemd/signalbox.service")
	loads := regexp.MustCompile(`LoadCredential=\S+:/etc/signalbox/(\S+)`).FindAllSubmatch(unit, -1)
	if err != nil || len(loads) != 3 || namesIn(t, filepath.Join(dir, "n1")) != "ca.pem node-key.pem node.pem" {
		t.Errorf("%v: %s for %q", err, namesIn(t, filepath.Join(dir, "n1")), loads)
	}
	for _, file := range loads {
		same(strings.Replace(string(file[1]), "node", "node-n1", 1), filepath.Join(dir, "n1", string(file[1])))
	}
}
