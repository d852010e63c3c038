package store

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestWatermarkHasHysteresis(t *testing.T) {
	w := NewWatermark(1000)
	for i, step := range []struct {
		free uint64
		low  bool
	}{{5000, false}, {1000, false}, {999, true}, {1000, true}, {1249, true}, {1250, false}, {1100, false}, {0, true}, {math.MaxUint64, false}} {
		if got := w.Observe(step.free); got != step.low {
			t.Errorf("step %d: with %d free, low is %t", i, step.free, got)
		}
	}
	if w := NewWatermark(math.MaxUint64); !w.Observe(math.MaxUint64 - 1) {
		t.Error("a watermark near the maximum wraps around")
	}
	if (&Watermark{}).Observe(0) {
		t.Error("the zero value is low")
	}
}

func TestSpace(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	free, err := s.Free()
	if err != nil || free == 0 {
		t.Fatalf("%d bytes are free, error %v", free, err)
	}
	if space, err := s.Space(); err != nil || space.Low != (space.Free < DefaultMinFree) {
		t.Errorf("the space is %+v, error %v", space, err)
	}
	greedy := openStore(t, t.TempDir(), func(o *Options) { o.MinFree = math.MaxUint64 })
	if space, err := greedy.Space(); err != nil || !space.Low {
		t.Errorf("the space is %+v, error %v", space, err)
	}
	space, err := openStore(t, t.TempDir(), func(o *Options) { o.MinFree = 2 * free }).Space()
	if err != nil || !space.Low || space.Spent {
		t.Errorf("between the marks: %+v, error %v", space, err)
	}
	space, err = openStore(t, t.TempDir(), func(o *Options) { o.MinFree = 5 * free }).Space()
	if err != nil || !space.Low || !space.Spent {
		t.Errorf("below the reserve: %+v, error %v", space, err)
	}
	ephemeral := openStore(t, "", func(o *Options) { o.Ephemeral = true })
	if space, err := ephemeral.Space(); err != nil || space.Low || space.Free != math.MaxUint64 {
		t.Errorf("an ephemeral store has %+v, error %v", space, err)
	}
}

// TestTermIsStoredOnAFullDisk takes all room away, also what bbolt has free
// inside its file, so that only the reserve is left.
func TestTermIsStoredOnAFullDisk(t *testing.T) {
	s := openStore(t, t.TempDir())
	stable, spy := spyOn(s)
	reserved := filepath.Join(s.Path(), reserveFile)
	spy.fail = full
	stable.bolt = setFunc(func(key, value []byte) error {
		if _, err := os.Stat(reserved); err == nil {
			return full
		}
		spy.fail = nil
		return spy.Set(key, value)
	})
	if err := stable.SetUint64([]byte(keyCurrentTerm), 7); err != nil {
		t.Fatal(err)
	}
	spy.fail = full
	stable.bolt = spy
	wantError(t, stable.SetUint64([]byte(keyCurrentTerm), 8), ErrFull) // it was used up
	if _, err := s.Space(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(reserved); err != nil {
		t.Errorf("the reserve is not made anew: %v", err)
	}
}

type setFunc func(key, value []byte) error

func (f setFunc) Set(key, value []byte) error { return f(key, value) }
