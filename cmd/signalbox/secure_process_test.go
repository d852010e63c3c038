//go:build processes && linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client/credentials"
)

// moving sends requests as a client does that lists http:// and https:// for each node.
type moving struct {
	next  http.RoundTripper // with the credentials
	https atomic.Bool       // http:// was taken out of the list
}

func (m *moving) RoundTrip(r *http.Request) (*http.Response, error) {
	if !m.https.Load() {
		response, err := m.next.RoundTrip(r)
		if err != nil || response.StatusCode != http.StatusBadRequest {
			return response, err
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !bytes.HasPrefix(text, []byte("Client sent an HTTP request to an HTTPS server")) {
			response.Body = io.NopCloser(bytes.NewReader(text))
			return response, err
		}
	}
	secure := r.Clone(r.Context())
	secure.URL.Scheme = "https"
	var err error
	if secure.Body, err = r.GetBody(); err != nil {
		return nil, err
	}
	return m.next.RoundTrip(secure)
}

// securing is a cluster that is secured step by step, under a load that must not notice it.
type securing struct {
	*testing.T
	c     *processes
	files peerCertificates
	keys  credentials.Config
	load  []interface{ goOn(t *testing.T) }
}

// addresses returns both base URLs of each node.
func (s *securing) addresses() (list []string) {
	for node := range s.c.running {
		plain := s.c.url(node)
		list = append(list, plain, strings.Replace(plain, "http:", "https:", 1))
	}
	return list
}

// transport returns an HTTP transport with the credentials of the clients.
func (s *securing) transport(base *http.Transport) http.RoundTripper {
	s.Helper()
	var list []*url.URL
	for _, address := range s.addresses() {
		at, err := url.Parse(address)
		must(s.T, err)
		list = append(list, at)
	}
	next, err := credentials.New(s.keys, list, base)
	must(s.T, err)
	return next
}

// roll restarts one node after the other with other flags.
func (s *securing) roll(step string, flags func(node string) []string) {
	s.Helper()
	for node := range s.c.running {
		s.c.own[node] = flags(fmt.Sprintf("n%d", node+1))
		s.c.restart(node)
		s.goOn()
	}
	s.Log(step)
}

func (s *securing) goOn() {
	s.Helper()
	for _, l := range s.load {
		l.goOn(s.T)
	}
}

// reload waits until each node has read changed files this many times.
func (s *securing) reload(step string, times int, change func()) {
	s.Helper()
	count := func(node int) int { return strings.Count(tail(s.c.running[node].log, 5000), "was read again") }
	var before [3]int
	for node := range before {
		before[node] = count(node)
	}
	change()
	for node := range before {
		s.c.running[node].signal(syscall.SIGHUP)
		eventually(s.T, 20*time.Second, func() error {
			if read := count(node) - before[node]; read < times {
				return fmt.Errorf("n%d has read its files %d times", node+1, read)
			}
			return nil
		})
	}
	s.goOn()
	s.Log(step)
}

// replaceAuthority replaces the first authority of nodes and clients by a second authority. Meanwhile clients send
// requests, each on a new connection, and every request must succeed.
func (s *securing) replaceAuthority() {
	s.Helper()
	fresh := startFresh(s)
	s.load = append(s.load, fresh)
	s.files.authority("second")
	s.reload("all trust both", 1, func() { s.files.trust("first", "second") })
	s.reload("all have new certificates", 2, func() {
		for _, node := range []string{"n1", "n2", "n3"} {
			s.files.issue("second", node)
		}
	})
	s.reload("all trust the second alone", 1, func() { s.files.trust("second") })
	fresh.finish(s.T)
	s.load = s.load[:len(s.load)-1]
}

// fresh is a load of requests to each node over HTTPS, each on a new connection.
type fresh struct {
	stop  context.CancelFunc
	ended chan error // one for each node
	sent  [3]atomic.Int64
}

func startFresh(s *securing) *fresh {
	s.Helper()
	ctx, stop := context.WithTimeout(context.Background(), fleetPeriod)
	f := &fresh{stop: stop, ended: make(chan error, 3)}
	c := &client{bases: s.c.bases, http: &http.Client{Transport: &moving{next: s.transport(&http.Transport{DisableKeepAlives: true})}, Timeout: 10 * time.Second}}
	c.http.Transport.(*moving).https.Store(true)
	c.must(s.T, 0, http.MethodPut, semaphorePath("fresh"), `{"permits":0}`, http.StatusCreated)
	s.Cleanup(stop)
	for node := range f.sent {
		go func() { f.ended <- f.run(ctx, c, node) }()
	}
	return f
}

func (f *fresh) run(ctx context.Context, c *client, node int) error {
	for ctx.Err() == nil {
		for _, request := range [][2]string{{http.MethodPost, "/up"}, {http.MethodGet, ""}} {
			r, err := c.ask(context.Background(), node, request[0], semaphorePath("fresh")+request[1], "")
			if err != nil || r.status != http.StatusOK {
				return fmt.Errorf("n%d: %s: %d %s %w", node+1, request[0], r.status, r.Detail, err)
			}
			f.sent[node].Add(1)
		}
	}
	return nil
}

func (f *fresh) goOn(t *testing.T) {
	t.Helper()
	var before [3]int64
	for node := range before {
		before[node] = f.sent[node].Load()
	}
	eventually(t, 20*time.Second, func() error {
		for node := range before {
			if f.sent[node].Load() < before[node]+10 {
				select {
				case err := <-f.ended:
					t.Fatal(err)
				default:
				}
				return fmt.Errorf("n%d gets no requests", node+1)
			}
		}
		return nil
	})
}

func (f *fresh) finish(t *testing.T) {
	t.Helper()
	f.stop()
	for range f.sent {
		if err := <-f.ended; err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d, %d, %d requests on connections of their own", f.sent[0].Load(), f.sent[1].Load(), f.sent[2].Load())
}

// newSecuring makes the files of certificates and tokens.
func newSecuring(t *testing.T) *securing {
	t.Helper()
	files := peerCertificates{t, t.TempDir()}
	files.authority("first")
	files.trust("first")
	for _, node := range []string{"n1", "n2", "n3"} {
		files.issue("first", node)
	}
	mustCommand(t, "token", "new", "app", "--scope", "use", "--token-file", files.file("app.token"), "--append", files.file("tokens.toml"))
	return &securing{T: t, files: files, keys: credentials.Config{CA: files.file("bundle.pem"), TokenFile: files.file("app.token")}}
}

// https returns the flags of a node that serves HTTPS. tokens returns the flags of a node that also requires tokens.
func (p peerCertificates) https(node string) []string {
	return append(p.flags(node), "--tls-cert", p.file(node+".pem"), "--tls-key", p.file(node+"-key.pem"))
}

func (p peerCertificates) tokens(node string) []string {
	return append(p.https(node), "--tokens", p.file("tokens.toml"))
}

// refusesStrangers: n1 refuses streams of a process with another authority's certificate, or without TLS, and counts
// them.
func (s *securing) refusesStrangers() {
	s.Helper()
	other := peerCertificates{s.T, s.TempDir()}
	other.authority("other")
	other.issue("other", "n3")
	pair, err := tls.LoadX509KeyPair(other.file("n3.pem"), other.file("n3-key.pem"))
	must(s.T, err)
	refused := func() string { return counted(s.T, s.c, 0, `signalbox_peer_streams_refused_total{reason="tls"}`) }
	for _, secure := range []bool{true, false} {
		before := refused()
		conn, err := net.Dial("tcp", s.c.peer(0))
		must(s.T, err)
		if secure {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"signalbox-peer"}})
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n") // an error is n1 that refuses sooner
		eventually(s.T, 20*time.Second, func() error {
			if now := refused(); now == before {
				return fmt.Errorf("TLS %t: n1 counts %s refused streams, as before", secure, now)
			}
			return nil
		})
		_ = conn.Close()
	}
}

// TestRunningClusterIsSecured follows the steps of docs/secure.md, "From an insecure cluster to a secure one", on a
// cluster whose clients hold leases and wait in line. Then it replaces the authority of nodes and clients. No lease, no
// place in line and no request is lost.
func TestRunningClusterIsSecured(t *testing.T) {
	t.Parallel()
	s := newSecuring(t)
	s.c = startProcesses(t, testProgram)
	move := &moving{next: s.transport(&http.Transport{MaxIdleConnsPerHost: 512, IdleConnTimeout: 20 * time.Second})}
	s.c.client = &client{bases: s.c.bases, http: &http.Client{Transport: move}}
	f := startFleet(t, s.c.client, "db", 20, 30)
	u := startGoClients(t, s.addresses(), s.keys, 10)
	s.load = append(s.load, f, u)

	s.roll("all have certificates", func(node string) []string { return append(s.files.flags(node), "--insecure-peers") })
	if plainStreams(t, s.c, 0) == "0" {
		t.Error("n1 had its certificate first, and counts no plain stream")
	}
	s.roll("none takes plain streams", s.files.flags)
	for node := range s.c.running {
		if got := plainStreams(t, s.c, node); got != "0" {
			t.Errorf("n%d: %s plain streams", node+1, got)
		}
	}
	s.refusesStrangers()
	s.roll("all serve HTTPS", s.files.https)
	move.https.Store(true)
	s.roll("all ask for tokens", s.files.tokens)
	f.unchanged(t, 0)

	stranger := &client{bases: s.c.bases, http: &http.Client{Transport: &http.Transport{}}}
	if r, err := stranger.ask(t.Context(), 0, http.MethodGet, "/v1/cluster", ""); err != nil || r.status != http.StatusBadRequest {
		t.Errorf("plain HTTP: %d %v", r.status, err)
	}
	s.replaceAuthority()
	s.roll("all have new connections", s.files.tokens)
	f.unchanged(t, 0)
	u.finish(t)
	f.finish(t)
	sameState(t, s.c)
}
