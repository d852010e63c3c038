package cluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// errLinkClosed ends reads on a link that is no more.
var errLinkClosed = errors.New("the stream to the leader is closed")

const (
	// linkLinger is how long the stream of a closed link stays open for answers to
	// what was sent.
	linkLinger = 5 * time.Second
	// linkSilence is how long the leader may see nothing of what was sent, at multiplier 1: it says what
	// it has seen more often. That leaves time, before the callers give up, to open
	// another stream and to send again what was lost.
	linkSilence = 2 * time.Second
)

// link is a stream to the leader of a term: the origin's side of forwarding.
// What waits when the writer is free shares a frame. Two goroutines, transmit and
// receive, live as long as the stream.
//
// A closed link takes nothing new. Its stream stays open until all that was sent
// is answered, or linkLinger is over: a refusal that nobody reads would leave its
// request without an outcome for as long as the leader's term goes on, since then
// the local machine has nothing to tell of it. What is still not answered when the
// stream ends is not given up: its outcome comes from the local machine.
//
// A stream that takes everything and brings nothing may be lost alone, while those
// of Raft live: no other leader comes, and every command would end without an
// outcome. So it ends when the leader has seen nothing for linkSilence of what was
// sent.
//
// Each stream has a number. When commands of earlier streams in the term have no
// outcome, the leader sends a fence on the new one: see requests.passFences.
type link struct {
	log      hclog.Logger
	conn     net.Conn
	opened   time.Time
	leads    uint64 // the leader's term
	stream   uint64 // this stream's number
	open     bool   // commands of earlier ones have no outcome
	requests *requests
	waits    *waits
	same     func() bool // the leader and its term are still those of the link
	gather   gathering[reading]

	welcome chan struct{} // closed when the leader has sent a reading of its clock
	ended   chan struct{} // closed when the link is
	sending chan struct{} // closed when transmit is over
	ready   chan struct{} // has room for one: something is to be sent

	mu         sync.Mutex
	closed     bool
	timed      bool       // the stream ends unless the leader sees more of what was sent
	sent       uint64     // frames
	seen       uint64     // frames, by the leader
	heard      bool       // it has seen more since the deadline was set
	unanswered int        // commands that were sent
	queue      []*request // to be sent
	asks       []uint64   // reads to be asked
	asked      map[uint64]chan<- forwardReading
	number     uint64 // of the last read
	clock      leaderClock
}

// reading is a read index with the leader's reading of cluster time.
type reading struct {
	index uint64
	nowMS int64
}

// openLink starts a link on a fresh stream.
func openLink(log hclog.Logger, conn net.Conn, term uint64, same func() bool, r *requests, w *waits) *link {
	l := &link{
		log: log, conn: conn, opened: time.Now(), leads: term, requests: r, waits: w, same: same,
		welcome: make(chan struct{}), ended: make(chan struct{}), sending: make(chan struct{}), ready: make(chan struct{}, 1),
		asked: map[uint64]chan<- forwardReading{},
	}
	l.stream, l.open = r.openStream(term)
	l.gather.run = l.ask
	go l.transmit()
	go l.receive()
	return l
}

func (l *link) term() uint64          { return l.leads }
func (l *link) valid() bool           { return l.same() }
func (l *link) done() <-chan struct{} { return l.ended }

func (l *link) send(reqs []*request) (back []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return reqs
	}
	l.queue = append(l.queue, reqs...)
	signal(l.ready)
	return nil
}

// close ends the link, but for the answers to what was sent.
func (l *link) close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	unsent, asked := l.queue, l.asked
	l.queue, l.asked = nil, nil
	_ = l.conn.SetReadDeadline(time.Now().Add(linkLinger))
	l.mu.Unlock()
	close(l.ended) // ends transmit, which then looks whether anything is open
	for number, answer := range asked {
		answer <- forwardReading{number: number, status: statusRefused}
	}
	l.requests.returned(unsent)
}

// count adds to the commands that are open, and ends the stream of a closed link
// when there is none.
func (l *link) count(sent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unanswered += sent
	select {
	case <-l.sending:
		if l.unanswered <= 0 {
			_ = l.conn.Close() // ends receive
		}
	default: // transmit may hold some
	}
}

// transmit sends what waits until the link is closed.
func (l *link) transmit() {
	defer func() {
		l.close()
		close(l.sending)
		l.count(0)
	}()
	w := linkStream{link: l}
	if !l.greet(w) {
		return
	}
	var buf []byte
	for {
		select {
		case <-l.ready:
		case <-l.ended:
			return
		}
		runtime.Gosched() // as in proposer.logNext
		l.requests.pulse.settle(l.ended)
		queue, asks := l.take()
		var err error
		buf = buf[:0]
		for _, number := range asks {
			buf = (&readAsk{term: l.leads, number: number}).append(buf)
		}
		buf, err = l.transmitCommands(w, buf, queue)
		if err == nil && len(buf) > 0 {
			_, err = w.Write(buf)
		}
		if err != nil {
			l.log.Debug("the stream to the leader failed", "error", err)
			_ = l.conn.Close()
			return
		}
	}
}

// take answers all that waits to be sent.
func (l *link) take() ([]*request, []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, asks := l.queue, l.asks
	l.queue, l.asks = nil, nil
	return queue, asks
}

// transmitCommands appends the frames of a queue to buf; it writes the full ones
// and answers what is left.
func (l *link) transmitCommands(w io.Writer, buf []byte, queue []*request) ([]byte, error) {
	for len(queue) > 0 {
		count := fillFrame(queue)
		readingMS := l.leaderMS() // before markSent looks whether the callers wait
		live, ok := l.requests.markSent(queue[:count], l.leads, l.stream)
		if !ok { // a later reign is known: the link leads nowhere
			l.requests.returned(queue)
			return nil, ErrNoLeader
		}
		queue = queue[count:]
		if len(live) == 0 {
			continue
		}
		l.count(len(live))
		f := l.frame(readingMS, live)
		buf = f.append(buf)
		if len(buf) >= frameFill {
			if _, err := w.Write(buf); err != nil {
				l.requests.returned(queue)
				return nil, err
			}
			buf = buf[:0]
		}
	}
	return buf, nil
}

// fillFrame answers how many of the first requests share a frame.
func fillFrame(queue []*request) int {
	bytes := 0
	for i, q := range queue {
		bytes += len(q.data)
		if i == batchCommands || i > 0 && bytes > frameFill {
			return i
		}
	}
	return len(queue)
}

// receive settles what the leader answers until the stream ends.
func (l *link) receive() {
	defer func() {
		_ = l.conn.Close()
		l.close()
	}()
	r := bufio.NewReaderSize(linkStream{link: l}, forwardBuffer)
	var buf []byte
	for {
		frame, err := readFrame(r, buf)
		if err == nil {
			buf = frame
			err = l.handle(frameKind(frame[0]), frame[1:])
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				l.log.Debug("the stream from the leader failed", "error", err)
			}
			return
		}
	}
}

// handle takes in one frame.
func (l *link) handle(kind frameKind, body []byte) error {
	switch kind {
	case frameReplies:
		replies, err := decodeReplies(body)
		if err == nil {
			l.replied(replies)
		}
		return err
	case frameConclusions:
		ends, err := decodeConclusions(body)
		for i := range ends {
			if err == nil {
				c := &ends[i]
				l.waits.concluded(c.place, &conclusion{result: *c.result, index: c.index, nowMS: c.nowMS})
			}
		}
		return err
	case frameReading:
		answer, err := decodeReading(body)
		if err == nil {
			l.answered(answer)
		}
		return err
	case frameClock:
		f, err := decodeClock(body)
		if err == nil {
			l.clocked(f)
		}
		return err
	case frameFence:
		f, err := decodeFence(body)
		if err == nil {
			l.requests.fence(streamFence{term: l.leads, stream: l.stream, index: f.index})
		}
		return err
	}
	return errFrame
}

// replied settles requests. A refusal closes the link first: what is refused must
// not come back to it at once.
func (l *link) replied(replies []forwardReply) {
	refused := false
	for i := range replies {
		refused = refused || replies[i].status == statusRefused
	}
	if refused {
		l.close()
	}
	for i := range replies {
		r := &replies[i]
		got := outcome{err: r.status.err()}
		if r.status == statusDone {
			got = outcome{result: *r.result, index: r.index, nowMS: r.nowMS}
		}
		l.requests.reply(r.sequence, l.leads, l.stream, got)
	}
	l.count(-len(replies))
}

// read implements lane: readers that wait while one ask is under way share the
// next.
func (l *link) read(ctx context.Context) (uint64, int64, error) {
	got, err := l.gather.join(ctx)
	return got.index, got.nowMS, err
}

// ask asks the leader for a read index.
func (l *link) ask() (reading, error) {
	answer := make(chan forwardReading, 1)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return reading{}, errLinkClosed
	}
	l.number++
	l.asked[l.number] = answer
	l.asks = append(l.asks, l.number)
	signal(l.ready)
	l.mu.Unlock()
	got := <-answer // close answers, too
	if got.status != statusDone {
		l.close() // whether it still leads to the leader is to be found out anew
		return reading{}, got.status.err()
	}
	return reading{got.index, got.nowMS}, nil
}

// answered gives an answer to the one that asked.
func (l *link) answered(got forwardReading) {
	l.mu.Lock()
	answer := l.asked[got.number]
	delete(l.asked, got.number)
	l.mu.Unlock()
	if answer != nil {
		answer <- got
	}
}
