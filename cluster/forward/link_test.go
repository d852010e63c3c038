package forward

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
)

// scriptedLeader is the other end of a link; a test scripts its frames.
type scriptedLeader struct {
	t      *testing.T
	conn   net.Conn
	r      *bufio.Reader
	hello  helloFrame
	epoch  time.Time // of its clock
	frames uint64    // that it has read
}

// linkToScript opens a link of term 3 to a scripted leader.
func linkToScript(t *testing.T, r *requests.Registry) (*link, *scriptedLeader) {
	near, far := net.Pipe()
	l := openLink(near, 3, func() bool { return true }, &Config{Log: hclog.NewNullLogger(), Requests: r, Pulse: lead.NewPulse()})
	s := &scriptedLeader{t: t, conn: far, r: bufio.NewReader(far), epoch: time.Now()}
	frame, err := readFrame(s.r, nil)
	must(t, err)
	if s.hello, err = decodeHello(frame[1:]); err != nil || s.hello.term != 3 || s.hello.origin != r.Origin() {
		t.Fatalf("the first frame: %+v, %v", s.hello, err)
	}
	s.frames++
	s.clock()
	return l, s
}

// clock sends a reading of the clock.
func (s *scriptedLeader) clock() {
	s.t.Helper()
	if _, err := s.conn.Write((&clockFrame{readingMS: time.Since(s.epoch).Milliseconds(), frames: s.frames}).append(nil)); err != nil {
		s.t.Fatal(err)
	}
}

// commands reads a frame of commands and returns their sequences.
func (s *scriptedLeader) commands() (sequences []uint64) {
	s.t.Helper()
	frame, err := readFrame(s.r, nil)
	must(s.t, err)
	s.frames++
	f, err := decodeCommands(frame[1:])
	must(s.t, err)
	for _, c := range f.commands {
		sequences = append(sequences, c.sequence)
	}
	return sequences
}

// refuse refuses a command as a leader that is not established yet does.
func (s *scriptedLeader) refuse(sequence uint64) {
	s.t.Helper()
	s.answer(sequence, statusRefused)
}

// answer sends a reply to a command, with an error.
func (s *scriptedLeader) answer(sequence uint64, status status) {
	s.t.Helper()
	m := pendingFrames{replies: []reply{{sequence: sequence, status: status}}}
	if _, _, err := m.write(s.conn, nil, nil); err != nil {
		s.t.Fatal(err)
	}
}

// ended reads until the other end closes the stream.
func (s *scriptedLeader) ended() {
	s.t.Helper()
	if left, err := io.Copy(io.Discard, s.r); left != 0 || err != nil {
		s.t.Fatalf("%d bytes more, %v", left, err)
	}
}

// linkRequest registers a request that is not sent yet, of a caller that waits until
// ctx ends.
func linkRequest(ctx context.Context, r *requests.Registry) *requests.Request {
	q := r.Build(fsm.Up{Name: "a", Count: 1}, fsm.Envelope{}, lead.ClassSingle, nil)
	r.Add(ctx, []*requests.Request{q})
	return q
}

// settled returns the outcome of a request, if it has one.
func settled(q *requests.Request) (got requests.Settlement, any bool) {
	select {
	case got := <-q.Settled:
		return *got, true
	default:
		return requests.Settlement{}, false
	}
}

// TestRefusalsBehindTheFirstAreHeard: a leader that is elected, but not established,
// refuses frame after frame. The first refusal closes the link; all others must be
// heard, too: in this term no other sign of those commands ever comes.
func TestRefusalsBehindTheFirstAreHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := requests.New(10, replica.New(replica.Config{}))
		l, leader := linkToScript(t, r)
		var list []*requests.Request
		for range 3 {
			q := linkRequest(t.Context(), r)
			l.send([]*requests.Request{q})
			if got := leader.commands(); len(got) != 1 || got[0] != q.ID.Sequence {
				t.Fatalf("%v were sent, not %d", got, q.ID.Sequence)
			}
			list = append(list, q)
		}
		for i, q := range list {
			leader.refuse(q.ID.Sequence)
			synctest.Wait()
			if got, any := settled(q); !any || got.Fate != outcome.Refused {
				t.Fatalf("command %d: %+v, %v", i, got, any)
			}
			if back := l.send([]*requests.Request{q}); len(back) != 1 {
				t.Fatal("what was refused comes back to the same leader")
			}
		}
		began := time.Now()
		leader.ended()
		if took := time.Since(began); took != 0 {
			t.Errorf("all is answered, but the stream stays for %v", took)
		}
	})
}

// TestClosedLinkSendsWhatItHolds: commands that are marked as sent leave, though
// the link is closed while they do, and their replies count.
func TestClosedLinkSendsWhatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := requests.New(10, replica.New(replica.Config{}))
		l, leader := linkToScript(t, r)
		q := linkRequest(t.Context(), r)
		l.send([]*requests.Request{q})
		synctest.Wait() // its frame is being written, and is not read yet
		l.close()
		leader.commands()
		leader.refuse(q.ID.Sequence)
		synctest.Wait()
		if got, any := settled(q); !any || got.Fate != outcome.Refused {
			t.Fatalf("%+v, %v", got, any)
		}
		leader.ended()
	})
}

// TestClosedLinkEnds: an idle one at once, one whose leader sends no more after a
// while.
func TestClosedLinkEnds(t *testing.T) {
	for name, want := range map[string]time.Duration{"idle": 0, "unanswered": linkLinger} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := requests.New(10, replica.New(replica.Config{}))
				l, leader := linkToScript(t, r)
				if want > 0 {
					l.send([]*requests.Request{linkRequest(t.Context(), r)})
					leader.commands()
				}
				began := time.Now()
				l.close()
				leader.ended()
				if took := time.Since(began); took != want {
					t.Errorf("the stream ended after %v", took)
				}
			})
		})
	}
}

// TestSilentLinkEnds: a link whose leader sees no frame that is sent ends, and with it
// the read that waits, though other frames come. It goes on while the leader sees the
// frames, and while it is idle.
func TestSilentLinkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := requests.New(10, replica.New(replica.Config{}))
		l, leader := linkToScript(t, r)
		time.Sleep(time.Hour) // virtual: idle
		first := linkRequest(t.Context(), r)
		l.send([]*requests.Request{first})
		leader.commands()
		for range 3 { // the first gets no reply, but the leader sees all frames
			time.Sleep(linkSilence - time.Millisecond) // virtual
			leader.clock()
			l.send([]*requests.Request{linkRequest(t.Context(), r)})
			leader.commands()
			synctest.Wait()
		}
		leader.clock()
		time.Sleep(time.Hour) // virtual: idle
		began := time.Now()
		l.send([]*requests.Request{linkRequest(t.Context(), r)})
		go func() { _, _ = io.Copy(io.Discard, leader.r) }()
		sending := time.AfterFunc(time.Second, func() {
			l.send([]*requests.Request{linkRequest(t.Context(), r)})
			leader.clock()
		})
		defer sending.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, _, err := l.readIndex(ctx); err == nil {
			t.Error("a read was answered")
		}
		if took := time.Since(began); took != linkSilence {
			t.Errorf("the silent link ended after %v", took)
		}
		if back := l.send([]*requests.Request{linkRequest(t.Context(), r)}); len(back) != 1 {
			t.Error("it takes more")
		}
		_ = leader.conn.Close()
	})
}
