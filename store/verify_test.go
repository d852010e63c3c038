package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// The buckets of the snapshots' file.
var (
	metaBucket = []byte("meta")
	dataBucket = []byte("data")
)

// number is the key of an entry, and of a chunk.
func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// changeFile changes a file of a closed folder, behind the store's back.
func changeFile(t *testing.T, folder, name string, change func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(folder, name), 0o600, damage.BoltOptions())
	storetest.Must(t, err)
	storetest.Must(t, errors.Join(db.Update(change), db.Close()))
}

// filesOf returns the names of the files in a folder that matter.
func filesOf(folder string) []string {
	names := append(slices.Clone(dataFiles), recordFile)
	if _, err := os.Stat(filepath.Join(folder, journalFile)); err == nil {
		names = append(names, journalFile)
	}
	return names
}

// copyFolder copies the files of a folder as they are now.
func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range filesOf(from) {
		content, err := os.ReadFile(filepath.Join(from, name))
		storetest.Must(t, err)
		storetest.Must(t, os.WriteFile(filepath.Join(to, name), content, 0o600))
	}
	return to
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
			older := storetest.TakeSnapshot(t, s.Snapshots(), 50, 1, storetest.Bytes(1, 600_000))
			newest := storetest.TakeSnapshot(t, s.Snapshots(), 100, 1, storetest.Bytes(2, 600_000))
			closeStore(t, s)
			changeFile(t, folder, snapshotsFile, func(tx *bbolt.Tx) (err error) {
				spoil := func(id string) {
					bucket := tx.Bucket(dataBucket).Bucket([]byte(id))
					chunk := bytes.Clone(bucket.Get(number(1)))
					chunk[len(chunk)/2] ^= 4
					err = errors.Join(err, bucket.Put(number(1), chunk))
				}
				if c.older {
					spoil(older)
				}
				if c.newest {
					spoil(newest)
				}
				return err
			})
			if c.refused != "" {
				_, err := Open(options(folder))
				storetest.WantError(t, err, damage.ErrDamaged, snapshotsFile+" "+c.refused)
				return
			}
			for range 2 { // the second time, the damaged part is gone
				s = openStore(t, folder)
				storetest.WantListed(t, s.Snapshots(), c.want...)
				closeStore(t, s)
				changeFile(t, folder, snapshotsFile, func(tx *bbolt.Tx) error {
					if n := tx.Bucket(metaBucket).Inspect().KeyN; n != len(c.want) {
						t.Errorf("the file has %d records", n)
					}
					left := 0
					err := tx.Bucket(dataBucket).ForEachBucket(func([]byte) error { left++; return nil })
					if left != len(c.want) {
						t.Errorf("the file has chunks of %d snapshots", left)
					}
					return err
				})
			}
		})
	}
}

// TestMissingSnapshotIsDamage: a snapshot that vanished together with its record
// leaves a well-formed file.
func TestMissingSnapshotIsDamage(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	id := []byte(storetest.TakeSnapshot(t, s.Snapshots(), 50, 1, []byte("state")))
	closeStore(t, s)
	changeFile(t, folder, snapshotsFile, func(tx *bbolt.Tx) error {
		return errors.Join(tx.Bucket(metaBucket).Delete(id), tx.Bucket(dataBucket).DeleteBucket(id))
	})
	_, err := Open(options(folder))
	storetest.WantError(t, err, damage.ErrDamaged, snapshotsFile+" at index 50")
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
			storetest.TakeSnapshot(t, s.Snapshots(), 40, 1, []byte("state"))
			closeStore(t, s)
			changeFile(t, folder, raftFile, func(tx *bbolt.Tx) (err error) {
				for index := c.from; index <= c.to; index++ {
					err = errors.Join(err, tx.Bucket([]byte("logs")).Delete(number(index)))
				}
				return err
			})
			if c.refusedFrom == 0 {
				closeStore(t, openStore(t, folder))
				return
			}
			_, err := Open(options(folder))
			storetest.WantError(t, err, damage.ErrDamaged, fmt.Sprintf("%s at index %d", raftFile, c.refusedFrom))
		})
	}
}

// TestStableRecordThatIsTooOldIsDamage: an older state of the file is well-formed
// in itself; a node that took it for its own could vote twice.
func TestStableRecordThatIsTooOldIsDamage(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	var old []byte
	for term := range uint64(3) {
		storetest.Must(t, s.Stable().SetUint64([]byte("CurrentTerm"), term+7))
		closeStore(t, s)
		if term == 1 {
			old = storetest.ReadTrimmed(t, folder, raftFile)
		}
		s = openStore(t, folder)
	}
	closeStore(t, s)
	storetest.Must(t, os.WriteFile(filepath.Join(folder, raftFile), old, 0o600))
	_, err := Open(options(folder))
	storetest.WantError(t, err, damage.ErrDamaged, raftFile, "term and vote")
}

// TestPartsThatAreMissingOrTooMany: files of bolt that are well-formed, but not
// as this program leaves them.
func TestPartsThatAreMissingOrTooMany(t *testing.T) {
	stable := func(tx *bbolt.Tx) *bbolt.Bucket { return tx.Bucket([]byte("conf")) }
	cases := []struct {
		name, file string
		change     func(*bbolt.Tx) error
	}{
		{"no log", raftFile, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("logs")) }},
		{"no stable values", raftFile, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("conf")) }},
		{"no stable record", raftFile, func(tx *bbolt.Tx) error { return stable(tx).Delete([]byte("stable")) }},
		{"a stray value", raftFile, func(tx *bbolt.Tx) error { return stable(tx).Put([]byte("CurrentTerm"), []byte{1}) }},
		{"a second stable record", raftFile, func(tx *bbolt.Tx) error {
			return stable(tx).Put([]byte("other"), slices.Clone(stable(tx).Get([]byte("stable"))))
		}},
		{"a stray entry", raftFile, func(tx *bbolt.Tx) error { return tx.Bucket([]byte("logs")).Put([]byte("key"), []byte{1}) }},
		{"no records", snapshotsFile, func(tx *bbolt.Tx) error { return tx.DeleteBucket(metaBucket) }},
		{"no chunks", snapshotsFile, func(tx *bbolt.Tx) error { return tx.DeleteBucket(dataBucket) }},
		{"a chunk in another's place", snapshotsFile, func(tx *bbolt.Tx) error {
			return tx.Bucket(dataBucket).ForEachBucket(func(id []byte) error {
				b := tx.Bucket(dataBucket).Bucket(id)
				return errors.Join(b.Put(number(7), slices.Clone(b.Get(number(2)))), b.Delete(number(2)))
			})
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			s := openStore(t, folder)
			storetest.TakeSnapshot(t, s.Snapshots(), 5, 1, storetest.Bytes(1, 3*256<<10))
			closeStore(t, s)
			changeFile(t, folder, c.file, c.change)
			_, err := Open(options(folder))
			storetest.WantError(t, err, damage.ErrDamaged, c.file)
		})
	}
}
