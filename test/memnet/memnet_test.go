package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/signalbox/signalbox/test/memnet"
)

// pair dials from host a to a listener of host b and returns both ends.
func pair(t *testing.T, n *memnet.Network) (near, far net.Conn) {
	t.Helper()
	l, err := n.Host("b").Listen("b:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	near, err = n.Host("a").Dial(t.Context(), l.Addr().String())
	must(t, err)
	far, err = l.Accept()
	must(t, err)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatalf("write %q: %v", text, err)
	}
}

func expect(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("read %q, %v; want %q", got, err, text)
	}
}

// expectNothing checks that no byte arrives within the time given.
func expectNothing(t *testing.T, c net.Conn, within time.Duration) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(within))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want nothing", n, err)
	}
}

// TestConn holds a connection to the library's rules for any net.Conn.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		n := memnet.New()
		near, far := pair(t, n)
		return near, far, func() { _, _ = near.Close(), far.Close() }, nil
	})
}

func TestCutHoldsWhatIsSentUntilHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		near, far := pair(t, n)
		n.Cut("a", "b")
		send(t, near, "late")
		expectNothing(t, far, time.Minute)
		send(t, far, "back") // the other way is whole
		expect(t, near, "back")
		_ = near.Close()
		expectNothing(t, far, time.Minute) // the end of the stream is held too
		n.Heal("a", "b")
		expect(t, far, "late")
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("after the held bytes: %v, want EOF", err)
		}
	})
}

func TestDialWaitsWhileEitherWayIsCut(t *testing.T) {
	for _, cut := range [][2]string{{"a", "b"}, {"b", "a"}} {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.New()
			l, err := n.Host("b").Listen("b:1")
			must(t, err)
			n.Cut(cut[0], cut[1])
			start := time.Now()
			if _, err := n.Host("a").Dial(t.Context(), "b:1"); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("dial into a cut: %v", err)
			}
			if took := time.Since(start); took != 2*time.Second {
				t.Fatalf("gave up after %v", took)
			}
			time.AfterFunc(time.Second, func() { n.Heal(cut[0], cut[1]) })
			c, err := n.Host("a").Dial(t.Context(), "b:1")
			if err != nil {
				t.Fatalf("dial, healed after 1 s: %v", err)
			}
			_, _ = c.Close(), l.Close()
		})
	}
}

// TestFullBacklogIsSilent: a listener that accepts nothing refuses no dial, since a refusal would prove its death.
func TestFullBacklogIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		l, err := n.Host("b").Listen("b:1")
		must(t, err)
		defer func() { _ = l.Close() }()
		for err == nil {
			_, err = n.Host("a").Dial(t.Context(), "b:1")
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("dial to a full backlog: %v", err)
		}
	})
}

func TestDelayKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		near, far := pair(t, n)
		n.Delay("a", "b", 200*time.Millisecond)
		start := time.Now()
		send(t, near, "one")
		n.Delay("a", "b", 0)
		send(t, near, "two")
		expect(t, far, "onetwo")
		if took := time.Since(start); took != 200*time.Millisecond {
			t.Fatalf("arrived after %v", took)
		}
		n.Delay("b", "a", 50*time.Millisecond)
		start = time.Now()
		pair(t, n)
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Fatalf("handshake took %v", took)
		}
	})
}

// TestBandwidthIsShared: two connections together bring no more than the line does, and
// another direction is not limited.
func TestBandwidthIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		first, firstFar := pair(t, n)
		second, secondFar := pair(t, n)
		n.Bandwidth("a", "b", 100<<10)
		start := time.Now()
		received := make(chan error, 2)
		for near, far := range map[net.Conn]net.Conn{first: firstFar, second: secondFar} {
			go func() { _, _ = near.Write(make([]byte, 500<<10)) }()
			go func() {
				_, err := io.ReadFull(far, make([]byte, 500<<10))
				received <- err
			}()
		}
		for range 2 {
			must(t, <-received)
		}
		if took := time.Since(start); took < 9900*time.Millisecond || took > 10100*time.Millisecond {
			t.Errorf("1,000 KiB at 100 KiB/s took %v", took)
		}
		start = time.Now()
		send(t, firstFar, "back")
		expect(t, first, "back")
		if took := time.Since(start); took != 0 {
			t.Errorf("the other direction took %v", took)
		}
	})
}

// TestLossDelays: bytes that are lost come later, in order, and alike with the same seed.
func TestLossDelays(t *testing.T) {
	took := func(seed uint64) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			n := memnet.New()
			near, far := pair(t, n)
			n.Loss("a", "b", 0.2, seed)
			start := time.Now()
			for i := range 100 {
				send(t, near, string(rune('a'+i%26)))
				expect(t, far, string(rune('a'+i%26)))
			}
			took = time.Since(start)
		})
		return took
	}
	first := took(1)
	if first < time.Second || first > 30*time.Second {
		t.Errorf("100 sends with a fifth lost took %v", first)
	}
	if again := took(1); again != first {
		t.Errorf("%v, and %v with the same seed", first, again)
	}
}

func TestFullBufferBlocksTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t, memnet.New())
		_ = near.SetWriteDeadline(time.Now().Add(time.Second))
		written, err := near.Write(make([]byte, 1<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) || written != 256<<10 {
			t.Fatalf("wrote %d, %v", written, err)
		}
		if got, err := io.ReadFull(far, make([]byte, written)); err != nil {
			t.Fatalf("read %d, %v", got, err)
		}
	})
}

func TestResetAndCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		near, far := pair(t, n)
		send(t, near, "lost")
		n.Reset("b", "a")
		for _, c := range []net.Conn{near, far} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Fatalf("read after a reset: %v", err)
			}
		}
		near, _ = pair(t, n)
		l, err := n.Host("b").Listen("b:1")
		must(t, err)
		n.Crash("b")
		if _, err := near.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("write to a crashed host: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("accept on a crashed host: %v", err)
		}
		if _, err := n.Host("a").Dial(t.Context(), "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial to a crashed host: %v", err)
		}
	})
}

func TestIsolateAndRejoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		n.Host("c")
		near, far := pair(t, n)
		n.Isolate("b")
		send(t, near, "in")
		send(t, far, "out")
		expectNothing(t, near, time.Second)
		expectNothing(t, far, time.Second)
		n.Rejoin("b")
		expect(t, far, "in")
		expect(t, near, "out")
		n.Partition("c", "b") // another pair of hosts: no matter here
		send(t, near, "on")
		expect(t, far, "on")
	})
}

func TestAddressIsTakenOnce(t *testing.T) {
	n := memnet.New()
	l, err := n.Host("a").Listen("x:1")
	must(t, err)
	if _, err := n.Host("b").Listen("x:1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("a taken address: %v", err)
	}
	_ = l.Close()
	if l, err = n.Host("b").Listen("x:1"); err != nil {
		t.Fatalf("a freed address: %v", err)
	}
	_ = l.Close()
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
