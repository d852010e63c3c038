package cluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// forwardStreams numbers the streams of forwardDial, which all have one origin.
var forwardStreams atomic.Uint64

// forwardConn opens a stream to a node as a peer does, up to its preamble.
func forwardConn(c *nodes, to *testNode) net.Conn {
	c.t.Helper()
	conn, err := c.net.Host("another").Dial(c.t.Context(), to.id+":8711")
	c.must(err)
	ours := to.life.identity.hello(StreamForward, to.id) // of its cluster
	ours.node, ours.incarnation = "another", 77
	_, err = conn.Write(ours.encode())
	c.must(err)
	theirs, err := readHello(conn)
	c.must(err)
	if theirs.refusal != 0 {
		c.t.Fatalf("%s refuses a stream: %s", to.id, theirs.detail)
	}
	return conn
}

// forwardDial opens a stream of a term to a node as a peer does.
func forwardDial(c *nodes, to *testNode, term uint64) (net.Conn, *bufio.Reader) {
	c.t.Helper()
	conn := forwardConn(c, to)
	_, err := conn.Write((&helloFrame{term: term, origin: 77, number: forwardStreams.Add(1)}).append(nil))
	c.must(err)
	return conn, bufio.NewReader(conn)
}

// forwardExchange sends commands and answers the statuses they get; statusRefused
// when the stream is.
func forwardExchange(c *nodes, to *testNode, term uint64, commands ...[]byte) []status {
	c.t.Helper()
	conn, r := forwardDial(c, to, term)
	defer func() { _ = conn.Close() }()
	frame, err := readFrame(r, nil)
	if err == io.EOF {
		return slices.Repeat([]status{statusRefused}, len(commands))
	}
	c.must(err)
	welcome, err := decodeClock(frame[1:])
	c.must(err)
	f := commandsFrame{readingMS: welcome.readingMS}
	for i, data := range commands {
		f.commands = append(f.commands, forwarded{sequence: uint64(i), patienceMS: 250, data: data})
	}
	_, err = conn.Write(f.append(nil))
	c.must(err)
	statuses := make([]status, len(commands))
	for got := 0; got < len(commands); {
		frame, err := readFrame(r, nil)
		c.must(err)
		if frameKind(frame[0]) == frameClock {
			continue
		}
		replies, err := decodeReplies(frame[1:])
		c.must(err)
		for _, reply := range replies {
			statuses[reply.sequence] = reply.status
			got++
		}
	}
	return statuses
}

// forwardUnderWay answers how many commands of a node's callers are in a state.
func forwardUnderWay(n *testNode, state requestState) (count int) {
	n.requests.mu.Lock()
	defer n.requests.mu.Unlock()
	for _, q := range n.requests.own {
		if q.state == state {
			count++
		}
	}
	return count
}

// TestFrameNamesItsTerm: a node that does not lead in the frame's term refuses all
// of it, and forwards nothing itself.
func TestFrameNamesItsTerm(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, follower := c.leader(), c.follower()
		term := leader.raft.CurrentTerm()
		up := func(sequence uint64) []byte {
			return fsm.Envelope{Request: fsm.RequestID{Origin: 77, Sequence: sequence}, Key: ""}.Encode(fsm.Up{Name: "a", Count: 1})
		}
		for name, try := range map[string]struct {
			to   *testNode
			term uint64
		}{
			"an earlier term": {leader, term - 1}, "a later term": {leader, term + 1}, "a follower": {follower, term},
		} {
			for _, got := range forwardExchange(c, try.to, try.term, up(0), up(1)) {
				if got != statusRefused {
					t.Errorf("%s: status %d", name, got)
				}
			}
		}
		if view, _ := c.read(follower, "a"); view.Available != 0 {
			t.Errorf("%d were applied that were refused", view.Available)
		}
		for _, got := range forwardExchange(c, leader, term, up(0), up(1)) {
			if got != statusDone {
				t.Errorf("the leader in its term: status %d", got)
			}
		}
		if view, _ := c.read(follower, "a"); view.Available != 2 {
			t.Errorf("%d were applied of 2", view.Available)
		}
	})
}

// TestWhatIsNoCommandStaysOutOfTheLog: a command that this version can't apply
// would halt every node.
func TestWhatIsNoCommandStaysOutOfTheLog(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader := c.leader()
		id := fsm.RequestID{Origin: 77, Sequence: 1}
		good := fsm.Envelope{Request: id, Key: ""}.Encode(fsm.Up{Name: "a", Count: 1})
		unknown := append(good[:2:2], 99, 0)
		got := forwardExchange(c, leader, leader.raft.CurrentTerm(), []byte{}, unknown, good[:len(good)-1], append(good[:len(good):len(good)], 0))
		for i, status := range got {
			want := statusUnknown
			if i == 0 { // names no level, so it may need any
				want = statusBelowLevel
			}
			if status != want {
				t.Errorf("%d: status %d", i, status)
			}
		}
		if view, _ := c.read(leader, "a"); view.Available != 0 {
			t.Errorf("value %d", view.Available)
		}
		conn, r := forwardDial(c, leader, leader.raft.CurrentTerm())
		_, err := conn.Write([]byte{0, 0, 0, 2, byte(frameReplies), 0}) // what only a leader says
		c.must(err)
		began := time.Now()
		for err == nil {
			_, err = readFrame(r, nil)
		}
		if !errors.Is(err, io.EOF) || time.Since(began) > clockEvery {
			t.Errorf("a stream with a wrong frame goes on: %v", err)
		}
		_ = conn.Close()
	})
}

// TestHeldWithoutALeader: a command waits 5 s for a leader, goes to one that comes
// before that, and is dropped when its caller hangs up.
func TestHeldWithoutALeader(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		n := c.all[0]
		up := Call{Command: fsm.Up{Name: "a", Count: 1}}
		for _, other := range c.all[1:] {
			c.kill(other)
		}
		c.until("the leader's end", func() bool { l, _ := n.router.lane(); return l == nil })
		began := time.Now()
		if _, err := n.Do(t.Context(), up); !errors.Is(err, ErrNoLeader) || time.Since(began) != holdTimeout {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Do(gone, up); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a caller that hung up: %v", err)
		}
		waiting := background(t.Context(), n, up)
		c.revive(c.all[1])
		if got := <-waiting; got.err != nil || got.Value != 1 {
			t.Fatalf("value %d, %v: the one that was dropped, or failed, was applied too", got.Value, got.err)
		}
	})
}

// TestHeldCommandsAreBounded: without a leader, too, there is a limit.
func TestHeldCommandsAreBounded(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.all[0]
		for _, other := range c.all[1:] {
			c.kill(other)
		}
		c.until("the leader's end", func() bool { l, _ := n.router.lane(); return l == nil })
		up := Call{Command: fsm.Up{Name: "a", Count: 1}}
		for round := range 3 {
			var held []<-chan answer
			for range 20 {
				held = append(held, background(t.Context(), n, up))
			}
			c.until("all are held", func() bool { return forwardUnderWay(n, requestHeld) == 20 })
			began := time.Now()
			if _, err := n.Do(t.Context(), up); !errors.Is(err, ErrOverloaded) || time.Since(began) != 0 {
				t.Fatalf("round %d, after %v: %v", round, time.Since(began), err)
			}
			for _, a := range held {
				if got := <-a; !errors.Is(got.err, ErrNoLeader) {
					t.Fatalf("round %d: %v", round, got.err)
				}
			}
		}
	}, func(c *Config) { c.QueueSize = 20 })
}

// TestLostReply: the leader has applied the command, but its answer is lost with
// the connection. The origin's own machine tells.
func TestLostReply(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.net.Cut(leader.id, n.id) // from here on nothing comes back
		waiting := background(t.Context(), n, Call{Command: fsm.Up{Name: "a", Count: 1}})
		c.until("the leader's applying it", func() bool {
			value, _ := machineValue(leader.machine, "a")
			return value == 1
		})
		if len(waiting) != 0 {
			t.Fatal("answered through a cut: the test shows nothing")
		}
		c.net.Reset(leader.id, n.id)
		c.net.Heal(leader.id, n.id)
		if got := <-waiting; got.err != nil || got.Value != 1 {
			t.Fatalf("%+v, %v", got.Result, got.err)
		}
		if view, _ := c.read(n, "a"); view.Available != 1 {
			t.Fatalf("applied %d times", view.Available)
		}
	})
}

// TestLostCommand: a command is lost with the leader. The next reign entry shows
// that it never was applied, so it is sent again, and applied once.
func TestLostCommand(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.net.Cut(n.id, leader.id) // it hears the leader, but is not heard
		waiting := background(t.Context(), n, Call{Command: fsm.Up{Name: "a", Count: 1}})
		c.until("it is sent", func() bool { return forwardUnderWay(n, requestSent) == 1 })
		c.kill(leader)
		began := time.Now()
		if got := <-waiting; got.err != nil || got.Value != 1 {
			t.Fatalf("%+v, %v", got.Result, got.err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		c.revive(leader)
		if view, _ := c.read(leader, "a"); view.Available != 1 {
			t.Fatalf("applied %d times", view.Available)
		}
	})
}

// TestIsolatedLeader: what an isolated leader has taken is open. When it comes
// back in time it learns that the entry is lost, and sends the command anew; until
// then it must not.
func TestIsolatedLeader(t *testing.T) {
	for name, test := range map[string]struct {
		isolated time.Duration
		want     error
	}{"in time": {3 * time.Second, nil}, "too late": {8 * time.Second, ErrOutcomeUnknown}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *nodes) {
				c.semaphore("a", 0)
				old := c.leader()
				c.net.Isolate(old.id)
				began := time.Now()
				waiting := background(t.Context(), old, Call{Command: fsm.Up{Name: "a", Count: 1}})
				next := c.leader(old)
				time.Sleep(test.isolated - time.Since(began)) // virtual: the partition
				c.net.Rejoin(old.id)
				got := <-waiting
				if !errors.Is(got.err, test.want) {
					t.Fatalf("after %v: %v", got.at.Sub(began), got.err)
				}
				if test.want != nil && got.at.Sub(began) != outcomeTimeout {
					t.Errorf("it took %v to say so", got.at.Sub(began))
				}
				time.Sleep(time.Second) // virtual: whatever might still come
				view, _ := c.read(next, "a")
				if applied := view.Available == 1; applied != (test.want == nil) || view.Available > 1 {
					t.Errorf("applied %d times", view.Available)
				}
			})
		})
	}
}

// lossyNetwork can lose the streams to the leader that are open, and nothing else, as
// a firewall loses single ones: what is sent into them vanishes.
type lossyNetwork struct {
	Network
	losses atomic.Int64
}

func (n *lossyNetwork) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := n.Network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, network: n, opened: n.losses.Load()}, nil
}

// lossyConn is one stream, of one writer.
type lossyConn struct {
	net.Conn
	network *lossyNetwork
	opened  int64 // after so many losses
	kind    StreamKind
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.kind == 0 {
		c.kind = StreamKind(b[preambleHead])
	}
	if c.kind == StreamForward && c.opened < c.network.losses.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestLostStream: only the stream to the leader is lost, and everybody believes in it.
// What was sent into it is sent again on another one.
func TestLostStream(t *testing.T) {
	var networks []*lossyNetwork
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		term := leader.raft.CurrentTerm()
		for _, network := range networks {
			network.losses.Add(1)
		}
		began := time.Now()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		if took := time.Since(began); took > linkSilence+100*time.Millisecond {
			t.Errorf("the lost command took %v", took)
		}
		began = time.Now()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		if view, _ := c.read(n, "a"); view.Available != 3 {
			t.Errorf("applied %d times", view.Available)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the next command took %v", took)
		}
		if now := leader.raft.CurrentTerm(); now != term {
			t.Errorf("term %d has become %d: the test shows nothing", term, now)
		}
	}, func(c *Config) {
		networks = append(networks, &lossyNetwork{Network: c.Network})
		c.Network = networks[len(networks)-1]
	})
}
