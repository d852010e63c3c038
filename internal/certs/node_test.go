package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// authority makes an authority in a new folder.
func authority(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	_, err := MakeAuthority(dir, false)
	must(t, err)
	return dir
}

// node issues a node's certificate and opens it, with the bundle of its authority.
func node(t *testing.T, dir, id string) *Source {
	t.Helper()
	files, err := MakeNode(dir, id, nil, true)
	must(t, err)
	return open(t, Config{Pair: files, CA: filepath.Join(dir, "ca.pem")})
}

func open(t *testing.T, config Config) *Source {
	t.Helper()
	s, err := Open(config)
	must(t, err)
	return s
}

// shake shakes hands and returns the name that each side has seen. Both sides may
// write at the end of a handshake that failed, and a pipe holds no bytes: the deadline,
// in virtual time, ends that.
func shake(dialler, acceptor *tls.Config) (names [2]string, err error) {
	a, b := net.Pipe()
	for _, end := range []net.Conn{a, b} {
		defer end.Close()
		_ = end.SetDeadline(time.Now().Add(time.Second))
	}
	client, server := tls.Client(a, dialler), tls.Server(b, acceptor)
	failed := make(chan error, 1)
	go func() { failed <- server.Handshake() }()
	err = errors.Join(client.Handshake(), <-failed)
	for i, state := range []tls.ConnectionState{client.ConnectionState(), server.ConnectionState()} {
		if len(state.PeerCertificates) > 0 {
			names[i] = state.PeerCertificates[0].Subject.CommonName
		}
	}
	return names, err
}

// TestOnlyTheNodesOwnCertificate: a source of a node refuses every other certificate,
// at the start and when the files change, and goes on with the certificate that it has.
func TestOnlyTheNodesOwnCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, other := authority(t), authority(t)
		ended := node(t, dir, "n3").config
		time.Sleep(issuedLifetime + time.Minute) // virtual
		issue := func(pair Pair, err error) Config {
			t.Helper()
			must(t, err)
			return Config{Pair: pair, CA: filepath.Join(dir, "ca.pem")}
		}
		config := issue(MakeNode(dir, "n1", nil, false))
		config.Node = "n1"
		running := open(t, config)
		first := running.Certificate()
		for want, files := range map[string]Config{
			`of "n3", and this is node "n1"`: ended,
			"unknown authority":              issue(MakeNode(other, "n1", nil, false)),
			"not a node's":                   issue(MakeClient(dir, "n1", false)),
			`of "n2", and this is node "n1"`: issue(MakeNode(dir, "n2", nil, false)),
		} {
			files.Node = "n1"
			if _, err := Open(files); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("opened with %v, wanted %q", err, want)
			}
			for from, to := range map[string]string{files.Cert: config.Cert, files.Key: config.Key} {
				content, err := os.ReadFile(from)
				must(t, err)
				must(t, os.WriteFile(to, content, 0o600))
			}
			if changed, err := running.Reload(); err == nil || changed || running.Certificate() != first {
				t.Errorf("%s: changed %v, %v", want, changed, err)
			}
		}
		ended.Node = "n3"
		if _, err := Open(ended); err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("opened an ended certificate: %v", err)
		}
	})
}

func TestNodesShakeHands(t *testing.T) {
	dir := authority(t)
	names, err := shake(node(t, dir, "n1").NodeTLS(), node(t, dir, "n2").NodeTLS())
	must(t, err)
	if names != [2]string{"n2", "n1"} {
		t.Errorf("names %q", names)
	}
}

// selfSigned is a node's certificate of no authority.
func selfSigned(t *testing.T, id string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	number, err := drawSerial()
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: id}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	setValidity(template, issuedLifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestStrangersAreRefused runs each stranger at both ends of a connection.
func TestStrangersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, other := authority(t), authority(t)
		ended := node(t, dir, "n3").NodeTLS()
		time.Sleep(issuedLifetime + time.Minute) // virtual
		files, err := MakeClient(dir, "ci", false)
		must(t, err)
		home := node(t, dir, "n1")
		with := func(change func(*tls.Config)) *tls.Config {
			config := node(t, dir, "n2").NodeTLS()
			change(config)
			return config
		}
		for name, stranger := range map[string]*tls.Config{
			"another authority":      node(t, other, "n2").NodeTLS(),
			"an ended certificate":   ended,
			"a client's certificate": open(t, Config{Pair: files, CA: filepath.Join(dir, "ca.pem")}).NodeTLS(),
			"TLS 1.2":                with(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }),
			"no authority": with(func(c *tls.Config) {
				pair := selfSigned(t, "n2")
				c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
				c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
			}),
		} {
			stranger.VerifyConnection = nil // it trusts anyone
			if _, err := shake(stranger, home.NodeTLS()); err == nil {
				t.Errorf("%s: accepted", name)
			}
			if _, err := shake(home.NodeTLS(), stranger); err == nil {
				t.Errorf("%s: dialled", name)
			}
		}
		bare := with(func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
			c.VerifyConnection = nil
		})
		if _, err := shake(bare, home.NodeTLS()); err == nil {
			t.Error("accepted without a certificate")
		}
	})
}

// TestNotYetValid: a certificate is refused before its time, but for the hour by which
// a clock may be behind.
func TestNotYetValid(t *testing.T) {
	dir := authority(t) // in real time, long after the virtual one begins
	n1, n2 := node(t, dir, "n1"), node(t, dir, "n2")
	synctest.Test(t, func(t *testing.T) {
		if _, err := shake(n1.NodeTLS(), n2.NodeTLS()); err == nil {
			t.Error("accepted before its time")
		}
	})
}

// TestAuthorityIsReplaced walks two nodes through the rotation of their authority: the
// bundle of both, then new certificates, then the new authority alone. At no step are
// they unable to connect.
func TestAuthorityIsReplaced(t *testing.T) { synctest.Test(t, testAuthorityIsReplaced) }

func testAuthorityIsReplaced(t *testing.T) {
	before, after := authority(t), authority(t)
	dir := t.TempDir()
	bundle := filepath.Join(dir, "bundle.pem")
	read := func(path string) []byte {
		content, err := os.ReadFile(path)
		must(t, err)
		return content
	}
	put := func(path string, content []byte) { must(t, os.WriteFile(path, content, 0o600)) }
	first, second := read(filepath.Join(before, "ca.pem")), read(filepath.Join(after, "ca.pem"))
	put(bundle, first)
	var nodes []*Source
	for _, id := range []string{"n1", "n2"} {
		issued, err := MakeNode(before, id, nil, false)
		must(t, err)
		pair := pairOf(dir, id)
		put(pair.Cert, read(issued.Cert))
		put(pair.Key, read(issued.Key))
		nodes = append(nodes, open(t, Config{Pair: pair, CA: bundle}))
	}
	connected := func(step string) {
		t.Helper()
		for i := range nodes {
			if _, err := shake(nodes[i].NodeTLS(), nodes[1-i].NodeTLS()); err != nil {
				t.Errorf("%s: %v", step, err)
			}
		}
	}
	reload := func(i int, step string) {
		t.Helper()
		if changed, err := nodes[i].Reload(); err != nil || !changed {
			t.Errorf("%s: changed %v, %v", step, changed, err)
		}
		connected(step)
	}
	connected("at first")
	put(bundle, append(append([]byte{}, first...), second...))
	reload(0, "n1 trusts both")
	reload(1, "n2 trusts both")
	for i, id := range []string{"n1", "n2"} {
		issued, err := MakeNode(after, id, nil, false)
		must(t, err)
		put(nodes[i].config.Key, read(issued.Key))
		if changed, err := nodes[i].Reload(); err == nil || changed {
			t.Errorf("a key that doesn't match: changed %v, %v", changed, err)
		}
		connected(id + " has half a pair")
		put(nodes[i].config.Cert, read(issued.Cert))
		reload(i, id+" has a new certificate")
	}
	put(bundle, second)
	reload(0, "n1 trusts the new one")
	reload(1, "n2 trusts the new one")
	if _, err := shake(node(t, before, "n1").NodeTLS(), nodes[1].NodeTLS()); err == nil {
		t.Error("a certificate of the authority before is still accepted")
	}
}
