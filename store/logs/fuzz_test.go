package logs

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/storetest"
)

// FuzzEntryChecksum: no extensions but the right ones are taken for an entry.
func FuzzEntryChecksum(f *testing.F) {
	for _, log := range storetest.Entries(1, 3, 2) {
		f.Add(log.Index, log.Term, byte(log.Type), log.Data, encodeChecksum(entryChecksum(log)))
	}
	f.Add(uint64(1), uint64(1), byte(0), []byte{}, []byte{checksumMagic, 2, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, index, term uint64, kind byte, data, extensions []byte) {
		log := raft.Log{Index: index, Term: term, Type: raft.LogType(kind), Data: data, Extensions: extensions}
		right := bytes.Equal(extensions, encodeChecksum(entryChecksum(&log)))
		if err := checkEntry(&log); (err == nil) != right {
			t.Errorf("right is %t, error %v", right, err)
		}
	})
}

// FuzzStableRecord decodes any bytes, as they are and under a right checksum.
func FuzzStableRecord(f *testing.F) {
	f.Add(stableRecord{generation: 1}.encode())
	f.Add(stableRecord{generation: 7, values: map[string][]byte{keyCurrentTerm: {1}, "": {}}}.encode())
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, encoded := range [][]byte{content, binary.BigEndian.AppendUint32(bytes.Clone(content), crc32.Checksum(content, castagnoli))} {
			decoded, err := decodeStableRecord(encoded)
			if err == nil && !bytes.Equal(decoded.encode(), encoded) {
				t.Errorf("%x was taken, and is stored as %x", encoded, decoded.encode())
			}
		}
	})
}
