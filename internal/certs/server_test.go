package certs

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/test/memnet"
)

// server opens a node's certificate for HTTPS. It takes the certificates of clients of
// the same authority.
func server(t *testing.T, dir string) *Source {
	t.Helper()
	files, err := MakeNode(dir, "n1", []string{"signalbox.example"}, true)
	must(t, err)
	return open(t, Config{Pair: files, CA: filepath.Join(dir, "ca.pem"), Server: true})
}

// pairIn reads a certificate that was just issued.
func pairIn(t *testing.T) func(files Pair, err error) tls.Certificate {
	return func(files Pair, err error) tls.Certificate {
		t.Helper()
		must(t, err)
		pair, err := readPair(files)
		must(t, err)
		return pair
	}
}

// client returns the settings of a client that trusts an authority, with a certificate.
func client(t *testing.T, dir string, shows ...tls.Certificate) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(leafOf(t, pairOf(dir, "ca")))
	return &tls.Config{RootCAs: roots, ServerName: "signalbox.example", Certificates: shows}
}

// line is a connection with room for bytes on their way, as a session that is resumed
// needs.
func line(t *testing.T) (a, b net.Conn) {
	t.Helper()
	host := memnet.New().Host("n1")
	listener, err := host.Listen("n1:8701")
	must(t, err)
	defer listener.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := listener.Accept()
		accepted <- conn
	}()
	a, err = host.Dial(t.Context(), "n1:8701")
	must(t, err)
	return a, <-accepted
}

// call connects to a server and reads one byte from it: only that shows a client of TLS
// 1.3 that the server has accepted its certificate. It returns the server's view.
func call(t *testing.T, caller, called *tls.Config) (tls.ConnectionState, error) {
	a, b := line(t)
	for _, end := range []net.Conn{a, b} {
		defer end.Close()
		_ = end.SetDeadline(time.Now().Add(time.Second))
	}
	inside, outside := tls.Server(b, called), tls.Client(a, caller)
	failed := make(chan error, 1)
	go func() {
		_, err := inside.Write([]byte{1})
		failed <- err
	}()
	_, err := io.ReadFull(outside, make([]byte, 1))
	err = errors.Join(err, <-failed)
	return inside.ConnectionState(), err
}

// issued makes a certificate of a folder's authority for these usages.
func issued(t *testing.T, dir string, usages ...x509.ExtKeyUsage) tls.Certificate {
	return pairIn(t)(issue(dir, "made", &x509.Certificate{Subject: pkix.Name{CommonName: "made"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usages}, true))
}

// TestClientsOfHTTPS: a client needs no certificate, and one that it shows must be a
// client's, of the authority, and good now.
func TestClientsOfHTTPS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, other := authority(t), authority(t)
		ended := pairIn(t)(MakeClient(dir, "old", false))
		time.Sleep(issuedLifetime + time.Minute) // virtual
		home := server(t, dir)
		for name, c := range map[string]struct {
			caller *tls.Config
			want   string // in the error
		}{
			"no certificate":              {client(t, dir), ""},
			"a client's":                  {client(t, dir, pairIn(t)(MakeClient(dir, "ci", false))), ""},
			"a node's":                    {client(t, dir, pairIn(t)(MakeNode(dir, "n2", nil, false))), "not a client's"},
			"of no usage":                 {client(t, dir, issued(t, dir)), "not a client's"},
			"of any usage":                {client(t, dir, issued(t, dir, x509.ExtKeyUsageAny)), "not a client's"},
			"of another authority":        {client(t, dir, pairIn(t)(MakeClient(other, "ci", false))), "unknown authority"},
			"of no authority":             {client(t, dir, selfSigned(t, "ci")), "not a client's"},
			"ended":                       {client(t, dir, ended), "expired"},
			"a caller who trusts another": {client(t, other), "unknown authority"},
		} {
			state, err := call(t, c.caller, home.ServerTLS())
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s: %v", name, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: %v, wanted %q", name, err, c.want)
			case name == "a client's" && (len(state.PeerCertificates) == 0 || state.PeerCertificates[0].Subject.CommonName != "ci"):
				t.Errorf("%s is not shown: %v", name, state.PeerCertificates)
			}
		}
		unasked := open(t, Config{Pair: home.config.Pair, Server: true})
		state, err := call(t, client(t, dir, pairIn(t)(MakeClient(dir, "unasked", false))), unasked.ServerTLS())
		if must(t, err); len(state.PeerCertificates) > 0 {
			t.Error("a certificate was taken without an authority to verify it by")
		}
	})
}

// TestVersionsOfHTTPS: TLS 1.2 gets in, 1.1 does not.
func TestVersionsOfHTTPS(t *testing.T) {
	dir := authority(t)
	home := server(t, dir)
	for version, accepted := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		caller := client(t, dir)
		caller.MinVersion, caller.MaxVersion = version, version
		if _, err := call(t, caller, home.ServerTLS()); (err == nil) != accepted {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}

// TestPeersAndHTTPSAreApart: one certificate serves peers and clients, and still neither
// port takes the callers of the other.
func TestPeersAndHTTPSAreApart(t *testing.T) {
	dir := authority(t)
	home := server(t, dir)
	caller := client(t, dir, pairIn(t)(MakeClient(dir, "ci", false)))
	if _, err := call(t, caller, home.ServerTLS()); err != nil {
		t.Errorf("HTTPS with a node's certificate: %v", err)
	}
	if _, err := shake(node(t, dir, "n2").NodeTLS(), home.NodeTLS()); err != nil {
		t.Errorf("a peer with the same: %v", err)
	}
	if _, err := call(t, caller, home.NodeTLS()); err == nil {
		t.Error("a client got into the port for peers")
	}
	if _, err := call(t, node(t, dir, "n2").NodeTLS(), home.ServerTLS()); err == nil {
		t.Error("a peer got into HTTPS")
	}
}

// TestResumedClientIsVerified: a client that was let in resumes its session only while
// an authority vouches for its certificate.
func TestResumedClientIsVerified(t *testing.T) {
	dir, other := authority(t), authority(t)
	home := server(t, dir)
	served := home.ServerTLS() // with the key of its tickets
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		caller := client(t, dir, pairIn(t)(MakeClient(dir, "ci", true)))
		caller.MinVersion, caller.MaxVersion = version, version
		caller.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for _, resumed := range []bool{false, true} {
			state, err := call(t, caller, served)
			if err != nil {
				t.Fatalf("%x %v: %v", version, resumed, err)
			}
			if must(t, err); state.DidResume != resumed || len(state.PeerCertificates) == 0 {
				t.Errorf("%s: resumed %v, not %v", tls.VersionName(version), state.DidResume, resumed)
			}
		}
		homeCA, err := os.ReadFile(home.config.CA)
		must(t, err)
		foreign, err := os.ReadFile(filepath.Join(other, "ca.pem"))
		must(t, err)
		must(t, os.WriteFile(home.config.CA, foreign, 0o600))
		_, err = home.Reload()
		must(t, err)
		if _, err := call(t, caller, served); err == nil {
			t.Errorf("%s: resumed after its authority was taken away", tls.VersionName(version))
		}
		must(t, os.WriteFile(home.config.CA, homeCA, 0o600))
		_, err = home.Reload()
		must(t, err)
	}
}

// TestServerCertificateIsChecked: a client's certificate is no server's; one without
// usages is; and one that has ended still opens, for a node must not stay down for it.
func TestServerCertificateIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := authority(t)
		files, err := MakeClient(dir, "ci", false)
		must(t, err)
		if _, err := Open(Config{Pair: files, Server: true}); err == nil || !strings.Contains(err.Error(), "not a server's") {
			t.Errorf("opened a client's certificate: %v", err)
		}
		issued(t, dir)
		if _, err := Open(Config{Pair: pairOf(dir, "made"), Server: true}); err != nil {
			t.Errorf("without usages: %v", err)
		}
		home := server(t, dir)
		time.Sleep(issuedLifetime + time.Minute) // virtual
		again := open(t, home.config)
		if _, err := call(t, client(t, dir), again.ServerTLS()); err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("a client accepts an ended certificate: %v", err)
		}
	})
}

// TestNewCertificateOfHTTPS: new connections get a new certificate, and open ones go on.
func TestNewCertificateOfHTTPS(t *testing.T) {
	dir := authority(t)
	home := server(t, dir)
	served := home.ServerTLS()
	a, b := line(t)
	defer a.Close()
	defer b.Close()
	kept, far := tls.Client(a, client(t, dir)), tls.Server(b, served)
	shaken := make(chan error, 1)
	go func() { shaken <- far.Handshake() }()
	must(t, kept.Handshake())
	must(t, <-shaken)
	first := kept.ConnectionState().PeerCertificates[0]

	must(t, func() error { _, err := MakeNode(dir, "n1", []string{"signalbox.example"}, true); return err }())
	_, err := home.Reload()
	must(t, err)
	var second *x509.Certificate
	caller := client(t, dir)
	caller.VerifyConnection = func(state tls.ConnectionState) error {
		second = state.PeerCertificates[0]
		return nil
	}
	_, err = call(t, caller, served)
	if must(t, err); second.Equal(first) {
		t.Error("a new connection gets the certificate before")
	}
	text := make([]byte, 16)
	_, err = rand.Read(text)
	must(t, err)
	go func() { _, _ = far.Write(text) }()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(kept, got); err != nil || string(got) != string(text) {
		t.Errorf("the open connection: %x, %v", got, err)
	}
}
