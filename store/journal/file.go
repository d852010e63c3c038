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
)

const (
	// FileName is the journal in a data folder.
	FileName = "journal"
	// DefaultHalf is the size of a half, in bytes.
	DefaultHalf = 8 << 20

	fileMagic   = 0x53424a31 // "SBJ1"
	fileVersion = 1
	fileHead    = 4096 // bytes before the first half; the first fileUsed are used
	fileUsed    = 36
)

// File is the file of a journal. When WriteAt returns nil, the bytes are on the disk.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

// state is the place of the next record, and the content of the file's head.
type state struct {
	half int64  // size of a half in bytes
	salt uint32 // included in each check value
	base uint64 // sequence of the change before the first record of the file

	generation uint64 // of the half that is being written; its lowest bit is the half
	at         int64  // offset of the next record in the half
	check      uint32 // check value of the last record in the half, or 0
	sequence   uint64 // of the last record
	before     uint64 // last sequence of the generation before, which is in the other half
}

// Create makes the file in a folder, in place of an existing file. The first record will have sequence base+1. half is
// in bytes. The file is durable on return.
func Create(folder string, half int64, base uint64) error {
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // never fails
	file, err := os.OpenFile(filepath.Join(folder, FileName), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(encodeFileHead(half, base, salt))
	// Write zeros: a file that is only extended has holes, which take no blocks.
	for zeros, rest := make([]byte, 1<<20), 2*half; err == nil && rest > 0; rest -= int64(len(zeros)) {
		_, err = file.Write(zeros[:min(rest, int64(len(zeros)))])
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

// encodeFileHead returns the bytes before the first half. They are written only once.
func encodeFileHead(half int64, base uint64, salt [8]byte) []byte {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(make([]byte, 0, fileHead), fileMagic), fileVersion)
	head = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(head, uint64(half)), base)
	head = append(head, salt[:]...)
	return binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))[:fileHead]
}

// decodeFileHead decodes the bytes of encodeFileHead.
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

// OpenFile opens the journal in a folder.
func OpenFile(folder string) (File, error) {
	file, err := os.OpenFile(filepath.Join(folder, FileName), os.O_RDWR|syncFlag, 0)
	if err != nil || syncFlag != 0 {
		return file, err
	}
	return syncedFile{file}, nil
}

// syncedFile calls Sync after each write. It is for systems other than Linux, where O_DSYNC may not sync.
type syncedFile struct{ *os.File }

func (s syncedFile) WriteAt(content []byte, at int64) (int, error) {
	n, err := s.File.WriteAt(content, at)
	if err == nil {
		err = s.Sync()
	}
	return n, err
}
