package snapshots

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/hashicorp/raft"
)

// These bytes are on the disks of nodes. A new form gets the next version, and decode must still read this version,
// since TestFoldersOfThisLevel (package cluster) reads folders of this form.

const (
	// chunkBytes is the size of the snapshot's part in one value of the file.
	chunkBytes = 256 << 10
	// chunksPerWrite is how many chunks are stored in one transaction. With 16, storing 64 MB takes a quarter of the
	// time that it takes with 1.
	chunksPerWrite = 16
	// chunkHead is the length of a chunk's head: the length and checksum of its content.
	chunkHead = 8
	// recordHead is the length of a meta record's head: version and checksum.
	recordHead = 5

	snapshotRecordVersion = 1
)

// castagnoli is the polynomial of the checksums of records and chunks (CRC32C).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshotRecord is the meta record of a snapshot. The snapshot exists if and only if this record is stored.
type snapshotRecord struct {
	meta   raft.SnapshotMeta
	stamp  uint64 // Unix milliseconds, or the last stamp + 1 if that is later
	chunks uint64
}

// newerFirst orders snapshots as raft.SnapshotStore.List requires: by term, by index, then by age.
func newerFirst(a, b snapshotRecord) int {
	return cmp.Or(cmp.Compare(b.meta.Term, a.meta.Term), cmp.Compare(b.meta.Index, a.meta.Index), cmp.Compare(b.stamp, a.stamp))
}

// snapshotID returns an id of the same form as Raft's file store.
func snapshotID(term, index, stamp uint64) string { return fmt.Sprintf("%d-%d-%d", term, index, stamp) }

// errSnapshotRecord and errChunk mean that the bytes are not the stored bytes.
var (
	errSnapshotRecord = errors.New("its record can't be read")
	errChunk          = errors.New("a chunk can't be read")
)

// encode returns the stored form: version, CRC32C, six numbers, and the configuration as Raft encodes it. The checksum
// also covers the snapshot's id, which is the key of the record.
func (r snapshotRecord) encode() []byte {
	encoded := make([]byte, recordHead, 128)
	encoded[0] = snapshotRecordVersion
	for _, number := range []uint64{r.stamp, r.meta.Index, r.meta.Term, r.meta.ConfigurationIndex, uint64(r.meta.Size), r.chunks} {
		encoded = binary.BigEndian.AppendUint64(encoded, number)
	}
	encoded = append(encoded, raft.EncodeConfiguration(r.meta.Configuration)...)
	binary.BigEndian.PutUint32(encoded[1:], recordChecksum(r.meta.ID, encoded[recordHead:]))
	return encoded
}

func recordChecksum(id string, content []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(id), castagnoli), castagnoli, content)
}

// decodeSnapshotRecord decodes the stored form. It fails with errSnapshotRecord for bytes that encode has not written.
func decodeSnapshotRecord(id string, encoded []byte) (r snapshotRecord, err error) {
	if len(encoded) < recordHead+6*8 || encoded[0] != snapshotRecordVersion ||
		binary.BigEndian.Uint32(encoded[1:]) != recordChecksum(id, encoded[recordHead:]) {
		return snapshotRecord{}, errSnapshotRecord
	}
	// Raft panics on a configuration that it can't decode.
	defer func() {
		if recover() != nil {
			r, err = snapshotRecord{}, errSnapshotRecord
		}
	}()
	content := encoded[recordHead:]
	number := func(i int) uint64 { return binary.BigEndian.Uint64(content[8*i:]) }
	r = snapshotRecord{stamp: number(0), chunks: number(5), meta: raft.SnapshotMeta{
		Version: 1, ID: id, Index: number(1), Term: number(2), ConfigurationIndex: number(3), Size: int64(number(4)),
		Configuration: raft.DecodeConfiguration(slices.Clone(content[6*8:])),
	}}
	if r.meta.Size < 0 || id != snapshotID(r.meta.Term, r.meta.Index, r.stamp) {
		return snapshotRecord{}, errSnapshotRecord
	}
	return r, nil
}

// sealChunk writes the head of a chunk: its length, and a CRC32C of the snapshot's id, the chunk's number and its
// content. So a chunk in the wrong place is noticed.
func sealChunk(id string, number uint64, chunk []byte) {
	binary.BigEndian.PutUint32(chunk, uint32(len(chunk)-chunkHead))
	binary.BigEndian.PutUint32(chunk[4:], chunkChecksum(id, number, chunk[chunkHead:]))
}

func chunkChecksum(id string, number uint64, content []byte) uint32 {
	head := binary.BigEndian.AppendUint64([]byte(id), number)
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, content)
}

// openChunk returns the content of a stored chunk, without a copy. It fails with errChunk if it is not the chunk with
// that id and number as it was stored.
func openChunk(id string, number uint64, chunk []byte) ([]byte, error) {
	if len(chunk) < chunkHead || uint64(binary.BigEndian.Uint32(chunk)) != uint64(len(chunk)-chunkHead) {
		return nil, errChunk
	}
	content := chunk[chunkHead:]
	if binary.BigEndian.Uint32(chunk[4:]) != chunkChecksum(id, number, content) {
		return nil, errChunk
	}
	return content, nil
}

func chunkKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }
