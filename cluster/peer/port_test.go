package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/test/memnet"
)

func portNetwork() *memnet.Network { return memnet.New() }

// portOpen opens the port NAME:1 on the host of that name, for the time of the
// test. It advertises another name, as behind a container's port.
func portOpen(t *testing.T, n *memnet.Network, name string) *Port {
	t.Helper()
	p, err := OpenPort(Config{
		Network: n.Host(name), Bind: name + ":1", Advertise: name + ".peers:1", Identity: testIdentity(name), Logger: hclog.NewNullLogger(),
	})
	must(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil && !errors.Is(err, errHandlersRun) {
			t.Errorf("close %s: %v", name, err)
		}
	})
	return p
}

// fakeIdentity is the identity of a node of the test's one cluster, in another process than the
// other identities. It takes everyone.
type fakeIdentity Hello

func testIdentity(node string) *fakeIdentity {
	return &fakeIdentity{
		Standing: StandingBound, Cluster: ID{7}, Folder: ID{1, node[len(node)-1]}, Incarnation: rand.Uint64() | 1,
		Node: node, Address: node + ".peers:1",
	}
}

func (i *fakeIdentity) Hello(kind StreamKind, target string) Hello {
	h := Hello(*i)
	h.Kind, h.Target = kind, target
	return h
}

func (*fakeIdentity) Known(string) string                                             { return "" }
func (*fakeIdentity) Receive(*Hello, string) (Refusal, string)                        { return 0, "" }
func (*fakeIdentity) Accept(StreamKind, string, ID, *Hello, string) (Refusal, string) { return 0, "" }
func (*fakeIdentity) Admits(node string) bool                                         { return node != "n9" }
func (*fakeIdentity) Called(string, Refusal, *Hello)                                  {}

// portEcho returns a handler that sends everything back, with a prefix.
func portEcho(prefix string) func(net.Conn) {
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

// portAsk writes to a stream and returns what comes back.
func portAsk(t *testing.T, c net.Conn, question string) string {
	t.Helper()
	if _, err := c.Write([]byte(question)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	must(t, err)
	return string(b[:n])
}

// portExpectClosed waits until the other side has closed the connection, and
// returns how long that took.
func portExpectClosed(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	_ = c.SetReadDeadline(start.Add(time.Minute))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("read %d bytes, %v; want the end", n, err)
	}
	return time.Since(start)
}

// portRaw dials a port without a preamble.
func portRaw(t *testing.T, n *memnet.Network) net.Conn {
	t.Helper()
	c, err := n.Host("stranger").Dial(t.Context(), "n2:1")
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// portSilent opens a stream of a kind as a process of the test's cluster, which
// is silent after its preamble.
func portSilent(t *testing.T, n *memnet.Network, as Identity, kind StreamKind) net.Conn {
	t.Helper()
	c := portRaw(t, n)
	synctest.Wait() // accepted: the backlog is shorter than the limit
	h := as.Hello(kind, "")
	_, _ = c.Write(h.Encode())
	_, _ = ReadHello(c)
	return c
}

func TestPortRoutesByFirstByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		from, to := portOpen(t, n, "n1"), portOpen(t, n, "n2")
		to.Handle(StreamForward, portEcho("forward "))
		to.Handle(StreamProbe, portEcho("probe "))
		for kind, want := range map[StreamKind]string{StreamForward: "forward x", StreamProbe: "probe x"} {
			c, err := from.Dial(t.Context(), kind, "n2:1")
			must(t, err)
			if got := portAsk(t, c, "x"); got != want {
				t.Errorf("a stream of kind %d was answered %q", kind, got)
			}
		}
		to.Handle(StreamProbe, nil)
		if _, err := from.Dial(t.Context(), StreamProbe, "n2:1"); !RefusedFor(err, RefusedKind) {
			t.Errorf("a kind that is not handled: %v", err)
		}
	})
}

func TestPortRefusesStrangers(t *testing.T) {
	for name, first := range map[string][]byte{
		"unknown kind": {99}, "zero": {0}, "http": []byte("GET / HTTP/1.1\r\n\r\n"), "tls": {0x16, 3, 1},
		"a release without preamble": {byte(StreamForward)}, "almost a preamble": []byte("SBXQ\x01\x01\x00\x00"),
		"a huge preamble": []byte("SBXP\x01\x01\xff\xff"), "an empty preamble": []byte("SBXP\x01\x01\x00\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := portNetwork()
				portOpen(t, n, "n2").Handle(StreamProbe, portEcho(""))
				c := portRaw(t, n)
				if _, err := c.Write(first); err != nil {
					t.Fatal(err)
				}
				if took := portExpectClosed(t, c); took != 0 {
					t.Errorf("closed only after %v", took)
				}
			})
		})
	}
	t.Run("silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := portNetwork()
			portOpen(t, n, "n2").Handle(StreamProbe, portEcho(""))
			if took := portExpectClosed(t, portRaw(t, n)); took != 5*time.Second {
				t.Errorf("closed after %v", took)
			}
		})
	})
}

// TestPortPreambleDeadlineEnds: the deadline is for the preamble alone.
func TestPortPreambleDeadlineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		from, to := portOpen(t, n, "n1"), portOpen(t, n, "n2")
		to.Handle(StreamForward, portEcho("still "))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c, err := from.Dial(ctx, StreamForward, "n2:1")
		must(t, err)
		time.Sleep(time.Hour) // virtual: idle
		if got := portAsk(t, c, "here"); got != "still here" {
			t.Errorf("an old stream was answered %q", got)
		}
	})
}

func TestPortBoundsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		to := portOpen(t, n, "n2")
		to.Handle(StreamRaft, portEcho("ok "))
		as := testIdentity("stranger")
		open := func() net.Conn { return portSilent(t, n, as, StreamRaft) }
		var conns []net.Conn
		for range maxConns {
			conns = append(conns, open())
		}
		for _, c := range conns {
			if got := portAsk(t, c, "?"); got != "ok ?" {
				t.Fatalf("within the limit: %q", got)
			}
		}
		portExpectClosed(t, open())
		_ = conns[0].Close()
		synctest.Wait()
		if got := portAsk(t, open(), "?"); got != "ok ?" {
			t.Fatalf("after one has left: %q", got)
		}
	})
}

// TestIdleStreamsLeavePlacesToRaft: however many streams of the other kinds stay open
// without a word, Raft's are served.
func TestIdleStreamsLeavePlacesToRaft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		to := portOpen(t, n, "n2")
		for _, kind := range []StreamKind{StreamRaft, StreamForward, StreamProbe} {
			to.Handle(kind, portEcho("ok "))
		}
		as := testIdentity("stranger")
		open := func(kind StreamKind) net.Conn { return portSilent(t, n, as, kind) }
		var idle []net.Conn
		for _, kind := range []StreamKind{StreamForward, StreamProbe} {
			for range maxKindConns {
				idle = append(idle, open(kind))
			}
			for range maxConns {
				portExpectClosed(t, open(kind))
			}
		}
		for range maxConns - 2*maxKindConns {
			if got := portAsk(t, open(StreamRaft), "?"); got != "ok ?" {
				t.Fatalf("a stream of Raft's: %q", got)
			}
		}
		_ = idle[0].Close()
		synctest.Wait()
		if got := portAsk(t, open(StreamForward), "?"); got != "ok ?" {
			t.Fatalf("after one of its kind has left: %q", got)
		}
	})
}

func TestPortCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		from, to := portOpen(t, n, "n1"), portOpen(t, n, "n2")
		to.Handle(StreamForward, portEcho(""))
		layer, err := to.OpenRaft(func(Hello) {})
		must(t, err)
		c, err := from.Dial(t.Context(), StreamForward, "n2:1")
		must(t, err)
		portAsk(t, c, "x") // its handler runs
		portRaw(t, n)      // one that is still silent
		synctest.Wait()
		start := time.Now()
		must(t, to.Close())
		if took := time.Since(start); took != 0 {
			t.Errorf("closing took %v", took)
		}
		portExpectClosed(t, c)
		if _, err := layer.Accept(); !errors.Is(err, errPortClosed) {
			t.Errorf("accept on a closed port: %v", err)
		}
		if _, err := from.Dial(t.Context(), StreamForward, "n2:1"); err == nil {
			t.Error("a closed port accepts")
		}
		if _, err := to.Dial(t.Context(), StreamForward, "n1:1"); !errors.Is(err, errPortClosed) {
			t.Errorf("a closed port dials: %v", err)
		}
	})
}

func TestPortCloseWaitsForHandlersAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		from, to := portOpen(t, n, "n1"), portOpen(t, n, "n2")
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
		n := portNetwork()
		from, to := portOpen(t, n, "n1"), portOpen(t, n, "n2")
		dialler, err := from.OpenRaft(func(Hello) {})
		must(t, err)
		dial := func() net.Conn {
			c, err := dialler.Dial("n2:1", time.Second)
			must(t, err)
			return c
		}
		if _, err := dialler.Dial("n2:1", time.Second); !RefusedFor(err, RefusedKind) {
			t.Fatalf("it is not open yet: %v", err)
		}
		for range 2 {
			layer, err := to.OpenRaft(func(Hello) {})
			must(t, err)
			if got := layer.Addr().String(); got != "n2.peers:1" {
				t.Fatalf("it advertises %q", got)
			}
			if _, err := to.OpenRaft(func(Hello) {}); err == nil {
				t.Fatal("it opened twice")
			}
			near := dial()
			far, err := layer.Accept()
			must(t, err)
			go portEcho("raft ")(far)
			if got := portAsk(t, near, "x"); got != "raft x" {
				t.Fatalf("answered %q", got)
			}
			_ = layer.Close()
			portExpectClosed(t, near)
			if _, err := dialler.Dial("n2:1", time.Second); !RefusedFor(err, RefusedKind) {
				t.Fatalf("it is refused from now on: %v", err)
			}
			if _, err := layer.Accept(); !errors.Is(err, errRaftClosed) {
				t.Fatalf("accept on a closed layer: %v", err)
			}
		}
		if _, err := to.OpenRaft(func(Hello) {}); err != nil {
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

// TestRaftLayerReportsTheFormerProcessFirst: the end of a process is reported before Raft gets a stream of the member's
// next process, and not again when the end of a stream of the former process is read later.
func TestRaftLayerReportsTheFormerProcessFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		ended := make(chan uint64, 10)
		to := portOpen(t, n, "n2")
		layer, err := to.OpenRaft(func(from Hello) { ended <- from.Incarnation })
		must(t, err)
		first, next := testIdentity("n1"), testIdentity("n1")
		portSilent(t, n, first, StreamRaft)
		former, err := layer.Accept()
		must(t, err)
		time.Sleep(processSilence) // virtual: the first process counts as dead
		portSilent(t, n, next, StreamRaft)
		synctest.Wait() // before a read from the former stream
		if len(ended) != 1 || <-ended != first.Incarnation {
			t.Errorf("%d reports before Raft gets the stream of the next process", len(ended))
		}
		latest, err := layer.Accept()
		must(t, err)
		if _, err := former.Read(make([]byte, 1)); err != io.EOF || len(ended) != 0 {
			t.Errorf("the former stream: %v, and %d reports after the next process has come", err, len(ended))
		}
		layer.begin(former.(*watchedConn).Conn)
		if len(ended) != 0 {
			t.Error("a former process that comes late is taken for the next process")
		}
		must(t, latest.Close())
		if _, _ = latest.Read(make([]byte, 1)); len(ended) != 1 || <-ended != next.Incarnation {
			t.Errorf("%d reports of the end of the next process", len(ended))
		}
	})
}

// TestRaftLayerDialsTheNameAnew: a peer that comes back elsewhere under its name
// is found.
func TestRaftLayerDialsTheNameAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		layer, err := portOpen(t, n, "n1").OpenRaft(func(Hello) {})
		must(t, err)
		for _, host := range []string{"n2", "elsewhere"} {
			p, err := OpenPort(Config{
				Network: n.Host(host), Bind: "n2:1", Advertise: "n2:1", Identity: testIdentity("n2"), Logger: hclog.NewNullLogger(),
			})
			must(t, err)
			p.Handle(StreamRaft, portEcho(host+" "))
			c, err := layer.Dial(raft.ServerAddress("n2:1"), time.Second)
			must(t, err)
			if got := portAsk(t, c, "x"); got != host+" x" {
				t.Errorf("reached %q", got)
			}
			must(t, p.Close())
		}
	})
}

// TestIdleStreamOfAFormerProcess: a stream that was dialled and has no reader keeps the member's next process out while the
// former process holds it open, and no longer.
func TestIdleStreamOfAFormerProcess(t *testing.T) {
	for _, callsFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := portNetwork()
			from := portOpen(t, n, "n1")
			start := func(identity *fakeIdentity) (stop func() error) {
				p, err := OpenPort(Config{
					Network: n.Host("n2"), Bind: "n2:1", Advertise: "n2:1", Identity: identity, Logger: hclog.NewNullLogger(),
				})
				must(t, err)
				p.Handle(StreamProbe, portEcho(""))
				return p.Close
			}
			next := testIdentity("n2")
			call := func() Refusal {
				c, err := n.Host("n2").Dial(t.Context(), "n1:1")
				must(t, err)
				defer func() { _ = c.Close() }()
				h := next.Hello(StreamProbe, "")
				_, _ = c.Write(h.Encode())
				reply, _ := ReadHello(c)
				return reply.Refusal
			}
			stop := start(testIdentity("n2"))
			idle, err := from.Dial(t.Context(), StreamProbe, "n2:1")
			must(t, err)
			portAsk(t, idle, "x")
			if got := call(); got != RefusedIncarnation {
				t.Errorf("while the former process lives: %v", got)
			}
			must(t, stop())
			stop = start(next)
			if callsFirst {
				if got := call(); got != RefusedKind { // n1 has no handler
					t.Errorf("the next process calls: %v", got)
				}
			} else if c, err := from.Dial(t.Context(), StreamProbe, "n2:1"); err != nil || HelloOf(c).Incarnation != next.Incarnation {
				t.Errorf("the next process is called: %v", err)
			}
			must(t, stop())
		})
	}
}

// TestSilentProcessIsReplaced: another process with its node id is refused until it has
// been silent for as long as the stretch says.
func TestSilentProcessIsReplaced(t *testing.T) {
	for _, stretch := range []wake.Stretch{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			n := portNetwork()
			p, err := OpenPort(Config{
				Network: n.Host("n2"), Bind: "n2:1", Advertise: "n2:1", Identity: testIdentity("n2"), Times: stretch, Logger: hclog.NewNullLogger(),
			})
			must(t, err)
			p.Handle(StreamProbe, portEcho(""))
			portSilent(t, n, testIdentity("n1"), StreamProbe)
			other := testIdentity("n1")
			call := func() Refusal {
				c := portRaw(t, n)
				h := other.Hello(StreamProbe, "")
				_, _ = c.Write(h.Encode())
				reply, _ := ReadHello(c)
				return reply.Refusal
			}
			time.Sleep(stretch.Of(processSilence) - time.Millisecond) // virtual
			if got := call(); got != RefusedIncarnation {
				t.Errorf("stretch %d: before the silence is long enough: %v", stretch, got)
			}
			time.Sleep(time.Millisecond) // virtual
			if got := call(); got != 0 {
				t.Errorf("stretch %d: after it: %v", stretch, got)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConfirmedProcessStays: the process that was found at the member's address keeps the node id, though another
// process with that id is found elsewhere.
func TestConfirmedProcessStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		from := portOpen(t, n, "n1")
		for _, host := range []string{"n2", "copy"} {
			p, err := OpenPort(Config{
				Network: n.Host(host), Bind: host + ":1", Advertise: host + ":1", Identity: testIdentity("n2"), Logger: hclog.NewNullLogger(),
			})
			must(t, err)
			defer func() { _ = p.Close() }()
			p.Handle(StreamProbe, portEcho(""))
		}
		c, err := from.Dial(t.Context(), StreamProbe, "n2:1")
		must(t, err)
		if _, err := from.Dial(t.Context(), StreamProbe, "copy:1"); !RefusedFor(err, RefusedIncarnation) {
			t.Errorf("a copy was found: %v", err)
		}
		if got := portAsk(t, c, "x"); got != "x" {
			t.Errorf("the first one's stream replies %q", got)
		}
	})
}

func TestPortDialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := portNetwork()
		from := portOpen(t, n, "n1")
		portOpen(t, n, "n2")
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

func TestPortSaysOnceThatItIsFull(t *testing.T) {
	var out bytes.Buffer
	p := &Port{log: hclog.New(&hclog.LoggerOptions{Output: &out}), refusals: newRefusals(hclog.NewNullLogger()), conns: map[*portConn]struct{}{}, accepted: maxConns}
	for range 3 {
		if err := p.track(&portConn{port: p, accepted: true}); !errors.Is(err, errPortFull) {
			t.Fatal(err)
		}
	}
	if got := strings.Count(out.String(), "connections are refused"); got != 1 {
		t.Errorf("said %d times:\n%s", got, out.String())
	}
}

// TestClosedStreamsRegisterNoProcess: a stream that ends while its hello is judged leaves the
// node id free.
func TestClosedStreamsRegisterNoProcess(t *testing.T) {
	p := &Port{conns: map[*portConn]struct{}{}, processes: map[string]*process{}}
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	conn := &portConn{Conn: near, port: p, accepted: true}
	if reason, _ := p.register(conn, Hello(*testIdentity("n2"))); reason != RefusedKind || len(p.processes) != 0 {
		t.Errorf("refused for reason %d, %d processes", reason, len(p.processes))
	}
}

// must ends a test upon an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
