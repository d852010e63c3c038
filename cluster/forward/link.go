package forward

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/internal/wake"
)

var errLinkClosed = errors.New("the stream to the leader is closed")

const (
	// linkLinger is how long the stream of a closed link stays open for the replies to
	// its commands.
	linkLinger = 5 * time.Second
	// linkSilence is how long the leader may leave frames unreported that were sent, at multiplier 1. The leader
	// reports the number of received frames more often than that. After linkSilence there is still time to open another
	// stream and to send the commands again before the callers give up.
	linkSilence = 2 * time.Second
)

// link is a stream to the leader of a term: the origin's side of forwarding, a route as localRoute is. Commands that
// wait while a frame is written share the next frame. Two goroutines, transmit and receive, live as long as the stream.
//
// A closed link accepts no more commands. Its stream stays open until every sent command has its reply, at most for
// linkLinger, because a refused command never appears in the log: if its refusal were lost, the local machine could not
// settle the request before the term ends. Without a reply, the outcome comes from the local machine or from the fence
// on the next stream.
//
// A stream may fail silently while the streams of Raft work: it accepts bytes and delivers no byte. The leader stays the
// same, and every command would end without an outcome. So a stream ends when the leader has left sent frames
// unreported for linkSilence.
//
// Each stream has a number. If commands of earlier streams in the term have no outcome, the leader sends a fence on the
// new stream: see requests.refuseFenced.
type link struct {
	config     *Config
	conn       net.Conn
	opened     time.Time
	leaderTerm uint64      // the leader's term
	stream     uint64      // this stream's number
	open       bool        // commands of earlier streams have no outcome
	stillLeads func() bool // the leader and the term are still the same
	gather     *wake.Gathering[reading]

	welcome chan struct{} // closed when the leader has sent a reading of its clock
	ended   chan struct{} // closed when the link is closed
	sending chan struct{} // closed when transmit has returned
	ready   wake.Signal   // there is something to send

	mu             sync.Mutex
	closed         bool
	deadlineSet    bool                // the stream ends unless the leader reports more frames
	framesSent     uint64              // number of sent frames
	seen           uint64              // number of frames that the leader has reported
	heard          bool                // the leader has reported further frames since the deadline was set
	unanswered     int                 // sent commands without a reply
	queue          []*requests.Request // to be sent
	readsToSend    []uint64            // numbers of the reads that transmit has to send
	pendingReads   map[uint64]chan<- readReply
	lastReadNumber uint64 // number of the last read
	clock          leaderClock
}

// reading is a read index with the leader's reading of cluster time.
type reading struct {
	index uint64
	nowMS int64
}

// openLink starts a link on a new stream.
func openLink(conn net.Conn, term uint64, same func() bool, config *Config) *link {
	l := &link{
		config: config, conn: conn, opened: time.Now(), leaderTerm: term, stillLeads: same,
		welcome: make(chan struct{}), ended: make(chan struct{}), sending: make(chan struct{}), ready: wake.NewSignal(),
		pendingReads: map[uint64]chan<- readReply{},
	}
	l.stream, l.open = l.config.Requests.OpenStream(term)
	l.gather = wake.NewGathering(l.ask)
	go l.transmit()
	go l.receive()
	return l
}

func (l *link) term() uint64          { return l.leaderTerm }
func (l *link) valid() bool           { return l.stillLeads() }
func (l *link) done() <-chan struct{} { return l.ended }

func (l *link) send(reqs []*requests.Request) (back []*requests.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return reqs
	}
	l.queue = append(l.queue, reqs...)
	l.ready.Set()
	return nil
}

// close closes the link. The stream stays open for the replies to the frames that were sent.
func (l *link) close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	unsent, reads := l.queue, l.pendingReads
	l.queue, l.pendingReads = nil, nil
	_ = l.conn.SetReadDeadline(time.Now().Add(linkLinger))
	l.mu.Unlock()
	close(l.ended) // ends transmit, which then checks for open commands
	for number, answer := range reads {
		answer <- readReply{number: number, status: statusRefused}
	}
	l.config.Requests.RefuseHeld(unsent)
}

// count adds to the number of commands without a reply. It closes the stream of a closed link when every command has
// its reply.
func (l *link) count(sent int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unanswered += sent
	select {
	case <-l.sending:
		if l.unanswered <= 0 {
			_ = l.conn.Close() // ends receive
		}
	default: // transmit may still have unsent commands
	}
}

// transmit sends all waiting commands and reads, until the link is closed.
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
		l.config.Pulse.WaitResumed(l.ended)
		queue, asks := l.take()
		var err error
		buf = buf[:0]
		for _, number := range asks {
			buf = (&readAsk{term: l.leaderTerm, number: number}).append(buf)
		}
		buf, err = l.transmitCommands(w, buf, queue)
		if err == nil && len(buf) > 0 {
			_, err = w.Write(buf)
		}
		if err != nil {
			l.config.Log.Debug("the stream to the leader failed", "error", err)
			_ = l.conn.Close()
			return
		}
	}
}

// take removes and returns all waiting requests and reads.
func (l *link) take() ([]*requests.Request, []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, asks := l.queue, l.readsToSend
	l.queue, l.readsToSend = nil, nil
	return queue, asks
}

// transmitCommands appends the frames of a queue to buf. It writes buf when it is full, and returns the rest.
func (l *link) transmitCommands(w io.Writer, buf []byte, queue []*requests.Request) ([]byte, error) {
	for len(queue) > 0 {
		count := fillFrame(queue)
		readingMS := l.leaderMS() // before MarkSent checks whether the callers wait
		live, ok := l.config.Requests.MarkSent(queue[:count], l.leaderTerm, l.stream)
		if !ok { // this node knows a later term, so the link is of no use
			l.config.Requests.RefuseHeld(queue)
			return nil, outcome.ErrNoLeader
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
				l.config.Requests.RefuseHeld(queue)
				return nil, err
			}
			buf = buf[:0]
		}
	}
	return buf, nil
}

// fillFrame returns how many of the first requests share a frame.
func fillFrame(queue []*requests.Request) int {
	bytes := 0
	for i, q := range queue {
		bytes += len(q.Data)
		if i == batchCommands || i > 0 && bytes > frameFill {
			return i
		}
	}
	return len(queue)
}

// receive reads and handles the leader's frames until the stream ends.
func (l *link) receive() {
	defer func() {
		_ = l.conn.Close()
		l.close()
	}()
	r := bufio.NewReaderSize(linkStream{link: l}, readBuffer)
	var buf []byte
	for {
		frame, err := readFrame(r, buf)
		if err == nil {
			buf = frame
			err = l.handle(frameKind(frame[0]), frame[1:])
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				l.config.Log.Debug("the stream from the leader failed", "error", err)
			}
			return
		}
	}
}

// handle handles one frame.
func (l *link) handle(kind frameKind, body []byte) error {
	switch kind {
	case frameReplies:
		replies, err := decodeReplies(body)
		if err == nil {
			l.handleReplies(replies)
		}
		return err
	case frameConclusions:
		ends, err := decodeConclusions(body)
		for i := range ends {
			if err == nil {
				c := &ends[i]
				l.config.Requests.Conclude(c.place, requests.Conclusion{Result: *c.result, Index: c.index, NowMS: c.nowMS})
			}
		}
		return err
	case frameReading:
		answer, err := decodeReading(body)
		if err == nil {
			l.handleReadReply(answer)
		}
		return err
	case frameClock:
		f, err := decodeClock(body)
		if err == nil {
			l.handleClock(f)
		}
		return err
	case frameFence:
		f, err := decodeFence(body)
		if err == nil {
			l.config.Requests.AddFence(requests.Fence{Term: l.leaderTerm, Stream: l.stream, Index: f.index})
		}
		return err
	}
	return errFrame
}

// handleReplies settles requests. If a request was refused, it first closes the link, so that the request is not sent
// on it again.
func (l *link) handleReplies(replies []reply) {
	refused := false
	for i := range replies {
		refused = refused || replies[i].status == statusRefused
	}
	if refused {
		l.close()
	}
	for i := range replies {
		r := &replies[i]
		got := &requests.Settlement{Verdict: statuses[r.status]}
		if r.status == statusDone {
			got = &requests.Settlement{Result: *r.result, Index: r.index, NowMS: r.nowMS}
		}
		l.config.Requests.Reply(r.sequence, l.leaderTerm, l.stream, got)
	}
	l.count(-len(replies))
}

// readIndex implements route. Readers that wait while an ask is under way share the next ask.
func (l *link) readIndex(ctx context.Context) (uint64, int64, error) {
	got, err := l.gather.Join(ctx)
	return got.index, got.nowMS, err
}

// ask asks the leader for a read index.
func (l *link) ask() (reading, error) {
	answer := make(chan readReply, 1)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return reading{}, errLinkClosed
	}
	l.lastReadNumber++
	l.pendingReads[l.lastReadNumber] = answer
	l.readsToSend = append(l.readsToSend, l.lastReadNumber)
	l.ready.Set()
	l.mu.Unlock()
	got := <-answer // from the leader, or from close
	if got.status != statusDone {
		l.close() // makes the router look for the leader again
		return reading{}, statuses[got.status].Err()
	}
	return reading{got.index, got.nowMS}, nil
}

// handleReadReply hands a reply to the read that waits for it.
func (l *link) handleReadReply(got readReply) {
	l.mu.Lock()
	answer := l.pendingReads[got.number]
	delete(l.pendingReads, got.number)
	l.mu.Unlock()
	if answer != nil {
		answer <- got
	}
}

// greet sends the hello and blocks until the leader welcomes the stream. It returns false if the stream ends first.
func (l *link) greet(w io.Writer) bool {
	hello := helloFrame{term: l.leaderTerm, origin: l.config.Requests.Origin(), number: l.stream, open: l.open}
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

// handleClock records a reading of the leader's clock.
func (l *link) handleClock(f clockFrame) {
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

// leaderMS returns a lower bound of the leader's clock.
func (l *link) leaderMS() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock.estimateMS(time.Now())
}

// frame returns a frame of commands whose callers waited when the leader's clock read at least readingMS.
func (l *link) frame(readingMS int64, live []*requests.Request) commandsFrame {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := commandsFrame{readingMS: readingMS, commands: make([]framedCommand, len(live))}
	for i, q := range live {
		f.commands[i] = framedCommand{
			sequence: q.ID.Sequence, listens: q.Listener != nil, class: q.Load.Class,
			patienceMS: l.clock.patienceMS(l.config.Requests.TimesLate(q)), data: q.Data,
		}
	}
	return f
}

// linkStream is the stream of a link. Its reads fail when the leader reports no new frames for too long. Each write is
// of whole frames.
type linkStream struct{ link *link }

func (s linkStream) Write(b []byte) (int, error) {
	s.link.limitSilence(countFrames(b))
	return timedWriter{s.link.conn}.Write(b)
}

// Read is called when all complete frames have been handled.
func (s linkStream) Read(b []byte) (int, error) {
	s.link.limitSilence(0)
	return s.link.conn.Read(b)
}

// limitSilence counts sent frames. It sets a deadline for the next read if the leader has not reported all frames, and
// keeps the deadline until the leader reports more.
func (l *link) limitSilence(frames uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.framesSent += frames
	unseen := l.framesSent > l.seen
	if l.closed || unseen == l.deadlineSet && !l.heard { // the stream of a closed link ends after linkLinger
		return
	}
	l.deadlineSet, l.heard = unseen, false
	var limit time.Time // no limit
	if unseen {
		limit = time.Now().Add(l.config.Times.Patience(linkSilence))
	}
	_ = l.conn.SetReadDeadline(limit) // if it fails, so will the next Read
}
