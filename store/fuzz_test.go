package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// FuzzEntryChecksum: no extensions but the right ones are taken for an entry.
func FuzzEntryChecksum(f *testing.F) {
	for _, log := range entries(1, 3, 2) {
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

// FuzzSnapshotRecord decodes any bytes under a right checksum, so that what lies
// behind it, Raft's decoder too, is reached.
func FuzzSnapshotRecord(f *testing.F) {
	record := snapshotRecord{stamp: 3, chunks: 1, meta: raft.SnapshotMeta{ID: snapshotID(1, 2, 3), Index: 2, Term: 1, Configuration: someConfiguration()}}
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
		own := append(make([]byte, chunkHead), content...)
		sealChunk(id, number, own)
		if !bytes.Equal(own, chunk) {
			t.Errorf("%x was taken, and is stored as %x", chunk, own)
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

// FuzzFolderRecord decodes any bytes, as they are and under a right checksum.
func FuzzFolderRecord(f *testing.F) {
	f.Add(record{format: 1, node: "n1", cluster: "c1", complete: true}.encode())
	f.Add(record{format: 2, node: "n1", cluster: "c1", folder: FolderID{1}, journal: noJournal, complete: true}.encode())
	f.Add([]byte(recordTitle + "\nformat 2\nnobody knows what is here\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		right := fmt.Appendf(bytes.Clone(content), "crc32c %08x\n", crc32.Checksum(content, castagnoli))
		for _, encoded := range [][]byte{content, right} {
			decoded, err := decodeRecord(encoded)
			if err == nil && decoded.format <= knownFormat && (decoded.format == 1 || decoded.journal == noJournal) && !bytes.Equal(decoded.encode(), encoded) {
				t.Errorf("%q was taken, and is stored as %q", encoded, decoded.encode())
			}
		}
	})
}

// FuzzFile walks any file, also with the checksums of its meta pages made right:
// it must neither panic, nor run for ever, nor take memory out of proportion.
func FuzzFile(f *testing.F) {
	content, _ := randomBolt(f, 1, 100)
	f.Add(content, uint64(0), byte(0))
	f.Add(content[:os.Getpagesize()], uint64(9), byte(1))
	path := filepath.Join(f.TempDir(), "folder")
	s, err := Open(Options{Folder: path, NodeID: "n1"})
	if err != nil {
		f.Fatal(err)
	}
	closeStore(f, s)
	f.Add(readTrimmed(f, path, raftFile), uint64(40), byte(4))
	f.Fuzz(func(t *testing.T, content []byte, at uint64, flip byte) {
		content = bytes.Clone(content)
		if len(content) > 0 {
			content[at%uint64(len(content))] ^= flip
		}
		for _, meta := range []int{0, os.Getpagesize()} {
			if len(content) >= meta+80 {
				sum := fnvSum(content[meta+16 : meta+72])
				binary.NativeEndian.PutUint64(content[meta+72:], sum)
			}
		}
		keys := 0
		err := walkBolt(bytes.NewReader(content), int64(len(content)), func(item boltItem) error {
			keys++
			return nil
		})
		if err == nil && keys > len(content) {
			t.Errorf("%d keys in %d bytes", keys, len(content))
		}
	})
}

func fnvSum(content []byte) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write(content)
	return sum.Sum64()
}
