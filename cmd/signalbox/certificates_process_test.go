//go:build processes && linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// peerCertificates is the certificates of three nodes, in files of their own, so that an
// authority can be replaced.
type peerCertificates struct {
	t   *testing.T
	dir string
}

func (p peerCertificates) file(name string) string { return filepath.Join(p.dir, name) }

// authority makes an authority in a folder below.
func (p peerCertificates) authority(name string) {
	p.t.Helper()
	mustCommand(p.t, "cert", "ca", "--dir", p.file(name))
}

// mustCommand runs a command that ends with status 0.
func mustCommand(t *testing.T, arguments ...string) {
	t.Helper()
	command := exec.Command(testProgram, arguments...)
	command.Env = append(os.Environ(), asProgram+"=1")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", arguments, err, output)
	}
}

// trust makes the bundle of these authorities.
func (p peerCertificates) trust(authorities ...string) {
	p.t.Helper()
	var bundle []byte
	for _, name := range authorities {
		certificate, err := os.ReadFile(p.file(name + "/ca.pem"))
		must(p.t, err)
		bundle = append(bundle, certificate...)
	}
	must(p.t, os.WriteFile(p.file("bundle.pem"), bundle, 0o600))
}

// issue gives a node a certificate of an authority.
func (p peerCertificates) issue(authority, node string) {
	p.t.Helper()
	mustCommand(p.t, "cert", "node", node, "--dir", p.file(authority), "--overwrite")
	for _, kind := range []string{"-key.pem", ".pem"} {
		content, err := os.ReadFile(p.file(authority + "/node-" + node + kind))
		must(p.t, err)
		must(p.t, os.WriteFile(p.file(node+kind), content, 0o600))
	}
}

// flags returns the flags of a node.
func (p peerCertificates) flags(node string) []string {
	return []string{"--peer-cert", p.file(node + ".pem"), "--peer-key", p.file(node + "-key.pem"), "--peer-ca", p.file("bundle.pem")}
}

// counted returns a metric of a node.
func counted(t *testing.T, c *processes, node int, metric string) string {
	t.Helper()
	_, metrics := get(t, c.url(node)+"/metrics")
	for line := range strings.Lines(metrics) {
		if count, ok := strings.CutPrefix(line, metric+" "); ok {
			return strings.TrimSpace(count)
		}
	}
	return "no metric"
}

func plainStreams(t *testing.T, c *processes, node int) string {
	t.Helper()
	return counted(t, c, node, "signalbox_peer_plain_streams_total")
}

// TestStrangersOnThePeerPort: a node with another authority's certificate, or without a certificate,
// gets nowhere, and the node that it calls counts it.
func TestStrangersOnThePeerPort(t *testing.T) {
	t.Parallel()
	files := peerCertificates{t, t.TempDir()}
	files.authority("first")
	files.trust("first")
	for _, node := range []string{"n1", "n2", "n3"} {
		files.issue("first", node)
	}
	other := peerCertificates{t, t.TempDir()}
	other.authority("other")
	other.trust("other")
	other.issue("other", "n3")
	c := newProcesses(t, testProgram)
	c.own = [3][]string{files.flags("n1"), files.flags("n2")}
	c.start(0)
	c.start(1)
	refused := func() string { return counted(t, c, 0, `signalbox_peer_streams_refused_total{reason="tls"}`) }
	for _, stranger := range [][]string{other.flags("n3"), nil} {
		before := refused()
		c.own[2] = stranger
		c.start(2)
		eventually(t, 20*time.Second, func() error {
			if now := refused(); now == before {
				return fmt.Errorf("n1 counts %s refused streams, as before", now)
			}
			return nil
		})
		c.unready(2, "waits for its peers")
		c.running[2].terminate(t, stopWithin)
	}
	c.own[2] = files.flags("n3")
	c.start(2)
	for node := range c.running {
		c.waitReady(node)
	}
}
