package journal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
)

const (
	// FileName is the journal's file in a data folder.
	FileName = "journal"
	// DefaultHalf is the size of a half, in bytes.
	DefaultHalf = 8 << 20

	fileMagic   = 0x53424a31 // "SBJ1"
	fileVersion = 1
	fileHead    = 4096 // bytes before the first half; the first fileUsed are used
	fileUsed    = 36
)

var (
	// ErrNoRoom reports that both halves hold records that are not drained. The change is
	// not stored.
	ErrNoRoom = errors.New("the journal is full")
	// ErrTooLarge reports a change that is larger than a half. It is not stored.
	ErrTooLarge = errors.New("the change is larger than a half of the journal")
)

// File is where a journal is. What WriteAt has written is on the disk when it returns nil.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// state is where the next record goes, and what the file's head says.
type state struct {
	half int64  // bytes
	salt uint32 // each check begins with it
	base uint64 // the sequence before the first record of the file

	generation uint64 // of the half that is written: its lowest bit is the half
	at         int64  // where in that half the next record goes
	check      uint32 // of the last record of the half, 0 if it has none
	sequence   uint64 // of the last record
	before     uint64 // the last sequence of the generation before: the other half has records up to there
}

// Journal appends records to a file.
type Journal struct {
	state
	file    File
	unsure  bool          // a write failed, and its record may be there all the same
	buffer  []byte        // of the last record, for the next one
	drained atomic.Uint64 // see Drained
}

// Create makes the file in a folder, in place of any other, for changes after the sequence
// base. It is durable on return. half is in bytes.
func Create(folder string, half int64, base uint64) error {
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // never fails
	file, err := os.OpenFile(filepath.Join(folder, FileName), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(encodeFileHead(half, base, salt))
	// Written, not only extended: a file with holes has no room of its own.
	for zeros, left := make([]byte, 1<<20), 2*half; err == nil && left > 0; left -= int64(len(zeros)) {
		_, err = file.Write(zeros[:min(left, int64(len(zeros)))])
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	names, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(names.Sync(), names.Close())
}

// encodeFileHead returns what stands before the halves. It is never written again.
func encodeFileHead(half int64, base uint64, salt [8]byte) []byte {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(make([]byte, 0, fileHead), fileMagic), fileVersion)
	head = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(head, uint64(half)), base)
	head = append(head, salt[:]...)
	return binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))[:fileHead]
}

// decodeFileHead reads what encodeFileHead returns.
func decodeFileHead(head []byte) (s state, err error) {
	used := head[:fileUsed-4]
	switch {
	case binary.BigEndian.Uint32(head) != fileMagic, binary.BigEndian.Uint32(head[fileUsed-4:]) != crc32.Checksum(used, castagnoli):
		return state{}, errors.New("its head can't be read")
	case binary.BigEndian.Uint32(head[4:]) != fileVersion:
		return state{}, fmt.Errorf("it has version %d, and this program knows version %d", binary.BigEndian.Uint32(head[4:]), fileVersion)
	}
	s.half, s.base = int64(binary.BigEndian.Uint64(head[8:])), binary.BigEndian.Uint64(head[16:])
	if s.half < recordAlign || s.half > 1<<32 || s.half%recordAlign != 0 {
		return state{}, fmt.Errorf("it has halves of %d bytes", s.half)
	}
	s.salt = crc32.Checksum(head[24:32], castagnoli)
	return s, nil
}

// OpenFile opens the file in a folder.
func OpenFile(folder string) (File, error) {
	flags := os.O_RDWR
	if runtime.GOOS == "linux" {
		flags |= syscall.O_DSYNC // as if fdatasync followed each write, in one call
	}
	file, err := os.OpenFile(filepath.Join(folder, FileName), flags, 0)
	if err != nil || runtime.GOOS == "linux" {
		return file, err
	}
	return syncedFile{file}, nil
}

// syncedFile syncs each write; elsewhere than on Linux, O_DSYNC may be no more than a hint.
type syncedFile struct{ *os.File }

func (s syncedFile) WriteAt(content []byte, at int64) (int, error) {
	n, err := s.File.WriteAt(content, at)
	if err == nil {
		err = s.Sync()
	}
	return n, err
}

// Open returns a journal that goes on where Read found its end. Changes up to the sequence
// drained are drained. The last record is written again: Read may have it from the page cache,
// while its sync failed or never came to its end. Those before it are on the disk, since each
// was synced before the next one was written.
func Open(file File, found Contents, drained uint64) (*Journal, error) {
	j := &Journal{state: found.state, file: file}
	j.drained.Store(drained)
	if len(found.last) == 0 {
		return j, nil
	}
	_, err := file.WriteAt(found.last, found.lastAt)
	return j, err
}

// Append stores a change and returns its sequence. It is on the disk on return. With
// ErrNoRoom and ErrTooLarge nothing was written; other errors are of the system, and then it is
// not known whether the disk has the record: Settle removes it. After a failed sync, there must
// be no next one.
func (j *Journal) Append(op Op) (sequence uint64, err error) {
	if err := j.Settle(); err != nil {
		return 0, err
	}
	size := aligned(recordHead + op.bodySize())
	switch {
	case size > j.half:
		return 0, ErrTooLarge
	case j.at+size > j.half && j.drained.Load() < j.before:
		return 0, ErrNoRoom
	case j.at+size > j.half: // also if the write fails: then the next record goes to that place too
		j.generation, j.at, j.check, j.before = j.generation+1, 0, 0, j.sequence
	}
	return j.write(op)
}

// Settle writes a change of nothing in place of a record that a failed write may have left.
func (j *Journal) Settle() error {
	if !j.unsure {
		return nil
	}
	_, err := j.write(Op{Entries: []Entry{}}) // there is room: no record is smaller
	return err
}

// write writes a record, for which there is room.
func (j *Journal) write(op Op) (sequence uint64, err error) {
	next := j.state
	next.sequence++
	j.buffer, next.check = appendRecord(j.buffer[:0], record{generation: next.generation, sequence: next.sequence, previous: next.check}, j.salt, op)
	j.unsure = true
	if _, err := j.file.WriteAt(j.buffer, j.place()); err != nil {
		return 0, err
	}
	j.unsure = false
	next.at += int64(len(j.buffer))
	j.state = next
	if cap(j.buffer) > 1<<20 { // a rare size: not kept
		j.buffer = nil
	}
	return j.sequence, nil
}

// place is where in the file the next record goes.
func (s state) place() int64 { return fileHead + int64(s.generation%2)*s.half + s.at }

// Drained reports that all changes up to a sequence are durable elsewhere, together with that
// sequence, so that the next Read gets it or a higher one. Any goroutine may call it.
func (j *Journal) Drained(sequence uint64) { j.drained.Store(sequence) }

// Needed returns the sequence up to which changes must be drained after ErrNoRoom.
func (j *Journal) Needed() uint64 { return j.before }

// Generation rises when the other half is begun.
func (j *Journal) Generation() uint64 { return j.generation }

// Sequence returns the sequence of the last change.
func (j *Journal) Sequence() uint64 { return j.sequence }

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }
