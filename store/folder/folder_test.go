package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/test/storetest"
)

// configOf is the configuration of node n1, with two files beside the folder's own.
func configOf(path string, with ...func(*Config)) Config {
	c := Config{Path: path, NodeID: "n1", MinFree: 1 << 20, Guard: damage.NewGuard(path, nil), Logger: hclog.NewNullLogger()}
	for _, name := range []string{"one.db", "two.db"} {
		c.Files = append(c.Files, File{Name: name, Create: func(folder string) error {
			if exists(folder, name) {
				return fmt.Errorf("%s is there already", name)
			}
			return writeSynced(filepath.Join(folder, name), []byte("content of "+name))
		}})
	}
	for _, change := range with {
		change(&c)
	}
	return c
}

// openFolder opens a folder and closes it with the test, unless closeFolder did.
func openFolder(t testing.TB, path string, with ...func(*Config)) *Folder {
	t.Helper()
	f, err := Open(configOf(path, with...))
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// closeFolder closes a folder now.
func closeFolder(t testing.TB, f *Folder) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func TestTwoDontShareAFolder(t *testing.T) {
	path := t.TempDir()
	first := openFolder(t, path)
	_, err := Open(configOf(path))
	storetest.WantError(t, err, ErrLocked, path, fmt.Sprint("process ", os.Getpid()))
	closeFolder(t, first)
	closeFolder(t, openFolder(t, path))
}

func TestFolderOfAnotherNodeOrClusterIsRefused(t *testing.T) {
	path := t.TempDir()
	config := func(node, cluster string) Config {
		return configOf(path, func(c *Config) { c.NodeID, c.ClusterID = node, cluster })
	}
	f, err := Open(config("n1", "c1"))
	storetest.Must(t, err)
	closeFolder(t, f)
	_, err = Open(config("n2", ""))
	storetest.WantError(t, err, ErrIdentity, path, `"n1"`, `"n2"`)
	_, err = Open(config("n1", "c2"))
	storetest.WantError(t, err, ErrIdentity, path, `"c1"`, `"c2"`)

	f = openFolder(t, path)
	if err := f.SetClusterID("c2", true); err != nil || f.ClusterID() != "c2" {
		t.Errorf("an empty folder is of cluster %q, error %v: it has promised nothing to another one", f.ClusterID(), err)
	}
	storetest.WantError(t, f.SetClusterID("c3", false), ErrIdentity, `"c2"`)
	if err := f.SetClusterID("c2", false); err != nil {
		t.Errorf("the same cluster id again: %v", err)
	}
	if err := f.SetClusterID("\x00", true); err == nil {
		t.Error("a control character was taken")
	}
}

// contents returns the names, modes, sizes and bytes of all that is in a folder.
func contents(t testing.TB, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.Walk(folder, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		var content []byte
		if info.Mode().IsRegular() {
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		_, err = fmt.Fprintf(&all, "%s %s %x\n", path, info.Mode(), content)
		return err
	})
	storetest.Must(t, err)
	return all.String()
}

func TestFolderThatIsNotOursIsRefusedAndUntouched(t *testing.T) {
	newer := record{format: knownFormat + 1, node: "n1", complete: true}.encode()
	cases := map[string]struct {
		name, content string
		kind          error
		says          string
	}{
		"someone's file":    {"thesis.txt", "my only copy", ErrForeign, "thesis.txt"},
		"another program's": {recordFile, "some other database, version 3\n", ErrForeign, recordFile},
		"a newer format's":  {recordFile, string(newer), ErrNewerFormat, fmt.Sprint("format ", knownFormat+1)},
		"a damaged record":  {recordFile, recordTitle + "\nformat 3\nnode \"n1\"\ncrc32c 00000000\n", damage.ErrDamaged, recordFile},
		"a lost record":     {witnessFile, "anything", damage.ErrDamaged, recordFile},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			storetest.Must(t, os.WriteFile(filepath.Join(folder, c.name), []byte(c.content), 0o600))
			before := contents(t, folder)
			_, err := Open(configOf(folder))
			storetest.WantError(t, err, c.kind, folder, c.says)
			if after := contents(t, folder); after != before {
				t.Errorf("the folder was changed from\n%s\nto\n%s", before, after)
			}
		})
	}
	t.Run("a file in place of the folder", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		storetest.Must(t, os.WriteFile(path, []byte("x"), 0o600))
		_, err := Open(configOf(path))
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestFolderWithNothingOfWorthCountsAsEmpty(t *testing.T) {
	folder := t.TempDir()
	for _, name := range harmless {
		storetest.Must(t, os.WriteFile(filepath.Join(folder, name), []byte("left over"), 0o600))
	}
	closeFolder(t, openFolder(t, folder))
}

func TestMissingOrEmptyDataFileIsDamage(t *testing.T) {
	for _, name := range append(configOf("").dataFiles(), recordFile) {
		for what, spoil := range map[string]func(string) error{"missing": os.Remove, "empty": func(path string) error { return os.Truncate(path, 0) }} {
			t.Run(name+" "+what, func(t *testing.T) {
				folder := t.TempDir()
				closeFolder(t, openFolder(t, folder))
				storetest.Must(t, spoil(filepath.Join(folder, name)))
				_, err := Open(configOf(folder))
				storetest.WantError(t, err, damage.ErrDamaged, folder, name, "mv "+folder)
			})
		}
	}
}

// TestCreationSurvivesACrashAtEachStep plays every state that a crash can leave
// while a folder is being filled, by filling it only in part.
func TestCreationSurvivesACrashAtEachStep(t *testing.T) {
	files := configOf("").Files
	steps := []func(folder string) error{
		func(folder string) error {
			return os.WriteFile(filepath.Join(folder, recordFile+temporarySuffix), []byte("half"), 0o600)
		},
		func(folder string) error {
			return record{format: knownFormat, node: "an earlier try", journal: noJournal}.write(folder)
		},
		func(folder string) error {
			return os.WriteFile(filepath.Join(folder, files[0].Name), []byte("half of a file"), 0o600)
		},
		func(folder string) error {
			return errors.Join(os.Remove(filepath.Join(folder, files[0].Name)), files[0].Create(folder))
		},
		files[1].Create,
		createWitness,
	}
	for reached := range len(steps) + 1 {
		t.Run(fmt.Sprintf("after step %d", reached), func(t *testing.T) {
			folder := t.TempDir()
			for _, step := range steps[:reached] {
				storetest.Must(t, step(folder))
			}
			for range 2 {
				f := openFolder(t, folder)
				for _, file := range files {
					content, err := os.ReadFile(filepath.Join(folder, file.Name))
					if err != nil || string(content) != "content of "+file.Name {
						t.Errorf("%s holds %q, error %v", file.Name, content, err)
					}
				}
				if f.NodeID() != "n1" {
					t.Errorf("the folder is that of node %q", f.NodeID())
				}
				closeFolder(t, f)
			}
		})
	}
}

func TestBadIDsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for name, change := range map[string]func(*Config){
		"no node":           func(c *Config) { c.NodeID = "" },
		"control character": func(c *Config) { c.NodeID = "n\n1" },
		"invalid text":      func(c *Config) { c.NodeID = "n\xff" },
		"long id":           func(c *Config) { c.NodeID = strings.Repeat("n", 256) },
		"bad cluster id":    func(c *Config) { c.ClusterID = "\x00" },
	} {
		t.Run(name, func(t *testing.T) {
			for _, in := range []string{path, ""} {
				if _, err := Open(configOf(in, change)); err == nil {
					t.Error("it was opened")
				}
			}
		})
	}
	if exists(path, "") {
		t.Error("a folder was made")
	}
}

func TestErrorsNameWhatTheyAreAbout(t *testing.T) {
	for kind, err := range map[error]error{
		ErrLocked:      &LockedError{Folder: "/data"},
		ErrForeign:     &ForeignError{Folder: "/data", Found: "a file"},
		ErrNewerFormat: &NewerFormatError{Folder: "/data", Found: 2, Known: 1},
		ErrIdentity:    &IdentityError{Folder: "/data", What: "node"},
	} {
		storetest.WantError(t, fmt.Errorf("opening: %w", err), kind, "/data")
	}
}

// TestRecordOfADamagedFolderIsNotWritten: no change of it is believed later.
func TestRecordOfADamagedFolderIsNotWritten(t *testing.T) {
	path := t.TempDir()
	c := configOf(path)
	f, err := Open(c)
	storetest.Must(t, err)
	_ = c.Guard.Damaged("one.db", 0, "for this test", nil)
	storetest.WantError(t, f.SetRestoredTerm(1), damage.ErrDamaged)
	storetest.WantError(t, f.SetClusterID("c1", true), damage.ErrDamaged)
	closeFolder(t, f)
	if f = openFolder(t, path); f.RestoredTerm() != 0 || f.ClusterID() != "" {
		t.Errorf("restored %d, cluster %q", f.RestoredTerm(), f.ClusterID())
	}
}

// TestCreationThatFails leaves a folder that the next start makes anew, however far it came.
func TestCreationThatFails(t *testing.T) {
	failed := errors.New("no such disk")
	for failing := range 2 {
		path := filepath.Join(t.TempDir(), "data")
		_, err := Open(configOf(path, func(c *Config) {
			create := c.Files[failing].Create
			c.Files[failing].Create = func(folder string) error { return errors.Join(create(folder), failed) }
		}))
		if !errors.Is(err, failed) {
			t.Fatalf("file %d fails: error %v", failing, err)
		}
		if found, err := readRecord(path); err != nil || found.complete {
			t.Errorf("file %d fails: the record is %+v, error %v", failing, found, err)
		}
		closeFolder(t, openFolder(t, path))
		if found, err := readRecord(path); err != nil || !found.complete {
			t.Errorf("file %d failed, and now does not: the record is %+v, error %v", failing, found, err)
		}
	}
}
