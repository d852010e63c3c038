package storetest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Folder returns a new folder in memory where the system has one: hundreds of
// folders would otherwise wait for the disk thousands of times, to no purpose.
func Folder(t testing.TB) string {
	t.Helper()
	const shared = "/dev/shm"
	folder, err := os.MkdirTemp(shared, "signalbox-store-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	return folder
}

// ReadTrimmed reads a file without the empty pages at its end, that bbolt keeps and that may
// be missing. Of a journal nothing may.
func ReadTrimmed(t testing.TB, folder, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	empty := make([]byte, os.Getpagesize())
	for name != "journal" && bytes.HasSuffix(content, empty) {
		content = content[:len(content)-len(empty)]
	}
	return slices.Clone(content)
}

// Bytes returns reproducible bytes.
func Bytes(seed uint64, n int) []byte {
	content := make([]byte, n)
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = source.Read(content)
	return content
}

// Damage is a way to spoil a file; older is the file as it was earlier, if it is
// known.
type Damage struct {
	Name  string
	Spoil func(r *rand.Rand, content, older []byte) []byte
}

// Damages is many ways, from one bit to a lost write.
var Damages = []Damage{
	{"flip a bit", func(r *rand.Rand, c, _ []byte) []byte { c[r.IntN(len(c))] ^= 1 << r.IntN(8); return c }},
	{"flip a bit of a page's head", func(r *rand.Rand, c, _ []byte) []byte {
		from, _ := somePage(r, c)
		c[from+r.IntN(min(64, len(c)-from))] ^= 1 << r.IntN(8)
		return c
	}},
	{"flip bits", func(r *rand.Rand, c, _ []byte) []byte {
		for range 2 + r.IntN(20) {
			c[r.IntN(len(c))] ^= 1 << r.IntN(8)
		}
		return c
	}},
	{"zero a page", func(r *rand.Rand, c, _ []byte) []byte {
		from, to := somePage(r, c)
		clear(c[from:to])
		return c
	}},
	{"zero a sector", func(r *rand.Rand, c, _ []byte) []byte {
		from := r.IntN(len(c)) / 512 * 512
		clear(c[from:min(from+512, len(c))])
		return c
	}},
	{"garbage", func(r *rand.Rand, c, _ []byte) []byte {
		from := r.IntN(len(c))
		copy(c[from:], Bytes(r.Uint64(), 1+r.IntN(5000)))
		return c
	}},
	{"cut off", func(r *rand.Rand, c, _ []byte) []byte { return c[:r.IntN(len(c))] }},
	{"tear the tail", func(r *rand.Rand, c, _ []byte) []byte { clear(c[r.IntN(len(c)):]); return c }},
	{"copy a page over another", func(r *rand.Rand, c, _ []byte) []byte {
		from, to := somePage(r, c)
		other, _ := somePage(r, c)
		copy(c[other:], slices.Clone(c[from:to]))
		return c
	}},
	{"lose a write", func(r *rand.Rand, c, older []byte) []byte {
		from, to := somePage(r, c)
		if to <= len(older) {
			copy(c[from:to], older[from:to])
		}
		return c
	}},
	{"lose all writes but one", func(r *rand.Rand, c, older []byte) []byte {
		from, to := somePage(r, c)
		kept := slices.Clone(c[from:to])
		c = append(slices.Clone(older), make([]byte, max(0, len(c)-len(older)))...)
		copy(c[from:], kept)
		return c
	}},
}

// WholeFile are ways to damage a file as a whole, or the head of one. nil is a missing file.
var WholeFile = []Damage{
	{"lose the file", func(*rand.Rand, []byte, []byte) []byte { return nil }},
	{"empty the file", func(*rand.Rand, []byte, []byte) []byte { return []byte{} }},
	{"put back an older file", func(_ *rand.Rand, _, older []byte) []byte { return older }},
	{"tear a meta page", func(r *rand.Rand, c, _ []byte) []byte { // bbolt has one on each of the first two pages
		page := os.Getpagesize()
		if len(c) < 2*page {
			page = 0
		}
		from, to := r.IntN(2)*page, 16+r.IntN(64) // from here on it is as the other one is
		other := append(slices.Clone(c[page-min(page, from):]), make([]byte, 80)...)
		copy(c[min(from+to, len(c)):min(from+80, len(c))], other[to:])
		return c
	}},
	{"lose a meta page", func(r *rand.Rand, c, _ []byte) []byte {
		from := r.IntN(2) * os.Getpagesize()
		if from >= len(c) {
			from = 0
		}
		clear(c[from:min(from+1+r.IntN(os.Getpagesize()), len(c))])
		return c
	}},
}

func somePage(r *rand.Rand, content []byte) (from, to int) {
	page := os.Getpagesize()
	from = r.IntN(len(content)) / page * page
	return from, min(from+page, len(content))
}
