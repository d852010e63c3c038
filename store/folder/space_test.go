package folder

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestWatermarkHasHysteresis(t *testing.T) {
	w := newWatermark(1000)
	for i, step := range []struct {
		free uint64
		low  bool
	}{{5000, false}, {1000, false}, {999, true}, {1000, true}, {1249, true}, {1250, false}, {1100, false}, {0, true}, {math.MaxUint64, false}} {
		if got := w.observe(step.free); got != step.low {
			t.Errorf("step %d: with %d free, low is %t", i, step.free, got)
		}
	}
	if w := newWatermark(math.MaxUint64); !w.observe(math.MaxUint64 - 1) {
		t.Error("a watermark near the maximum wraps around")
	}
	if (&watermark{}).observe(0) {
		t.Error("the zero value is low")
	}
}

func TestSpace(t *testing.T) {
	withMinFree := func(free uint64) func(*Config) { return func(c *Config) { c.MinFree = free } }
	f := openFolder(t, t.TempDir())
	space, err := f.Space()
	if err != nil || space.Free == 0 || space.Low != (space.Free < 1<<20) {
		t.Fatalf("the space is %+v, error %v", space, err)
	}
	free := space.Free
	if space, err := openFolder(t, t.TempDir(), withMinFree(math.MaxUint64)).Space(); err != nil || !space.Low {
		t.Errorf("the space is %+v, error %v", space, err)
	}
	if space, err := openFolder(t, t.TempDir(), withMinFree(2*free)).Space(); err != nil || !space.Low || space.Spent {
		t.Errorf("between the marks: %+v, error %v", space, err)
	}
	if space, err := openFolder(t, t.TempDir(), withMinFree(5*free)).Space(); err != nil || !space.Low || !space.Spent {
		t.Errorf("below the reserve: %+v, error %v", space, err)
	}
	if space, err := openFolder(t, "").Space(); err != nil || space.Low || space.Free != math.MaxUint64 {
		t.Errorf("a folder in memory has %+v, error %v", space, err)
	}
}

// TestFolderThatIsGone: a folder that was deleted, or moved away and made again, is not the open one.
func TestFolderThatIsGone(t *testing.T) {
	path := t.TempDir()
	f := openFolder(t, path)
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(path, away); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Space(); !errors.Is(err, ErrGone) {
		t.Errorf("without the folder: %v", err)
	}
	openFolder(t, path)
	if _, err := f.Space(); !errors.Is(err, ErrGone) {
		t.Errorf("with another folder: %v", err)
	}
	if err := errors.Join(os.RemoveAll(path), os.Rename(away, path)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Space(); err != nil {
		t.Errorf("with the folder in its place: %v", err)
	}
}

// TestReserveIsReleasedOnceAndMadeAnew: by Space, when there is room.
func TestReserveIsReleasedOnceAndMadeAnew(t *testing.T) {
	folder := t.TempDir()
	f := openFolder(t, folder)
	if exists(folder, reserveFile) || f.Reserve().Release() {
		t.Error("there is a reserve before the folder is used")
	}
	for range 2 {
		if _, err := f.Space(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(folder, reserveFile)); err != nil || info.Size() != reserveBytes {
			t.Fatalf("the reserve is %v, error %v", info, err)
		}
		if !f.Reserve().Release() || f.Reserve().Release() || exists(folder, reserveFile) {
			t.Error("it is not released once")
		}
	}
	f.Reserve().Refill()
	closeFolder(t, f)
	if f = openFolder(t, folder); !f.Reserve().Release() {
		t.Error("the reserve of an earlier start is not known")
	}
}
