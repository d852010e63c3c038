package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// smallDisk mounts a small file system in memory; the test is skipped where that
// isn't allowed.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, options); err != nil {
		t.Skipf("no small disk can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	storetest.Must(t, err)
	_, err = io.Copy(f, zeros{})
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk doesn't fill up: %v", err)
	}
	storetest.Must(t, f.Close())
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) { clear(into); return len(into), nil }

// TestFullDisk fills a real disk: log and snapshots report it, keep their data, and go
// on when there is room; a term can be stored nevertheless.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t, "size=24m")
	folder := filepath.Join(disk, "data")
	withMinFree := func(o *Options) {
		o.MinFree = 1 << 20
		o.OnDamage = func(err error) { t.Errorf("reported as damage: %v", err) }
	}
	s := openStore(t, folder, withMinFree)
	storeEntries(t, s, 1, 10, 1)
	id := storetest.TakeSnapshot(t, s.Snapshots(), 5, 1, []byte("state"))
	if space, err := s.Space(); err != nil || space.Low {
		t.Fatalf("the space is %+v, error %v", space, err)
	}
	fill(t, filepath.Join(disk, "filler"))
	if space, err := s.Space(); err != nil || !space.Low {
		t.Fatalf("on a full disk the space is %+v, error %v", space, err)
	}

	last, term := uint64(10), uint64(0)
	var err error
	for ; err == nil && last < 10_000; last += 10 { // some free pages of the file have room still
		big := storetest.Entries(last+1, last+10, 1)
		for _, log := range big {
			log.Data = storetest.Bytes(log.Index, 20_000)
		}
		err = s.Logs().StoreLogs(big)
	}
	storetest.WantError(t, err, damage.ErrFull, raftFile)
	last -= 10
	for ; term < 20; term++ { // Raft would panic
		if err := s.Stable().SetUint64([]byte("CurrentTerm"), term+1); err != nil {
			t.Fatalf("term %d: %v", term+1, err)
		}
	}
	sink, err := s.Snapshots().Create(1, 9, 1, storetest.Configuration(), 1, nil)
	storetest.Must(t, err)
	_, writeErr := sink.Write(storetest.Bytes(1, 8<<20))
	storetest.WantError(t, writeErr, damage.ErrFull, snapshotsFile)
	storetest.WantError(t, sink.Close(), damage.ErrFull)

	closeStore(t, s)
	s = openStore(t, folder, withMinFree) // a node may well restart on a full disk
	if got, err := s.Logs().LastIndex(); err != nil || got != last {
		t.Fatalf("the log ends at %d, error %v; want %d", got, err, last)
	}
	if got, err := s.Stable().GetUint64([]byte("CurrentTerm")); err != nil || got != term {
		t.Fatalf("the term is %d, error %v; want %d", got, err, term)
	}
	storetest.WantListed(t, s.Snapshots(), "1-5")
	storetest.ReadSnapshot(t, s.Snapshots(), id)

	storetest.Must(t, os.Remove(filepath.Join(disk, "filler")))
	if space, err := s.Space(); err != nil || space.Low {
		t.Errorf("with room again, the space is %+v, error %v", space, err)
	}
	if info, err := os.Stat(filepath.Join(folder, reserveFile)); err != nil || info.Size() == 0 {
		t.Errorf("the reserve is not there again: %v", err)
	}
	storeEntries(t, s, last+1, last+100, 2)
	storetest.TakeSnapshot(t, s.Snapshots(), last, 2, storetest.Bytes(2, 4<<20))
	closeStore(t, s)
	if got, err := openStore(t, folder).Logs().LastIndex(); err != nil || got != last+100 {
		t.Errorf("at last the log ends at %d, error %v; want %d", got, err, last+100)
	}
}

// TestJournalNeedsRoom: a folder gets no journal that would make the disk low on space, and keeps
// one that can't be drained, until there is room.
func TestJournalNeedsRoom(t *testing.T) {
	disk := smallDisk(t, "size=16m")
	folder := filepath.Join(disk, "data")
	with := func(journal bool) func(*Options) {
		return func(o *Options) {
			o.MinFree, o.Journal, o.JournalHalf = 4<<20, journal, 1<<20
			o.OnDamage = func(err error) { t.Errorf("reported as damage: %v", err) }
		}
	}
	last := uint64(0)
	reopen := func(wanted, want bool) *Store {
		t.Helper()
		s := openStore(t, folder, with(wanted))
		if s.Journal() != want {
			t.Fatalf("a journal is wanted: %t; there is one: %t", wanted, s.Journal())
		}
		if last > 0 {
			storetest.CheckEntries(t, s.Logs(), 1, last, 1)
		}
		return s
	}
	s := reopen(false, false)
	storeEntries(t, s, 1, 10, 1)
	last = 10
	closeStore(t, s)
	room, err := os.Create(filepath.Join(disk, "other"))
	storetest.Must(t, err)
	leave := func(bytes uint64) {
		t.Helper()
		var stat unix.Statfs_t
		storetest.Must(t, errors.Join(room.Truncate(0), unix.Statfs(disk, &stat)))
		if _, err := room.WriteAt(make([]byte, stat.Bavail*uint64(stat.Bsize)-bytes), 0); err != nil {
			t.Fatal(err)
		}
	}
	leave(6 << 20) // 4 and a quarter of it are enough, 2 are the journal
	closeStore(t, reopen(true, false))
	leave(8 << 20)
	s = reopen(true, true)
	storeEntries(t, s, 11, 4000, 1)
	last = 4000
	leave(0)
	abandon(t, s)
	closeStore(t, reopen(false, true))
	leave(8 << 20)
	closeStore(t, reopen(false, false))
	if err := room.Close(); err != nil {
		t.Error(err)
	}
}

// TestFolderCannotBeMadeOnAFullDisk, and can once there is room.
func TestFolderCannotBeMadeOnAFullDisk(t *testing.T) {
	disk := smallDisk(t, "size=4m")
	folder := filepath.Join(disk, "data")
	fill(t, filepath.Join(disk, "filler"))
	_, err := Open(options(folder))
	if err == nil || !strings.Contains(err.Error(), folder) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is %q", err)
	}
	storetest.WantError(t, err, damage.ErrFull)
	storetest.Must(t, os.Remove(filepath.Join(disk, "filler")))
	closeStore(t, openStore(t, folder))
}
