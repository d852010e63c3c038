package logs

import (
	"encoding/hex"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/storetest"
)

// TestRecordsAreForEver: the record of the stable values, and the checksum that an entry
// carries on the disk and to the followers.
func TestRecordsAreForEver(t *testing.T) {
	stable := stableRecord{generation: 0x0102030405060708, values: map[string][]byte{
		keyCurrentTerm: {0, 0, 0, 0, 0, 0, 1, 2}, keyVoteTerm: {0, 0, 0, 0, 0, 0, 1, 1}, keyVoteCandidate: []byte("n2"), keyDrained: {7: 9}, "empty": {},
	}}
	entries, err := withChecksums([]*raft.Log{
		{Index: 0x0102030405060708, Term: 0x1112131415161718, Type: raft.LogCommand, Data: []byte("command")},
		{Index: 2, Term: 1, Type: raft.LogConfiguration},
	})
	storetest.Must(t, err)
	storetest.Pinned(t, "testdata/records.golden", map[string][]byte{
		"stable": stable.encode(), "unset": stableRecord{}.encode(), "checksum": entries[0].Extensions, "checksum-configuration": entries[1].Extensions,
	})
	if read, err := decodeStableRecord(stable.encode()); err != nil || !reflect.DeepEqual(read, stable) {
		t.Errorf("%s is read as %+v, error %v", hex.EncodeToString(stable.encode()), read, err)
	}
}
