package cluster

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A forwarding stream carries frames both ways: length, 4 bytes big-endian,
// counting what follows | kind | body. Numbers in bodies are varints; lists are
// a count and their members. See forward_codec.go for the bodies.
const (
	frameHeader = 4
	// maxFrameBytes bounds what a peer can make this node allocate at once. A
	// frame holds at least one command or result, whatever its size.
	maxFrameBytes = 4 << 20
	// maxCommandBytes bounds one command. The largest one that clients can make,
	// by the limits of a request's body, is far below.
	maxCommandBytes = 2 << 20
	// frameFill is about where a frame is closed and the next one begun.
	frameFill = 256 << 10
)

// frameKind says what a frame carries. A number is never reused.
type frameKind byte

// The kinds of frames: those below 16 go to the leader, the others come from it.
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

// beginFrame appends a frame's head; endFrame fills its length in.
func beginFrame(buf []byte, kind frameKind) []byte {
	return append(buf, 0, 0, 0, 0, byte(kind))
}

// endFrame closes the frame that begins at start.
func endFrame(buf []byte, start int) []byte {
	binary.BigEndian.PutUint32(buf[start:], uint32(len(buf)-start-frameHeader))
	return buf
}

// countFrames returns how many frames whole ones make up.
func countFrames(buf []byte) (count uint64) {
	for len(buf) >= frameHeader {
		buf = buf[frameHeader+int(binary.BigEndian.Uint32(buf)):]
		count++
	}
	return count
}

// readFrame reads one frame, its kind and body, into buf if it has room. It
// answers io.EOF only where a frame could begin.
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

// body reads a frame's body. The first error sticks; every later read answers
// zero values, so that a decoder checks once, at its end.
type body struct {
	buf    []byte
	broken bool
}

func (b *body) fail() {
	b.buf, b.broken = nil, true
}

func (b *body) uint() uint64 {
	v, n := binary.Uvarint(b.buf)
	if n <= 0 {
		b.fail()
		return 0
	}
	b.buf = b.buf[n:]
	return v
}

func (b *body) byte() byte {
	if len(b.buf) == 0 {
		b.fail()
		return 0
	}
	v := b.buf[0]
	b.buf = b.buf[1:]
	return v
}

// milliseconds reads a cluster time, which is never negative.
func (b *body) milliseconds() int64 {
	v := b.uint()
	if v > 1<<62 {
		b.fail()
	}
	return int64(v)
}

// bytes reads a length and so many bytes, without copying them.
func (b *body) bytes() []byte {
	n := b.uint()
	if n > uint64(len(b.buf)) {
		b.fail()
		return nil
	}
	v := b.buf[:n:n]
	b.buf = b.buf[n:]
	return v
}

// count reads a list's length, and refuses one that the rest of the body can't
// hold with min bytes for each member.
func (b *body) count(min int) int {
	n := b.uint()
	if n > uint64(len(b.buf)/min) {
		b.fail()
		return 0
	}
	return int(n)
}

// done answers an error unless all was read and nothing is left.
func (b *body) done() error {
	if b.broken || len(b.buf) != 0 {
		return errFrame
	}
	return nil
}
