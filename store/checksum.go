package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// The checksum of an entry travels in raft.Log.Extensions, which the library
// itself never sets nor reads: it stores and replicates them like Data. So an
// entry has its checksum from the moment the leader stores it, and each follower
// checks it before it stores the entry.
//
// Its form: magic, version, CRC32C in network order. The version lets a later
// program cover more (AppendedAt isn't covered: it is for display only).
const (
	checksumMagic   = 0xC5
	checksumVersion = 1
	checksumLength  = 6
)

// entryChecksum is the CRC32C over index, term, type and data.
func entryChecksum(log *raft.Log) uint32 {
	var head [17]byte
	binary.BigEndian.PutUint64(head[:], log.Index)
	binary.BigEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, log.Data)
}

// encodeChecksum returns the Extensions for an entry.
func encodeChecksum(sum uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{checksumMagic, checksumVersion}, sum)
}

// decodeChecksum reads Extensions. The error says why they are not of a form
// that this program knows.
func decodeChecksum(extensions []byte) (uint32, error) {
	switch {
	case len(extensions) == 0:
		return 0, fmt.Errorf("it has no checksum")
	case len(extensions) < 2 || extensions[0] != checksumMagic:
		return 0, fmt.Errorf("its extensions are not a checksum")
	case extensions[1] != checksumVersion:
		return 0, fmt.Errorf("its checksum has version %d, and this program knows version %d", extensions[1], checksumVersion)
	case len(extensions) != checksumLength:
		return 0, fmt.Errorf("its checksum has %d bytes instead of %d", len(extensions), checksumLength)
	}
	return binary.BigEndian.Uint32(extensions[2:]), nil
}

// checkEntry makes sure that an entry is what its checksum was made of.
func checkEntry(log *raft.Log) error {
	want, err := decodeChecksum(log.Extensions)
	if err != nil {
		return err
	}
	if got := entryChecksum(log); got != want {
		return fmt.Errorf("its checksum is %08x and should be %08x", got, want)
	}
	return nil
}

// sealed returns the entries with a checksum each. Those that have one are
// checked; the others are copied, since the ones given are shared with Raft's
// own goroutines. The error is an EntryError.
func sealed(logs []*raft.Log) ([]*raft.Log, error) {
	var copies []*raft.Log
	for i, log := range logs {
		if len(log.Extensions) > 0 {
			if err := checkEntry(log); err != nil {
				return nil, &EntryError{Index: log.Index, Detail: err.Error()}
			}
			continue
		}
		if copies == nil {
			copies = append(copies, logs...)
		}
		own := *log
		own.Extensions = encodeChecksum(entryChecksum(log))
		copies[i] = &own
	}
	if copies == nil {
		return logs, nil
	}
	return copies, nil
}
