package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/memnet"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

func peerportNetwork() *memnet.Network { return memnet.New() }

// peerportOpen opens the port NAME:1 on the host of that name, for the time of the
// test. It advertises another name, as behind a container's port.
func peerportOpen(t *testing.T, n *memnet.Network, name string) *PeerPort {
	t.Helper()
	p, err := OpenPeerPort(PeerPortConfig{
		Network: n.Host(name), Bind: name + ":1", Advertise: name + ".peers:1", Identity: testIdentity(name), Logger: hclog.NewNullLogger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil && !errors.Is(err, errHandlersRun) {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return p
}

// testIdentity is that of a node of the test's one cluster, in a process of its own.
func testIdentity(node string) *identity {
	i := &identity{node: node, address: node + ".peers:1", incarnation: drawID(), folder: store.FolderID{1, node[len(node)-1]}}
	i.bind(fsm.ClusterID{7})
	return i
}

// peerportEcho answers everything with its prefix before it.
func peerportEcho(prefix string) func(net.Conn) {
	return func(c net.Conn) {
		defer func() { _ = c.Close() }()
		b := make([]byte, 100)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			if _, err := c.Write(append([]byte(prefix), b[:n]...)); err != nil {
				return
			}
		}
	}
}

// peerportAsk writes to a stream and returns what comes back.
func peerportAsk(t *testing.T, c net.Conn, question string) string {
	t.Helper()
	if _, err := c.Write([]byte(question)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// peerportExpectClosed waits until the other side has closed the connection, and
// returns how long that took.
func peerportExpectClosed(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	_ = c.SetReadDeadline(start.Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("read %d bytes, %v; want the end", n, err)
	}
	return time.Since(start)
}

// peerportRaw dials a port without a preamble.
func peerportRaw(t *testing.T, n *memnet.Network) net.Conn {
	t.Helper()
	c, err := n.Host("stranger").Dial(t.Context(), "n2:1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// peerportSilent opens a stream of a kind as a process of the test's cluster, which
// says nothing after its preamble.
func peerportSilent(t *testing.T, n *memnet.Network, as *identity, kind StreamKind) net.Conn {
	t.Helper()
	c := peerportRaw(t, n)
	synctest.Wait() // accepted: the backlog is shorter than the limit
	h := as.hello(kind, "")
	_, _ = c.Write(h.encode())
	_, _ = readHello(c)
	return c
}

func TestPeerPortRoutesByFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		from, to := peerportOpen(t, n, "n1"), peerportOpen(t, n, "n2")
		to.Handle(StreamForward, peerportEcho("forward "))
		to.Handle(StreamProbe, peerportEcho("probe "))
		for kind, want := range map[StreamKind]string{StreamForward: "forward x", StreamProbe: "probe x"} {
			c, err := from.Dial(t.Context(), kind, "n2:1")
			if err != nil {
				t.Fatal(err)
			}
			if got := peerportAsk(t, c, "x"); got != want {
				t.Errorf("a stream of kind %d was answered %q", kind, got)
			}
		}
		to.Handle(StreamProbe, nil)
		if _, err := from.Dial(t.Context(), StreamProbe, "n2:1"); !refusedFor(err, refusedKind) {
			t.Errorf("a kind that is not handled: %v", err)
		}
	})
}

func TestPeerPortRefusesStrangers(t *testing.T) {
	for name, first := range map[string][]byte{
		"unknown kind": {99}, "zero": {0}, "http": []byte("GET / HTTP/1.1\r\n\r\n"), "tls": {0x16, 3, 1},
		"a release without preamble": {byte(StreamForward)}, "almost a preamble": []byte("SBXQ\x01\x01\x00\x00"),
		"a huge preamble": []byte("SBXP\x01\x01\xff\xff"), "an empty preamble": []byte("SBXP\x01\x01\x00\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := peerportNetwork()
				peerportOpen(t, n, "n2").Handle(StreamProbe, peerportEcho(""))
				c := peerportRaw(t, n)
				if _, err := c.Write(first); err != nil {
					t.Fatal(err)
				}
				if took := peerportExpectClosed(t, c); took != 0 {
					t.Errorf("closed only after %v", took)
				}
			})
		})
	}
	t.Run("silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := peerportNetwork()
			peerportOpen(t, n, "n2").Handle(StreamProbe, peerportEcho(""))
			if took := peerportExpectClosed(t, peerportRaw(t, n)); took != 5*time.Second {
				t.Errorf("closed after %v", took)
			}
		})
	})
}

// TestPeerPortPreambleDeadlineEnds: the deadline is for the preamble alone.
func TestPeerPortPreambleDeadlineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		from, to := peerportOpen(t, n, "n1"), peerportOpen(t, n, "n2")
		to.Handle(StreamForward, peerportEcho("still "))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := from.Dial(ctx, StreamForward, "n2:1")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // virtual: idle
		if got := peerportAsk(t, c, "here"); got != "still here" {
			t.Errorf("an old stream was answered %q", got)
		}
	})
}

func TestPeerPortBoundsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		to := peerportOpen(t, n, "n2")
		to.Handle(StreamRaft, peerportEcho("ok "))
		as := testIdentity("stranger")
		open := func() net.Conn { return peerportSilent(t, n, as, StreamRaft) }
		var conns []net.Conn
		for range maxPeerConns {
			conns = append(conns, open())
		}
		for _, c := range conns {
			if got := peerportAsk(t, c, "?"); got != "ok ?" {
				t.Fatalf("within the limit: %q", got)
			}
		}
		peerportExpectClosed(t, open())
		_ = conns[0].Close()
		synctest.Wait()
		if got := peerportAsk(t, open(), "?"); got != "ok ?" {
			t.Fatalf("after one has left: %q", got)
		}
	})
}

// TestIdleStreamsLeavePlacesToRaft: however many streams of the other kinds stay open
// without a word, Raft's are served.
func TestIdleStreamsLeavePlacesToRaft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		to := peerportOpen(t, n, "n2")
		for _, kind := range []StreamKind{StreamRaft, StreamForward, StreamProbe} {
			to.Handle(kind, peerportEcho("ok "))
		}
		as := testIdentity("stranger")
		open := func(kind StreamKind) net.Conn { return peerportSilent(t, n, as, kind) }
		var idle []net.Conn
		for _, kind := range []StreamKind{StreamForward, StreamProbe} {
			for range maxKindConns {
				idle = append(idle, open(kind))
			}
			for range maxPeerConns {
				peerportExpectClosed(t, open(kind))
			}
		}
		for range maxPeerConns - 2*maxKindConns {
			if got := peerportAsk(t, open(StreamRaft), "?"); got != "ok ?" {
				t.Fatalf("a stream of Raft's: %q", got)
			}
		}
		_ = idle[0].Close()
		synctest.Wait()
		if got := peerportAsk(t, open(StreamForward), "?"); got != "ok ?" {
			t.Fatalf("after one of its kind has left: %q", got)
		}
	})
}

func TestPeerPortCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		from, to := peerportOpen(t, n, "n1"), peerportOpen(t, n, "n2")
		to.Handle(StreamForward, peerportEcho(""))
		layer, err := to.OpenRaft()
		if err != nil {
			t.Fatal(err)
		}
		c, err := from.Dial(t.Context(), StreamForward, "n2:1")
		if err != nil {
			t.Fatal(err)
		}
		peerportAsk(t, c, "x") // its handler runs
		peerportRaw(t, n)      // one that has said nothing yet
		synctest.Wait()
		start := time.Now()
		if err := to.Close(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("closing took %v", took)
		}
		peerportExpectClosed(t, c)
		if _, err := layer.Accept(); !errors.Is(err, errPeerPortClosed) {
			t.Errorf("accept on a closed port: %v", err)
		}
		if _, err := from.Dial(t.Context(), StreamForward, "n2:1"); err == nil {
			t.Error("a closed port accepts")
		}
		if _, err := to.Dial(t.Context(), StreamForward, "n1:1"); !errors.Is(err, errPeerPortClosed) {
			t.Errorf("a closed port dials: %v", err)
		}
	})
}

func TestPeerPortCloseWaitsForHandlersAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		from, to := peerportOpen(t, n, "n1"), peerportOpen(t, n, "n2")
		release := make(chan struct{})
		to.Handle(StreamForward, func(c net.Conn) {
			<-release
			_ = c.Close()
		})
		if _, err := from.Dial(t.Context(), StreamForward, "n2:1"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		if err := to.Close(); !errors.Is(err, errHandlersRun) {
			t.Errorf("close beside a handler that stays: %v", err)
		}
		if took := time.Since(start); took != portCloseTimeout {
			t.Errorf("closing took %v", took)
		}
		close(release)
	})
}

func TestRaftLayerOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		from, to := peerportOpen(t, n, "n1"), peerportOpen(t, n, "n2")
		dialler, err := from.OpenRaft()
		if err != nil {
			t.Fatal(err)
		}
		dial := func() net.Conn {
			c, err := dialler.Dial("n2:1", time.Second)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		if _, err := dialler.Dial("n2:1", time.Second); !refusedFor(err, refusedKind) {
			t.Fatalf("it is not open yet: %v", err)
		}
		for range 2 {
			layer, err := to.OpenRaft()
			if err != nil {
				t.Fatal(err)
			}
			if got := layer.Addr().String(); got != "n2.peers:1" {
				t.Fatalf("it advertises %q", got)
			}
			if _, err := to.OpenRaft(); err == nil {
				t.Fatal("it opened twice")
			}
			near := dial()
			far, err := layer.Accept()
			if err != nil {
				t.Fatal(err)
			}
			go peerportEcho("raft ")(far)
			if got := peerportAsk(t, near, "x"); got != "raft x" {
				t.Fatalf("answered %q", got)
			}
			_ = layer.Close()
			peerportExpectClosed(t, near) // what was open is closed
			if _, err := dialler.Dial("n2:1", time.Second); !refusedFor(err, refusedKind) {
				t.Fatalf("it is refused from now on: %v", err)
			}
			if _, err := layer.Accept(); !errors.Is(err, errRaftClosed) {
				t.Fatalf("accept on a closed layer: %v", err)
			}
		}
		if _, err := to.OpenRaft(); err != nil {
			t.Fatal(err)
		}
		near := dial()
		_ = dialler.Close()
		if _, err := near.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("a dialled stream of a closed layer: %v", err)
		}
		if _, err := dialler.Dial("n2:1", time.Second); !errors.Is(err, errRaftClosed) {
			t.Fatalf("dial of a closed layer: %v", err)
		}
	})
}

// TestRaftLayerDialsTheNameAnew: a peer that comes back elsewhere under its name
// is found.
func TestRaftLayerDialsTheNameAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		layer, err := peerportOpen(t, n, "n1").OpenRaft()
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"n2", "elsewhere"} {
			p, err := OpenPeerPort(PeerPortConfig{
				Network: n.Host(host), Bind: "n2:1", Advertise: "n2:1", Identity: testIdentity("n2"), Logger: hclog.NewNullLogger(),
			})
			if err != nil {
				t.Fatal(err)
			}
			p.Handle(StreamRaft, peerportEcho(host+" "))
			c, err := layer.Dial(raft.ServerAddress("n2:1"), time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if got := peerportAsk(t, c, "x"); got != host+" x" {
				t.Errorf("reached %q", got)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(seatSilence) // virtual: the first process counts as dead
		}
	})
}

func TestPeerPortDialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peerportNetwork()
		from := peerportOpen(t, n, "n1")
		peerportOpen(t, n, "n2")
		n.Cut("n2", "n1")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := from.Dial(ctx, StreamProbe, "n2:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial into a cut: %v", err)
		}
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Errorf("gave up after %v", took)
		}
	})
}

func TestPeerPortSaysOnceThatItIsFull(t *testing.T) {
	var out bytes.Buffer
	p := &PeerPort{log: hclog.New(&hclog.LoggerOptions{Output: &out}), conns: map[*peerConn]struct{}{}, accepted: maxPeerConns}
	for range 3 {
		if err := p.track(&peerConn{port: p, accepted: true}); !errors.Is(err, errPeerPortFull) {
			t.Fatal(err)
		}
	}
	if got := strings.Count(out.String(), "connections are refused"); got != 1 {
		t.Errorf("said %d times:\n%s", got, out.String())
	}
}

func TestCheckPeerAddress(t *testing.T) {
	for _, test := range []struct {
		address  string
		insecure bool
		want     string // part of the error; empty: none
	}{
		{"127.0.0.1:8711", false, ""},
		{"127.8.9.1:8711", false, ""},
		{"[::1]:8711", false, ""},
		{"localhost:8711", false, ""},
		{"127.0.0.1:0", false, ""},
		{"0.0.0.0:8711", false, "--insecure-peers"},
		{"[::]:8711", false, "--insecure-peers"},
		{":8711", false, "--insecure-peers"},
		{"10.1.2.3:8711", false, "not on loopback"},
		{"[::ffff:10.1.2.3]:8711", false, "not on loopback"},
		{"0.0.0.0:8711", true, ""},
		{":8711", true, ""},
		{"no-such-host.invalid:8711", true, ""},
		{"no-such-host.invalid:8711", false, "no-such-host.invalid"},
		{"127.0.0.1", false, "not host:port"},
		{"127.0.0.1", true, "not host:port"},
		{"127.0.0.1:", true, "port"},
		{"127.0.0.1:http", false, "port"},
		{"127.0.0.1:65536", false, "port"},
		{"", false, "not host:port"},
	} {
		err := CheckPeerAddress(test.address, test.insecure)
		if test.want == "" && err != nil {
			t.Errorf("%q, insecure %v: %v", test.address, test.insecure, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q, insecure %v: %v, want %q", test.address, test.insecure, err, test.want)
		}
	}
}
