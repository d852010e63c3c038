package backup

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store/archive"
)

// fileOf returns the backup of a state.
func fileOf(t testing.TB, m *fsm.Machine) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, Of(m.Freeze(), time.UnixMilli(5)).Write(&out))
	return out.Bytes()
}

// TestBackupIsTheStateAtItsIndex, though entries are applied before it is written.
func TestBackupIsTheStateAtItsIndex(t *testing.T) {
	m := state(7, 9, fsm.CreateSemaphore{Name: "db", Permits: 3})
	b := Of(m.Freeze(), time.UnixMilli(5))
	m.Apply(10, fsm.EncodeEntry(70, [][]byte{fsm.Envelope{}.Encode(fsm.Up{Name: "db", Count: 1})}))
	var out bytes.Buffer
	must(t, b.Write(&out))
	h, read, err := Read(&out)
	want := archive.Header{Index: 9, Term: 3, WallTime: time.UnixMilli(5).UTC(), Level: fsm.FeatureLevel, Cluster: [16]byte{7}}
	if err != nil || h != want {
		t.Fatalf("%+v, %v", h, err)
	}
	if view, _ := read.Semaphore("db"); view.Available != 3 || read.Index() != 9 {
		t.Errorf("%+v at %d", view, read.Index())
	}
}

// TestUnsoundBackupsAreRefused: with right checksums, but a state that is none, that is of
// another moment than the header, or newer than this program.
func TestUnsoundBackupsAreRefused(t *testing.T) {
	good := state(7, 9)
	var content bytes.Buffer
	must(t, good.Freeze().Write(&content))
	header := Of(good.Freeze(), time.UnixMilli(5)).Header
	file := func(change func(*archive.Header), state []byte) []byte {
		h := header
		change(&h)
		var out bytes.Buffer
		w, err := archive.NewWriter(&out, h)
		if err == nil {
			_, err = w.Write(state)
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	keep := func(*archive.Header) {}
	for name, c := range map[string]struct {
		file []byte
		why  error
	}{
		"sound":              {file(keep, content.Bytes()), nil},
		"no state":           {file(keep, nil), outcome.ErrBackupRefused},
		"half a state":       {file(keep, content.Bytes()[:content.Len()/2]), outcome.ErrBackupRefused},
		"a state and more":   {file(keep, append(bytes.Clone(content.Bytes()), 0)), outcome.ErrBackupRefused},
		"another index":      {file(func(h *archive.Header) { h.Index++ }, content.Bytes()), archive.ErrDamaged},
		"another cluster":    {file(func(h *archive.Header) { h.Cluster[3]++ }, content.Bytes()), archive.ErrDamaged},
		"a newer level":      {file(func(h *archive.Header) { h.Level = fsm.FeatureLevel + 1 }, content.Bytes()), archive.ErrNewer},
		"before any leader":  {fileOf(t, fsm.New()), archive.ErrDamaged},
		"cut in the state":   {fileOf(t, good)[:150], archive.ErrCut},
		"damaged in a chunk": {flip(fileOf(t, good), 120), archive.ErrDamaged},
	} {
		_, m, err := Read(bytes.NewReader(c.file))
		if !errors.Is(err, c.why) || c.why != nil && (m != nil || !errors.Is(err, outcome.ErrBackupRefused)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("broken")
	if _, _, err := Read(io.MultiReader(bytes.NewReader(fileOf(t, good)[:150]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("the error of the reader: %v", err)
	}
}

func flip(file []byte, at int) []byte {
	file[at] ^= 1
	return file
}

// FuzzRead: no bytes make Read panic, and whatever it takes is written again the same.
func FuzzRead(f *testing.F) {
	f.Add(fileOf(f, state(7, 9)))
	f.Add(fileOf(f, state(7, 9, fsm.CreateSemaphore{Name: "db", Permits: 1}, fsm.OpenSession{Session: 5, TTLMS: 100},
		fsm.Acquire{Session: 5, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.AcquireOnce{Session: 6, Name: "db", Count: 1, TTLMS: 9, WaitMS: 9})))
	f.Fuzz(func(t *testing.T, file []byte) {
		if _, m, err := Read(bytes.NewReader(file)); err == nil {
			if _, again, err := Read(bytes.NewReader(fileOf(t, m))); err != nil || again.Hash() != m.Hash() {
				t.Errorf("it is written as another one: %v", err)
			}
		}
	})
}
