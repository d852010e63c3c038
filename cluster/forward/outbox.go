package forward

import (
	"encoding/binary"
	"io"
	"sync"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// maxOutbox bounds the messages that wait for a slow peer. An outcome counts as 1, plus 1 for each member of a list in
// its result; another frame counts as its bytes. A peer beyond the bound is disconnected, and learns the outcomes from
// its own machine.
const maxOutbox = 1 << 17

// outbox gathers the messages of a leader to one peer. Messages added while a frame is written share the next frame.
// Adding never blocks, because the apply goroutine does it. Safe for concurrent use; one goroutine, write, empties it.
type outbox struct {
	mu      sync.Mutex
	pending pendingFrames
	closed  bool
	ready   wake.Signal // frames are pending, or the outbox is closed
	// After the stream's hello, each write includes a reading of clock, and the outbox also writes at each multiple of
	// clockEvery of the wall clock.
	clock        func() clockFrame
	clockStarted bool
}

// pendingFrames is the messages that wait to be written. Replies go before conclusions, so that the origin knows a
// place before the end of its wait.
type pendingFrames struct {
	replies []reply
	ends    []end
	frames  []byte // whole frames: readings of the clock, replies to reads, fences
	members int    // of the lists in the results of replies and ends
}

func (m *pendingFrames) size() int { return len(m.replies) + len(m.ends) + len(m.frames) + m.members }

// weigh counts the members of the replies and ends from these indexes on.
func (m *pendingFrames) weigh(replies, ends int) {
	count := func(r *fsm.Result) {
		if r != nil {
			m.members += len(r.Grants) + len(r.Each) + len(r.Completed)
		}
	}
	for i := range m.replies[replies:] {
		count(m.replies[replies+i].result)
	}
	for i := range m.ends[ends:] {
		count(m.ends[ends+i].result)
	}
}

func newOutbox(clock func() clockFrame) *outbox {
	return &outbox{ready: wake.NewSignal(), clock: clock}
}

// add calls put, which appends to the pending frames. It returns false if the outbox is closed. A message beyond
// maxOutbox closes it.
func (o *outbox) add(put func(*pendingFrames)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	replies, ends := len(o.pending.replies), len(o.pending.ends)
	put(&o.pending)
	o.pending.weigh(replies, ends)
	o.closed = o.pending.size() > maxOutbox
	o.ready.Set()
	return !o.closed
}

// addFrame adds a frame. put appends it.
func (o *outbox) addFrame(put func(buf []byte) []byte) {
	o.add(func(m *pendingFrames) { m.frames = put(m.frames) })
}

// close makes write return.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.ready.Set()
}

// begin starts the readings of the clock. The first reading welcomes the origin.
func (o *outbox) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clockStarted = true
	o.ready.Set()
}

// takeAll returns all pending frames, and reuses empty for the next ones; ok is false once the outbox is closed.
func (o *outbox) takeAll(empty pendingFrames) (full pendingFrames, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	full = o.pending
	o.pending = pendingFrames{replies: empty.replies[:0], ends: empty.ends[:0], frames: empty.frames[:0]}
	if o.clockStarted {
		now := o.clock()
		full.frames = now.append(full.frames)
	}
	return full, !o.closed
}

// write writes pending frames to w until it fails or the outbox is closed.
func (o *outbox) write(w io.Writer) error {
	var sent pendingFrames
	var buf, scratch []byte
	timer := time.NewTimer(wake.Next(clockEvery))
	defer timer.Stop()
	for {
		select {
		case <-o.ready:
		case <-timer.C:
			timer.Reset(wake.Next(clockEvery))
		}
		full, ok := o.takeAll(sent)
		if !ok {
			return nil
		}
		var err error
		buf, scratch, err = full.write(w, buf, scratch)
		if err != nil {
			return err
		}
		clear(full.replies) // otherwise they would keep the results of whole entries in memory
		clear(full.ends)
		sent = full
	}
}

// write writes mail as frames. It returns its buffers for the next call.
func (m *pendingFrames) write(w io.Writer, buf, scratch []byte) (buf2, scratch2 []byte, err error) {
	buf = buf[:0]
	flush := func() {
		if err == nil && len(buf) > 0 {
			_, err = w.Write(buf)
		}
		buf = buf[:0]
	}
	list := func(kind frameKind, count int, item func(i int)) {
		for done := 0; done < count; {
			// The count comes before the members, but how many fit is not known yet. So the members follow a gap for
			// the count.
			start := len(buf)
			buf = beginFrame(buf, kind)
			head := len(buf)
			buf = append(buf, make([]byte, binary.MaxVarintLen32)...)
			members := 0
			for ; done < count && len(buf)-start < frameFill; done++ {
				item(done)
				members++
			}
			buf = fillCount(buf, head, members)
			buf = endFrame(buf, start)
			if len(buf) >= frameFill {
				flush()
			}
		}
	}
	list(frameReplies, len(m.replies), func(i int) { buf, scratch = m.replies[i].append(buf, scratch) })
	list(frameConclusions, len(m.ends), func(i int) { buf, scratch = m.ends[i].append(buf, scratch) })
	buf = append(buf, m.frames...)
	flush()
	return buf, scratch, err
}

// fillCount writes a count into the gap at head, as a varint padded to the width of the gap.
func fillCount(buf []byte, head, count int) []byte {
	for i := range binary.MaxVarintLen32 {
		more := byte(0x80)
		if i == binary.MaxVarintLen32-1 {
			more = 0
		}
		buf[head+i] = byte(count)&0x7f | more
		count >>= 7
	}
	return buf
}
