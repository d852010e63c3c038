package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// faultyLog is a log whose writes can be made to fail or to hang, and whose
// reads to lie.
type faultyLog struct {
	raft.LogStore

	mu      sync.Mutex
	fail    error
	late    bool // a write that fails is stored all the same
	hang    chan struct{}
	entered chan struct{} // a write has come to the place where it may hang
	lie     func(*raft.Log)
}

// wrap takes the place of the log on the disk; see Options.WrapLog.
func (f *faultyLog) wrap(below raft.LogStore) raft.LogStore {
	f.LogStore = below
	return f
}

func (f *faultyLog) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *faultyLog) write(write func() error) error {
	f.mu.Lock()
	fail, hang, late := f.fail, f.hang, f.late
	f.mu.Unlock()
	if hang != nil {
		f.entered <- struct{}{}
		<-hang
	}
	if fail != nil && !late {
		return fail
	}
	return errors.Join(write(), fail)
}

func (f *faultyLog) StoreLogs(logs []*raft.Log) error {
	return f.write(func() error { return f.LogStore.StoreLogs(logs) })
}

func (f *faultyLog) DeleteRange(first, last uint64) error {
	return f.write(func() error { return f.LogStore.DeleteRange(first, last) })
}

func (f *faultyLog) GetLog(index uint64, log *raft.Log) error {
	err := f.LogStore.GetLog(index, log)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.lie != nil {
		log.Data = slices.Clone(log.Data)
		f.lie(log)
	}
	return err
}

func TestLogKeepsTheContractOfRaft(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Config)) *testStores) {
		logs := open().Logs()
		first, err := logs.FirstIndex()
		last, lastErr := logs.LastIndex()
		if err := errors.Join(err, lastErr); err != nil || first != 0 || last != 0 {
			t.Fatalf("an empty log has entries %d to %d, error %v", first, last, err)
		}
		if err := logs.DeleteRange(0, 0); err != nil { // as RecoverCluster does
			t.Fatalf("deleting nothing: %v", err)
		}
		for batch := uint64(1); batch <= 5000; batch += 500 {
			storetest.Must(t, logs.StoreLogs(storetest.Entries(batch, batch+499, 1)))
		}
		storetest.Must(t, logs.StoreLog(storetest.Entries(5001, 5001, 1)[0]))
		storetest.CheckEntries(t, logs, 1, 5001, 1)
		for _, cut := range []struct{ from, to, first, last uint64 }{
			{1, 3000, 3001, 5001}, {4900, 5001, 3001, 4899}, {3001, 3001, 3002, 4899}, {9000, 9100, 3002, 4899},
		} {
			if err := logs.DeleteRange(cut.from, cut.to); err != nil {
				t.Fatalf("delete %d to %d: %v", cut.from, cut.to, err)
			}
			storetest.CheckEntries(t, logs, cut.first, cut.last, 1)
		}
		storetest.Must(t, logs.StoreLogs(storetest.Entries(4900, 4950, 2)))
		var replaced raft.Log
		if err := logs.GetLog(4900, &replaced); err != nil || replaced.Term != 2 {
			t.Errorf("the entry that replaced another is %+v, error %v", replaced, err)
		}
		storetest.Must(t, logs.DeleteRange(3002, 4950))
		if last, err := logs.LastIndex(); err != nil || last != 0 {
			t.Errorf("the last index of an emptied log is %d, error %v", last, err)
		}
		if _, monotonic := logs.(raft.MonotonicLogStore); monotonic {
			t.Error("Raft would remove the whole log at each restored snapshot")
		}
	})
}

func TestEntriesGetAChecksumAndTheOnesGivenAreNotTouched(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Config)) *testStores) {
		s := open()
		entries := storetest.Entries(1, 3, 1)
		storetest.Must(t, s.Logs().StoreLogs(entries))
		for _, log := range entries {
			if log.Extensions != nil {
				t.Fatalf("the caller's entry %d was changed", log.Index)
			}
			var got raft.Log
			storetest.Must(t, s.Logs().GetLog(log.Index, &got))
			if want := encodeChecksum(entryChecksum(log)); !bytes.Equal(got.Extensions, want) {
				t.Errorf("entry %d has the extensions %x, want %x", log.Index, got.Extensions, want)
			}
		}
	})
}

func TestEntryThatDoesNotMatchItsChecksumIsRefused(t *testing.T) {
	spoil := map[string]func(*raft.Log){
		"index":           func(l *raft.Log) { l.Index++ },
		"term":            func(l *raft.Log) { l.Term++ },
		"type":            func(l *raft.Log) { l.Type = raft.LogConfiguration },
		"data":            func(l *raft.Log) { l.Data = append(slices.Clone(l.Data), 0) },
		"checksum":        func(l *raft.Log) { l.Extensions[5] ^= 1 },
		"short checksum":  func(l *raft.Log) { l.Extensions = l.Extensions[:5] },
		"newer checksum":  func(l *raft.Log) { l.Extensions[1] = checksumVersion + 1 },
		"other extension": func(l *raft.Log) { l.Extensions = []byte("chunk 1 of 2") },
	}
	for name, change := range spoil {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, open func(...func(*Config)) *testStores) {
				s := open(func(c *Config) {
					c.Guard = damage.NewGuard(c.Folder, func(err error) { t.Errorf("reported as damage: %v", err) })
				})
				batch := storetest.Entries(1, 3, 1)
				batch[1].Extensions = encodeChecksum(entryChecksum(batch[1]))
				change(batch[1])
				err := s.Logs().StoreLogs(batch)
				storetest.WantError(t, err, ErrBadEntry)
				if last, err := s.Logs().LastIndex(); err != nil || last != 0 {
					t.Errorf("a part of the batch was stored: up to %d, error %v", last, err)
				}
				storeEntries(t, s.Logs(), 1, 3, 1) // a refused entry does no harm
			})
		})
	}
}

// TestWrongBytesAreDamage: if the log beneath returns other bytes than the stored
// entry, the read is an error, the same from then on, and reported once.
func TestWrongBytesAreDamage(t *testing.T) {
	lies := map[string]func(*raft.Log){
		"data":        func(l *raft.Log) { l.Data[3] ^= 0x10 },
		"term":        func(l *raft.Log) { l.Term-- },
		"type":        func(l *raft.Log) { l.Type = raft.LogNoop },
		"index":       func(l *raft.Log) { l.Index++ },
		"no checksum": func(l *raft.Log) { l.Extensions = nil },
		"another entry": func(l *raft.Log) {
			*l = *storetest.Entries(9, 9, 1)[0]
			l.Extensions = encodeChecksum(entryChecksum(l))
		},
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			faults := &faultyLog{}
			var reported []error
			s := openLogs(t, folder, func(c *Config) {
				c.Wrap = faults.wrap
				c.Guard = damage.NewGuard(c.Folder, func(err error) { reported = append(reported, err) })
			})
			storeEntries(t, s.Logs(), 1, 2*cachedEntries, 1) // so that the first half isn't in the cache
			faults.set(func() { faults.lie = lie })
			got := raft.Log{Data: []byte("before")}
			err := s.Logs().GetLog(5, &got)
			storetest.WantError(t, err, damage.ErrDamaged, folder+"/"+FileName+" at index 5", "mv "+folder)
			if got.Data != nil || got.Index != 0 {
				t.Errorf("beside the error came %+v", got)
			}
			faults.set(func() { faults.lie = nil })
			for _, index := range []uint64{5, 6, 2 * cachedEntries} {
				storetest.WantError(t, s.Logs().GetLog(index, &got), damage.ErrDamaged)
			}
			storetest.WantError(t, s.Logs().StoreLogs(storetest.Entries(257, 257, 1)), damage.ErrDamaged)
			storetest.WantError(t, s.Stable().SetUint64([]byte("CurrentTerm"), 2), damage.ErrDamaged)
			if len(reported) != 1 || reported[0] != err || s.guard.Found() != err {
				t.Errorf("reported %v, kept %v; want once %v", reported, s.guard.Found(), err)
			}
		})
	}
}

func TestCachedEntriesAreCheckedToo(t *testing.T) {
	s := openLogs(t, t.TempDir())
	entries := storetest.Entries(1, 3, 1)
	storetest.Must(t, s.Logs().StoreLogs(entries))
	if err := s.Drain(); err != nil { // else the journal's memory has the same bytes too
		t.Fatal(err)
	}
	entries[1].Data[0] ^= 1 // the cache has the same bytes
	err := s.Logs().GetLog(2, &raft.Log{})
	storetest.WantError(t, err, damage.ErrDamaged, "log cache in memory at index 2")
}

func TestMissingEntryIsDamageOnlyIfItWasStored(t *testing.T) {
	folder := t.TempDir()
	s := openLogs(t, folder)
	storeEntries(t, s.Logs(), 1, 300, 1)
	storetest.Must(t, s.Drain())
	if err := s.bolt.DeleteRange(100, 100); err != nil { // behind the store's back
		t.Fatal(err)
	}
	for _, never := range []uint64{0, 301} {
		if err := s.Logs().GetLog(never, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d, which never was: %v", never, err)
		}
	}
	storetest.WantError(t, s.Logs().GetLog(100, &raft.Log{}), damage.ErrDamaged, "at index 100", "missing")
}

func TestReadsBesideCutsAndWritesSeeNoDamage(t *testing.T) {
	s := openLogs(t, t.TempDir(), func(c *Config) { c.Guard = damage.NewGuard(c.Folder, func(err error) { t.Errorf("damage: %v", err) }) })
	storeEntries(t, s.Logs(), 1, 100, 1)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for i := uint64(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				var got raft.Log
				if err := s.Logs().GetLog(i%130, &got); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
					t.Errorf("entry %d: %v", i%130, err)
					return
				}
			}
		})
	}
	for round := range uint64(100) { // cut the tail, write it anew
		err := errors.Join(s.Logs().DeleteRange(60+round%30, 200), s.Logs().StoreLogs(storetest.Entries(60+round%30, 120, 2+round)))
		if err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	readers.Wait()
}

func TestFullDiskIsSaidAndPasses(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Config)) *testStores) {
		for name, cause := range map[string]error{
			"as an error": storetest.Full,
			"as text":     fmt.Errorf("file sync error: %s", storetest.Full), // how bbolt says it when it grows a file
			"quota":       fmt.Errorf("write: %w", syscall.EDQUOT),
		} {
			t.Run(name, func(t *testing.T) {
				faults := &faultyLog{}
				s := open(func(c *Config) {
					c.Wrap = faults.wrap
					c.Guard = damage.NewGuard(c.Folder, func(err error) { t.Errorf("reported as damage: %v", err) })
				})
				storeEntries(t, s.Logs(), 1, 3, 1)
				faults.set(func() { faults.fail = cause })
				err := s.Logs().StoreLogs(storetest.Entries(4, 5, 1)) // through the cache, which forgets types
				storetest.WantError(t, err, damage.ErrFull)
				if typed := (*damage.FullError)(nil); !errors.As(err, &typed) || typed.File == "" {
					t.Errorf("the error is %#v", err)
				}
				storetest.WantError(t, s.Logs().DeleteRange(1, 1), damage.ErrFull)
				storetest.CheckEntries(t, s.Logs(), 1, 3, 1)
				faults.set(func() { faults.fail = nil })
				storeEntries(t, s.Logs(), 4, 5, 1)
				storetest.CheckEntries(t, s.Logs(), 1, 5, 1)
			})
		}
	})
}

func TestErrorsOfWritesKeepTheirType(t *testing.T) {
	odd := errors.New("odd")
	faults := &faultyLog{fail: odd}
	s := openLogs(t, t.TempDir(), func(c *Config) { c.Wrap = faults.wrap })
	if err := s.Logs().StoreLogs(storetest.Entries(1, 1, 1)); !errors.Is(err, odd) {
		t.Errorf("the error is %v", err)
	}
	faults.set(func() { faults.fail = nil })
	storeEntries(t, s.Logs(), 1, 1, 1)
}

// TestFailedWriteThatIsInTheFileIsRemoved: Raft believes that a failed batch isn't
// stored. If the file has it all the same, entries of an old term would end up
// after newer ones.
func TestFailedWriteThatIsInTheFileIsRemoved(t *testing.T) {
	folder := t.TempDir()
	s := openLogs(t, folder, withoutJournal)
	bottom := &faultyLog{LogStore: s.bolt}
	log := &boltLog{bolt: bottom, guard: s.guard, witness: s.witness, logger: hclog.NewNullLogger()}
	storetest.Must(t, log.StoreLogs(mustSeal(t, storetest.Entries(1, 10, 1))))
	bottom.set(func() { bottom.fail, bottom.late = storetest.Full, true })
	storetest.WantError(t, log.StoreLogs(mustSeal(t, storetest.Entries(11, 20, 1))), damage.ErrFull)
	if last, err := log.LastIndex(); err != nil || last != 10 {
		t.Fatalf("after a failed write the last entry is %d, error %v", last, err)
	}
	bottom.set(func() { bottom.fail, bottom.late = nil, false })
	storetest.Must(t, log.StoreLogs(mustSeal(t, storetest.Entries(11, 11, 2))))
	s.close(t)
	if last, err := openLogs(t, folder, withoutJournal).Logs().LastIndex(); err != nil || last != 11 {
		t.Errorf("the file's last entry is %d, error %v; want 11", last, err)
	}
}

// TestCutsOnAFullDisk: neither is what a failed write has left in the file damage to
// the cut that follows, nor is a cut refused that is in the file though it failed.
func TestCutsOnAFullDisk(t *testing.T) {
	for name, cut := range map[string]struct{ first, last, from, to uint64 }{
		"compaction": {1, 50, 51, 100},
		"truncation": {91, 100, 1, 90},
		"all of it":  {1, 100, 0, 0},
	} {
		for fault, failing := range map[string]func(*testStores, *faultyLog){
			"write": func(s *testStores, bottom *faultyLog) {
				bottom.set(func() { bottom.fail, bottom.late = storetest.Full, true })
				storetest.WantError(t, s.Logs().StoreLogs(storetest.Entries(101, 110, 1)), damage.ErrFull)
				bottom.set(func() { bottom.late = false })
				storetest.WantError(t, s.Logs().DeleteRange(cut.first, cut.last), damage.ErrFull)
				bottom.set(func() { bottom.fail = nil })
			},
			"cut": func(_ *testStores, bottom *faultyLog) {
				bottom.set(func() { bottom.fail, bottom.late = storetest.Full, true })
			},
		} {
			t.Run(name+" after a "+fault, func(t *testing.T) {
				s := openLogs(t, t.TempDir(), withoutJournal)
				log := s.log.watched.LogStore.(*boltLog)
				bottom := &faultyLog{LogStore: log.bolt}
				log.bolt = bottom
				storeEntries(t, s.Logs(), 1, 100, 1)
				failing(s, bottom)
				storetest.Must(t, s.Logs().DeleteRange(cut.first, cut.last))
				first, err := s.Logs().FirstIndex()
				last, lastErr := s.Logs().LastIndex()
				if err := errors.Join(err, lastErr); first != cut.from || last != cut.to || err != nil {
					t.Errorf("left are %d to %d, error %v", first, last, err)
				}
				storetest.WantError(t, s.Logs().GetLog(cut.first, &raft.Log{}), raft.ErrLogNotFound)
				if s.guard.Found() != nil {
					t.Errorf("a full disk is told as damage: %v", s.guard.Found())
				}
			})
		}
	}
}

func mustSeal(t *testing.T, logs []*raft.Log) []*raft.Log {
	t.Helper()
	entries, err := withChecksums(logs)
	storetest.Must(t, err)
	return entries
}

// TestFailedWriteOtherThanFullIsFinal: after a failed sync the content of the disk
// is unknown.
func TestFailedWriteOtherThanFullIsFinal(t *testing.T) {
	s := openLogs(t, t.TempDir(), withoutJournal)
	bottom := &faultyLog{LogStore: s.bolt, fail: &fs.PathError{Op: "sync", Path: FileName, Err: syscall.EIO}}
	log := &boltLog{bolt: bottom, guard: s.guard, witness: s.witness, logger: hclog.NewNullLogger()}
	storetest.WantError(t, log.StoreLogs(mustSeal(t, storetest.Entries(1, 1, 1))), damage.ErrDamaged, FileName, "input/output error")
	bottom.set(func() { bottom.fail = nil })
	storetest.WantError(t, log.StoreLogs(mustSeal(t, storetest.Entries(1, 1, 1))), damage.ErrDamaged)
}

func TestPanicInBoltIsDamage(t *testing.T) {
	s := openLogs(t, t.TempDir(), withoutJournal)
	storeEntries(t, s.Logs(), 1, 3, 1)
	log := &boltLog{bolt: panicking{s.bolt}, guard: s.guard, witness: s.witness, logger: hclog.NewNullLogger()}
	storetest.WantError(t, log.GetLog(2, &raft.Log{}), damage.ErrDamaged, FileName, "page 7: unexpected")
	storetest.WantError(t, s.Logs().GetLog(1, &raft.Log{}), damage.ErrDamaged)
}

// panicking panics as bbolt does on a damaged page.
type panicking struct{ raft.LogStore }

func (panicking) GetLog(uint64, *raft.Log) error { panic("page 7: unexpected") }

func TestStuckFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := &faultyLog{hang: make(chan struct{}), entered: make(chan struct{})}
		s := openLogs(t, "", func(c *Config) { c.Wrap = faults.wrap })
		stuck := func(want time.Duration) {
			t.Helper()
			if got := s.StuckFor(); got != want {
				t.Errorf("stuck for %v, want %v", got, want)
			}
		}
		stuck(0)
		time.Sleep(time.Hour) // virtual: idle time is not a hung write
		stuck(0)
		done := make(chan error)
		go func() { done <- s.Logs().StoreLogs(storetest.Entries(1, 1, 1)) }()
		<-faults.entered
		time.Sleep(3 * time.Second) // virtual
		stuck(3 * time.Second)
		go func() { done <- s.Logs().DeleteRange(1, 1) }() // beside it, by the goroutine of snapshots
		<-faults.entered
		time.Sleep(time.Second) // virtual
		stuck(4 * time.Second)
		close(faults.hang)
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
		stuck(0)
	})
}

// TestWitnessNeverSpeaksOfWhatIsNotStored: at every moment a crash may come, and
// then the witness must not hold more than the log. It is looked at whenever the
// log beneath is about to change.
func TestWitnessNeverSpeaksOfWhatIsNotStored(t *testing.T) {
	folder := t.TempDir()
	s := openLogs(t, folder, withoutJournal)
	bottom := s.log.watched.LogStore.(*boltLog)
	looked := 0
	bottom.bolt = &watchful{LogStore: bottom.bolt, look: func() {
		looked++
		last, err := s.bolt.LastIndex()
		storetest.Must(t, err)
		if seen := s.witness.entry; seen > last {
			t.Errorf("the witness has seen entry %d, and the log ends at %d", seen, last)
		}
	}}
	storeEntries(t, s.Logs(), 1, 50, 1)
	for _, cut := range []struct{ first, last uint64 }{{40, 50}, {1, 20}, {30, 39}} {
		storetest.Must(t, s.Logs().DeleteRange(cut.first, cut.last))
		last, err := s.Logs().LastIndex()
		storetest.Must(t, err)
		storeEntries(t, s.Logs(), last+1, last+5, 2)
	}
	storetest.Must(t, s.Logs().DeleteRange(1, 100))
	if looked != 16 {
		t.Errorf("it was looked at %d times", looked)
	}
}

// watchful looks before and after each change of the log.
type watchful struct {
	raft.LogStore
	look func()
}

func (w *watchful) StoreLogs(logs []*raft.Log) error {
	w.look()
	defer w.look()
	return w.LogStore.StoreLogs(logs)
}

func (w *watchful) DeleteRange(first, last uint64) error {
	w.look()
	defer w.look()
	return w.LogStore.DeleteRange(first, last)
}
