package logs

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/journal"
	"github.com/signalbox/signalbox/test/storetest"
)

// bounds is a witness that remembers.
type bounds struct{ entry, stable uint64 }

func (b *bounds) RaiseEntry(index uint64)       { b.entry = max(b.entry, index) }
func (b *bounds) RaiseStable(generation uint64) { b.stable = max(b.stable, generation) }
func (b *bounds) LowerEntry(index uint64) error { b.entry = min(b.entry, index); return nil }

// room is a reserve that can be released once.
type room struct{ held bool }

func (r *room) Release() bool {
	held := r.held
	r.held = false
	return held
}

// testStores are open stores, with what they work with.
type testStores struct {
	*Stores
	folder  string
	guard   *damage.Guard
	witness *bounds
	reserve *room
}

// journaled is whether the logs of tests have a journal: all tests run with and without one.
var journaled bool

func TestMain(m *testing.M) {
	failed := m.Run()
	if fuzzed := flag.Lookup("test.fuzz"); fuzzed == nil || fuzzed.Value.String() == "" {
		journaled = true
		failed = max(failed, m.Run())
	}
	os.Exit(failed)
}

// withoutJournal is for tests of the log in bbolt alone.
func withoutJournal(c *Config) { c.Journal = false }

// withJournal is for tests of the journal, in both forms.
func withJournal(c *Config) { c.Journal = true }

// openLogs opens the file of a folder, which it makes first if it is missing, and
// closes it with the test. The folder is "" for stores in memory.
func openLogs(t testing.TB, folder string, with ...func(*Config)) *testStores {
	t.Helper()
	s := &testStores{folder: folder, witness: &bounds{}, reserve: &room{}}
	c := Config{Folder: folder, Guard: damage.NewGuard(folder, nil), Witness: s.witness, Reserve: s.reserve, Logger: hclog.NewNullLogger(), Journal: journaled}
	for _, change := range with {
		change(&c)
	}
	s.guard = c.Guard
	var err error
	if folder == "" {
		s.Stores, err = OpenMemory(c)
	} else {
		if _, err := os.Stat(filepath.Join(folder, FileName)); err != nil {
			storetest.Must(t, Create(folder))
		}
		var found Contents
		if _, statErr := os.Stat(filepath.Join(folder, journal.FileName)); c.Journal && statErr != nil {
			if found, err = Read(folder, false); err == nil {
				found, err = CreateJournal(folder, 64<<10, found)
			}
		} else {
			found, err = Read(folder, c.Journal)
		}
		if err == nil {
			s.Stores, err = Open(c, found)
		}
	}
	if err != nil {
		t.Fatalf("open the logs of %s: %v", folder, err)
	}
	t.Cleanup(func() { s.close(t) })
	return s
}

// close closes the file now.
func (s *testStores) close(t testing.TB) {
	t.Helper()
	if _, err := s.guard.Close(s.Stores.Close); err != nil {
		t.Errorf("close: %v", err)
	}
}

// storeEntries stores log entries from first to last.
func storeEntries(t testing.TB, logs raft.LogStore, first, last, term uint64) {
	t.Helper()
	if err := logs.StoreLogs(storetest.Entries(first, last, term)); err != nil {
		t.Fatalf("store entries %d to %d: %v", first, last, err)
	}
}

// eachKind runs a test over a real file and over stores in memory.
func eachKind(t *testing.T, test func(t *testing.T, open func(...func(*Config)) *testStores)) {
	t.Run("folder", func(t *testing.T) {
		test(t, func(with ...func(*Config)) *testStores { return openLogs(t, t.TempDir(), with...) })
	})
	t.Run("memory", func(t *testing.T) {
		test(t, func(with ...func(*Config)) *testStores { return openLogs(t, "", with...) })
	})
}
