//go:build processes && linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// peerCertificates is the certificates of three nodes, in separate files, so that an authority can be replaced.
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

// trust writes a bundle of these authorities.
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
