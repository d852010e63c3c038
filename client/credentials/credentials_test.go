package credentials

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const secret = "kG7-the-secret-token"

// node is a server that accepts one token, and records the requests.
type node struct {
	*httptest.Server
	takes atomic.Pointer[string]
	asked []string // method, Authorization and body
}

func newNode(t *testing.T) *node {
	n := &node{}
	n.take(secret)
	n.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n.asked = append(n.asked, fmt.Sprintf("%s %s %s", r.Method, r.Header.Get("Authorization"), body))
		if r.Header.Get("Authorization") != "Bearer "+*n.takes.Load() {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(n.Close)
	return n
}

func (n *node) take(token string) { n.takes.Store(&token) }

func write(t *testing.T, path, text string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func parse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	return u
}

// client makes an HTTP client with credentials for one address.
func client(t *testing.T, cfg Config, address string) *http.Client {
	t.Helper()
	transport, err := New(cfg, []*url.URL{parse(t, address)}, http.DefaultTransport.(*http.Transport).Clone())
	must(t, err)
	h := &http.Client{Transport: transport}
	t.Cleanup(h.CloseIdleConnections)
	return h
}

// status sends a request with a body, and returns the status of the reply.
func status(t *testing.T, h *http.Client, address string) int {
	t.Helper()
	r, err := h.Post(address, "text/plain", strings.NewReader("body"))
	must(t, err)
	r.Body.Close()
	return r.StatusCode
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	empty := write(t, filepath.Join(dir, "empty"), " \n")
	two := write(t, filepath.Join(dir, "two"), secret+"\n"+secret)
	good := write(t, filepath.Join(dir, "good"), secret)
	none := filepath.Join(dir, "none")
	for _, c := range []struct {
		name    string
		cfg     Config
		address string
		field   string
		words   string
	}{
		{"two tokens", Config{Token: secret, TokenFile: good}, "https://n1", "TokenFile", "one of them"},
		{"spaces", Config{Token: secret + " x"}, "https://n1", "Token", "spaces"},
		{"a line end", Config{Token: secret + "\r\nHost: x"}, "https://n1", "Token", "spaces"},
		{"no ASCII", Config{Token: secret + "ä"}, "https://n1", "Token", "ASCII"},
		{"no file", Config{TokenFile: none}, "https://n1", "TokenFile", none},
		{"empty file", Config{TokenFile: empty}, "https://n1", "TokenFile", empty},
		{"two lines", Config{TokenFile: two}, "https://n1", "TokenFile", two},
		{"plain HTTP", Config{Token: secret}, "http://n1:8701", "Plain", "n1:8701"},
		{"plain HTTP, a file", Config{TokenFile: good}, "http://10.0.0.1", "Plain", "https://"},
		{"plain HTTP, a user", Config{}, "http://" + secret + "@n1:8701", "Plain", "http://n1:8701"},
		{"plain HTTP, a password", Config{}, "http://me:" + secret + "@10.0.0.1", "Plain", "http://10.0.0.1"},
		{"no authorities", Config{CA: none}, "https://n1", "CA", none},
		{"no PEM", Config{CA: good}, "https://n1", "CA", good},
		{"no key", Config{Cert: good}, "https://n1", "Cert", "key"},
		{"no certificate", Config{Key: good}, "https://n1", "Cert", "key"},
		{"no certificate in the file", Config{Cert: good, Key: good}, "https://n1", "Cert", "PEM"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.cfg, []*url.URL{parse(t, "https://n0"), parse(t, c.address)}, &http.Transport{})
			var wrong *FieldError
			if !errors.As(err, &wrong) || wrong.Field != c.field || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v", err)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("it has the token: %v", err)
			}
		})
	}
	for _, address := range []string{"https://n1", "http://127.0.0.1:8701", "http://[::1]:8701", "http://localhost:8701"} {
		if _, err := New(Config{Token: secret}, []*url.URL{parse(t, address)}, &http.Transport{}); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"https://me:" + secret + "@n1", "http://" + secret + "@127.0.0.1:8701"} {
		base := &http.Transport{}
		if got, err := New(Config{}, []*url.URL{parse(t, address)}, base); err != nil || got != base {
			t.Errorf("a user at https or loopback: %v, %v", got, err)
		}
	}
	if _, err := New(Config{Plain: true}, []*url.URL{parse(t, "http://"+secret+"@n1")}, &http.Transport{}); err != nil {
		t.Errorf("a user where plain HTTP is allowed: %v", err)
	}
	if _, err := New(Config{Token: secret, Plain: true}, []*url.URL{parse(t, "http://n1")}, &http.Transport{}); err != nil {
		t.Errorf("allowed plain HTTP: %v", err)
	}
	if _, err := New(Config{CA: good}, nil, http.NewFileTransport(nil)); err == nil {
		t.Error("certificates are added to a transport that can't have any")
	}
	base := &http.Transport{}
	if got, err := New(Config{}, nil, base); err != nil || got != base {
		t.Errorf("without credentials: %v, %v", got, err)
	}
}

type seen func(*http.Request)

func (s seen) RoundTrip(r *http.Request) (*http.Response, error) {
	s(r)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// While nodes move to HTTPS, an address is listed with both schemes. The token is sent only to the https:// address.
func TestTokenWaitsForHTTPS(t *testing.T) {
	both := []*url.URL{parse(t, "http://n1:8701"), parse(t, "https://n1:8701")}
	for _, plain := range []bool{false, true} {
		got := map[string]string{}
		sent, err := New(Config{Token: secret, Plain: plain}, both, seen(func(r *http.Request) { got[r.URL.Scheme] = r.Header.Get("Authorization") }))
		must(t, err)
		for _, address := range both {
			response, err := sent.RoundTrip(&http.Request{URL: address, Header: http.Header{}})
			must(t, err)
			response.Body.Close()
		}
		if got["https"] != "Bearer "+secret || (got["http"] != "") != plain {
			t.Errorf("plain HTTP allowed: %t: %q", plain, got)
		}
	}
}

// The token is sent only to the given addresses. The caller's request is not changed.
func TestTokenStaysAtItsAddresses(t *testing.T) {
	elsewhere, at := newNode(t), newNode(t)
	elsewhere.Start()
	at.Config.Handler = http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect)
	at.Start()
	h := client(t, Config{Token: secret}, at.URL)
	r, err := http.NewRequest(http.MethodPost, at.URL, strings.NewReader("body"))
	must(t, err)
	response, err := h.Do(r)
	must(t, err)
	response.Body.Close()
	if len(elsewhere.asked) != 1 || elsewhere.asked[0] != "POST  body" || r.Header.Get("Authorization") != "" {
		t.Errorf("the other server got %q; the request has %v", elsewhere.asked, r.Header)
	}
}

// A changed token file is read before the next request. If its time and size stay the same, the file is read again after
// the node's 401.
func TestTokenFileIsFollowed(t *testing.T) {
	n := newNode(t)
	n.Start()
	var warnings []string
	path := write(t, filepath.Join(t.TempDir(), "token"), secret+"\n")
	h := client(t, Config{TokenFile: path, Warn: func(err error) { warnings = append(warnings, err.Error()) }}, n.URL)
	asks := func(name string, want ...string) {
		t.Helper()
		n.asked = nil
		got := status(t, h, n.URL)
		if fmt.Sprint(n.asked) != fmt.Sprint(want) || (got == http.StatusOK) != strings.Contains(want[len(want)-1], *n.takes.Load()+" ") {
			t.Errorf("%s: status %d, the node was asked %q, not %q", name, got, n.asked, want)
		}
	}
	sent := func(token string) string { return "POST Bearer " + token + " body" }
	asks("at first", sent(secret))

	write(t, path, "longer-"+secret)
	n.take("longer-" + secret)
	asks("another token", sent("longer-"+secret))

	before, err := os.Stat(path)
	must(t, err)
	write(t, path, "LONGER-"+secret)
	must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	asks("another token, unseen and not needed", sent("longer-"+secret))
	n.take("LONGER-" + secret)
	asks("another token, unseen", sent("longer-"+secret), sent("LONGER-"+secret))

	n.take("no other")
	asks("a wrong token", sent("LONGER-"+secret))
	n.take("LONGER-" + secret)
	must(t, os.Remove(path))
	asks("no file", sent("LONGER-"+secret))
	asks("still no file", sent("LONGER-"+secret))
	if len(warnings) != 1 || !strings.Contains(warnings[0], path) || strings.Contains(warnings[0], secret) {
		t.Errorf("warnings %q", warnings)
	}
	write(t, path, secret)
	n.take(secret)
	asks("a file again", sent(secret))
}

// A body that can't be read again is sent once.
func TestSpentBodyIsNotRepeated(t *testing.T) {
	n := newNode(t)
	n.Start()
	path := write(t, filepath.Join(t.TempDir(), "token"), "wrong")
	h := client(t, Config{TokenFile: path}, n.URL)
	r, err := http.NewRequest(http.MethodPut, n.URL, io.MultiReader(strings.NewReader("body")))
	must(t, err)
	before, err := os.Stat(path)
	must(t, err)
	write(t, path, "RIGHT") // seen only when the node refuses the token
	n.take("RIGHT")
	must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	response, err := h.Do(r)
	must(t, err)
	response.Body.Close()
	if len(n.asked) != 1 || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d, asked %q", response.StatusCode, n.asked)
	}
}

// authority makes an authority, a certificate for a node on this machine and a certificate for a client. It returns
// their folder.
func authority(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var root *x509.Certificate
	var rootKey *ecdsa.PrivateKey
	issue := func(file string, template x509.Certificate) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
		if root == nil { // it signs itself
			root, rootKey = &template, key
		}
		certificate, err := x509.CreateCertificate(rand.Reader, &template, root, &key.PublicKey, rootKey)
		must(t, err)
		if &template == root {
			root, err = x509.ParseCertificate(certificate)
			must(t, err)
		}
		encoded, err := x509.MarshalPKCS8PrivateKey(key)
		must(t, err)
		write(t, filepath.Join(dir, file+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
		write(t, filepath.Join(dir, file+"-key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})))
	}
	issue("ca", x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	issue("node-n1", x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	issue("client-ci", x509.Certificate{Subject: pkix.Name{CommonName: "ci"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return dir
}

// serve starts HTTPS with the node's certificate in a folder. It requires that clients have a certificate of the same
// authority.
func (n *node) serve(t *testing.T, dir string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "node-n1.pem"), filepath.Join(dir, "node-n1-key.pem"))
	must(t, err)
	bundle, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	n.Server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven}
	n.EnableHTTP2 = true
	n.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	n.StartTLS()
}

// Client and node verify each other's certificate, over HTTP/2. They read their files again when these change. To
// replace an authority, a file with both authorities is used for a while.
func TestCertificatesAreFollowed(t *testing.T) {
	old, new := authority(t), authority(t)
	first, second := newNode(t), newNode(t)
	name := ""
	for _, n := range []*node{first, second} {
		n.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			name = r.Proto
			if len(r.TLS.PeerCertificates) > 0 {
				name += " " + r.TLS.PeerCertificates[0].Subject.CommonName
			}
		})
	}
	first.serve(t, old)
	second.serve(t, new)
	dir := t.TempDir()
	copied := func(from, to string) string {
		t.Helper()
		text, err := os.ReadFile(from)
		must(t, err)
		return write(t, filepath.Join(dir, to), string(text))
	}
	cfg := Config{CA: copied(filepath.Join(old, "ca.pem"), "ca"), Cert: copied(filepath.Join(old, "client-ci.pem"), "cert"), Key: copied(filepath.Join(old, "client-ci-key.pem"), "key")}
	h := client(t, cfg, first.URL)
	trusted := func(n *node) bool {
		t.Helper()
		r, err := h.Get(n.URL)
		if err != nil {
			var unknown x509.UnknownAuthorityError
			if !errors.As(err, &unknown) {
				t.Errorf("refused for another reason: %v", err)
			}
			return false
		}
		r.Body.Close()
		return true
	}
	if !trusted(first) || name != "HTTP/2.0 ci" || trusted(second) {
		t.Errorf("with the old authority; the client is %q", name)
	}
	bundle := [][]byte{}
	for _, folder := range []string{old, new} {
		text, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
		must(t, err)
		bundle = append(bundle, text)
	}
	write(t, cfg.CA, string(bytes.Join(bundle, nil)))
	copied(filepath.Join(new, "client-ci.pem"), "cert")
	copied(filepath.Join(new, "client-ci-key.pem"), "key")
	if !trusted(second) || name != "HTTP/2.0 ci" {
		t.Errorf("with both authorities, the client is %q", name)
	}
	write(t, cfg.CA, string(bundle[1]))
	if trusted(first) || !trusted(second) {
		t.Error("the old authority is trusted still, or the new one is not")
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
