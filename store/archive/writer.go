package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"io"
)

// Writer writes a backup. Write adds to the state; Close writes the end, without which a Reader finds the backup cut
// short.
type Writer struct {
	w      io.Writer
	sum    hash.Hash // of all bytes written so far
	chunk  []byte    // the present chunk, not written yet
	number uint64    // number of the present chunk
	size   uint64    // bytes of all earlier chunks
	err    error     // the first error
}

var errClosed = errors.New("the backup is closed")

// NewWriter begins a backup with its header. It buffers one chunk.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	a := &Writer{w: w, sum: sha256.New(), chunk: make([]byte, 0, chunkBytes)}
	head := append([]byte(magic), Version)
	head = binary.BigEndian.AppendUint32(head, headerBytes)
	head = append(head, h.encode()...)
	a.put(binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli)))
	return a, a.err
}

// Write adds bytes to the state. After an error of the underlying writer, all calls return that error.
func (a *Writer) Write(content []byte) (written int, err error) {
	for len(content) > 0 && a.err == nil {
		n := min(len(content), chunkBytes-len(a.chunk))
		a.chunk = append(a.chunk, content[:n]...)
		content, written = content[n:], written+n
		if len(a.chunk) == chunkBytes {
			a.flush()
		}
	}
	return written, a.err
}

// flush writes the present chunk, unless it is empty.
func (a *Writer) flush() {
	if len(a.chunk) == 0 {
		return
	}
	head := binary.BigEndian.AppendUint32(make([]byte, 0, 8), uint32(len(a.chunk)))
	a.put(binary.BigEndian.AppendUint32(head, chunkChecksum(a.number, a.chunk)))
	a.put(a.chunk)
	a.size += uint64(len(a.chunk))
	a.number++
	a.chunk = a.chunk[:0]
}

// put writes bytes and adds them to the final checksum.
func (a *Writer) put(content []byte) {
	if a.err == nil {
		_, _ = a.sum.Write(content) // never fails
		_, a.err = a.w.Write(content)
	}
}

// Close completes the backup. It does not close the underlying writer. A backup that is given up needs no Close.
func (a *Writer) Close() error {
	a.flush()
	a.put(binary.BigEndian.AppendUint64(make([]byte, 4, 12), a.size)) // a length of 0, 4 bytes, marks the end of the chunks
	a.put(a.sum.Sum(nil))
	if a.err != nil {
		return a.err
	}
	a.err = errClosed
	return nil
}
