package cluster

import "encoding/binary"

// What a forwarding stream carries beside commands, reads and their outcomes.

// helloFrame is the first frame of a stream. A node that does not lead in the term,
// or has seen a later stream of the origin, closes the stream.
//
//	term | origin | number | open
type helloFrame struct {
	term   uint64
	origin uint64 // of all request ids on the stream
	number uint64 // of the stream; rises with each that the origin opens
	// open is set when commands of earlier streams of this term have no outcome: the
	// leader then sends a fence.
	open bool
}

func (f *helloFrame) append(buf []byte) []byte {
	start := len(buf)
	buf = beginFrame(buf, frameHello)
	buf = binary.AppendUvarint(buf, f.term)
	buf = binary.AppendUvarint(buf, f.origin)
	buf = binary.AppendUvarint(buf, f.number)
	open := byte(0)
	if f.open {
		open = 1
	}
	return endFrame(append(buf, open), start)
}

func decodeHello(buf []byte) (f helloFrame, err error) {
	b := body{buf: buf}
	f.term, f.origin, f.number = b.uint(), b.uint(), b.uint()
	open := b.byte()
	if open > 1 {
		b.fail()
	}
	f.open = open == 1
	return f, b.done()
}

// clockFrame is a reading of the leader's forwarding clock. The first one welcomes
// the origin; others follow with whatever the leader sends, and at least every
// clockEvery.
//
//	reading | age | frames
type clockFrame struct {
	readingMS int64
	ageMS     int64  // of the last frame of commands when it came; 0 before the first
	frames    uint64 // how many have come on the stream
}

func (f *clockFrame) append(buf []byte) []byte {
	start := len(buf)
	buf = beginFrame(buf, frameClock)
	buf = binary.AppendUvarint(buf, uint64(f.readingMS))
	buf = binary.AppendUvarint(buf, uint64(f.ageMS))
	buf = binary.AppendUvarint(buf, f.frames)
	return endFrame(buf, start)
}

func decodeClock(buf []byte) (f clockFrame, err error) {
	b := body{buf: buf}
	f.readingMS, f.ageMS, f.frames = b.milliseconds(), b.milliseconds(), b.uint()
	return f, b.done()
}

// fenceFrame says that whatever earlier streams of the origin brought into the log is
// at or below an index, and that nothing more of them ever will be.
//
//	index
type fenceFrame struct{ index uint64 }

func (f *fenceFrame) append(buf []byte) []byte {
	start := len(buf)
	buf = beginFrame(buf, frameFence)
	return endFrame(binary.AppendUvarint(buf, f.index), start)
}

func decodeFence(buf []byte) (f fenceFrame, err error) {
	b := body{buf: buf}
	f.index = b.uint()
	return f, b.done()
}
