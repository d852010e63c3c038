package snapshots

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// buckets returns the ids that have chunks in the file.
func buckets(t *testing.T, s *testStore) []string {
	t.Helper()
	var found []string
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(dataBucket).ForEachBucket(func(id []byte) error {
			found = append(found, string(id))
			return nil
		})
	})
	storetest.Must(t, err)
	return found
}

// records returns the ids that have a record in the file.
func records(t *testing.T, s *testStore) []string {
	t.Helper()
	var found []string
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).ForEach(func(id, _ []byte) error {
			found = append(found, string(id))
			return nil
		})
	})
	storetest.Must(t, err)
	return found
}

// TestCrashAtEachStepOfASnapshot stops the world before and after each
// transaction, and opens the files as they are then: the snapshots from before are
// all there, the new one is whole or absent, and no other file or record is left.
func TestCrashAtEachStepOfASnapshot(t *testing.T) {
	folder := t.TempDir()
	s := openSnapshots(t, folder)
	contents := map[string][]byte{}
	for index := uint64(1); index <= 2; index++ {
		content := storetest.Bytes(index, 300_000)
		contents[storetest.TakeSnapshot(t, s, index, 1, content)] = content
	}
	before := listed(t, s)
	type crash struct{ step, folder string }
	var crashes []crash
	s.step = func(step string) error {
		crashes = append(crashes, crash{step, copyFile(t, folder)})
		return nil
	}
	content := storetest.Bytes(3, 2*chunksPerWrite*chunkBytes+5000)
	id := storetest.TakeSnapshot(t, s, 3, 2, content)
	contents[id] = content
	if left := buckets(t, s); len(left) != maxKept || !slices.Equal(left, records(t, s)) {
		t.Errorf("the file has chunks of %v, and records of %v", left, records(t, s))
	}
	if len(crashes) != 6 { // two writes and the last one
		t.Fatalf("there were the steps %v", crashes)
	}
	for i, c := range crashes {
		t.Run(c.step, func(t *testing.T) {
			s := openSnapshots(t, c.folder)
			want := before
			if i == len(crashes)-1 {
				want = []string{"2-3", "1-2"}
			}
			storetest.WantListed(t, s, want...)
			metas, err := s.List()
			storetest.Must(t, err)
			var ids []string
			for _, meta := range metas {
				ids = append(ids, meta.ID)
				if _, read := storetest.ReadSnapshot(t, s, meta.ID); !bytes.Equal(read, contents[meta.ID]) {
					t.Errorf("snapshot %s has other bytes", meta.ID)
				}
			}
			slices.Sort(ids)
			if left := buckets(t, s); !slices.Equal(left, ids) {
				t.Errorf("the file has chunks of %v, and the snapshots are %v", left, ids)
			}
			storetest.TakeSnapshot(t, s, 4, 2, content) // and it goes on
		})
	}
}

// TestFailureAtEachStepOfASnapshot fails each transaction for want of room: the
// sink says so, the snapshots from before stay, and once there is room the
// remains go.
func TestFailureAtEachStepOfASnapshot(t *testing.T) {
	for _, failing := range []string{"from 0", "from 16", "publish"} {
		t.Run(failing, func(t *testing.T) {
			s := openSnapshots(t, t.TempDir(), func(c *Config) {
				c.Guard = damage.NewGuard(c.Folder, func(err error) { t.Errorf("reported as damage: %v", err) })
			})
			storetest.TakeSnapshot(t, s, 1, 1, []byte("state"))
			snapshots := s
			broken := false
			snapshots.step = func(step string) error {
				if broken = broken || bytes.HasPrefix([]byte(step), []byte("before ")) && bytes.Contains([]byte(step), []byte(failing)); broken {
					return storetest.Full // from then on also to the attempt to tidy up
				}
				return nil
			}
			sink, err := snapshots.Create(1, 2, 1, storetest.Configuration(), 1, nil)
			storetest.Must(t, err)
			_, err = io.Copy(sink, bytes.NewReader(storetest.Bytes(1, 2*chunksPerWrite*chunkBytes+1)))
			closeErr := sink.Close()
			storetest.WantError(t, closeErr, damage.ErrFull, FileName)
			if (err == nil) != (failing == "publish") {
				t.Errorf("Write returned %v", err)
			}
			if again := sink.Close(); again != closeErr {
				t.Errorf("a second Close returned %v instead of %v", again, closeErr)
			}
			if err := sink.Cancel(); err != nil {
				t.Errorf("Cancel: %v", err)
			}
			storetest.WantListed(t, snapshots, "1-1")
			if _, err := snapshots.Create(1, 3, 1, storetest.Configuration(), 1, nil); err == nil && failing != "from 0" {
				t.Error("a snapshot was begun beside remains that can't be removed")
			}
			snapshots.step = nil
			storetest.TakeSnapshot(t, snapshots, 3, 1, nil)
			storetest.WantListed(t, snapshots, "1-3", "1-1")
			if left := buckets(t, s); len(left) != 1 {
				t.Errorf("the file has chunks of %v", left)
			}
		})
	}
}

// TestWriteErrorOfASnapshotOtherThanFullIsFinal: as with the log.
func TestWriteErrorOfASnapshotOtherThanFullIsFinal(t *testing.T) {
	s := openSnapshots(t, t.TempDir())
	s.step = func(string) error { return errors.New("input/output error") }
	sink, err := s.Create(1, 2, 1, storetest.Configuration(), 1, nil)
	storetest.Must(t, err)
	storetest.WantError(t, sink.Close(), damage.ErrDamaged, FileName, "input/output error")
	_, err = s.List()
	storetest.WantError(t, err, damage.ErrDamaged)
}

// spoilChunk changes stored bytes of a snapshot behind the store's back.
func spoilChunk(t *testing.T, s *testStore, id string, number uint64, spoil func([]byte) []byte) {
	t.Helper()
	err := s.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(dataBucket).Bucket([]byte(id))
		spoilt := spoil(slices.Clone(bucket.Get(chunkKey(number))))
		if spoilt == nil {
			return bucket.Delete(chunkKey(number))
		}
		return bucket.Put(chunkKey(number), spoilt)
	})
	storetest.Must(t, err)
}

var spoilers = map[string]func([]byte) []byte{
	"a flipped bit": func(chunk []byte) []byte { chunk[len(chunk)/2] ^= 4; return chunk },
	"a torn chunk":  func(chunk []byte) []byte { return chunk[:len(chunk)-100] },
	"zeros":         func(chunk []byte) []byte { return make([]byte, len(chunk)) },
	"nothing":       func([]byte) []byte { return []byte{} },
	"no chunk":      func([]byte) []byte { return nil },
}

func TestDamageIsFoundBeforeASnapshotIsRead(t *testing.T) {
	for name, ruin := range spoilers {
		t.Run(name, func(t *testing.T) {
			s := openSnapshots(t, t.TempDir())
			id := storetest.TakeSnapshot(t, s, 7, 1, storetest.Bytes(1, 3*chunkBytes))
			spoilChunk(t, s, id, 2, ruin)
			_, _, err := s.Open(id)
			storetest.WantError(t, err, damage.ErrDamaged, FileName+" at index 7")
			if s.guard.Found() == nil {
				t.Error("the store goes on")
			}
		})
	}
}

func TestDamageUnderAReaderIsFound(t *testing.T) {
	s := openSnapshots(t, t.TempDir())
	id := storetest.TakeSnapshot(t, s, 7, 1, storetest.Bytes(1, 3*chunkBytes))
	_, reader, err := s.Open(id)
	storetest.Must(t, err)
	spoilChunk(t, s, id, 1, spoilers["a flipped bit"])
	read, err := io.ReadAll(reader)
	storetest.WantError(t, err, damage.ErrDamaged, FileName+" at index 7")
	if len(read) != chunkBytes {
		t.Errorf("%d bytes came before it", len(read))
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}

// TestSnapshotCodecsTakeNoOtherBytes flips each bit of a record and of a chunk.
func TestSnapshotCodecsTakeNoOtherBytes(t *testing.T) {
	record := snapshotRecord{stamp: 3, chunks: 1}
	record.meta.ID, record.meta.Index, record.meta.Term, record.meta.Size = snapshotID(1, 2, 3), 2, 1, 4
	record.meta.Configuration = storetest.Configuration()
	encoded := record.encode()
	decoded, err := decodeSnapshotRecord(record.meta.ID, encoded)
	if err != nil || !bytes.Equal(decoded.encode(), encoded) {
		t.Fatalf("%+v, error %v", decoded, err)
	}
	if _, err := decodeSnapshotRecord(snapshotID(1, 2, 4), encoded); err == nil {
		t.Error("a record passes for another snapshot's")
	}
	chunk := append(make([]byte, chunkHead), "content"...)
	sealChunk("1-2-3", 5, chunk)
	if content, err := openChunk("1-2-3", 5, chunk); err != nil || string(content) != "content" {
		t.Fatalf("%q, error %v", content, err)
	}
	for _, other := range []struct {
		id     string
		number uint64
	}{{"1-2-3", 6}, {"1-2-3", 4}, {"1-2-3", 7}, {"1-2-4", 5}} {
		if _, err := openChunk(other.id, other.number, chunk); err == nil {
			t.Errorf("a chunk passes for %d of %s", other.number, other.id)
		}
	}
	for bit := range 8 * len(encoded) {
		flipped := slices.Clone(encoded)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeSnapshotRecord(record.meta.ID, flipped); err == nil {
			t.Errorf("a record was taken with bit %d flipped", bit)
		}
	}
	for bit := range 8 * len(chunk) {
		flipped := slices.Clone(chunk)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := openChunk("1-2-3", 5, flipped); err == nil {
			t.Errorf("a chunk was taken with bit %d flipped", bit)
		}
	}
}

// TestFailedSnapshotIsNotThereAfterARestart, though the disk has its record: no one counts on it,
// and the log has gone on without it.
func TestFailedSnapshotIsNotThereAfterARestart(t *testing.T) {
	for _, again := range []bool{false, true} { // the removal fails, too, and comes with the next snapshot
		folder := t.TempDir()
		s := openSnapshots(t, folder)
		failing := map[string]bool{"after publish": true, "before remove": again}
		s.step = func(step string) error {
			for name := range failing {
				if failing[name] && strings.HasPrefix(step, name) {
					return syscall.ENOSPC
				}
			}
			return nil
		}
		sink, err := s.Create(1, 2, 1, storetest.Configuration(), 1, nil)
		storetest.Must(t, err)
		if _, err := sink.Write([]byte("state")); err != nil {
			t.Fatal(err)
		}
		storetest.WantError(t, sink.Close(), damage.ErrFull)
		failing = nil
		if again {
			next, err := s.Create(1, 3, 1, storetest.Configuration(), 1, nil)
			storetest.Must(t, err)
			storetest.Must(t, next.Cancel())
		}
		storetest.Must(t, s.Close())
		listed, err := openSnapshots(t, folder).List()
		if err != nil || len(listed) != 0 {
			t.Errorf("%v, %v", listed, err)
		}
	}
}

// TestFailedSnapshotListsNoRemovedSnapshot: a commit that failed may have removed the oldest snapshot nevertheless.
func TestFailedSnapshotListsNoRemovedSnapshot(t *testing.T) {
	for step, listed := range map[string][]string{"before publish": {"1-2", "1-1"}, "after publish": {"1-2"}} {
		s := openSnapshots(t, t.TempDir())
		storetest.TakeSnapshot(t, s, 1, 1, nil)
		storetest.TakeSnapshot(t, s, 2, 1, nil)
		s.step = func(name string) error {
			if strings.HasPrefix(name, step) {
				return syscall.ENOSPC
			}
			return nil
		}
		sink, err := s.Create(1, 3, 1, storetest.Configuration(), 1, nil)
		storetest.Must(t, err)
		storetest.WantError(t, sink.Close(), damage.ErrFull)
		storetest.WantListed(t, s, listed...)
		s.step = nil
		storetest.TakeSnapshot(t, s, 4, 1, nil)
		storetest.WantListed(t, s, "1-4", "1-2")
	}
}

// TestWitnessNeverSpeaksOfASnapshotThatIsNotStored: neither before a snapshot is stored, nor once
// it is removed.
func TestWitnessNeverSpeaksOfASnapshotThatIsNotStored(t *testing.T) {
	folder := t.TempDir()
	s := openSnapshots(t, folder)
	looked := 0
	s.step = func(step string) error {
		looked++
		found, err := Read(copyFile(t, folder))
		storetest.Must(t, err)
		if s.witness.index > found.Newest() {
			t.Errorf("%s: the witness has seen snapshot %d, and the newest is %d", step, s.witness.index, found.Newest())
		}
		return nil
	}
	for index := uint64(1); index <= 3; index++ {
		storetest.TakeSnapshot(t, s, index, 1, []byte("state"))
		if s.witness.index != index {
			t.Errorf("snapshot %d is stored, and the witness has seen %d", index, s.witness.index)
		}
	}
	metas, err := s.List()
	storetest.Must(t, err)
	if err := s.Drop(metas[0].ID); err != nil || s.witness.index != 2 {
		t.Errorf("the newest is dropped: error %v, and the witness has seen %d", err, s.witness.index)
	}
	if looked != 8 {
		t.Errorf("it was looked at %d times", looked)
	}
}
