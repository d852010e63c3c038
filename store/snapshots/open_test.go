package snapshots

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// bound is a witness that remembers.
type bound struct{ index uint64 }

func (b *bound) RaiseSnapshot(index uint64)       { b.index = max(b.index, index) }
func (b *bound) LowerSnapshot(index uint64) error { b.index = min(b.index, index); return nil }

// testStore is an open store, with what it works with.
type testStore struct {
	*Store
	witness *bound
}

// openSnapshots opens the file of a folder, which it makes first if it is missing, and
// closes it with the test.
func openSnapshots(t testing.TB, folder string, with ...func(*Config)) *testStore {
	t.Helper()
	if _, err := os.Stat(filepath.Join(folder, FileName)); err != nil {
		storetest.Must(t, Create(folder))
	}
	s := &testStore{witness: &bound{}}
	c := Config{Folder: folder, Guard: damage.NewGuard(folder, nil), Witness: s.witness, Logger: hclog.NewNullLogger()}
	for _, change := range with {
		change(&c)
	}
	found, err := Read(folder)
	if err == nil {
		s.Store, err = Open(c, found)
	}
	if err == nil {
		err = s.Tidy(found)
	}
	if err != nil {
		t.Fatalf("open the snapshots of %s: %v", folder, err)
	}
	t.Cleanup(func() { s.close(t) })
	return s
}

// close closes the file now.
func (s *testStore) close(t testing.TB) {
	t.Helper()
	if _, err := s.guard.Close(s.Store.Close); err != nil {
		t.Errorf("close: %v", err)
	}
}

// copyFile copies the file as it is now: what would be there after the power failed at
// this moment, but for what isn't synced yet; bbolt syncs at the end of each
// transaction, and these copies are made there.
func copyFile(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	content, err := os.ReadFile(filepath.Join(from, FileName))
	storetest.Must(t, err)
	storetest.Must(t, os.WriteFile(filepath.Join(to, FileName), content, 0o600))
	return to
}

// listed returns "term-index" of each snapshot in the list.
func listed(t testing.TB, snapshots raft.SnapshotStore) []string {
	t.Helper()
	metas, err := snapshots.List()
	storetest.Must(t, err)
	var found []string
	for _, meta := range metas {
		found = append(found, fmt.Sprintf("%d-%d", meta.Term, meta.Index))
	}
	return found
}
