package peer

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/internal/certs"
	"github.com/signalbox/signalbox/test/memnet"
)

// authority is a folder with a certificate authority.
type authority struct {
	t   *testing.T
	dir string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t, t.TempDir()}
	if _, err := certs.MakeAuthority(a.dir, false); err != nil {
		t.Fatal(err)
	}
	return a
}

// node issues a node's certificate and returns its settings.
func (a authority) node(id string) *tls.Config {
	a.t.Helper()
	files, err := certs.MakeNode(a.dir, id, nil, true)
	return a.open(files, err)
}

// client issues a client's certificate and returns the settings of a node that uses it.
func (a authority) client(name string) *tls.Config {
	a.t.Helper()
	files, err := certs.MakeClient(a.dir, name, true)
	return a.open(files, err)
}

func (a authority) open(files certs.Pair, err error) *tls.Config {
	a.t.Helper()
	must(a.t, err)
	source, err := certs.Open(certs.Config{Pair: files, CA: filepath.Join(a.dir, "ca.pem")})
	must(a.t, err)
	return source.NodeTLS()
}

// trusting returns settings that accept any certificate, as a stranger's.
func trusting(config *tls.Config) *tls.Config {
	config.VerifyConnection = nil
	return config
}

// securePort opens the port of a node, and returns where its log goes.
func securePort(t *testing.T, n *memnet.Network, name string, security Security) (*Port, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	p, err := OpenPort(Config{
		Network: n.Host(name), Bind: name + ":1", Advertise: name + ":1", Identity: testIdentity(name), Security: security,
		Logger: hclog.New(&hclog.LoggerOptions{Output: &log}),
	})
	must(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return p, &log
}

// counted returns a port's metric of that name, for a reason if it has reasons.
func counted(p *Port, name, reason string) int {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.Metrics())
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == name && (reason == "" || metric.GetLabel()[0].GetValue() == reason) {
				return int(metric.GetCounter().GetValue())
			}
		}
	}
	return -1
}

// refused returns how many streams a port has refused for a reason.
func refused(p *Port, reason Refusal) int {
	return counted(p, "signalbox_peer_streams_refused_total", reason.String())
}

// plain returns how many plain streams a port with a certificate has had.
func plain(p *Port) int { return counted(p, "signalbox_peer_plain_streams_total", "") }

// open returns how many connections a port has.
func open(p *Port) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// TestStreamsWithTLS: nodes with certificates of one authority have streams of every
// kind, and know each other's names.
func TestStreamsWithTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := portNetwork(), newAuthority(t)
		from, _ := securePort(t, n, "n1", Security{TLS: ca.node("n1")})
		to, log := securePort(t, n, "n2", Security{TLS: ca.node("n2")})
		for _, kind := range []StreamKind{StreamRaft, StreamForward, StreamProbe} {
			to.Handle(kind, portEcho("ok "))
			conn, err := from.Dial(t.Context(), kind, "n2:1")
			must(t, err)
			if got := portAsk(t, conn, "?"); got != "ok ?" || HelloOf(conn).Node != "n2" {
				t.Errorf("kind %d: %q from %q", kind, got, HelloOf(conn).Node)
			}
			_ = conn.Close()
		}
		synctest.Wait()
		if open(to) != 0 || open(from) != 0 || log.Len() > 0 {
			t.Errorf("open connections: %d and %d; log: %s", open(to), open(from), log)
		}
	})
}

// selfSigned returns the settings of a node whose certificate no authority has issued.
func selfSigned(t *testing.T, id string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: id}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	return &tls.Config{
		InsecureSkipVerify: true, ClientAuth: tls.RequireAnyClientCert,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
}

// certificateStrangers returns the settings of those who have no right to a stream with
// node n2, and the reason for which each is refused. Each says that it is node n1.
func certificateStrangers(t *testing.T, ca authority) map[string]stranger {
	t.Helper()
	ended := ca.node("n1")
	time.Sleep(2 * 365 * 24 * time.Hour) // virtual
	old := trusting(ca.node("n1"))
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	bare := trusting(ca.node("n1"))
	bare.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	bare.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, io.EOF }
	return map[string]stranger{
		"another authority":               {trusting(newAuthority(t).node("n1")), "n1", RefusedTLS},
		"no authority":                    {selfSigned(t, "n1"), "n1", RefusedTLS},
		"no certificate":                  {bare, "n1", RefusedTLS},
		"an ended certificate":            {trusting(ended), "n1", RefusedTLS},
		"a client's certificate":          {trusting(ca.client("n1")), "n1", RefusedTLS},
		"TLS 1.2":                         {old, "n1", RefusedTLS},
		"another node's certificate":      {trusting(ca.node("n3")), "n1", RefusedName},
		"a node that is no member":        {trusting(ca.node("n9")), "n9", RefusedStranger},
		"a member's id with a stranger's": {trusting(ca.node("n9")), "n1", RefusedName},
	}
}

type stranger struct {
	tls    *tls.Config
	node   string // that it says it is
	reason Refusal
}

// TestStrangersWithTLSAreRefused: none of them gets a stream, whichever side dials, each
// is counted and logged, and leaves no connection behind.
func TestStrangersWithTLSAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		for name, s := range certificateStrangers(t, ca) {
			n := portNetwork()
			home, log := securePort(t, n, "n2", Security{TLS: ca.node("n2")})
			home.Handle(StreamProbe, func(net.Conn) { t.Errorf("%s: its stream was taken", name) })
			foreign, _ := securePort(t, n, s.node, Security{TLS: s.tls})
			foreign.Handle(StreamProbe, portEcho(""))

			if _, err := foreign.Dial(t.Context(), StreamProbe, "n2:1"); err == nil {
				t.Errorf("%s: dialled this node", name)
			}
			synctest.Wait()
			if got := refused(home, s.reason); got != 1 || !strings.Contains(log.String(), "a stream of a peer is refused") {
				t.Errorf("%s: %d refused as %v; log: %s", name, got, s.reason, log)
			}
			conn, err := home.Dial(t.Context(), StreamProbe, s.node+":1")
			if err == nil {
				_ = conn.Close()
			}
			if (err == nil) != (s.reason == RefusedStranger) { // a dialled node need not be a member
				t.Errorf("%s: dialled by this node: %v", name, err)
			}
			synctest.Wait()
			if open(home) != 0 || open(foreign) != 0 {
				t.Errorf("%s: %d and %d connections stay open", name, open(home), open(foreign))
			}
		}
	})
}

// TestPlainStrangersAreRefused: a port with a certificate takes no stream without TLS.
func TestPlainStrangersAreRefused(t *testing.T) {
	for name, first := range map[string][]byte{
		"garbage": {0, 1, 2}, "http": []byte("GET / HTTP/1.1\r\n\r\n"), "half a record": {tlsHandshake, 3, 1, 1},
		"no hello": append([]byte{tlsHandshake, 3, 1, 0, 4}, 9, 9, 9, 9), "a huge record": {tlsHandshake, 3, 1, 0xff, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, ca := portNetwork(), newAuthority(t)
				home, _ := securePort(t, n, "n2", Security{TLS: ca.node("n2")})
				conn := portRaw(t, n)
				if _, err := conn.Write(first); err != nil {
					t.Fatal(err)
				}
				_ = conn.SetReadDeadline(time.Now().Add(2 * preambleTimeout))
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Errorf("the connection stays open: %v", err)
				}
				synctest.Wait()
				if refused(home, RefusedTLS) != 1 || open(home) != 0 {
					t.Errorf("%d refused, %d open", refused(home, RefusedTLS), open(home))
				}
			})
		})
	}
	t.Run("a plain node", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, ca := portNetwork(), newAuthority(t)
			home, _ := securePort(t, n, "n2", Security{TLS: ca.node("n2")})
			bare, _ := securePort(t, n, "n1", Security{})
			if _, err := bare.Dial(t.Context(), StreamRaft, "n2:1"); err == nil || refused(home, RefusedTLS) != 1 {
				t.Errorf("dialled with %v; %d refused", err, refused(home, RefusedTLS))
			}
			if _, err := home.Dial(t.Context(), StreamRaft, "n1:1"); err == nil {
				t.Error("dialled a plain node")
			}
		})
	})
}

// TestHalfHandshakes: 10,000 strangers begin a handshake and stop. Each is counted, and
// while they stay connected a peer gets its stream; nothing is left of them.
func TestHalfHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := portNetwork(), newAuthority(t)
		home, log := securePort(t, n, "n2", Security{TLS: ca.node("n2")})
		home.Handle(StreamProbe, portEcho("ok "))
		from, _ := securePort(t, n, "n1", Security{TLS: ca.node("n1")})
		const strangers = 10_000
		for i := range strangers {
			if _, err := portRaw(t, n).Write([]byte{tlsHandshake, 3, 1}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if i%1000 != 0 {
				continue
			}
			conn, err := from.Dial(t.Context(), StreamProbe, "n2:1")
			if err != nil {
				t.Fatalf("after %d strangers: %v", i, err)
			}
			if got := portAsk(t, conn, "?"); got != "ok ?" {
				t.Errorf("after %d strangers: %q", i, got)
			}
			_ = conn.Close()
			synctest.Wait()
			if open(home) > maxUnknownConns {
				t.Errorf("after %d strangers %d connections are open", i, open(home))
			}
		}
		time.Sleep(preambleTimeout) // virtual
		synctest.Wait()
		if got := refused(home, RefusedTLS) + refused(home, RefusedCrowded); got != strangers || open(home) != 0 {
			t.Errorf("%d refused, %d open", got, open(home))
		}
		if lines := strings.Count(log.String(), "\n"); lines > 3 {
			t.Errorf("%d lines in the log", lines)
		}
	})
}

// TestFloodEndsItself: a flood from one host is ended before the connection of another host that is slow.
func TestFloodEndsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := portNetwork(), newAuthority(t)
		home, _ := securePort(t, n, "n2", Security{TLS: ca.node("n2")})
		home.Handle(StreamProbe, portEcho("ok "))
		from, _ := securePort(t, n, "n1", Security{TLS: ca.node("n1")})
		n.Delay("n1", "n2", 300*time.Millisecond)
		dialled := make(chan error, 1)
		go func() {
			conn, err := from.Dial(t.Context(), StreamProbe, "n2:1")
			if err == nil {
				err = conn.Close()
			}
			dialled <- err
		}()
		for range 2000 {
			_, _ = portRaw(t, n).Write([]byte{tlsHandshake})
			time.Sleep(time.Millisecond) // virtual: many of them within one handshake
		}
		if err := <-dialled; err != nil {
			t.Errorf("the peer: %v", err)
		}
	})
}

// TestStreamsOfAMemberNoLongerAdmitted: they end, and those of others go on.
func TestStreamsOfAMemberNoLongerAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := portNetwork(), newAuthority(t)
		as := &removing{fakeIdentity: testIdentity("n2")}
		home, err := OpenPort(Config{
			Network: n.Host("n2"), Bind: "n2:1", Advertise: "n2:1", Identity: as, Security: Security{TLS: ca.node("n2")}, Logger: hclog.NewNullLogger(),
		})
		must(t, err)
		defer home.Close()
		home.Handle(StreamProbe, portEcho("ok "))
		streams := map[string]net.Conn{}
		for _, name := range []string{"n1", "n3"} {
			from, _ := securePort(t, n, name, Security{TLS: ca.node(name)})
			if streams[name], err = from.Dial(t.Context(), StreamProbe, "n2:1"); err != nil {
				t.Fatal(err)
			}
		}
		home.EndStrangers()
		for name, stream := range streams {
			if got := portAsk(t, stream, "?"); got != "ok ?" {
				t.Errorf("%s: %q", name, got)
			}
		}
		as.removed.Store("n3")
		home.EndStrangers()
		portExpectClosed(t, streams["n3"])
		if got := portAsk(t, streams["n1"], "?"); got != "ok ?" || refused(home, RefusedStranger) != 1 {
			t.Errorf("n1: %q; %d refused", got, refused(home, RefusedStranger))
		}
	})
}

// removing is an identity that admits all but one node.
type removing struct {
	*fakeIdentity
	removed atomic.Value
}

func (r *removing) Admits(node string) bool { return r.removed.Load() != node }

// TestSlowHandshake: one byte a second is too slow, however long it goes on.
func TestSlowHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := portNetwork(), newAuthority(t)
		home, _ := securePort(t, n, "n2", Security{TLS: ca.node("n2")})
		conn, began := portRaw(t, n), time.Now()
		for b := range 60 {
			if _, err := conn.Write([]byte{[]byte{tlsHandshake, 3, 1, 0, 200}[min(b, 4)]}); err != nil {
				break
			}
			time.Sleep(time.Second) // virtual
		}
		if took := time.Since(began); took > preambleTimeout+2*time.Second || refused(home, RefusedTLS) != 1 || open(home) != 0 {
			t.Errorf("ended after %v; %d refused, %d open", took, refused(home, RefusedTLS), open(home))
		}
	})
}

// TestPlainToo is the step between: a node that has its certificate already and takes
// plain streams too, among nodes of both other kinds.
func TestPlainToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := portNetwork(), newAuthority(t)
		ports := map[string]*Port{}
		for name, security := range map[string]Security{
			"n1": {}, "n2": {TLS: ca.node("n2"), PlainToo: true}, "n3": {TLS: ca.node("n3"), PlainToo: true}, "n4": {TLS: ca.node("n4")},
		} {
			ports[name], _ = securePort(t, n, name, security)
			ports[name].Handle(StreamProbe, portEcho("ok "))
		}
		for _, c := range []struct {
			from, to string
			plain    int // streams that the two count
			fails    bool
		}{
			{"n1", "n2", 1, false}, {"n2", "n1", 1, false}, // the fall-back
			{"n2", "n3", 0, false}, {"n2", "n4", 0, false}, {"n4", "n2", 0, false},
			{"n1", "n4", 0, true}, {"n4", "n1", 0, true},
		} {
			before := plain(ports[c.from]) + plain(ports[c.to])
			conn, err := ports[c.from].Dial(t.Context(), StreamProbe, c.to+":1")
			if err == nil {
				if got := portAsk(t, conn, "?"); got != "ok ?" {
					t.Errorf("%s to %s: %q", c.from, c.to, got)
				}
				_ = conn.Close()
			}
			after := plain(ports[c.from]) + plain(ports[c.to])
			if (err != nil) != c.fails || after-before != c.plain {
				t.Errorf("%s to %s: %v, %v plain streams", c.from, c.to, err, after-before)
			}
		}
	})
}

// TestNoFallBackFromARefusal: a node that speaks TLS and refuses this one, or is refused
// by it, is not dialled without TLS.
func TestNoFallBackFromARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := portNetwork(), newAuthority(t)
		home, _ := securePort(t, n, "n1", Security{TLS: ca.node("n1"), PlainToo: true})
		for name, there := range map[string]*tls.Config{"n2": newAuthority(t).node("n2"), "n3": trusting(newAuthority(t).node("n3"))} {
			other, _ := securePort(t, n, name, Security{TLS: there, PlainToo: true})
			other.Handle(StreamProbe, portEcho(""))
			if _, err := home.Dial(t.Context(), StreamProbe, name+":1"); err == nil {
				t.Errorf("%s was dialled", name)
			}
			if got := plain(other); got != 0 {
				t.Errorf("%s had %v plain streams", name, got)
			}
		}
	})
}

// TestClosedPortWithTLSEndsInOrder: the other side of a closed port reads the end of the
// stream, as without TLS, and no error that Raft would log.
func TestClosedPortWithTLSEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := portNetwork(), newAuthority(t)
		from, _ := securePort(t, n, "n1", Security{TLS: ca.node("n1")})
		to, _ := securePort(t, n, "n2", Security{TLS: ca.node("n2")})
		to.Handle(StreamProbe, portEcho(""))
		conn, err := from.Dial(t.Context(), StreamProbe, "n2:1")
		must(t, err)
		began := time.Now()
		if err := to.Close(); err != nil || time.Since(began) > 0 {
			t.Errorf("closed after %v: %v", time.Since(began), err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("read %v", err)
		}
		_ = conn.Close()
	})
}
