package store

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

// newWitness makes and opens a witness.
func newWitness(t *testing.T) (*witness, string) {
	t.Helper()
	folder := t.TempDir()
	if err := createWitness(Options{Folder: folder}); err != nil {
		t.Fatal(err)
	}
	return reopenWitness(t, folder), folder
}

func reopenWitness(t *testing.T, folder string) *witness {
	t.Helper()
	w, err := openWitness(folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.close() }) // some tests have closed it
	return w
}

func TestWitnessRisesAndFallsAsTold(t *testing.T) {
	w, folder := newWitness(t)
	for _, step := range []struct {
		do   func() error
		want bounds
	}{
		{func() error { return w.raise(bounds{entry: 5}) }, bounds{5, 0, 1}},
		{func() error { return w.raise(bounds{entry: 3, snapshot: 2, stable: 7}) }, bounds{5, 2, 7}},
		{func() error { return w.lowerEntry(9) }, bounds{5, 2, 7}},
		{func() error { return w.lowerEntry(4) }, bounds{4, 2, 7}},
		{func() error { return w.lowerSnapshot(3) }, bounds{4, 2, 7}},
		{func() error { return w.lowerSnapshot(1) }, bounds{4, 1, 7}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := w.known(); got != step.want {
			t.Fatalf("it knows %+v, want %+v", got, step.want)
		}
		// As it is in the file, also when the process is killed now.
		if got := reopenWitness(t, folder).known(); got != step.want {
			t.Fatalf("the file has %+v, want %+v", got, step.want)
		}
	}
}

// TestTornWitnessFallsBack: a write that is cut short leaves the bounds from
// before it, which are lower, and so true.
func TestTornWitnessFallsBack(t *testing.T) {
	w, folder := newWitness(t)
	for entry := uint64(1); entry <= 9; entry++ {
		if err := w.raise(bounds{entry: entry}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(folder, witnessFile)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newest := int(w.sequence%2) * witnessSlot
	for cut := range witnessLength {
		torn := slices.Clone(content)
		clear(torn[newest+cut : newest+witnessLength])
		if slices.Equal(torn, content) {
			continue
		}
		if err := os.WriteFile(path, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := reopenWitness(t, folder).known(); got.entry != 8 {
			t.Fatalf("cut after %d bytes, it knows %+v", cut, got)
		}
	}
	clear(content[newest:])
	clear(content[witnessSlot-newest : witnessSlot-newest+4])
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = openWitness(folder)
	wantError(t, err, ErrDamaged, folder+"/"+witnessFile)
}

func TestWitnessTakesNoOtherBytes(t *testing.T) {
	encoded := encodeWitness(bounds{1, 2, 3}, 4)
	if got, sequence, ok := decodeWitness(encoded); !ok || got != (bounds{1, 2, 3}) || sequence != 4 {
		t.Fatalf("%+v, sequence %d, %t", got, sequence, ok)
	}
	for bit := range 8 * len(encoded) {
		flipped := slices.Clone(encoded)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, _, ok := decodeWitness(flipped); ok {
			t.Errorf("taken with bit %d flipped", bit)
		}
	}
}

// TestWitnessNeverSpeaksOfWhatIsNotStored: at every moment a crash may come, and
// then the witness must not hold more than the log. It is looked at whenever the
// log beneath is about to change.
func TestWitnessNeverSpeaksOfWhatIsNotStored(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	bottom := s.logs.below.LogStore.(*boltLog)
	looked := 0
	bottom.bolt = &watchful{LogStore: bottom.bolt, look: func() {
		looked++
		last, err := s.files.raft.LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		if seen := reopenWitness(t, folder).known().entry; seen > last {
			t.Errorf("the witness has seen entry %d, and the log ends at %d", seen, last)
		}
	}}
	storeEntries(t, s, 1, 50, 1)
	for _, cut := range []struct{ first, last uint64 }{{40, 50}, {1, 20}, {30, 39}} {
		if err := s.Logs().DeleteRange(cut.first, cut.last); err != nil {
			t.Fatal(err)
		}
		last, err := s.Logs().LastIndex()
		if err != nil {
			t.Fatal(err)
		}
		storeEntries(t, s, last+1, last+5, 2)
	}
	if err := s.Logs().DeleteRange(1, 100); err != nil {
		t.Fatal(err)
	}
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
