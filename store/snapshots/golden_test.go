package snapshots

import (
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/storetest"
)

// TestRecordsAreForEver: the meta record of a snapshot and its chunks, with their names and keys.
func TestRecordsAreForEver(t *testing.T) {
	id := snapshotID(3, 907, 1_767_225_600_123)
	record := snapshotRecord{stamp: 1_767_225_600_123, chunks: 5, meta: raft.SnapshotMeta{
		Version: 1, ID: id, Index: 907, Term: 3, ConfigurationIndex: 17, Size: 1_000_003,
		Configuration: raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: "n1", Address: "n1:8711"}, {Suffrage: raft.Nonvoter, ID: "n2", Address: "n2:8711"}}},
	}}
	chunk := append(make([]byte, chunkHead), "state"...)
	sealChunk(id, 300, chunk)
	empty := make([]byte, chunkHead)
	sealChunk(id, 0, empty)
	storetest.Pinned(t, "testdata/records.golden", map[string][]byte{
		"id": []byte(id), "meta": record.encode(), "chunk": chunk, "chunk-empty": empty, "key": chunkKey(300),
		"bucket-meta": metaBucket, "bucket-data": dataBucket,
	})
	if read, err := decodeSnapshotRecord(id, record.encode()); err != nil || !reflect.DeepEqual(read, record) {
		t.Errorf("the meta record is read as %+v, error %v", read, err)
	}
	if read, err := openChunk(id, 300, chunk); err != nil || string(read) != "state" {
		t.Errorf("the chunk is read as %q, error %v", read, err)
	}
}
