package snapshots

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/storetest"
)

// FuzzSnapshotRecord decodes any bytes under a right checksum, so that what lies
// behind it, Raft's decoder too, is reached.
func FuzzSnapshotRecord(f *testing.F) {
	record := snapshotRecord{stamp: 3, chunks: 1, meta: raft.SnapshotMeta{ID: snapshotID(1, 2, 3), Index: 2, Term: 1, Configuration: storetest.Configuration()}}
	f.Add(record.meta.ID, record.encode()[recordHead:])
	f.Add("", []byte{})
	f.Add("1-2-3", make([]byte, 48))
	f.Fuzz(func(t *testing.T, id string, content []byte) {
		encoded := append(binary.BigEndian.AppendUint32([]byte{snapshotRecordVersion}, recordChecksum(id, content)), content...)
		decoded, err := decodeSnapshotRecord(id, encoded)
		if err != nil {
			return
		}
		again, err := decodeSnapshotRecord(id, decoded.encode())
		if err != nil || again.meta.Index != decoded.meta.Index || again.meta.Size != decoded.meta.Size || again.chunks != decoded.chunks {
			t.Errorf("%+v became %+v, error %v", decoded, again, err)
		}
	})
}

// FuzzSnapshotChunk: no bytes but the right ones are taken for a chunk.
func FuzzSnapshotChunk(f *testing.F) {
	chunk := append(make([]byte, chunkHead), "content"...)
	sealChunk("1-2-3", 4, chunk)
	f.Add("1-2-3", uint64(4), chunk)
	f.Add("", uint64(0), []byte{})
	f.Fuzz(func(t *testing.T, id string, number uint64, chunk []byte) {
		content, err := openChunk(id, number, chunk)
		if err != nil {
			return
		}
		stored := append(make([]byte, chunkHead), content...)
		sealChunk(id, number, stored)
		if !bytes.Equal(stored, chunk) {
			t.Errorf("%x was taken, and is stored as %x", chunk, stored)
		}
	})
}
