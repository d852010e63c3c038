package archive

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"
)

// Version is the latest format. Writer writes this format.
const Version = 1

const (
	magic = "SBBACKUP"
	// headerBytes is the length of the header of version 1.
	headerBytes = 6*8 + 16
	// chunkBytes is the size of the chunks of a Writer, and the largest chunk that a Reader accepts.
	chunkBytes = 256 << 10
)

// castagnoli is the polynomial of the checksums (CRC32C).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The errors of a Reader, besides the errors of the underlying reader.
var (
	ErrNoBackup = errors.New("this is no backup of Signalbox")
	ErrNewer    = errors.New("a newer version of Signalbox has written this backup")
	ErrDamaged  = errors.New("the backup is damaged")
	ErrCut      = errors.New("the backup is cut short")
)

// Header says which cluster a backup is of, and from when.
type Header struct {
	Index         uint64    // of the last applied entry
	Term          uint64    // of the leader that logged that entry, as far as the state knows
	ClusterTimeMS int64     // at that entry
	WallTime      time.Time // when the backup began, by the clock of the node that made it; whole milliseconds
	Level         uint32    // the feature level in force
	Cluster       [16]byte  // the cluster's id; zero if it has no id yet
}

func (h Header) encode() []byte {
	encoded := make([]byte, 0, headerBytes)
	for _, number := range []uint64{h.Index, h.Term, uint64(h.ClusterTimeMS), uint64(h.WallTime.UnixMilli()), uint64(h.Level), 0} {
		encoded = binary.BigEndian.AppendUint64(encoded, number)
	}
	return append(encoded, h.Cluster[:]...)
}

// decodeHeader decodes a header whose checksum is right.
func decodeHeader(encoded []byte) (Header, error) {
	if len(encoded) != headerBytes {
		return Header{}, ErrDamaged
	}
	number := func(i int) uint64 { return binary.BigEndian.Uint64(encoded[8*i:]) }
	if number(4) > 1<<32-1 || number(5) != 0 {
		return Header{}, ErrNewer
	}
	h := Header{
		Index: number(0), Term: number(1), ClusterTimeMS: int64(number(2)),
		WallTime: time.UnixMilli(int64(number(3))).UTC(), Level: uint32(number(4)),
	}
	copy(h.Cluster[:], encoded[6*8:])
	return h, nil
}

// chunkChecksum also covers the chunk's number, so that a chunk in the wrong place is noticed.
func chunkChecksum(number uint64, content []byte) uint32 {
	head := binary.BigEndian.AppendUint64(make([]byte, 0, 8), number)
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, content)
}
