package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"
)

// buckets returns the ids that have chunks in the file.
func buckets(t *testing.T, s *Store) []string {
	t.Helper()
	var found []string
	err := s.files.snapshots.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(dataBucket).ForEachBucket(func(id []byte) error {
			found = append(found, string(id))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// records returns the ids that have a record in the file.
func records(t *testing.T, s *Store) []string {
	t.Helper()
	var found []string
	err := s.files.snapshots.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).ForEach(func(id, _ []byte) error {
			found = append(found, string(id))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// copyFolder copies the files of a folder as they are now: what would be there
// after the power failed at this moment, but for what isn't synced yet; bbolt
// syncs at the end of each transaction, and these copies are made there.
func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range append(slices.Clone(dataFiles), recordFile) {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestCrashAtEachStepOfASnapshot stops the world before and after each
// transaction, and opens what is then on the disk: the snapshots from before are
// all there, the new one whole or not at all, and nothing else is left.
func TestCrashAtEachStepOfASnapshot(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	contents := map[string][]byte{}
	for index := uint64(1); index <= 2; index++ {
		content := random(index, 300_000)
		contents[takeSnapshot(t, s.Snapshots(), index, 1, content)] = content
	}
	before := listed(t, s.Snapshots())
	type crash struct{ step, folder string }
	var crashes []crash
	s.snapshots.(*boltSnapshots).step = func(step string) error {
		crashes = append(crashes, crash{step, copyFolder(t, folder)})
		return nil
	}
	content := random(3, 2*chunksPerWrite*chunkBytes+5000)
	id := takeSnapshot(t, s.Snapshots(), 3, 2, content)
	contents[id] = content
	if left := buckets(t, s); len(left) != snapshotsKept || !slices.Equal(left, records(t, s)) {
		t.Errorf("the file has chunks of %v, and records of %v", left, records(t, s))
	}
	if len(crashes) != 6 { // two writes and the last one
		t.Fatalf("there were the steps %v", crashes)
	}
	for i, c := range crashes {
		t.Run(c.step, func(t *testing.T) {
			s := openStore(t, c.folder)
			want := before
			if i == len(crashes)-1 {
				want = []string{"2-3", "1-2"}
			}
			wantListed(t, s.Snapshots(), want...)
			metas, err := s.Snapshots().List()
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, meta := range metas {
				ids = append(ids, meta.ID)
				if _, read := readSnapshot(t, s.Snapshots(), meta.ID); !bytes.Equal(read, contents[meta.ID]) {
					t.Errorf("snapshot %s has other bytes", meta.ID)
				}
			}
			slices.Sort(ids)
			if left := buckets(t, s); !slices.Equal(left, ids) {
				t.Errorf("the file has chunks of %v, and the snapshots are %v", left, ids)
			}
			takeSnapshot(t, s.Snapshots(), 4, 2, content) // and it goes on
		})
	}
}

// TestFailureAtEachStepOfASnapshot fails each transaction for want of room: the
// sink says so, the snapshots from before stay, and once there is room the
// remains go.
func TestFailureAtEachStepOfASnapshot(t *testing.T) {
	for _, failing := range []string{"from 0", "from 16", "publish"} {
		t.Run(failing, func(t *testing.T) {
			s := openStore(t, t.TempDir(), func(o *Options) { o.OnDamage = func(err error) { t.Errorf("reported as damage: %v", err) } })
			takeSnapshot(t, s.Snapshots(), 1, 1, []byte("state"))
			snapshots := s.snapshots.(*boltSnapshots)
			broken := false
			snapshots.step = func(step string) error {
				if broken = broken || bytes.HasPrefix([]byte(step), []byte("before ")) && bytes.Contains([]byte(step), []byte(failing)); broken {
					return full // from then on also to the attempt to tidy up
				}
				return nil
			}
			sink, err := snapshots.Create(1, 2, 1, someConfiguration(), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(sink, bytes.NewReader(random(1, 2*chunksPerWrite*chunkBytes+1)))
			closeErr := sink.Close()
			wantError(t, closeErr, ErrFull, snapshotsFile)
			if (err == nil) != (failing == "publish") {
				t.Errorf("Write returned %v", err)
			}
			if again := sink.Close(); again != closeErr {
				t.Errorf("a second Close returned %v instead of %v", again, closeErr)
			}
			if err := sink.Cancel(); err != nil {
				t.Errorf("Cancel: %v", err)
			}
			wantListed(t, snapshots, "1-1")
			if _, err := snapshots.Create(1, 3, 1, someConfiguration(), 1, nil); err == nil && failing != "from 0" {
				t.Error("a snapshot was begun beside remains that can't be removed")
			}
			snapshots.step = nil
			takeSnapshot(t, snapshots, 3, 1, nil)
			wantListed(t, snapshots, "1-3", "1-1")
			if left := buckets(t, s); len(left) != 1 {
				t.Errorf("the file has chunks of %v", left)
			}
		})
	}
}

// TestWriteErrorOfASnapshotOtherThanFullIsFinal: as with the log.
func TestWriteErrorOfASnapshotOtherThanFullIsFinal(t *testing.T) {
	s := openStore(t, t.TempDir())
	s.snapshots.(*boltSnapshots).step = func(string) error { return errors.New("input/output error") }
	sink, err := s.Snapshots().Create(1, 2, 1, someConfiguration(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, sink.Close(), ErrDamaged, snapshotsFile, "input/output error")
	_, err = s.Snapshots().List()
	wantError(t, err, ErrDamaged)
}

// spoilChunk changes stored bytes of a snapshot behind the store's back.
func spoilChunk(t *testing.T, s *Store, id string, number uint64, spoil func([]byte) []byte) {
	t.Helper()
	err := s.files.snapshots.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(dataBucket).Bucket([]byte(id))
		spoilt := spoil(slices.Clone(bucket.Get(chunkKey(number))))
		if spoilt == nil {
			return bucket.Delete(chunkKey(number))
		}
		return bucket.Put(chunkKey(number), spoilt)
	})
	if err != nil {
		t.Fatal(err)
	}
}

var spoilers = map[string]func([]byte) []byte{
	"a flipped bit": func(chunk []byte) []byte { chunk[len(chunk)/2] ^= 4; return chunk },
	"a torn chunk":  func(chunk []byte) []byte { return chunk[:len(chunk)-100] },
	"zeros":         func(chunk []byte) []byte { return make([]byte, len(chunk)) },
	"nothing":       func([]byte) []byte { return []byte{} },
	"no chunk":      func([]byte) []byte { return nil },
}

func TestDamageIsFoundBeforeASnapshotIsRead(t *testing.T) {
	for name, spoil := range spoilers {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, t.TempDir())
			id := takeSnapshot(t, s.Snapshots(), 7, 1, random(1, 3*chunkBytes))
			spoilChunk(t, s, id, 2, spoil)
			_, _, err := s.Snapshots().Open(id)
			wantError(t, err, ErrDamaged, snapshotsFile+" at index 7")
			if s.Damage() == nil {
				t.Error("the store goes on")
			}
		})
	}
}

func TestDamageUnderAReaderIsFound(t *testing.T) {
	s := openStore(t, t.TempDir())
	id := takeSnapshot(t, s.Snapshots(), 7, 1, random(1, 3*chunkBytes))
	_, reader, err := s.Snapshots().Open(id)
	if err != nil {
		t.Fatal(err)
	}
	spoilChunk(t, s, id, 1, spoilers["a flipped bit"])
	read, err := io.ReadAll(reader)
	wantError(t, err, ErrDamaged, snapshotsFile+" at index 7")
	if len(read) != chunkBytes {
		t.Errorf("%d bytes came before it", len(read))
	}
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
}

// TestDamagedSnapshotAtOpen: with a log that reaches back to the snapshot before
// it, or to the beginning, a damaged snapshot is done without; otherwise the
// folder is refused. The one before it may be damaged as it likes.
func TestDamagedSnapshotAtOpen(t *testing.T) {
	cases := []struct {
		name          string
		first         uint64 // of the log, which ends at 120
		newest, older bool   // which of those at 100 and 50 are damaged
		want          []string
		refused       string
	}{
		{"all well", 90, false, false, []string{"1-100", "1-50"}, ""},
		{"the older one", 90, false, true, []string{"1-100"}, ""},
		{"the newest, with a long log", 51, true, false, []string{"1-50"}, ""},
		{"the newest, with a short log", 52, true, false, nil, "at index 100"},
		{"both, with the whole log", 1, true, true, nil, ""},
		{"both, with a long log", 2, true, true, nil, "at index 100"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			s := openStore(t, folder)
			storeEntries(t, s, c.first, 120, 1)
			older := takeSnapshot(t, s.Snapshots(), 50, 1, random(1, 3*chunkBytes))
			newest := takeSnapshot(t, s.Snapshots(), 100, 1, random(2, 3*chunkBytes))
			if c.older {
				spoilChunk(t, s, older, 1, spoilers["a flipped bit"])
			}
			if c.newest {
				spoilChunk(t, s, newest, 1, spoilers["a torn chunk"])
			}
			closeStore(t, s)
			if c.refused != "" {
				_, err := Open(Options{Folder: folder, NodeID: "n1"})
				wantError(t, err, ErrDamaged, snapshotsFile+" "+c.refused)
				return
			}
			for range 2 { // the second time, what is damaged is gone
				s = openStore(t, folder)
				wantListed(t, s.Snapshots(), c.want...)
				if left := buckets(t, s); len(left) != len(c.want) || !slices.Equal(left, records(t, s)) {
					t.Errorf("the file has chunks of %v, and records of %v", left, records(t, s))
				}
				closeStore(t, s)
			}
		})
	}
}

// TestMissingSnapshotIsDamage: a snapshot that vanished together with its record
// leaves a well-formed file.
func TestMissingSnapshotIsDamage(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	id := takeSnapshot(t, s.Snapshots(), 50, 1, []byte("state"))
	err := s.files.snapshots.Update(func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(metaBucket).Delete([]byte(id)), dropData(tx, id))
	})
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	_, err = Open(Options{Folder: folder, NodeID: "n1"})
	wantError(t, err, ErrDamaged, snapshotsFile+" at index 50")
}

func TestMissingEntriesAreDamageUnlessASnapshotCoversThem(t *testing.T) {
	cases := []struct {
		name        string
		from, to    uint64 // removed from a log of 1 to 100, with a snapshot at 40
		refusedFrom uint64 // 0: not refused
	}{
		{"the tail", 91, 100, 100},
		{"a piece after the snapshot", 60, 70, 41},
		{"right after the snapshot", 41, 41, 41},
		{"the last one covered", 40, 40, 0},
		{"the beginning", 1, 30, 0},
		{"all", 1, 100, 100},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			s := openStore(t, folder)
			storeEntries(t, s, 1, 100, 1)
			takeSnapshot(t, s.Snapshots(), 40, 1, []byte("state"))
			if err := s.files.raft.DeleteRange(c.from, c.to); err != nil { // behind the store's back
				t.Fatal(err)
			}
			closeStore(t, s)
			if c.refusedFrom == 0 {
				closeStore(t, openStore(t, folder))
				return
			}
			_, err := Open(Options{Folder: folder, NodeID: "n1"})
			wantError(t, err, ErrDamaged, fmt.Sprintf("%s at index %d", raftFile, c.refusedFrom))
		})
	}
}

// TestPartsThatAreMissingOrTooMany: files of bolt that are well-formed, but not
// as this program leaves them.
func TestPartsThatAreMissingOrTooMany(t *testing.T) {
	cases := []struct {
		name, file string
		change     func(*bbolt.Tx) error
	}{
		{"no log", raftFile, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("logs")) }},
		{"no stable values", raftFile, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("conf")) }},
		{"no stable record", raftFile, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("conf")).Delete(stableKey) }},
		{"a stray value", raftFile, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("conf")).Put([]byte("CurrentTerm"), []byte{1}) }},
		{"a stray entry", raftFile, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("logs")).Put([]byte("key"), []byte{1}) }},
		{"no records", snapshotsFile, func(tx *bbolt.Tx) error { return tx.DeleteBucket(metaBucket) }},
		{"no chunks", snapshotsFile, func(tx *bbolt.Tx) error { return tx.DeleteBucket(dataBucket) }},
		{"a chunk in another's place", snapshotsFile, func(tx *bbolt.Tx) error {
			return tx.Bucket(dataBucket).ForEachBucket(func(id []byte) error {
				b := tx.Bucket(dataBucket).Bucket(id)
				return errors.Join(b.Put(chunkKey(7), slices.Clone(b.Get(chunkKey(2)))), b.Delete(chunkKey(2)))
			})
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			s := openStore(t, folder)
			takeSnapshot(t, s.Snapshots(), 5, 1, random(1, 3*chunkBytes))
			closeStore(t, s)
			db, err := bbolt.Open(filepath.Join(folder, c.file), 0o600, Options{}.boltOptions())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(c.change), db.Close()); err != nil {
				t.Fatal(err)
			}
			_, err = Open(Options{Folder: folder, NodeID: "n1"})
			wantError(t, err, ErrDamaged, c.file)
		})
	}
}

// TestSnapshotCodecsTakeNoOtherBytes flips each bit of a record and of a chunk.
func TestSnapshotCodecsTakeNoOtherBytes(t *testing.T) {
	record := snapshotRecord{stamp: 3, chunks: 1}
	record.meta.ID, record.meta.Index, record.meta.Term, record.meta.Size = snapshotID(1, 2, 3), 2, 1, 4
	record.meta.Configuration = someConfiguration()
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
	}{{"1-2-3", 6}, {"1-2-4", 5}} {
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
