package folder

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// newWitness makes and opens a witness.
func newWitness(t *testing.T) (*Witness, string) {
	t.Helper()
	folder := t.TempDir()
	storetest.Must(t, createWitness(folder))
	return reopenWitness(t, folder), folder
}

func reopenWitness(t *testing.T, folder string) *Witness {
	t.Helper()
	w, err := openWitness(configOf(folder))
	storetest.Must(t, err)
	t.Cleanup(func() { _ = w.close() }) // some tests have closed it
	return w
}

func TestWitnessRisesAndFalls(t *testing.T) {
	w, folder := newWitness(t)
	for _, step := range []struct {
		do   func() error
		want Bounds
	}{
		{func() error { w.RaiseEntry(5); return nil }, Bounds{5, 0, 1}},
		{func() error { w.RaiseEntry(3); w.RaiseSnapshot(2); w.RaiseStable(7); return nil }, Bounds{5, 2, 7}},
		{func() error { return w.LowerEntry(9) }, Bounds{5, 2, 7}},
		{func() error { return w.LowerEntry(4) }, Bounds{4, 2, 7}},
		{func() error { return w.LowerSnapshot(3) }, Bounds{4, 2, 7}},
		{func() error { return w.LowerSnapshot(1) }, Bounds{4, 1, 7}},
	} {
		storetest.Must(t, step.do())
		if got := w.Known(); got != step.want {
			t.Fatalf("it knows %+v, want %+v", got, step.want)
		}
		// As it is in the file, also when the process is killed now.
		if got := reopenWitness(t, folder).Known(); got != step.want {
			t.Fatalf("the file has %+v, want %+v", got, step.want)
		}
	}
}

// unsyncedOnce is a file whose first sync finds no room.
type unsyncedOnce struct {
	synced
	syncs int
}

func (f *unsyncedOnce) Sync() error {
	if f.syncs++; f.syncs == 1 {
		return storetest.Full
	}
	return f.synced.Sync()
}

// TestFallIsSyncedAgain: a fall that is written, and whose sync found no room, is not on the disk
// yet. The same fall again, before the cut is tried once more, must be synced.
func TestFallIsSyncedAgain(t *testing.T) {
	w, _ := newWitness(t)
	file := &unsyncedOnce{synced: w.file}
	w.file = file
	w.RaiseEntry(5)
	storetest.WantError(t, w.LowerEntry(4), damage.ErrFull)
	for range 2 {
		if err := w.LowerEntry(4); err != nil || file.syncs != 2 {
			t.Fatalf("after %d syncs: %v", file.syncs, err)
		}
	}
}

// TestTornWitnessFallsBack: a write that is cut short leaves the bounds from
// before it, which are lower, and so true.
func TestTornWitnessFallsBack(t *testing.T) {
	w, folder := newWitness(t)
	for entry := uint64(1); entry <= 9; entry++ {
		w.RaiseEntry(entry)
	}
	path := filepath.Join(folder, witnessFile)
	content, err := os.ReadFile(path)
	storetest.Must(t, err)
	newest := int(w.sequence%2) * witnessSlot
	for cut := range witnessLength {
		torn := slices.Clone(content)
		clear(torn[newest+cut : newest+witnessLength])
		if slices.Equal(torn, content) {
			continue
		}
		storetest.Must(t, os.WriteFile(path, torn, 0o600))
		if got := reopenWitness(t, folder).Known(); got.Entry != 8 {
			t.Fatalf("cut after %d bytes, it knows %+v", cut, got)
		}
	}
	clear(content[newest:])
	clear(content[witnessSlot-newest : witnessSlot-newest+4])
	storetest.Must(t, os.WriteFile(path, content, 0o600))
	_, err = openWitness(configOf(folder))
	storetest.WantError(t, err, damage.ErrDamaged, folder+"/"+witnessFile)
}

func TestWitnessTakesNoOtherBytes(t *testing.T) {
	encoded := encodeWitness(Bounds{1, 2, 3}, 4)
	if got, sequence, ok := decodeWitness(encoded); !ok || got != (Bounds{1, 2, 3}) || sequence != 4 {
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

// TestWitnessIsForEver: the file of a new folder, and a slot with a different value in each
// field.
func TestWitnessIsForEver(t *testing.T) {
	path := t.TempDir()
	storetest.Must(t, createWitness(path))
	file, err := os.ReadFile(filepath.Join(path, witnessFile))
	if err != nil || len(file) != 2*witnessSlot {
		t.Fatalf("a witness of %d bytes, error %v", len(file), err)
	}
	want := Bounds{Entry: 0x0102030405060708, Snapshot: 0x1112131415161718, Stable: 0x2122232425262728}
	slot := encodeWitness(want, 0x3132333435363738)
	storetest.Pinned(t, "testdata/witness.golden", map[string][]byte{
		"new-0": file[:witnessLength], "new-4096": file[4096 : 4096+witnessLength], "slot": slot,
	})
	if read, sequence, ok := decodeWitness(slot); !ok || read != want || sequence != 0x3132333435363738 {
		t.Errorf("the slot is read as %+v, sequence %d, %t", read, sequence, ok)
	}
}
