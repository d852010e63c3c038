package recorder

import (
	"errors"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// outcomes makes some changes of a folder that has the file "old", whose content is "oldoldold…" of
// two sectors, and returns what losses of power leave after them, each once.
func outcomes(t *testing.T, changes func(folder string)) []string {
	t.Helper()
	first, path := t.TempDir(), filepath.Join(t.TempDir(), "data")
	open(t, filepath.Join(first, "old"), O_CREATE, strings.Repeat("o", 2*sectorBytes))
	image, err := Read(first)
	check(t, err)
	r, err := Start(path, image)
	check(t, err)
	changes(path)
	r.Stop()
	seen := map[string]bool{}
	for seed := range uint64(400) {
		var files []string
		for name, c := range r.Crash(r.Len(), rand.New(rand.NewPCG(1, seed))).files {
			description := name + ":"
			for at := int64(0); at*sectorBytes < c.size; at++ {
				letter := "0"
				if s := c.sectors[at]; s != nil {
					letter = string(s[0])
				}
				description += letter
			}
			files = append(files, description)
		}
		slices.Sort(files)
		seen[strings.Join(files, " ")] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func open(t *testing.T, path string, flags int, content string) *File {
	t.Helper()
	f, err := OpenFile(path, O_RDWR|flags, 0o600)
	check(t, err)
	if content != "" {
		_, err = f.Write([]byte(content))
		check(t, err)
	}
	return f
}

// TestLosses: what a sync has not reached may be on the disk in any combination, and what it has
// reached is there.
func TestLosses(t *testing.T) {
	two := strings.Repeat("n", 2*sectorBytes)
	sync := func(t *testing.T, folder string) {
		names, err := Open(folder)
		check(t, err)
		check(t, names.Sync(), names.Close())
	}
	cases := []struct {
		name    string
		changes func(folder string)
		want    []string
	}{
		{"two sectors", func(folder string) { open(t, folder+"/old", 0, two) }, []string{"old:nn", "old:no", "old:on", "old:oo"}},
		{"synced", func(folder string) { check(t, open(t, folder+"/old", 0, two).Sync()) }, []string{"old:nn"}},
		{"synced writes", func(folder string) { open(t, folder+"/old", syscall.O_DSYNC, two) }, []string{"old:nn"}},
		{"twice the same", func(folder string) {
			open(t, folder+"/old", 0, two[:5])
			open(t, folder+"/old", 0, "later")
		}, []string{"old:lo", "old:no", "old:oo"}},
		{"longer", func(folder string) {
			_, err := open(t, folder+"/old", 0, "").WriteAt([]byte("n"), 2*sectorBytes)
			check(t, err)
		}, []string{"old:oo", "old:oo0", "old:oon"}},
		{"shorter", func(folder string) { check(t, open(t, folder+"/old", 0, "").Truncate(1)) },
			[]string{"old:o", "old:o0", "old:oo"}},
		{"a new file", func(folder string) { open(t, folder+"/new", O_CREATE, "n") }, []string{"new: old:oo", "new:0 old:oo", "new:n old:oo", "old:oo"}},
		{"a new file, synced", func(folder string) { check(t, open(t, folder+"/new", O_CREATE, "n").Sync()) }, []string{"new:n old:oo", "old:oo"}},
		{"its name synced too", func(folder string) {
			check(t, open(t, folder+"/new", O_CREATE, "n").Sync())
			sync(t, folder)
		}, []string{"new:n old:oo"}},
		{"replaced", func(folder string) {
			check(t, open(t, folder+"/new", O_CREATE, "n").Sync())
			check(t, Rename(folder+"/new", folder+"/old"))
		}, []string{"new:n old:oo", "old:n", "old:oo"}},
		{"removed", func(folder string) { check(t, Remove(folder+"/old")) }, []string{"", "old:oo"}},
		{"removed, synced", func(folder string) { check(t, Remove(folder+"/old")); sync(t, folder) }, []string{""}},
		{"in a new folder", func(folder string) {
			check(t, Mkdir(folder+"/in", 0o700))
			check(t, open(t, folder+"/in/new", O_CREATE, "n").Sync())
			sync(t, folder+"/in")
		}, []string{"in/new:n old:oo", "old:oo"}},
		{"moved to another folder", func(folder string) {
			check(t, Mkdir(folder+"/in", 0o700))
			sync(t, folder)
			check(t, Rename(folder+"/old", folder+"/in/old"))
			sync(t, folder)
		}, []string{"in/old:oo", "old:oo"}},
		{"all of a folder removed", func(folder string) {
			check(t, Mkdir(folder+"/in", 0o700))
			check(t, Rename(folder+"/old", folder+"/in/old"))
			sync(t, folder)
			sync(t, folder+"/in")
			check(t, RemoveAll(folder+"/in"))
			sync(t, folder)
		}, []string{""}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := outcomes(t, c.changes); !slices.Equal(got, c.want) {
				t.Errorf("left are %q, want %q", got, c.want)
			}
		})
	}
}

// TestImageIsWrittenAsItIs, with empty files, and with some that end inside a sector.
func TestImageIsWrittenAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	r, err := Start(path, Image{})
	check(t, err)
	check(t, Mkdir(path+"/in", 0o700))
	for size := range 5 {
		open(t, path+"/in/"+strings.Repeat("f", size+1), O_CREATE, strings.Repeat("xyz\x00", size*size*100))
	}
	r.Stop()
	want, err := Read(path)
	check(t, err)
	check(t, want.Write(path+"-copy"))
	got, err := Read(path + "-copy")
	check(t, err)
	if !reflect.DeepEqual(got, want) || len(got.Names()) != 5 || !strings.Contains(got.Names()[4], "6400") {
		t.Errorf("the copy is %v, want %v", got.Names(), want.Names())
	}
}

// TestKilledProgramChangesNothing, and what it wrote is there for the next one.
func TestKilledProgramChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	r, err := Start(path, Image{})
	check(t, err)
	defer r.Stop()
	f := open(t, path+"/file", O_CREATE, "first")
	r.KillAt(r.Len() + 1)
	_, err = f.WriteAt([]byte("F"), 0)
	check(t, err)
	_, writeErr := f.WriteAt([]byte("L"), 4)
	for _, err := range []error{writeErr, f.Sync(), f.Truncate(0), Remove(path + "/file"), Rename(path+"/file", path+"/other"), Mkdir(path+"/in", 0o700)} {
		if !errors.Is(err, ErrKilled) {
			t.Errorf("a dead program's change: %v", err)
		}
	}
	r.KillAt(0)
	content, err := ReadFile(path + "/file")
	if err != nil || string(content) != "First" || r.Killed() {
		t.Errorf("the file has %q, error %v", content, err)
	}
	check(t, f.Sync())
}

// TestKilledSyncedWrite: the page cache may have what a program wrote when it was killed, and the
// disk not.
func TestKilledSyncedWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	r, err := Start(path, Image{})
	check(t, err)
	defer r.Stop()
	f := open(t, path+"/file", O_CREATE|syscall.O_DSYNC, "first")
	folder, err := Open(path)
	check(t, err, folder.Sync())
	r.KillAt(r.Len())
	for _, letter := range []string{"F", "G"} {
		if _, err := f.WriteAt([]byte(letter), 0); !errors.Is(err, ErrKilled) {
			t.Errorf("a dead program's change: %v", err)
		}
	}
	if content, err := ReadFile(path + "/file"); err != nil || string(content) != "First" {
		t.Errorf("the page cache has %q, error %v", content, err)
	}
	lost := r.Crash(r.Len(), nil)
	if s := lost.files["file"].sectors[0]; string(s[:5]) != "first" {
		t.Errorf("the disk has %q", s[:5])
	}
}
