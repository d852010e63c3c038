package forward

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wire"
)

// A forwarding stream carries frames both ways: length, 4 bytes big-endian, of the rest of the frame | kind | body.
// Numbers in bodies are varints; lists are a count and their members. The bodies are described below.
const (
	frameHeader = 4
	// maxFrameBytes bounds how much memory a peer can make this node allocate for one frame. A frame has at least one
	// command or result, of any size.
	maxFrameBytes = 4 << 20
	// maxCommandBytes bounds one command. The limit of a request body keeps commands of clients far below it.
	maxCommandBytes = 2 << 20
	// batchCommands bounds the commands of one frame.
	batchCommands = 1024
	// frameFill is the approximate size at which a frame ends.
	frameFill = 256 << 10
)

// frameKind is the kind of a frame. A number is never reused.
type frameKind byte

// The kinds of frames: kinds below 16 go to the leader, the others come from the leader.
const (
	frameCommands    frameKind = 1
	frameRead        frameKind = 2
	frameHello       frameKind = 3
	frameReplies     frameKind = 17
	frameConclusions frameKind = 18
	frameReading     frameKind = 19
	frameClock       frameKind = 20
	frameFence       frameKind = 21
)

var errFrame = errors.New("malformed frame")

// beginFrame appends the head of a frame; endFrame fills in its length.
func beginFrame(buf []byte, kind frameKind) []byte {
	return append(buf, 0, 0, 0, 0, byte(kind))
}

// endFrame ends the frame that begins at start.
func endFrame(buf []byte, start int) []byte {
	binary.BigEndian.PutUint32(buf[start:], uint32(len(buf)-start-frameHeader))
	return buf
}

// appendNumbers appends a frame whose body consists of numbers.
func appendNumbers(buf []byte, kind frameKind, numbers ...uint64) []byte {
	start := len(buf)
	buf = beginFrame(buf, kind)
	for _, n := range numbers {
		buf = binary.AppendUvarint(buf, n)
	}
	return endFrame(buf, start)
}

// countFrames returns the number of frames in buf, which has only whole frames.
func countFrames(buf []byte) (count uint64) {
	for len(buf) >= frameHeader {
		buf = buf[frameHeader+int(binary.BigEndian.Uint32(buf)):]
		count++
	}
	return count
}

// readFrame reads the kind and the body of one frame, into buf if it is large enough. It returns io.EOF only between
// frames.
func readFrame(r *bufio.Reader, buf []byte) (frame []byte, err error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size == 0 || size > maxFrameBytes {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, size)
	}
	if int(size) > cap(buf) {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if _, err := io.ReadFull(r, buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf, nil
}

// milliseconds reads a time, which is never negative.
func milliseconds(d *wire.Decoder) int64 {
	v := d.Uint()
	if v > 1<<62 {
		d.Fail()
	}
	return int64(v)
}

// The bodies of frames. Decoded bytes alias the bytes of the frame.

// commandsFrame asks the leader of the stream's term to log commands. A node that does not lead in that term refuses
// all of them. The leader refuses single commands that are too old; see clock.go.
//
//	reading | count | (sequence | flags | patience | length, command)…
type commandsFrame struct {
	// readingMS is a lower bound of the leader's clock when the origin last saw that the callers still waited.
	readingMS int64
	commands  []framedCommand
}

// framedCommand is one command on its way to the leader.
type framedCommand struct {
	sequence uint64 // of its request id
	listens  bool   // the origin also wants the conclusion if the result is Waiting
	class    lead.Class
	// patienceMS is how long after the frame's reading the leader may accept the command.
	patienceMS int64
	data       []byte
}

// The flags of a command: flagListens, and the class of the command in the two bits above.
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
	d := wire.Decoder{Rest: buf}
	f.readingMS = milliseconds(&d)
	count := d.Count(4)
	if count > batchCommands {
		return f, errFrame
	}
	f.commands = make([]framedCommand, count)
	for i := range f.commands {
		sequence, flags := d.Uint(), d.Byte()
		if flags&^flagsKnown != 0 {
			d.Fail()
		}
		f.commands[i] = framedCommand{
			sequence: sequence, listens: flags&flagListens != 0, class: lead.Class(flags >> classShift & 3),
			patienceMS: milliseconds(&d), data: d.Bytes(d.Uint()),
		}
		if len(f.commands[i].data) > maxCommandBytes {
			d.Fail()
		}
	}
	return f, d.Done()
}

// readAsk asks the leader of a term for a read index.
//
//	term | number
type readAsk struct {
	term   uint64
	number uint64 // chosen by the origin; the reply repeats it
}

func (f *readAsk) append(buf []byte) []byte {
	return appendNumbers(buf, frameRead, f.term, f.number)
}

func decodeReadAsk(buf []byte) (f readAsk, err error) {
	d := wire.Decoder{Rest: buf}
	f.term, f.number = d.Uint(), d.Uint()
	return f, d.Done()
}

// status is the outcome of a forwarded command or read. A number is never reused.
type status byte

// The statuses. An unknown outcome has no status, because the origin learns it from its own machine.
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

// statuses says what each status means to the origin.
var statuses = [statusCount]outcome.Verdict{
	statusDone:        {},
	statusRefused:     {Fate: outcome.Refused},
	statusOverloaded:  outcome.Failed.Because(outcome.ErrOverloaded),
	statusStorageFull: outcome.Failed.Because(outcome.ErrStorageFull),
	statusUnknown:     outcome.Failed.Because(outcome.ErrNotApplied),
	statusSplit:       outcome.Failed.Because(outcome.ErrSplitState),
	statusBelowLevel:  outcome.Failed.Because(outcome.ErrBelowLevel),
	statusLate:        {Fate: outcome.Late},
}

// statusOf returns the status for a verdict that is not Unknown; statusRefused for a verdict without a status.
func statusOf(v outcome.Verdict) status {
	if i := slices.Index(statuses[:], v); i >= 0 {
		return status(i)
	}
	return statusRefused
}

// reply is the outcome of one forwarded command. A frame of replies is:
//
//	count | (sequence | status | [index | cluster time | length, result])…
type reply struct {
	sequence uint64
	status   status
	applied  // the zero value unless statusDone
}

// end is the end of a wait that a forwarded command began. A frame of conclusions is:
//
//	count | (place | index | cluster time | length, result)…
type end struct {
	place uint64
	applied
}

// applied is a result with its entry's index and cluster time.
type applied struct {
	index  uint64
	nowMS  int64
	result *fsm.Result
}

// append adds a reply to an open frame.
func (r *reply) append(buf, scratch []byte) (grown, newScratch []byte) {
	buf = binary.AppendUvarint(buf, r.sequence)
	buf = append(buf, byte(r.status))
	if r.status != statusDone {
		return buf, scratch
	}
	return r.applied.append(buf, scratch)
}

// append adds a conclusion to an open frame.
func (c *end) append(buf, scratch []byte) (grown, newScratch []byte) {
	return c.applied.append(binary.AppendUvarint(buf, c.place), scratch)
}

func (a *applied) append(buf, scratch []byte) (grown, newScratch []byte) {
	buf = binary.AppendUvarint(buf, a.index)
	buf = binary.AppendUvarint(buf, uint64(a.nowMS))
	scratch = fsm.AppendResult(scratch[:0], a.result)
	buf = binary.AppendUvarint(buf, uint64(len(scratch)))
	return append(buf, scratch...), scratch
}

func decodeReplies(buf []byte) ([]reply, error) {
	d := wire.Decoder{Rest: buf}
	replies := make([]reply, d.Count(2))
	for i := range replies {
		r := &replies[i]
		r.sequence, r.status = d.Uint(), decodeStatus(&d)
		if r.status == statusDone {
			r.applied = decodeApplied(&d)
		}
	}
	return replies, d.Done()
}

func decodeConclusions(buf []byte) ([]end, error) {
	d := wire.Decoder{Rest: buf}
	ends := make([]end, d.Count(4))
	for i := range ends {
		ends[i] = end{d.Uint(), decodeApplied(&d)}
	}
	return ends, d.Done()
}

// decodeApplied reads what applied.append wrote.
func decodeApplied(d *wire.Decoder) applied {
	index, nowMS := d.Uint(), milliseconds(d)
	encoded := d.Bytes(d.Uint())
	if d.Err != nil {
		return applied{}
	}
	result, err := fsm.DecodeResult(encoded)
	if err != nil {
		d.Fail()
		return applied{}
	}
	return applied{index, nowMS, &result}
}

func decodeStatus(d *wire.Decoder) status {
	s := status(d.Byte())
	if s >= statusCount {
		d.Fail()
	}
	return s
}

// readReply is the leader's reply to a readAsk.
//
//	number | status | [index | cluster time]
type readReply struct {
	number uint64
	status status
	index  uint64
	nowMS  int64 // the leader's reading of cluster time
}

func (f *readReply) append(buf []byte) []byte {
	if f.status != statusDone {
		return appendNumbers(buf, frameReading, f.number, uint64(f.status))
	}
	return appendNumbers(buf, frameReading, f.number, uint64(f.status), f.index, uint64(f.nowMS))
}

func decodeReading(buf []byte) (f readReply, err error) {
	d := wire.Decoder{Rest: buf}
	f.number, f.status = d.Uint(), decodeStatus(&d)
	if f.status == statusDone {
		f.index, f.nowMS = d.Uint(), milliseconds(&d)
	}
	return f, d.Done()
}

// The frames that begin a stream, carry the leader's clock and fence earlier streams.

// helloFrame is the first frame of a stream. A node that does not lead in the term,
// or has seen a later stream of the origin, closes the stream.
//
//	term | origin | number | open
type helloFrame struct {
	term   uint64
	origin uint64 // of all request ids on the stream
	number uint64 // of the stream; the origin opens each stream with a higher number
	// open is set when commands of earlier streams of this term have no outcome: then the leader sends a fence.
	open bool
}

func (f *helloFrame) append(buf []byte) []byte {
	open := uint64(0)
	if f.open {
		open = 1
	}
	return appendNumbers(buf, frameHello, f.term, f.origin, f.number, open)
}

func decodeHello(buf []byte) (f helloFrame, err error) {
	d := wire.Decoder{Rest: buf}
	f.term, f.origin, f.number, f.open = d.Uint(), d.Uint(), d.Uint(), d.Bool()
	return f, d.Done()
}

// clockFrame is a reading of the leader's forwarding clock. The first reading welcomes the origin. The leader adds a
// reading to everything that it sends, and sends one about every clockEvery.
//
//	reading | age | frames
type clockFrame struct {
	readingMS int64
	ageMS     int64  // of the last frame of commands when it arrived; 0 before the first
	frames    uint64 // how many have arrived on the stream
}

func (f *clockFrame) append(buf []byte) []byte {
	return appendNumbers(buf, frameClock, uint64(f.readingMS), uint64(f.ageMS), f.frames)
}

func decodeClock(buf []byte) (f clockFrame, err error) {
	d := wire.Decoder{Rest: buf}
	f.readingMS, f.ageMS, f.frames = milliseconds(&d), milliseconds(&d), d.Uint()
	return f, d.Done()
}

// fenceFrame promises that all entries from earlier streams of the origin are at or below an index: these streams add
// no more entries.
//
//	index
type fenceFrame struct{ index uint64 }

func (f *fenceFrame) append(buf []byte) []byte {
	return appendNumbers(buf, frameFence, f.index)
}

func decodeFence(buf []byte) (f fenceFrame, err error) {
	d := wire.Decoder{Rest: buf}
	f.index = d.Uint()
	return f, d.Done()
}

// timedWriter sets a deadline for each write of frames, on both sides of a stream.
type timedWriter struct{ conn net.Conn }

func (w timedWriter) Write(b []byte) (int, error) {
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return w.conn.Write(b)
}
