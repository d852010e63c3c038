package store

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/folder"
	"github.com/signalbox/signalbox/store/journal"
	"github.com/signalbox/signalbox/store/logs"
	"github.com/signalbox/signalbox/store/snapshots"
	"github.com/signalbox/signalbox/test/storetest"
)

// The files of a folder.
const (
	raftFile      = logs.FileName
	snapshotsFile = snapshots.FileName
	journalFile   = journal.FileName
	recordFile    = "FORMAT"
	witnessFile   = "witness"
	reserveFile   = "reserve"
)

// dataFiles hold the stored data, and must all be there.
var dataFiles = []string{raftFile, snapshotsFile, witnessFile}

// journaled is whether the stores of tests have a journal: all tests run with and without one.
var journaled bool

func TestMain(m *testing.M) {
	failed := m.Run()
	if benchmarks := flag.Lookup("test.bench"); benchmarks.Value.String() == "" { // they choose for themselves
		journaled = true
		failed = max(failed, m.Run())
	}
	os.Exit(failed)
}

// options are for node n1 in a folder.
func options(folder string) Options {
	return Options{Folder: folder, NodeID: "n1", Journal: journaled, JournalHalf: 64 << 10}
}

// openStore opens a folder for node n1 and closes it with the test.
func openStore(t testing.TB, folder string, with ...func(*Options)) *Store {
	t.Helper()
	o := options(folder)
	for _, change := range with {
		change(&o)
	}
	s, err := Open(o)
	if err != nil {
		t.Fatalf("open %s: %v", folder, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", folder, err)
		}
	})
	return s
}

// closeStore closes a store now.
func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// drain brings the journal's entries into raft.db.
func drain(t testing.TB, s *Store) {
	t.Helper()
	storetest.Must(t, s.Drain())
}

// abandon closes a store as a crash does: what the journal has stays there.
func abandon(t testing.TB, s *Store) {
	t.Helper()
	_, err := s.guard.Close(func() (err error) {
		for _, file := range s.bolt {
			err = errors.Join(err, file.Close())
		}
		return err
	})
	storetest.Must(t, errors.Join(err, s.Folder.Close()))
}

// storeEntries stores log entries from first to last.
func storeEntries(t testing.TB, s *Store, first, last, term uint64) {
	t.Helper()
	if err := s.Logs().StoreLogs(storetest.Entries(first, last, term)); err != nil {
		t.Fatalf("store entries %d to %d: %v", first, last, err)
	}
}

func TestWhatIsStoredIsThereAfterReopening(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "made", "with", "its", "parents")
	s := openStore(t, folder)
	if !s.Empty() {
		t.Error("a new folder isn't empty")
	}
	if s.Path() != folder || s.NodeID() != "n1" || s.ClusterID() != "" {
		t.Errorf("path %q, node %q, cluster %q", s.Path(), s.NodeID(), s.ClusterID())
	}
	storeEntries(t, s, 1, 300, 2)
	for _, step := range []error{
		s.Stable().SetUint64([]byte("CurrentTerm"), 2),
		s.Stable().SetUint64([]byte("LastVoteTerm"), 2),
		s.Stable().Set([]byte("LastVoteCand"), []byte("n2:8711")),
		s.SetClusterID("c1"),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	content := bytes.Repeat([]byte("state"), 100_000)
	id := storetest.TakeSnapshot(t, s.Snapshots(), 250, 2, content)
	closeStore(t, s)

	s = openStore(t, folder, func(o *Options) { o.ClusterID = "c1" })
	if s.Empty() || s.ClusterID() != "c1" {
		t.Errorf("empty %t, cluster %q", s.Empty(), s.ClusterID())
	}
	storetest.CheckEntries(t, s.Logs(), 1, 300, 2)
	term, err := s.Stable().GetUint64([]byte("CurrentTerm"))
	voteTerm, voteErr := s.Stable().GetUint64([]byte("LastVoteTerm"))
	candidate, candidateErr := s.Stable().Get([]byte("LastVoteCand"))
	if err := errors.Join(err, voteErr, candidateErr); err != nil || term != 2 || voteTerm != 2 || string(candidate) != "n2:8711" {
		t.Errorf("term %d, vote %d for %q, error %v", term, voteTerm, candidate, err)
	}
	meta, read := storetest.ReadSnapshot(t, s.Snapshots(), id)
	if !bytes.Equal(read, content) || meta.Index != 250 || meta.Term != 2 || meta.Size != int64(len(content)) ||
		!slices.Equal(meta.Configuration.Servers, storetest.Configuration().Servers) {
		t.Errorf("the snapshot has %d bytes and %+v", len(read), meta)
	}
}

// TestClusterIDIsReplacedWhileTheStoreIsEmpty: the node has made no promise to the first
// cluster until then.
func TestClusterIDIsReplacedWhileTheStoreIsEmpty(t *testing.T) {
	s := openStore(t, t.TempDir(), func(o *Options) { o.ClusterID = "c1" })
	if err := s.SetClusterID("c2"); err != nil || s.ClusterID() != "c2" {
		t.Errorf("the cluster is %q, error %v", s.ClusterID(), err)
	}
	storeEntries(t, s, 1, 1, 1)
	storetest.WantError(t, s.SetClusterID("c3"), folder.ErrIdentity, `"c2"`)
}

func TestBadOptionsAreRefused(t *testing.T) {
	for _, o := range []Options{{NodeID: "n1"}, {Folder: "x"}, {Ephemeral: true}} {
		if s, err := Open(o); err == nil {
			closeStore(t, s)
			t.Errorf("%+v was opened", o)
		}
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a folder was made")
	}
}

func TestEachFirstWriteEndsEmptiness(t *testing.T) {
	writes := map[string]func(*Store) error{
		"an entry": func(s *Store) error { return s.Logs().StoreLog(storetest.Entries(1, 1, 1)[0]) },
		"a term":   func(s *Store) error { return s.Stable().SetUint64([]byte("CurrentTerm"), 7) },
		"a snapshot": func(s *Store) error {
			sink, err := s.Snapshots().Create(1, 5, 1, storetest.Configuration(), 1, nil)
			if err != nil {
				return err
			}
			return sink.Close()
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			for _, ephemeral := range []bool{false, true} {
				s := openStore(t, t.TempDir(), func(o *Options) {
					if o.Ephemeral = ephemeral; ephemeral {
						o.Folder = ""
					}
				})
				if !s.Empty() {
					t.Fatal("a new store isn't empty")
				}
				storetest.Must(t, write(s))
				if s.Empty() {
					t.Error("the store is still empty")
				}
			}
		})
	}
}

func TestClosedStoreRefusesEverything(t *testing.T) {
	s := openStore(t, t.TempDir())
	storeEntries(t, s, 1, 3, 1)
	id := storetest.TakeSnapshot(t, s.Snapshots(), 2, 1, []byte("state"))
	sink, err := s.Snapshots().Create(1, 3, 1, storetest.Configuration(), 1, nil)
	storetest.Must(t, err)
	closeStore(t, s)
	closeStore(t, s)
	for name, call := range map[string]func() error{
		"FirstIndex": func() error { _, err := s.Logs().FirstIndex(); return err },
		"LastIndex":  func() error { _, err := s.Logs().LastIndex(); return err },
		"GetLog":     func() error { return s.Logs().GetLog(2, &raft.Log{}) },
		"StoreLogs":  func() error { return s.Logs().StoreLogs(storetest.Entries(4, 4, 1)) },
		"DeleteRange": func() error {
			return s.Logs().DeleteRange(1, 2)
		},
		"Get":             func() error { _, err := s.Stable().Get([]byte("k")); return err },
		"SetUint64":       func() error { return s.Stable().SetUint64([]byte("k"), 1) },
		"SetUint64 (2)":   func() error { return s.Stable().SetUint64([]byte("LastVoteTerm"), 1) },
		"List":            func() error { _, err := s.Snapshots().List(); return err },
		"Open":            func() error { _, _, err := s.Snapshots().Open(id); return err },
		"sink.Close":      sink.Close,
		"SetClusterID":    func() error { return s.SetClusterID("c") },
		"SetRestoredTerm": func() error { return s.SetRestoredTerm(1) },
	} {
		if err := call(); !errors.Is(err, damage.ErrClosed) {
			t.Errorf("%s: error %v, want %v", name, err, damage.ErrClosed)
		}
	}
	if s.Empty() {
		t.Error("a closed store says that it is empty")
	}
}

func TestInterruptedBootstrapIsUndone(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	if err := s.Stable().SetUint64([]byte("CurrentTerm"), 1); err != nil { // where BootstrapCluster was when the power failed
		t.Fatal(err)
	}
	if s.Empty() {
		t.Fatal("a term was stored, and the store is empty")
	}
	closeStore(t, s)
	s = openStore(t, folder)
	if !s.Empty() {
		t.Error("the node can't be bootstrapped any more")
	}
	// Anything more than that stays: a vote, a later term, an entry.
	for name, more := range map[string]func(*Store) error{
		"vote": func(s *Store) error {
			return errors.Join(s.Stable().SetUint64([]byte("LastVoteTerm"), 1), s.Stable().Set([]byte("LastVoteCand"), []byte("n2")))
		},
		"term":  func(s *Store) error { return s.Stable().SetUint64([]byte("CurrentTerm"), 2) },
		"entry": func(s *Store) error { return s.Logs().StoreLogs(storetest.Entries(1, 1, 1)) },
	} {
		folder := t.TempDir()
		s := openStore(t, folder)
		storetest.Must(t, errors.Join(s.Stable().SetUint64([]byte("CurrentTerm"), 1), more(s)))
		closeStore(t, s)
		if s := openStore(t, folder); s.Empty() {
			t.Errorf("%s: what was stored is gone", name)
		} else if term, err := s.Stable().GetUint64([]byte("CurrentTerm")); err != nil || term == 0 {
			t.Errorf("%s: the term is %d, error %v", name, term, err)
		}
	}
}

// TestHolesInTheLog: where a snapshot takes over, a log has a hole, and cuts may
// end in it. The log's ends must then be read, not computed.
func TestHolesInTheLog(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	storeEntries(t, s, 1, 10, 1)
	storetest.TakeSnapshot(t, s.Snapshots(), 50, 2, nil)
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
	storetest.Must(t, s.Logs().DeleteRange(53, 55))
	ends(51, 52)
}

// TestEntriesThatASnapshotCoversAreRefused: a node that took the state of a restore which
// never came into force must not acknowledge other entries in its place, also after a
// restart. A newer leader's snapshot ends that, even one at a lower index.
func TestEntriesThatASnapshotCoversAreRefused(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		s := open()
		check := func(term uint64) {
			t.Helper()
			for _, first := range []uint64{6, 20} {
				err := s.Logs().StoreLogs(storetest.Entries(first, 25, term))
				storetest.WantError(t, err, logs.ErrCovered, "snapshot has index 20", "empty its data folder")
			}
			if last, err := s.Logs().LastIndex(); err != nil || last != 5 {
				t.Fatalf("the last entry is %d, error %v", last, err)
			}
		}
		storeEntries(t, s, 1, 5, 1)
		storetest.TakeSnapshot(t, s.Snapshots(), 20, 2, nil)
		check(3)
		var restorePending atomic.Bool
		s.RefuseCovered(restorePending.Load)
		storeEntries(t, s, 6, 9, 1) // the state is in force
		storetest.Must(t, s.Logs().DeleteRange(6, 9))
		restorePending.Store(true)
		check(3)
		if path := s.Path(); path != "" {
			closeStore(t, s)
			s = openStore(t, path)
			check(3)
		}
		storeEntries(t, s, 21, 25, 2) // the restore is in force
		storetest.Must(t, s.Logs().DeleteRange(21, 25))
		storetest.TakeSnapshot(t, s.Snapshots(), 9, 3, nil)
		storeEntries(t, s, 10, 12, 3)
	})
}

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
