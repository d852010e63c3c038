package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
	"time"
)

var update = flag.Bool("update", false, "write the golden files")

// sample is the header of the golden file.
func sample() Header {
	return Header{
		Index: 907, Term: 3, ClusterTimeMS: 65_000, WallTime: time.UnixMilli(1_767_225_600_123).UTC(), Level: 1,
		Cluster: [16]byte{0xc0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	}
}

// written returns a backup.
func written(t testing.TB, h Header, state []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, h)
	if err != nil {
		t.Fatal(err)
	}
	for len(state) > 0 { // in parts that fit no chunk
		n := min(len(state), 100_003)
		if _, err := w.Write(state[:n]); err != nil {
			t.Fatal(err)
		}
		state = state[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read returns what a backup has.
func read(r io.Reader) (Header, []byte, error) {
	a, err := NewReader(r)
	if err != nil {
		return Header{}, nil, err
	}
	state, err := io.ReadAll(a)
	return a.Header(), state, err
}

// state returns bytes without a pattern.
func state(size int) []byte {
	random := rand.NewChaCha8([32]byte{1})
	content := make([]byte, size)
	_, _ = random.Read(content) // never fails
	return content
}

func TestBackupIsReadAsItWasWritten(t *testing.T) {
	for _, size := range []int{0, 1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 5*chunkBytes + 17} {
		want := state(size)
		encoded := written(t, sample(), want)
		for name, r := range map[string]io.Reader{
			"at once": bytes.NewReader(encoded), "by bytes": iotest.OneByteReader(bytes.NewReader(encoded)), "with the end": iotest.DataErrReader(bytes.NewReader(encoded)),
		} {
			h, got, err := read(r)
			if err != nil || h != sample() || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %s: %+v, %d bytes, %v", size, name, h, len(got), err)
			}
		}
	}
}

// TestFormatIsForEver: the golden file is read as what it was, and written again the same.
func TestFormatIsForEver(t *testing.T) {
	name := filepath.Join("testdata", fmt.Sprintf("backup-%d", Version))
	content := []byte("the bytes of a state")
	if *update {
		if err := os.WriteFile(name, written(t, sample(), content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if h, got, err := read(bytes.NewReader(golden)); err != nil || h != sample() || !bytes.Equal(got, content) {
		t.Errorf("read: %+v, %q, %v", h, got, err)
	}
	if !bytes.Equal(written(t, sample(), content), golden) {
		t.Error("the format has changed: it needs a version of its own")
	}
}

// TestEachFlippedBitIsFound: in every part of a backup.
func TestEachFlippedBitIsFound(t *testing.T) {
	encoded := written(t, sample(), state(600))
	for at := range 8 * len(encoded) {
		damaged := bytes.Clone(encoded)
		damaged[at/8] ^= 1 << (at % 8)
		_, _, err := read(bytes.NewReader(damaged))
		if known := errors.Is(err, ErrDamaged) || errors.Is(err, ErrCut) || errors.Is(err, ErrNoBackup) || errors.Is(err, ErrNewer); !known {
			t.Fatalf("bit %d of byte %d: %v", at%8, at/8, err)
		}
	}
}

// TestEachCutIsFound: a backup that ends early is cut, and one that ends late is damaged.
func TestEachCutIsFound(t *testing.T) {
	encoded := written(t, sample(), state(600))
	for size := range encoded {
		want := ErrCut
		if size < len(magic)+5 {
			want = ErrNoBackup
		}
		if _, _, err := read(bytes.NewReader(encoded[:size])); !errors.Is(err, want) {
			t.Fatalf("the first %d of %d bytes: %v", size, len(encoded), err)
		}
	}
	if _, _, err := read(bytes.NewReader(append(encoded, 0))); !errors.Is(err, ErrDamaged) {
		t.Errorf("a byte more: %v", err)
	}
}

// TestChunksKeepTheirPlaces: whole chunks that are swapped, dropped or doubled have right
// bytes, and are found by their numbers or by the end.
func TestChunksKeepTheirPlaces(t *testing.T) {
	encoded := written(t, sample(), state(3*chunkBytes))
	head, chunk := len(magic)+5+headerBytes+4, 8+chunkBytes
	part := func(i int) []byte { return encoded[head+i*chunk : head+(i+1)*chunk] }
	end := encoded[head+3*chunk:]
	for name, parts := range map[string][][]byte{
		"swapped": {part(1), part(0), part(2)}, "dropped": {part(0), part(1)}, "doubled": {part(0), part(1), part(2), part(2)},
	} {
		got := bytes.Join(append(append([][]byte{encoded[:head]}, parts...), end), nil)
		if _, _, err := read(bytes.NewReader(got)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	newer := written(t, sample(), nil)
	newer[len(magic)] = Version + 1
	huge := binary.BigEndian.AppendUint32(written(t, sample(), nil)[:len(magic)+5+headerBytes+4], 1<<32-1)
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":          {nil, ErrNoBackup},
		"text":           {[]byte("{\"name\": \"db\", \"permits\": 3}"), ErrNoBackup},
		"newer":          {newer, ErrNewer},
		"a huge chunk":   {huge, ErrDamaged},
		"without an end": {written(t, sample(), state(10))[:len(magic)+5+headerBytes+4+18], ErrCut},
	} {
		if _, _, err := read(bytes.NewReader(c.file)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestErrorsOfTheStreamAreItsOwn: a reader or writer that fails is no damage.
func TestErrorsOfTheStreamAreItsOwn(t *testing.T) {
	broken := errors.New("broken")
	encoded := written(t, sample(), state(10))
	for _, size := range []int{0, 30, 90, len(encoded)} {
		_, _, err := read(io.MultiReader(bytes.NewReader(encoded[:size]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", size, err)
		}
	}
	for room := range 3 {
		w, err := NewWriter(&failingWriter{room, broken}, sample())
		if room > 0 && err == nil {
			_, _ = w.Write(state(chunkBytes)) // fails again at the end
			err = w.Close()
		}
		if !errors.Is(err, broken) {
			t.Errorf("a writer that fails at write %d: %v", room, err)
		}
	}
}

// failingWriter fails after so many writes.
type failingWriter struct {
	room int
	err  error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.room--; w.room < 0 {
		return 0, w.err
	}
	return len(p), nil
}

// FuzzReader: whatever is read without an error is written again the same.
func FuzzReader(f *testing.F) {
	for _, size := range []int{0, 3, 700} {
		f.Add(written(f, sample(), state(size)))
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, content, err := read(bytes.NewReader(file))
		if err != nil {
			return
		}
		if h2, again, err := read(bytes.NewReader(written(t, h, content))); err != nil || h2 != h || !bytes.Equal(again, content) {
			t.Errorf("%+v became %+v, %v", h, h2, err)
		}
	})
}

// TestSaveSyncs: the content is on the disk before the file has its name, and the name before
// Save returns. A sync that fails is its error, and leaves no new file.
func TestSaveSyncs(t *testing.T) {
	failed := errors.New("the disk fails")
	for _, failing := range []int{0, 1, 2} {
		folder := t.TempDir()
		name := filepath.Join(folder, "backup")
		content := written(t, sample(), state(1000))
		var synced []string
		_, _, err := save(name, func(w io.Writer) error {
			_, err := w.Write(content)
			return err
		}, func(file *os.File) error {
			info, err := file.Stat()
			if err != nil {
				t.Fatal(err)
			}
			_, missing := os.Stat(name)
			synced = append(synced, fmt.Sprintf("folder %v, size %v, named %v", info.IsDir(), info.IsDir() || info.Size() == int64(len(content)), missing == nil))
			if len(synced) == failing {
				return failed
			}
			return nil
		})
		want := []string{"folder false, size true, named false", "folder true, size true, named true"}
		if failing == 1 {
			want = want[:1]
		}
		if !slices.Equal(synced, want) || errors.Is(err, failed) != (failing > 0) {
			t.Errorf("sync %d fails: %v, error %v", failing, synced, err)
		}
		if left, err := os.ReadDir(folder); err != nil || (len(left) == 0) != (failing == 1) {
			t.Errorf("sync %d fails: the folder has %v, error %v", failing, left, err)
		}
	}
}
