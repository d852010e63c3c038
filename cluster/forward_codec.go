package cluster

import (
	"encoding/binary"

	"github.com/signalbox/signalbox/fsm"
)

// What frames carry. Decoded bytes alias the frame's.

// commandsFrame asks the leader of the stream's term to log commands. A node that
// does not lead in that term refuses all of them. It refuses single ones that are
// too old; see forward_clock.go.
//
//	reading | count | (sequence | flags | patience | length, command)…
type commandsFrame struct {
	// readingMS is what the leader's clock read at least when the origin last saw
	// that the callers still waited.
	readingMS int64
	commands  []forwarded
}

// forwarded is one command on its way to the leader.
type forwarded struct {
	sequence uint64 // of its request id
	listens  bool   // tell the conclusion, too, when the result is Waiting
	class    class
	// patienceMS is how long after the frame's reading the leader may take it.
	patienceMS int64
	data       []byte
}

// The flags of a command: flagListens, and its class in the two bits above.
const (
	flagListens = 1
	classShift  = 1
	flagsKnown  = flagListens | 3<<classShift
)

func (f *commandsFrame) append(buf []byte) []byte {
	start := len(buf)
	buf = beginFrame(buf, frameCommands)
	buf = binary.AppendUvarint(buf, uint64(f.readingMS))
	buf = binary.AppendUvarint(buf, uint64(len(f.commands)))
	for _, c := range f.commands {
		flags := byte(c.class) << classShift
		if c.listens {
			flags |= flagListens
		}
		buf = binary.AppendUvarint(buf, c.sequence)
		buf = append(buf, flags)
		buf = binary.AppendUvarint(buf, uint64(c.patienceMS))
		buf = binary.AppendUvarint(buf, uint64(len(c.data)))
		buf = append(buf, c.data...)
	}
	return endFrame(buf, start)
}

func decodeCommands(buf []byte) (f commandsFrame, err error) {
	b := body{buf: buf}
	f.readingMS = b.milliseconds()
	count := b.count(4)
	if count > batchCommands {
		return f, errFrame
	}
	f.commands = make([]forwarded, count)
	for i := range f.commands {
		sequence, flags := b.uint(), b.byte()
		if flags&^flagsKnown != 0 {
			b.fail()
		}
		f.commands[i] = forwarded{
			sequence: sequence, listens: flags&flagListens != 0, class: class(flags >> classShift & 3),
			patienceMS: b.milliseconds(), data: b.bytes(),
		}
		if len(f.commands[i].data) > maxCommandBytes {
			b.fail()
		}
	}
	return f, b.done()
}

// readAsk asks the leader of a term for a read index.
//
//	term | number
type readAsk struct {
	term   uint64
	number uint64 // the origin's, for the answer to name
}

func (f *readAsk) append(buf []byte) []byte {
	start := len(buf)
	buf = beginFrame(buf, frameRead)
	buf = binary.AppendUvarint(buf, f.term)
	buf = binary.AppendUvarint(buf, f.number)
	return endFrame(buf, start)
}

func decodeReadAsk(buf []byte) (f readAsk, err error) {
	b := body{buf: buf}
	f.term, f.number = b.uint(), b.uint()
	return f, b.done()
}

// status says how a forwarded command or read came out. A number is never reused.
type status byte

// The statuses. There is none for "not known": the origin finds out by itself.
const (
	statusDone        status = 0 // the result follows
	statusRefused     status = 1 // not applied: send it again, elsewhere or later
	statusOverloaded  status = 2 // not applied: too many commands wait
	statusStorageFull status = 3 // not applied: the leader's disk is full
	statusUnknown     status = 4 // not applied: the leader does not know this command
	statusSplit       status = 5 // not applied: the members' states differ
	statusBelowLevel  status = 6 // not applied: the cluster's feature level is too low
	statusLate        status = 7 // not applied: too old; send it again if its caller still waits
	statusCount              = 8
)

// err answers what a status other than statusDone means to the origin.
func (s status) err() error {
	switch s {
	case statusOverloaded:
		return ErrOverloaded
	case statusStorageFull:
		return ErrStorageFull
	case statusSplit:
		return ErrSplitState
	case statusUnknown:
		return ErrNotApplied
	case statusBelowLevel:
		return ErrBelowLevel
	case statusLate:
		return errLate
	}
	return errRefused
}

// statusOf is the opposite of err.
func statusOf(err error) status {
	switch err {
	case nil:
		return statusDone
	case ErrOverloaded:
		return statusOverloaded
	case ErrStorageFull:
		return statusStorageFull
	case ErrSplitState:
		return statusSplit
	case ErrNotApplied:
		return statusUnknown
	case ErrBelowLevel:
		return statusBelowLevel
	case errLate:
		return statusLate
	}
	return statusRefused
}

// forwardReply is the outcome of one forwarded command. In a frame of replies:
//
//	count | (sequence | status | [index | cluster time | length, result])…
type forwardReply struct {
	sequence uint64
	status   status
	index    uint64
	nowMS    int64
	result   *fsm.Result // nil unless statusDone
}

// forwardEnd is the end of a wait that a forwarded command began. In a frame of
// conclusions:
//
//	count | (place | index | cluster time | length, result)…
type forwardEnd struct {
	place  uint64
	index  uint64
	nowMS  int64
	result *fsm.Result
}

// forwardReading answers a readAsk.
//
//	number | status | [index | cluster time]
type forwardReading struct {
	number uint64
	status status
	index  uint64
	nowMS  int64 // the leader's reading of cluster time
}

// append adds one reply to an open frame.
func (r *forwardReply) append(buf, scratch []byte) (grown, newScratch []byte) {
	buf = binary.AppendUvarint(buf, r.sequence)
	buf = append(buf, byte(r.status))
	if r.status != statusDone {
		return buf, scratch
	}
	return appendOutcome(buf, scratch, r.index, r.nowMS, r.result)
}

// append adds one conclusion to an open frame.
func (c *forwardEnd) append(buf, scratch []byte) (grown, newScratch []byte) {
	buf = binary.AppendUvarint(buf, c.place)
	return appendOutcome(buf, scratch, c.index, c.nowMS, c.result)
}

func appendOutcome(buf, scratch []byte, index uint64, nowMS int64, result *fsm.Result) (grown, newScratch []byte) {
	buf = binary.AppendUvarint(buf, index)
	buf = binary.AppendUvarint(buf, uint64(nowMS))
	scratch = fsm.AppendResult(scratch[:0], result)
	buf = binary.AppendUvarint(buf, uint64(len(scratch)))
	return append(buf, scratch...), scratch
}

func decodeReplies(buf []byte) ([]forwardReply, error) {
	b := body{buf: buf}
	replies := make([]forwardReply, b.count(2))
	for i := range replies {
		r := &replies[i]
		r.sequence, r.status = b.uint(), status(b.byte())
		if r.status >= statusCount {
			b.fail()
		}
		if r.status == statusDone {
			r.index, r.nowMS, r.result = b.outcome()
		}
	}
	return replies, b.done()
}

func decodeConclusions(buf []byte) ([]forwardEnd, error) {
	b := body{buf: buf}
	ends := make([]forwardEnd, b.count(4))
	for i := range ends {
		ends[i].place = b.uint()
		ends[i].index, ends[i].nowMS, ends[i].result = b.outcome()
	}
	return ends, b.done()
}

// outcome reads what appendOutcome wrote.
func (b *body) outcome() (index uint64, nowMS int64, result *fsm.Result) {
	index, nowMS = b.uint(), b.milliseconds()
	encoded := b.bytes()
	if b.broken {
		return 0, 0, nil
	}
	decoded, err := fsm.DecodeResult(encoded)
	if err != nil {
		b.fail()
		return 0, 0, nil
	}
	return index, nowMS, &decoded
}

func (f *forwardReading) append(buf []byte) []byte {
	start := len(buf)
	buf = beginFrame(buf, frameReading)
	buf = binary.AppendUvarint(buf, f.number)
	buf = append(buf, byte(f.status))
	if f.status == statusDone {
		buf = binary.AppendUvarint(buf, f.index)
		buf = binary.AppendUvarint(buf, uint64(f.nowMS))
	}
	return endFrame(buf, start)
}

func decodeReading(buf []byte) (f forwardReading, err error) {
	b := body{buf: buf}
	f.number, f.status = b.uint(), status(b.byte())
	if f.status >= statusCount {
		b.fail()
	}
	if f.status == statusDone {
		f.index, f.nowMS = b.uint(), b.milliseconds()
	}
	return f, b.done()
}
