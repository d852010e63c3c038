package peer

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/test/hostile"
	"github.com/signalbox/signalbox/test/memnet"
)

// preambles returns what a stranger may send in the place of a preamble.
func preambles() map[string]string {
	whole := string(preambleSample.Encode())
	with := func(change func(*Hello)) string {
		h := preambleSample
		change(&h)
		return string(h.Encode())
	}
	return map[string]string{
		"an unknown kind of an old release": "\x63", "zero": "\x00", "TLS": "\x16\x03\x01", "HTTP": "GET / HTTP/1.1\r\n\r\n", "a release without preamble": "\x02", "almost a preamble": "SBXQ\x01\x01\x00\x00",
		"a huge preamble": "SBXP\x01\x01\xff\xff", "a preamble beyond its bound": "SBXP\x01\x01\x08\x01" + strings.Repeat("x", 2049), "an empty preamble": "SBXP\x01\x01\x00\x00",
		"a version of the future": "SBXP\x63\x63" + whole[6:], "versions in reverse": "SBXP\x05\x01" + whole[6:], "version 0": "SBXP\x00\x00" + whole[6:], "half a preamble": whole[:len(whole)/2], "a head alone": whole[:8],
		"texts beyond the body": whole[:8+35+8] + strings.Repeat("\xff", len(whole)-51), "the preamble of another cluster": with(func(h *Hello) { h.Cluster = ID{9} }), "no standing": with(func(h *Hello) { h.Standing = 0 }),
		"an unknown standing": with(func(h *Hello) { h.Standing = 9 }), "bound to no cluster": with(func(h *Hello) { h.Cluster = ID{} }), "an empty node of a cluster": with(func(h *Hello) { h.Standing = StandingEmpty }),
		"no node": with(func(h *Hello) { h.Node = "" }), "no incarnation": with(func(h *Hello) { h.Incarnation = 0 }), "no kind": with(func(h *Hello) { h.Kind = 0 }), "an unknown kind": with(func(h *Hello) { h.Kind = 99 }),
		"a kind that is not handled": with(func(h *Hello) { h.Kind = StreamForward }), "garbage of 100 KB": strings.Repeat("\xa5", 100<<10),
	}
}

// members takes those who are of the test's cluster.
type members struct{ *fakeIdentity }

func (m members) Receive(remote *Hello, _ string) (Refusal, string) {
	if remote.Cluster != m.Cluster {
		return RefusedCluster, "another cluster"
	}
	return 0, ""
}

// TestHostilePeers: what strangers send to the port of the nodes, plain and with TLS, leads
// to no stream, and leaves no connection behind.
func TestHostilePeers(t *testing.T) {
	list := hostile.Begin(t, "peer")
	handshakes, err := hostile.Handshakes()
	must(t, err)
	send := func(name, bytes string, security func(t *testing.T) Security) {
		list.Case(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := portNetwork()
				home, log := securePort(t, n, "n2", security(t))
				home.config.Identity = members{testIdentity("n2")}
				home.Handle(StreamProbe, func(net.Conn) { t.Error("its stream was taken") })
				conn, began := portRaw(t, n), time.Now()
				go func() { _, _ = io.WriteString(conn, bytes) }()
				_ = conn.SetReadDeadline(began.Add(time.Minute))
				reply, err := io.ReadAll(conn)
				if took := time.Since(began); err != nil || took > preambleTimeout+2*time.Second || len(reply) > 4096 {
					t.Errorf("it ended after %v with %v and %d bytes", took, err, len(reply))
				}
				_ = conn.Close()
				synctest.Wait()
				if open(home) != 0 || log.Len() > 2000 {
					t.Errorf("%d connections are open; %d bytes of log", open(home), log.Len())
				}
			})
		})
	}
	secure := func(t *testing.T) Security { return Security{TLS: newAuthority(t).node("n2")} }
	for name, bytes := range preambles() {
		send("plain: "+name, bytes, func(*testing.T) Security { return Security{} })
		send("TLS: a plain preamble: "+name, bytes, secure)
	}
	for name, bytes := range handshakes {
		send("TLS: "+name, bytes, secure)
	}
	for _, name := range []string{"another authority", "no authority", "no certificate", "an ended certificate", "a client's certificate", "TLS 1.2", "another node's certificate",
		"a node that is no member", "a member's id with a stranger's"} {
		list.Case("TLS: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newAuthority(t)
				s, n := certificateStrangers(t, ca)[name], portNetwork()
				refusedWithTLS(t, n, s, ca.node("n2"))
			})
		})
	}
}

// refusedWithTLS has a stranger dial node n2.
func refusedWithTLS(t *testing.T, n *memnet.Network, s stranger, config *tls.Config) {
	t.Helper()
	home, _ := securePort(t, n, "n2", Security{TLS: config})
	home.Handle(StreamProbe, func(net.Conn) { t.Error("its stream was taken") })
	foreign, _ := securePort(t, n, s.node, Security{TLS: s.tls})
	if _, err := foreign.Dial(t.Context(), StreamProbe, "n2:1"); err == nil {
		t.Error("it has a stream")
	}
	synctest.Wait()
	if got := refused(home, s.reason); got != 1 || open(home) != 0 {
		t.Errorf("%d refused as %v, %d open", got, s.reason, open(home))
	}
}
