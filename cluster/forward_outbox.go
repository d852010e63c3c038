package cluster

import (
	"encoding/binary"
	"io"
	"sync"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// maxOutbox is how many messages may wait for a peer that reads slowly, each counted
// as the members of the lists in its result and one, so that it bounds bytes too. A peer
// beyond it is cut off: it learns the outcomes from its own machine.
const maxOutbox = 1 << 17

// outbox gathers what a leader has to tell one peer, so that what comes while a
// frame is being written shares the next one. It never blocks who adds to it:
// the apply goroutine. Safe for concurrent use; one goroutine, write, empties it.
type outbox struct {
	mu    sync.Mutex
	mail  mail
	shut  bool
	ready chan struct{} // has room for one: there is mail, or it is shut
	// clock is read whenever mail is written, and every clockEvery; nil before the
	// stream's hello.
	clock func() clockFrame
}

// mail is what waits. Replies go before conclusions, so that the origin knows a
// place before it is told its end.
type mail struct {
	replies  []forwardReply
	ends     []forwardEnd
	readings []forwardReading
	fences   []fenceFrame
	clock    *clockFrame // nil: none
	members  int         // of the lists in the results of replies and ends
}

func (m *mail) size() int {
	return len(m.replies) + len(m.ends) + len(m.readings) + len(m.fences) + m.members
}

// weigh counts the members of the results from those replies and ends on.
func (m *mail) weigh(replies, ends int) {
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

func newOutbox() *outbox { return &outbox{ready: make(chan struct{}, 1)} }

// add lets put append to the mail. It reports false once the outbox is shut,
// also because this was too much.
func (o *outbox) add(put func(*mail)) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.shut {
		return false
	}
	replies, ends := len(o.mail.replies), len(o.mail.ends)
	put(&o.mail)
	o.mail.weigh(replies, ends)
	o.shut = o.mail.size() > maxOutbox
	signal(o.ready)
	return !o.shut
}

// close makes write return.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut = true
	signal(o.ready)
}

// begin lets readings of a clock go with the mail from now on.
func (o *outbox) begin(clock func() clockFrame) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clock = clock
	signal(o.ready)
}

// take answers all mail, leaving empty for what comes next; ok is false once shut.
func (o *outbox) take(empty mail) (full mail, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	full = o.mail
	o.mail = mail{replies: empty.replies[:0], ends: empty.ends[:0], readings: empty.readings[:0], fences: empty.fences[:0]}
	if o.clock != nil {
		now := o.clock()
		full.clock = &now
	}
	return full, !o.shut
}

// write writes mail to w until it fails or the outbox is shut.
func (o *outbox) write(w io.Writer) error {
	var sent mail
	var buf, scratch []byte
	ticker := time.NewTicker(clockEvery)
	defer ticker.Stop()
	for {
		select {
		case <-o.ready:
		case <-ticker.C:
		}
		full, ok := o.take(sent)
		if !ok {
			return nil
		}
		var err error
		buf, scratch, err = full.write(w, buf, scratch)
		if err != nil {
			return err
		}
		clear(full.replies) // they pin whole entries' results
		clear(full.ends)
		sent = full
	}
}

// write writes mail as frames. It answers its buffers for the next time.
func (m *mail) write(w io.Writer, buf, scratch []byte) (buf2, scratch2 []byte, err error) {
	buf = buf[:0]
	flush := func() {
		if err == nil && len(buf) > 0 {
			_, err = w.Write(buf)
		}
		buf = buf[:0]
	}
	list := func(kind frameKind, count int, item func(i int)) {
		for done := 0; done < count; {
			// The count stands before the members, of which it is not known yet
			// how many fit: they are written behind room for it.
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
	for i := range m.readings {
		buf = m.readings[i].append(buf)
	}
	for i := range m.fences {
		buf = m.fences[i].append(buf)
	}
	if m.clock != nil {
		buf = m.clock.append(buf)
	}
	flush()
	return buf, scratch, err
}

// fillCount puts a count into the room left for it at head, as a varint of that
// very width: the groups of seven bits that it doesn't need are zero.
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
