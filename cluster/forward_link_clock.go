package cluster

import (
	"io"
	"time"
)

// greet says hello and blocks until the leader welcomes the stream. It reports false
// when the stream has ended instead.
func (l *link) greet(w io.Writer) bool {
	hello := helloFrame{term: l.leads, origin: l.requests.origin, number: l.stream, open: l.open}
	if _, err := w.Write(hello.append(nil)); err != nil {
		_ = l.conn.Close()
		return false
	}
	select {
	case <-l.welcome:
		return true
	case <-l.ended:
		return false
	}
}

// clocked takes in a reading of the leader's clock.
func (l *link) clocked(f clockFrame) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	roundTrip := time.Duration(f.ageMS) * time.Millisecond
	first := !l.clock.known
	if first {
		roundTrip = now.Sub(l.opened)
	}
	l.clock.note(f.readingMS, now, roundTrip)
	l.heard = l.heard || f.frames > l.seen
	l.seen = max(l.seen, f.frames)
	if first {
		close(l.welcome)
	}
}

// leaderMS returns what the leader's clock reads at least.
func (l *link) leaderMS() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock.estimateMS(time.Now())
}

// frame makes a frame of commands whose callers waited when the leader's clock read
// readingMS at least.
func (l *link) frame(readingMS int64, live []*request) commandsFrame {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := commandsFrame{readingMS: readingMS, commands: make([]forwarded, len(live))}
	for i, q := range live {
		f.commands[i] = forwarded{
			sequence: q.id.Sequence, listens: q.listener != nil, class: q.load.class,
			patienceMS: l.clock.patienceMS(q.late), data: q.data,
		}
	}
	return f
}

// linkStream is a link's stream, whose reads fail when the leader sees nothing of what
// was sent. Each write is of whole frames.
type linkStream struct{ link *link }

func (s linkStream) Write(b []byte) (int, error) {
	s.link.limitSilence(countFrames(b))
	return timedWriter{s.link.conn}.Write(b)
}

// Read is called when what has come whole is handled.
func (s linkStream) Read(b []byte) (int, error) {
	s.link.limitSilence(0)
	return s.link.conn.Read(b)
}

// limitSilence gives the next read a deadline if the leader has not seen all that was
// sent. It stays as it is until the leader has seen more.
func (l *link) limitSilence(frames uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent += frames
	unseen := l.sent > l.seen
	if l.closed || unseen == l.timed && !l.heard { // closed: linkLinger counts
		return
	}
	l.timed, l.heard = unseen, false
	var limit time.Time // none
	if unseen {
		limit = time.Now().Add(l.requests.times.patience(linkSilence))
	}
	_ = l.conn.SetReadDeadline(limit) // a failure shows in the read
}
