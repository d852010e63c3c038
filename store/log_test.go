package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
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

// full is what the system says on a full disk.
var full = &fs.PathError{Op: "write", Path: "raft.db", Err: syscall.ENOSPC}

// eachKind runs a test over a real store and over an ephemeral one.
func eachKind(t *testing.T, test func(t *testing.T, open func(...func(*Options)) *Store)) {
	t.Run("folder", func(t *testing.T) {
		test(t, func(with ...func(*Options)) *Store { return openStore(t, t.TempDir(), with...) })
	})
	t.Run("ephemeral", func(t *testing.T) {
		test(t, func(with ...func(*Options)) *Store {
			return openStore(t, "", append(with, func(o *Options) { o.Ephemeral = true })...)
		})
	})
}

func TestLogKeepsTheContractOfRaft(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Options)) *Store) {
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
			if err := logs.StoreLogs(entries(batch, batch+499, 1)); err != nil {
				t.Fatal(err)
			}
		}
		if err := logs.StoreLog(entries(5001, 5001, 1)[0]); err != nil {
			t.Fatal(err)
		}
		checkEntries(t, logs, 1, 5001, 1)
		for _, cut := range []struct{ from, to, first, last uint64 }{
			{1, 3000, 3001, 5001}, {4900, 5001, 3001, 4899}, {3001, 3001, 3002, 4899}, {9000, 9100, 3002, 4899},
		} {
			if err := logs.DeleteRange(cut.from, cut.to); err != nil {
				t.Fatalf("delete %d to %d: %v", cut.from, cut.to, err)
			}
			checkEntries(t, logs, cut.first, cut.last, 1)
		}
		if err := logs.StoreLogs(entries(4900, 4950, 2)); err != nil {
			t.Fatal(err)
		}
		var replaced raft.Log
		if err := logs.GetLog(4900, &replaced); err != nil || replaced.Term != 2 {
			t.Errorf("the entry that replaced another is %+v, error %v", replaced, err)
		}
		if err := logs.DeleteRange(3002, 4950); err != nil {
			t.Fatal(err)
		}
		if last, err := logs.LastIndex(); err != nil || last != 0 {
			t.Errorf("the last index of an emptied log is %d, error %v", last, err)
		}
		if _, monotonic := logs.(raft.MonotonicLogStore); monotonic {
			t.Error("Raft would remove the whole log at each restored snapshot")
		}
	})
}

// TestHolesInTheLog: where a snapshot takes over, a log has a hole, and cuts may
// end in it. What is known of the log's ends must then be asked, not reckoned.
func TestHolesInTheLog(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	storeEntries(t, s, 1, 10, 1)
	takeSnapshot(t, s.Snapshots(), 50, 2, nil)
	storeEntries(t, s, 51, 60, 2)
	ends := func(first, last uint64) {
		t.Helper()
		gotFirst, err := s.Logs().FirstIndex()
		gotLast, lastErr := s.Logs().LastIndex()
		if err := errors.Join(err, lastErr); err != nil || gotFirst != first || gotLast != last {
			t.Fatalf("entries %d to %d, error %v; want %d to %d", gotFirst, gotLast, err, first, last)
		}
		closeStore(t, s) // the witness must agree as well
		s = openStore(t, folder)
		if reopened, err := s.Logs().LastIndex(); err != nil || reopened != last {
			t.Fatalf("reopened, the last entry is %d, error %v; want %d", reopened, err, last)
		}
		for _, index := range []uint64{20, 61} {
			if err := s.Logs().GetLog(index, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
				t.Fatalf("entry %d: %v", index, err)
			}
		}
	}
	ends(1, 60)
	if err := s.Logs().DeleteRange(51, 60); err != nil { // conflicting entries after the snapshot
		t.Fatal(err)
	}
	if err := s.Logs().GetLog(20, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatalf("an entry in the hole: %v", err)
	}
	ends(1, 10)
	storeEntries(t, s, 51, 55, 3)
	ends(1, 55)
	if err := s.Logs().DeleteRange(1, 30); err != nil { // compaction into the hole
		t.Fatal(err)
	}
	ends(51, 55)
	if err := s.Logs().DeleteRange(53, 55); err != nil {
		t.Fatal(err)
	}
	ends(51, 52)
}

func TestEntriesGetAChecksumAndTheOnesGivenAreNotTouched(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		s := open()
		given := entries(1, 3, 1)
		if err := s.Logs().StoreLogs(given); err != nil {
			t.Fatal(err)
		}
		for _, log := range given {
			if log.Extensions != nil {
				t.Fatalf("the caller's entry %d was changed", log.Index)
			}
			var got raft.Log
			if err := s.Logs().GetLog(log.Index, &got); err != nil {
				t.Fatal(err)
			}
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
			eachKind(t, func(t *testing.T, open func(...func(*Options)) *Store) {
				s := open(func(o *Options) { o.OnDamage = func(err error) { t.Errorf("reported as damage: %v", err) } })
				batch := entries(1, 3, 1)
				batch[1].Extensions = encodeChecksum(entryChecksum(batch[1]))
				change(batch[1])
				err := s.Logs().StoreLogs(batch)
				wantError(t, err, ErrBadEntry)
				if last, err := s.Logs().LastIndex(); err != nil || last != 0 {
					t.Errorf("a part of the batch was stored: up to %d, error %v", last, err)
				}
				storeEntries(t, s, 1, 3, 1) // what is refused does no harm
			})
		})
	}
}

// TestWrongBytesAreDamage: whatever the log beneath returns, what is not the
// entry that was stored is an error, the same from then on, and reported once.
func TestWrongBytesAreDamage(t *testing.T) {
	lies := map[string]func(*raft.Log){
		"data":          func(l *raft.Log) { l.Data[3] ^= 0x10 },
		"term":          func(l *raft.Log) { l.Term-- },
		"type":          func(l *raft.Log) { l.Type = raft.LogNoop },
		"index":         func(l *raft.Log) { l.Index++ },
		"no checksum":   func(l *raft.Log) { l.Extensions = nil },
		"another entry": func(l *raft.Log) { *l = *entries(9, 9, 1)[0]; l.Extensions = encodeChecksum(entryChecksum(l)) },
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			faults := &faultyLog{}
			var reported []error
			s := openStore(t, folder, func(o *Options) {
				o.WrapLog = faults.wrap
				o.OnDamage = func(err error) { reported = append(reported, err) }
			})
			storeEntries(t, s, 1, 2*cachedEntries, 1) // so that the first half isn't in the cache
			faults.set(func() { faults.lie = lie })
			got := raft.Log{Data: []byte("before")}
			err := s.Logs().GetLog(5, &got)
			wantError(t, err, ErrDamaged, folder+"/"+raftFile+" at index 5", "mv "+folder)
			if got.Data != nil || got.Index != 0 {
				t.Errorf("beside the error came %+v", got)
			}
			faults.set(func() { faults.lie = nil })
			for _, index := range []uint64{5, 6, 2 * cachedEntries} {
				wantError(t, s.Logs().GetLog(index, &got), ErrDamaged)
			}
			wantError(t, s.Logs().StoreLogs(entries(257, 257, 1)), ErrDamaged)
			wantError(t, s.Stable().SetUint64([]byte("CurrentTerm"), 2), ErrDamaged)
			if len(reported) != 1 || reported[0] != err || s.Damage() != err {
				t.Errorf("reported %v, kept %v; want once %v", reported, s.Damage(), err)
			}
		})
	}
}

func TestCachedEntriesAreCheckedToo(t *testing.T) {
	s := openStore(t, t.TempDir())
	given := entries(1, 3, 1)
	if err := s.Logs().StoreLogs(given); err != nil {
		t.Fatal(err)
	}
	given[1].Data[0] ^= 1 // the cache has the same bytes
	err := s.Logs().GetLog(2, &raft.Log{})
	wantError(t, err, ErrDamaged, "log cache in memory at index 2")
}

func TestMissingEntryIsDamageOnlyIfItWasStored(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	storeEntries(t, s, 1, 300, 1)
	if err := s.files.raft.DeleteRange(100, 100); err != nil { // behind the store's back
		t.Fatal(err)
	}
	for _, never := range []uint64{0, 301} {
		if err := s.Logs().GetLog(never, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d, which never was: %v", never, err)
		}
	}
	wantError(t, s.Logs().GetLog(100, &raft.Log{}), ErrDamaged, "at index 100", "missing")
}

func TestReadsBesideCutsAndWritesSeeNoDamage(t *testing.T) {
	s := openStore(t, t.TempDir(), func(o *Options) { o.OnDamage = func(err error) { t.Errorf("damage: %v", err) } })
	storeEntries(t, s, 1, 100, 1)
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
		err := errors.Join(s.Logs().DeleteRange(60+round%30, 200), s.Logs().StoreLogs(entries(60+round%30, 120, 2+round)))
		if err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	readers.Wait()
}

func TestFullDiskIsSaidAndPasses(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		for name, cause := range map[string]error{
			"as an error": full,
			"as text":     fmt.Errorf("file sync error: %s", full), // how bbolt says it when it grows a file
			"quota":       fmt.Errorf("write: %w", syscall.EDQUOT),
		} {
			t.Run(name, func(t *testing.T) {
				faults := &faultyLog{}
				s := open(func(o *Options) {
					o.WrapLog = faults.wrap
					o.OnDamage = func(err error) { t.Errorf("reported as damage: %v", err) }
				})
				storeEntries(t, s, 1, 3, 1)
				faults.set(func() { faults.fail = cause })
				err := s.Logs().StoreLogs(entries(4, 5, 1)) // through the cache, which forgets types
				wantError(t, err, ErrFull)
				if typed := (*FullError)(nil); !errors.As(err, &typed) || typed.File == "" {
					t.Errorf("the error is %#v", err)
				}
				wantError(t, s.Logs().DeleteRange(1, 1), ErrFull)
				checkEntries(t, s.Logs(), 1, 3, 1)
				faults.set(func() { faults.fail = nil })
				storeEntries(t, s, 4, 5, 1)
				checkEntries(t, s.Logs(), 1, 5, 1)
			})
		}
	})
}

func TestErrorsOfWritesKeepTheirType(t *testing.T) {
	odd := errors.New("odd")
	faults := &faultyLog{fail: odd}
	s := openStore(t, t.TempDir(), func(o *Options) { o.WrapLog = faults.wrap })
	if err := s.Logs().StoreLogs(entries(1, 1, 1)); !errors.Is(err, odd) {
		t.Errorf("the error is %v", err)
	}
	faults.set(func() { faults.fail = nil })
	storeEntries(t, s, 1, 1, 1)
}

// TestFailedWriteThatIsInTheFileIsRemoved: Raft believes that a failed batch isn't
// stored. If the file has it all the same, entries of an old term would end up
// after newer ones.
func TestFailedWriteThatIsInTheFileIsRemoved(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	bottom := &faultyLog{LogStore: s.files.raft}
	log := &boltLog{bolt: bottom, guard: s.guard, witness: s.files.witness, logger: hclog.NewNullLogger()}
	if err := log.StoreLogs(mustSeal(t, entries(1, 10, 1))); err != nil {
		t.Fatal(err)
	}
	bottom.set(func() { bottom.fail, bottom.late = full, true })
	wantError(t, log.StoreLogs(mustSeal(t, entries(11, 20, 1))), ErrFull)
	if last, err := log.LastIndex(); err != nil || last != 10 {
		t.Fatalf("after a failed write the last entry is %d, error %v", last, err)
	}
	bottom.set(func() { bottom.fail, bottom.late = nil, false })
	if err := log.StoreLogs(mustSeal(t, entries(11, 11, 2))); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if last, err := openStore(t, folder).Logs().LastIndex(); err != nil || last != 11 {
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
		for fault, failing := range map[string]func(*Store, *faultyLog){
			"write": func(s *Store, bottom *faultyLog) {
				bottom.set(func() { bottom.fail, bottom.late = full, true })
				wantError(t, s.Logs().StoreLogs(entries(101, 110, 1)), ErrFull)
				bottom.set(func() { bottom.late = false })
				wantError(t, s.Logs().DeleteRange(cut.first, cut.last), ErrFull)
				bottom.set(func() { bottom.fail = nil })
			},
			"cut": func(_ *Store, bottom *faultyLog) {
				bottom.set(func() { bottom.fail, bottom.late = full, true })
			},
		} {
			t.Run(name+" after a "+fault, func(t *testing.T) {
				s := openStore(t, t.TempDir())
				log := s.watched.LogStore.(*boltLog)
				bottom := &faultyLog{LogStore: log.bolt}
				log.bolt = bottom
				storeEntries(t, s, 1, 100, 1)
				failing(s, bottom)
				if err := s.Logs().DeleteRange(cut.first, cut.last); err != nil {
					t.Fatal(err)
				}
				first, err := s.Logs().FirstIndex()
				last, lastErr := s.Logs().LastIndex()
				if err := errors.Join(err, lastErr); first != cut.from || last != cut.to || err != nil {
					t.Errorf("left are %d to %d, error %v", first, last, err)
				}
				wantError(t, s.Logs().GetLog(cut.first, &raft.Log{}), raft.ErrLogNotFound)
				if s.Damage() != nil {
					t.Errorf("a full disk is told as damage: %v", s.Damage())
				}
			})
		}
	}
}

func mustSeal(t *testing.T, logs []*raft.Log) []*raft.Log {
	t.Helper()
	own, err := sealed(logs)
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// TestFailedWriteOtherThanFullIsFinal: after a failed sync nobody knows what the
// disk holds.
func TestFailedWriteOtherThanFullIsFinal(t *testing.T) {
	s := openStore(t, t.TempDir())
	bottom := &faultyLog{LogStore: s.files.raft, fail: &fs.PathError{Op: "sync", Path: raftFile, Err: syscall.EIO}}
	log := &boltLog{bolt: bottom, guard: s.guard, witness: s.files.witness, logger: hclog.NewNullLogger()}
	wantError(t, log.StoreLogs(mustSeal(t, entries(1, 1, 1))), ErrDamaged, raftFile, "input/output error")
	bottom.set(func() { bottom.fail = nil })
	wantError(t, log.StoreLogs(mustSeal(t, entries(1, 1, 1))), ErrDamaged)
}

func TestPanicInBoltIsDamage(t *testing.T) {
	s := openStore(t, t.TempDir())
	storeEntries(t, s, 1, 3, 1)
	log := &boltLog{bolt: panicking{s.files.raft}, guard: s.guard, witness: s.files.witness, logger: hclog.NewNullLogger()}
	wantError(t, log.GetLog(2, &raft.Log{}), ErrDamaged, raftFile, "page 7: unexpected")
	wantError(t, s.Logs().GetLog(1, &raft.Log{}), ErrDamaged)
}

// panicking panics as bbolt does on a damaged page.
type panicking struct{ raft.LogStore }

func (panicking) GetLog(uint64, *raft.Log) error { panic("page 7: unexpected") }

func TestStuckFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := &faultyLog{hang: make(chan struct{}), entered: make(chan struct{})}
		s, err := Open(Options{NodeID: "n1", Ephemeral: true, WrapLog: faults.wrap})
		if err != nil {
			t.Fatal(err)
		}
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
		go func() { done <- s.Logs().StoreLogs(entries(1, 1, 1)) }()
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

func TestErrorsNameWhatTheyAreAbout(t *testing.T) {
	cause := errors.New("cause")
	for kind, err := range map[error]error{
		ErrLocked:      &LockedError{Folder: "/data"},
		ErrForeign:     &ForeignError{Folder: "/data", Found: "a file"},
		ErrNewerFormat: &NewerFormatError{Folder: "/data", Found: 2, Known: 1},
		ErrIdentity:    &IdentityError{Folder: "/data", What: "node"},
		ErrDamaged:     &DamagedError{Folder: "/data", File: raftFile, Err: cause},
		ErrFull:        &FullError{File: "/data/raft.db", Err: cause},
	} {
		wrapped := fmt.Errorf("opening: %w", err)
		wantError(t, wrapped, kind, "/data")
		if (kind == ErrDamaged || kind == ErrFull) && !errors.Is(wrapped, cause) {
			t.Errorf("%v hides its cause", wrapped)
		}
	}
	if message := (&DamagedError{File: memoryFile, Detail: "x"}).Error(); strings.Contains(message, "mv ") {
		t.Errorf("without a folder, there is none to move away: %q", message)
	}
}
