package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// Reader reads a backup: first its header, then the state, which it verifies chunk by chunk.
type Reader struct {
	r      io.Reader
	header Header
	sum    hash.Hash // of all bytes read so far
	left   []byte    // verified bytes of the present chunk that Read has not returned yet
	chunk  []byte
	number uint64 // number of the next chunk
	size   uint64 // bytes of all earlier chunks
	err    error  // the first error, or io.EOF at the end
}

// NewReader reads and verifies the header.
func NewReader(r io.Reader) (*Reader, error) {
	a := &Reader{r: r, sum: sha256.New()}
	var head [len(magic) + 5]byte
	if err := a.take(head[:]); errors.Is(err, ErrCut) {
		return nil, ErrNoBackup
	} else if err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[len(magic)+1:])
	switch {
	case string(head[:len(magic)]) != magic:
		return nil, ErrNoBackup
	case head[len(magic)] > Version:
		return nil, fmt.Errorf("%w, in format %d; this version knows %d", ErrNewer, head[len(magic)], Version)
	case head[len(magic)] != Version, length != headerBytes:
		return nil, fmt.Errorf("%w: its header", ErrDamaged)
	}
	var rest [headerBytes + 4]byte
	if err := a.take(rest[:]); err != nil {
		return nil, err
	}
	sum := crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, rest[:headerBytes])
	if sum != binary.BigEndian.Uint32(rest[headerBytes:]) {
		return nil, fmt.Errorf("%w: its header", ErrDamaged)
	}
	var err error
	a.header, err = decodeHeader(rest[:headerBytes])
	return a, err
}

// Header returns the backup's header.
func (a *Reader) Header() Header { return a.header }

// Size returns the number of bytes in the chunks that were read so far.
func (a *Reader) Size() uint64 { return a.size }

// Read returns bytes of the state, and io.EOF once the whole backup is verified.
func (a *Reader) Read(content []byte) (int, error) {
	for len(a.left) == 0 && a.err == nil {
		a.err = a.next()
	}
	if a.err != nil {
		return 0, a.err
	}
	n := copy(content, a.left)
	a.left = a.left[n:]
	return n, nil
}

// next reads the next chunk, or the end.
func (a *Reader) next() error {
	var length [4]byte
	if err := a.take(length[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size == 0 {
		return a.end()
	}
	if size > chunkBytes {
		return fmt.Errorf("%w: the length of chunk %d", ErrDamaged, a.number)
	}
	var sum [4]byte
	if err := a.take(sum[:]); err != nil {
		return err
	}
	if a.chunk == nil {
		a.chunk = make([]byte, chunkBytes)
	}
	content := a.chunk[:size]
	if err := a.take(content); err != nil {
		return err
	}
	if binary.BigEndian.Uint32(sum[:]) != chunkChecksum(a.number, content) {
		return fmt.Errorf("%w: chunk %d", ErrDamaged, a.number)
	}
	a.number++
	a.size += uint64(size)
	a.left = content
	return nil
}

// end verifies the end of the backup. No byte may follow it.
func (a *Reader) end() error {
	var total [8]byte
	if err := a.take(total[:]); err != nil {
		return err
	}
	want := a.sum.Sum(nil)
	sum := make([]byte, sha256.Size)
	if err := a.take(sum); err != nil {
		return err
	}
	if binary.BigEndian.Uint64(total[:]) != a.size || !bytes.Equal(sum, want) {
		return fmt.Errorf("%w: its final checksum", ErrDamaged)
	}
	switch n, err := io.ReadFull(a.r, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%w: there are bytes after its end", ErrDamaged)
	default:
		return err // io.EOF, or the underlying reader's error
	}
}

// take reads the next bytes into content and adds them to the final checksum.
func (a *Reader) take(content []byte) error {
	_, err := io.ReadFull(a.r, content)
	switch {
	case err == nil:
		_, _ = a.sum.Write(content) // never fails
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrCut
	}
	return err
}
