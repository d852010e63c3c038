package cluster

import (
	"bufio"
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// TestLateReleaseTakesNothing: a client gives a release up on a follower whose link to
// the leader is cut, releases and acquires anew on another node, and keeps what it has
// when the link brings the first release.
func TestLateReleaseTakesNothing(t *testing.T) {
	for _, cut := range []time.Duration{300 * time.Millisecond, time.Second, 3300 * time.Millisecond} {
		t.Run(cut.String(), func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *nodes) {
				c.semaphore("a", 1)
				leader, n := c.leader(), c.follower()
				session := c.open(n, time.Minute)
				acquire := fsm.Acquire{Session: session, Name: "a", Count: 1, TTLMS: fsm.KeepTTL}
				release := fsm.Release{Session: session, Name: "a"}
				c.do(n, acquire, fsm.OK)
				began := time.Now()
				c.net.Cut(n.id, leader.id)
				gone, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if _, err := n.Do(gone, Call{Command: release}); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("through a cut: %v", err)
				}
				c.do(leader, release, fsm.OK)
				c.do(leader, acquire, fsm.OK)
				time.Sleep(cut - time.Since(began)) // virtual: the cut
				c.net.Heal(n.id, leader.id)
				time.Sleep(10 * time.Second) // virtual: whatever may still come
				if view, _ := c.read(n, "a"); view.Available != 0 {
					t.Error("the late release took the new lease")
				}
			})
		})
	}
}

// TestLateCommandOfAPatientClientIsSentAgain: a cut costs a client that still waits
// nothing but time, and what it asked for is done once.
func TestLateCommandOfAPatientClientIsSentAgain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		c.net.Cut(n.id, leader.id)
		waiting := background(t.Context(), n, Call{Command: fsm.Up{Name: "a", Count: 1}})
		time.Sleep(time.Second) // virtual: the cut
		c.net.Heal(n.id, leader.id)
		healed := time.Now()
		if got := <-waiting; got.err != nil || got.Value != 2 || got.at.Sub(healed) > 50*time.Millisecond {
			t.Errorf("%v after the cut: value %d, %v", got.at.Sub(healed), got.Value, got.err)
		}
	})
}

// TestSlowLinkCarriesCommands: on a link with a long delay commands go through at the
// first attempt, and on one that has become slow after few.
func TestSlowLinkCarriesCommands(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		delay := func(d time.Duration) {
			c.net.Delay(n.id, leader.id, d)
			c.net.Delay(leader.id, n.id, d)
		}
		delay(300 * time.Millisecond)
		for attempt, limit := range []time.Duration{3 * time.Second, 3 * time.Second} {
			began := time.Now()
			c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
			if took := time.Since(began); took > limit {
				t.Errorf("command %d took %v", attempt, took)
			}
		}
		c.net.Reset(n.id, leader.id)
		c.until("a new stream", func() bool {
			l, _ := n.router.lane()
			known, is := l.(*link)
			if !is {
				return false
			}
			known.mu.Lock()
			defer known.mu.Unlock()
			return known.clock.known && known.clock.roundTrip >= 600*time.Millisecond
		})
		began := time.Now()
		c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
		if took := time.Since(began); took > 700*time.Millisecond {
			t.Errorf("a command took %v on a stream of 600 ms", took)
		}
	}, func(c *Config) { c.RaftMultiplier = 5 })
}

// TestResetStreamLosesNothing: the stream to the leader breaks while a command is in
// it, or its reply. The same leader goes on, and the command is done once.
func TestResetStreamLosesNothing(t *testing.T) {
	for _, lost := range []string{"command", "reply"} {
		t.Run(lost, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *nodes) {
				c.semaphore("a", 0)
				leader, n := c.leader(), c.follower()
				c.do(n, fsm.Up{Name: "a", Count: 1}, fsm.OK)
				term := leader.raft.CurrentTerm()
				from, to := n.id, leader.id
				if lost == "reply" {
					from, to = to, from
				}
				c.net.Cut(from, to)
				waiting := background(t.Context(), n, Call{Command: fsm.Up{Name: "a", Count: 1}})
				time.Sleep(100 * time.Millisecond) // virtual: it is under way
				c.net.Reset(n.id, leader.id)
				c.net.Heal(from, to)
				broken := time.Now()
				if got := <-waiting; got.err != nil || got.Value != 2 || got.at.Sub(broken) > 500*time.Millisecond {
					t.Errorf("%v after the reset: value %d, %v", got.at.Sub(broken), got.Value, got.err)
				}
				if view, _ := c.read(n, "a"); view.Available != 2 {
					t.Errorf("applied %d times", view.Available-1)
				}
				if now := leader.raft.CurrentTerm(); now != term {
					t.Errorf("term %d has become %d: the test shows nothing", term, now)
				}
			})
		})
	}
}

// TestManyResetsLoseNothing: under load, with a reset every now and then, each call is
// done once.
func TestManyResetsLoseNothing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader, n := c.leader(), c.follower()
		c.net.Delay(n.id, leader.id, 3*time.Millisecond)
		c.net.Delay(leader.id, n.id, 2*time.Millisecond)
		const callers, each = 20, 100
		failures := make(chan error, callers)
		for range callers {
			go func() {
				for range each {
					if _, err := n.Do(t.Context(), Call{Command: fsm.Up{Name: "a", Count: 1}}); err != nil {
						failures <- err
						return
					}
				}
				failures <- nil
			}()
		}
		resets := 0
		for done := 0; done < callers; {
			select {
			case err := <-failures:
				if err != nil {
					t.Error(err)
				}
				done++
			case <-time.After(time.Duration(37+13*(resets%7)) * time.Millisecond):
				c.net.Reset(n.id, leader.id)
				resets++
			}
		}
		if resets < 10 {
			t.Errorf("%d resets", resets)
		}
		if view, _ := c.read(n, "a"); view.Available != callers*each {
			t.Errorf("%d applied of %d, with %d resets", view.Available, callers*each, resets)
		}
	})
}

// forwardStream opens a stream with a number, and returns it with the leader's reading.
func forwardStream(c *nodes, to *testNode, hello helloFrame) (net.Conn, *bufio.Reader, clockFrame) {
	c.t.Helper()
	conn := forwardConn(c, to)
	_, err := conn.Write(hello.append(nil))
	c.must(err)
	r := bufio.NewReader(conn)
	frame, err := readFrame(r, nil)
	if err != nil {
		return conn, nil, clockFrame{}
	}
	welcome, err := decodeClock(frame[1:])
	c.must(err)
	return conn, r, welcome
}

// TestFencedStreamBringsNothing: once a leader has welcomed a later stream of an
// origin, what the earlier one still brings is refused, and the fence is behind all
// that it has brought. A stream that comes after a later one is refused.
func TestFencedStreamBringsNothing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("a", 0)
		leader := c.leader()
		hello := helloFrame{term: leader.raft.CurrentTerm(), origin: 77, number: 5}
		old, oldReplies, welcome := forwardStream(c, leader, hello)
		up := func(sequence uint64) []byte {
			data := fsm.Envelope{Request: fsm.RequestID{Origin: 77, Sequence: sequence}}.Encode(fsm.Up{Name: "a", Count: 1})
			f := commandsFrame{readingMS: welcome.readingMS, commands: []forwarded{{sequence: sequence, patienceMS: 1000, data: data}}}
			return f.append(nil)
		}
		_, err := old.Write(up(1))
		c.must(err)
		c.until("the first command", func() bool { v, _ := machineValue(leader.machine, "a"); return v == 1 })
		before := leader.machine.progress.reached.Load()
		hello.number, hello.open = 6, true
		later, laterReplies, _ := forwardStream(c, leader, hello)
		_, err = old.Write(up(2))
		c.must(err)
		if got := forwardNext(c, oldReplies, frameReplies, 2); got.status != statusRefused {
			t.Errorf("status %d on the fenced stream", got.status)
		}
		fence := forwardFenceOf(c, laterReplies)
		if fence.index < before {
			t.Errorf("the fence is %d, before %d", fence.index, before)
		}
		hello.number = 4
		if late, r, _ := forwardStream(c, leader, hello); r != nil {
			t.Error("an earlier stream is welcome")
		} else {
			_ = late.Close()
		}
		if view, _ := c.read(leader, "a"); view.Available != 1 {
			t.Errorf("%d were applied of 1", view.Available)
		}
		_, _ = old.Close(), later.Close()
	})
}

// forwardNext reads on to the reply to a command.
func forwardNext(c *nodes, r *bufio.Reader, kind frameKind, sequence uint64) forwardReply {
	c.t.Helper()
	for {
		frame, err := readFrame(r, nil)
		c.must(err)
		if frameKind(frame[0]) != kind {
			continue
		}
		replies, err := decodeReplies(frame[1:])
		c.must(err)
		for _, reply := range replies {
			if reply.sequence == sequence {
				return reply
			}
		}
	}
}

// forwardFenceOf reads on to the fence.
func forwardFenceOf(c *nodes, r *bufio.Reader) fenceFrame {
	c.t.Helper()
	for {
		frame, err := readFrame(r, nil)
		c.must(err)
		if frameKind(frame[0]) == frameFence {
			fence, err := decodeFence(frame[1:])
			c.must(err)
			return fence
		}
	}
}

// TestLateInTheLeadersQueue: a forwarded command that has waited too long in the
// leader's own queue is refused when its turn comes.
func TestLateInTheLeadersQueue(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		server := &forwardServer{requests: newRequests(10, newWaits()), epoch: time.Now()}
		stream := &guestStream{server: server, outbox: newOutbox()}
		for range entriesInFlight { // the next one waits
			first, _ := fakes(1, 10)
			if err := p.enqueue(first); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond) // virtual
		}
		guest := func(sequence uint64) *guestCommand {
			return &guestCommand{
				stream: stream, forwarded: forwarded{sequence: sequence, data: []byte("y")},
				takeByMS: server.nowMS() + freshFor.Milliseconds(), id: fsm.RequestID{Origin: 7, Sequence: sequence},
			}
		}
		_ = p.enqueue([]proposal{guest(1)})
		time.Sleep(freshFor + queueGrace + 5*time.Millisecond) // virtual
		_ = p.enqueue([]proposal{guest(2)})
		for _, f := range r.logged() {
			f.answer(nil)
		}
		time.Sleep(time.Millisecond) // virtual
		entries := r.logged()
		if len(entries) != entriesInFlight+1 {
			t.Fatalf("%d entries", len(entries))
		}
		if _, _, count := entries[entriesInFlight].commands(); count != 1 {
			t.Errorf("%d commands in the entry, not the fresh one alone", count)
		}
		refused, _ := stream.outbox.take(mail{})
		if len(refused.replies) != 1 || refused.replies[0].sequence != 1 || refused.replies[0].status != statusLate {
			t.Errorf("replies %+v", refused.replies)
		}
		entries[entriesInFlight].answer(nil)
	})
}

// TestCommandOfAGoneCallerIsNotSent: neither to another node nor into this one's log.
func TestCommandOfAGoneCallerIsNotSent(t *testing.T) {
	r := newRequests(10, newWaits())
	here, hangUp := context.WithCancel(t.Context())
	queued, held := linkRequest(r), linkRequest(r)
	queued.caller, held.caller = here, here
	if live, _ := r.markSent([]*request{queued}, 3, 0); len(live) != 1 {
		t.Fatal("not sent though its caller waits")
	}
	own := ownCommand{queued, &localLane{reign: &reign{term: 3}, requests: r}}
	if err := own.withdrawn(); err != nil {
		t.Fatal(err)
	}
	hangUp()
	if live, ok := r.markSent([]*request{held}, 3, 0); !ok || len(live) != 0 {
		t.Error("sent though its caller is gone")
	}
	b := batch{proposals: []proposal{own}, data: [][]byte{queued.data}}
	if b.fit(); !b.empty() {
		t.Error("logged though its caller is gone")
	}
	if state, _, _ := r.peek(queued); state != requestHeld {
		t.Errorf("state %d: the command is certainly not applied", state)
	}
}

// TestPulseHoldsAfterASuspension: commands wait a moment after the process stood
// still, from the first look on, and never else.
func TestPulseHoldsAfterASuspension(t *testing.T) {
	p := newPulse()
	if p.hold(time.Hour) != 0 {
		t.Error("held before the first beat")
	}
	at := time.Second
	for range 5 {
		p.beat(at)
		at += beatEvery
		if p.hold(at) != 0 {
			t.Error("held while the pulse beats")
		}
	}
	at += time.Second // suspended
	if p.hold(at) == 0 {
		t.Error("not held before the beat notices")
	}
	p.beat(at)
	if got := p.hold(at + hangUpGrace/2); got != hangUpGrace/2 {
		t.Errorf("held for %v", got)
	}
	if got := p.hold(at + hangUpGrace); got != 0 {
		t.Errorf("held for %v more", got)
	}
}
