package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// streamBuffer is how many bytes may be under way, in bytes: a writer waits
// beyond it, as it does beyond TCP's window.
const streamBuffer = 256 << 10

// stream is one direction of a connection.
type stream struct {
	mu      sync.Mutex
	changed sync.Cond
	link    condition

	chunks []chunk // in order of arrival; their due times never fall
	size   int     // bytes in chunks, at most streamBuffer

	writerClosed, readerClosed, broken bool
	readBy, writeBy                    deadline
}

// chunk is the bytes that one write, or a part of it, puts under way.
type chunk struct {
	data []byte // empty: the end of the stream
	due  time.Time
}

// deadline is a moment from which calls fail, and the timer that wakes them.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func newStream(c condition) *stream {
	s := &stream{link: c}
	s.changed.L = &s.mu
	return s
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readerClosed:
			return 0, net.ErrClosed
		case s.broken:
			return 0, syscall.ECONNRESET
		case s.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case s.arrived():
			return s.take(b)
		}
		s.changed.Wait()
	}
}

// ended reports whether the next read would find the end of the stream.
func (s *stream) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken || s.arrived() && len(s.chunks[0].data) == 0
}

// arrived reports whether the first chunk has got through. The caller holds mu.
func (s *stream) arrived() bool {
	return len(s.chunks) > 0 && !s.link.cut && !time.Now().Before(s.chunks[0].due)
}

// take reads from the first chunk. The caller holds mu.
func (s *stream) take(b []byte) (int, error) {
	first := &s.chunks[0]
	if len(first.data) == 0 {
		return 0, io.EOF // it stays, for the next read
	}
	n := copy(b, first.data)
	s.size -= n
	if first.data = first.data[n:]; len(first.data) == 0 {
		s.chunks = s.chunks[1:]
	}
	s.changed.Broadcast() // there is room
	return n, nil
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	written := 0
	for {
		switch {
		case s.writerClosed:
			return written, net.ErrClosed
		case s.broken:
			return written, syscall.ECONNRESET
		case s.writeBy.passed():
			return written, os.ErrDeadlineExceeded
		case s.readerClosed && !s.link.cut: // behind a cut the writer can't know
			return written, syscall.EPIPE
		case written == len(b):
			return written, nil
		}
		if n := min(len(b)-written, streamBuffer-s.size); n > 0 {
			if s.link.line != nil {
				n = min(n, lineBurst)
			}
			s.send(append([]byte(nil), b[written:written+n]...))
			written += n
			continue
		}
		s.changed.Wait()
	}
}

// send puts a chunk under way. The caller holds mu.
func (s *stream) send(data []byte) {
	due := time.Now()
	if s.link.line != nil {
		due = s.link.line.carry(len(data))
	}
	due = due.Add(s.link.delay)
	if n := len(s.chunks); n > 0 && due.Before(s.chunks[n-1].due) {
		due = s.chunks[n-1].due // no chunk overtakes
	}
	s.chunks = append(s.chunks, chunk{data, due})
	s.size += len(data)
	if wait := time.Until(due); wait > 0 {
		time.AfterFunc(wait, s.wake)
	}
	s.changed.Broadcast()
}

func (s *stream) closeWriter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(nil)
	s.writerClosed = true
	s.writeBy.stop()
	s.changed.Broadcast()
}

func (s *stream) closeReader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readerClosed = true
	s.readBy.stop()
	s.changed.Broadcast()
}

func (s *stream) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	s.changed.Broadcast()
}

func (s *stream) behave(c condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = c
	s.changed.Broadcast()
}

// setDeadline sets one of the stream's own deadlines; the zero time removes it.
func (s *stream) setDeadline(d *deadline, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.stop()
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, s.wake)
	}
	s.changed.Broadcast()
}

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

func (s *stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed.Broadcast()
}
