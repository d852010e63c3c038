package logs

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/journal"
	"github.com/signalbox/signalbox/test/storetest"
)

// openJournal opens a log with a journal, and returns what stands before bbolt.
func openJournal(t *testing.T, folder string, bottom *faultyLog) (*testStores, *journaledLog) {
	t.Helper()
	s := openLogs(t, folder, withJournal)
	l := s.journaled
	l.draining.Lock()
	defer l.draining.Unlock()
	bottom.LogStore, l.bolt.bolt = l.bolt.bolt, bottom
	return s, l
}

// big are entries of 10,000 bytes: six of them fill a half.
func big(first, last uint64) []*raft.Log {
	made := storetest.Entries(first, last, 1)
	for _, log := range made {
		log.Data = storetest.Bytes(log.Index, 10_000)
	}
	return made
}

// TestFullDiskBehindTheJournal: a drain that finds no room leaves the entries where they are.
// Appends are refused when both halves are full, and go on when there is room.
func TestFullDiskBehindTheJournal(t *testing.T) {
	folder, bottom := t.TempDir(), &faultyLog{}
	s, _ := openJournal(t, folder, bottom)
	bottom.set(func() { bottom.fail = storetest.Full })
	last, err := uint64(0), error(nil)
	for ; err == nil; last++ {
		err = s.Logs().StoreLogs(big(last+1, last+1))
	}
	last--
	storetest.WantError(t, err, damage.ErrFull, FileName)
	if last < 9 || last > 12 {
		t.Errorf("%d entries were stored", last)
	}
	storetest.WantError(t, s.Drain(), damage.ErrFull)
	s.close(t)
	s, _ = openJournal(t, folder, bottom) // as it is, also on a full disk
	if got, err := s.Logs().LastIndex(); err != nil || got != last {
		t.Fatalf("the log ends at %d, error %v, want %d", got, err, last)
	}
	bottom.set(func() { bottom.fail = nil })
	if err := s.Logs().StoreLogs(big(last+1, last+20)); err != nil { // larger than a half, too
		t.Fatal(err)
	}
	for _, want := range big(1, last+20) {
		var got raft.Log
		if err := s.Logs().GetLog(want.Index, &got); err != nil || string(got.Data) != string(want.Data) {
			t.Fatalf("entry %d: %v", want.Index, err)
		}
	}
}

// TestAppendsGoOnBesideAHangingDrain, and one that finds both halves full waits for it.
func TestAppendsGoOnBesideAHangingDrain(t *testing.T) {
	bottom := &faultyLog{hang: make(chan struct{}), entered: make(chan struct{}, 100)}
	s, _ := openJournal(t, t.TempDir(), bottom)
	goOn := sync.OnceFunc(func() { close(bottom.hang) })
	t.Cleanup(goOn)
	drained := make(chan error, 1)
	storetest.Must(t, s.Logs().StoreLogs(big(1, 1)))
	go func() { drained <- s.Drain() }()
	<-bottom.entered
	for index := uint64(2); index <= 9; index++ {
		storetest.Must(t, s.Logs().StoreLogs(big(index, index)))
	}
	stored := make(chan error, 1)
	go func() { stored <- s.Logs().StoreLogs(big(10, 15)) }()
	for !inside("journaledLog).StoreLogs", "journaledLog).drainTo") {
		select {
		case err := <-stored:
			t.Fatalf("the append into full halves did not wait: %v", err)
		default:
			runtime.Gosched()
		}
	}
	goOn()
	storetest.Must(t, errors.Join(<-drained, <-stored))
	if last, err := s.Logs().LastIndex(); err != nil || last != 15 {
		t.Errorf("the last entry is %d, error %v", last, err)
	}
}

// TestPausesEndInBolt: each time that no change comes for a while, all go to bbolt.
func TestPausesEndInBolt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := openJournal(t, t.TempDir(), &faultyLog{})
		for index := uint64(1); index <= 5; index++ {
			storeEntries(t, s.Logs(), index, index, 1)
			time.Sleep(3 * drainIdle) // virtual
			if _, drained := l.progress(); !drained {
				t.Fatalf("bbolt does not have entry %d", index)
			}
		}
		s.close(t)
	})
}

// inside reports whether there is a goroutine that is inside all of these functions.
func inside(functions ...string) bool {
	text := make([]byte, 1<<20)
	text = text[:runtime.Stack(text, true)]
	return slices.ContainsFunc(strings.Split(string(text), "\n\n"), func(stack string) bool {
		return !slices.ContainsFunc(functions, func(f string) bool { return !strings.Contains(stack, f) })
	})
}

// badFile is a journal whose writes fail once err is set.
type badFile struct {
	journal.File
	err error
}

func (b *badFile) WriteAt(content []byte, at int64) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	return b.File.WriteAt(content, at)
}

// TestFailedWriteToTheJournal: it is final, but for a full disk.
func TestFailedWriteToTheJournal(t *testing.T) {
	for kind, cause := range map[error]error{damage.ErrDamaged: syscall.EIO, damage.ErrFull: syscall.ENOSPC} {
		s, l := openJournal(t, t.TempDir(), &faultyLog{})
		storeEntries(t, s.Logs(), 1, 3, 1)
		l.writing.Lock()
		l.draining.Lock()
		file, err := journal.OpenFile(s.folder)
		storetest.Must(t, err)
		found, err := journal.Read(file, 0)
		storetest.Must(t, err)
		good := l.journal
		bad := &badFile{File: file}
		if l.journal, err = journal.Open(bad, found, 0); err != nil {
			t.Fatal(err)
		}
		bad.err = cause
		l.draining.Unlock()
		l.writing.Unlock()
		storetest.WantError(t, s.Logs().StoreLogs(storetest.Entries(4, 4, 1)), kind, journal.FileName)
		storetest.WantError(t, s.Logs().DeleteRange(3, 3), kind)
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		l.writing.Lock()
		l.draining.Lock()
		l.journal = good
		l.draining.Unlock()
		l.writing.Unlock()
		if kind == damage.ErrFull {
			storetest.CheckEntries(t, s.Logs(), 1, 3, 1)
			storeEntries(t, s.Logs(), 4, 5, 1)
		} else {
			storetest.WantError(t, s.Logs().StoreLogs(storetest.Entries(4, 4, 1)), kind)
		}
	}
}

// TestRefusedEntriesAreNotBehindLaterOnes: entries too large for the journal were refused and are in bbolt all the
// same. They are gone before the next change is stored: after a crash they would be behind it. Time stands still, since
// the goroutine that drains after a while would remove them too.
func TestRefusedEntriesAreNotBehindLaterOnes(t *testing.T) {
	for name, next := range map[string]func(raft.LogStore) error{
		"entries": func(l raft.LogStore) error { return l.StoreLogs(storetest.Entries(4, 4, 2)) },
		"a cut":   func(l raft.LogStore) error { return l.DeleteRange(1, 1) },
	} {
		synctest.Test(t, func(t *testing.T) {
			bottom := &faultyLog{}
			s, l := openJournal(t, t.TempDir(), bottom)
			storeEntries(t, s.Logs(), 1, 3, 1)
			storetest.Must(t, l.drain()) // so that the failed write is a write of the refused entries
			bottom.set(func() { bottom.fail, bottom.late = storetest.Full, true })
			storetest.WantError(t, s.Logs().StoreLogs(big(4, 20)), damage.ErrFull)
			bottom.set(func() { bottom.fail = nil })
			storetest.Must(t, next(s.Logs()))
			l.draining.Lock()
			defer l.draining.Unlock()
			if last, err := bottom.LastIndex(); err != nil || last > 4 {
				t.Errorf("%s: bbolt ends with entry %d, error %v", name, last, err)
			}
		})
	}
}

// TestCloseBesideAppends: what was acknowledged is there, and the others are refused.
func TestCloseBesideAppends(t *testing.T) {
	folder := t.TempDir()
	s, _ := openJournal(t, folder, &faultyLog{})
	var last uint64
	some, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			if err := s.Logs().StoreLogs(storetest.Entries(last+1, last+1, 1)); err != nil {
				done <- err
				return
			}
			if last++; last == 20 {
				close(some)
			}
		}
	}()
	<-some
	s.close(t)
	storetest.WantError(t, <-done, damage.ErrClosed)
	storetest.CheckEntries(t, openLogs(t, folder, withJournal).Logs(), 1, last, 1)
}

// TestDrainsBesideAppendsCutsAndReads: no reader sees a gap while entries go to bbolt.
func TestDrainsBesideAppendsCutsAndReads(t *testing.T) {
	s, _ := openJournal(t, t.TempDir(), &faultyLog{})
	storeEntries(t, s.Logs(), 1, 50, 1)
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := s.Drain(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	others.Go(func() {
		for index := uint64(1); ; index = index%50 + 1 { // these stay
			select {
			case <-stop:
				return
			default:
				var got raft.Log
				if err := s.Logs().GetLog(index, &got); err != nil || got.Term != 1 {
					t.Errorf("entry %d of term %d: %v", index, got.Term, err)
					return
				}
				if last, err := s.Logs().LastIndex(); err != nil || last < 50 {
					t.Errorf("the last entry is %d, error %v", last, err)
					return
				}
			}
		}
	})
	for term := uint64(2); term < 60; term++ {
		storetest.Must(t, s.Logs().StoreLogs(storetest.Entries(51, 60+term%7, term)))
		var got raft.Log
		if err := s.Logs().GetLog(55, &got); err != nil || got.Term != term {
			t.Fatalf("entry 55 is of term %d instead of %d, error %v", got.Term, term, err)
		}
		storetest.Must(t, s.Logs().DeleteRange(51, 60+term%7))
	}
	close(stop)
	others.Wait()
	storetest.CheckEntries(t, s.Logs(), 1, 50, 1)
}
