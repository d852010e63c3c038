package folder

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/storetest"
)

// errCrash stands for the end of the process.
var errCrash = errors.New("crash")

// crashAt returns a step that fails at its n-th call, counted from 0.
func crashAt(n int) func() error {
	return func() error {
		if n--; n < 0 {
			return errCrash
		}
		return nil
	}
}

// replaceable makes a folder of cluster a, and within it one of cluster b to replace it.
func replaceable(t *testing.T) string {
	t.Helper()
	path := storetest.Folder(t)
	closeFolder(t, openFolder(t, path, func(c *Config) { c.ClusterID = "a" }))
	inside, err := BeginReplacement(path)
	storetest.Must(t, err)
	closeFolder(t, openFolder(t, inside, func(c *Config) { c.ClusterID = "b" }))
	storetest.Must(t, os.WriteFile(filepath.Join(inside, "one.db"), []byte("new content"), 0o600))
	return path
}

// contentOf opens a folder and returns its cluster and the content of one.db, which must
// go together.
func contentOf(t *testing.T, path string) string {
	t.Helper()
	f := openFolder(t, path)
	defer closeFolder(t, f)
	content, err := os.ReadFile(filepath.Join(path, "one.db"))
	storetest.Must(t, err)
	found := f.ClusterID() + ": " + string(content)
	if !slices.Contains([]string{"a: content of one.db", "b: new content"}, found) {
		t.Fatalf("the folder has %q", found)
	}
	return f.ClusterID()
}

// checkKept makes sure that the content before is kept as a data folder.
func checkKept(t *testing.T, path string) {
	t.Helper()
	if got := contentOf(t, filepath.Join(path, "before-a")); got != "a" {
		t.Errorf("the kept folder is of cluster %s", got)
	}
	for _, name := range []string{newFolder, readyFolder} {
		if exists(path, name) {
			t.Errorf("%s is still there", name)
		}
	}
}

func TestReplace(t *testing.T) {
	path := replaceable(t)
	kept, err := Replace(path)
	if err != nil || kept != filepath.Join(path, "before-a") {
		t.Fatalf("%s, %v", kept, err)
	}
	if got := contentOf(t, path); got != "b" {
		t.Errorf("the folder is of cluster %s", got)
	}
	checkKept(t, path)
}

// TestReplaceSurvivesCrashes ends a replacement at each of its steps, and then its
// completion at each of its steps: the next open finds the old content or the new one, and
// once it has found the new one, never again the old one.
func TestReplaceSurvivesCrashes(t *testing.T) {
	steps, finished := 0, false
	for ; !finished; steps++ {
		for again := 0; ; again++ {
			path := replaceable(t)
			_, err := replace(path, crashAt(steps))
			if finished = err == nil; finished {
				break
			}
			if !errors.Is(err, errCrash) {
				t.Fatalf("step %d: %v", steps, err)
			}
			committed := exists(path, readyFolder)
			if committed != (steps > 0) {
				t.Fatalf("after step %d the new content counts: %t", steps, committed)
			}
			interrupted := false
			if committed {
				if _, _, err := Look(path, nil, false); err == nil || !strings.Contains(err.Error(), "interrupted") {
					t.Errorf("a reader in the midst of it: %v", err)
				}
				interrupted = errors.Is(moveIn(path, crashAt(again)), errCrash)
			}
			want := map[bool]string{false: "a", true: "b"}[committed]
			if got := contentOf(t, path); got != want {
				t.Errorf("after steps %d and %d the folder is of cluster %s", steps, again, got)
			}
			if committed {
				checkKept(t, path)
			} else if exists(path, newFolder) {
				t.Error("what was not finished is not removed")
			}
			if !interrupted {
				break
			}
		}
	}
	if steps < 8 {
		t.Errorf("only %d steps", steps)
	}
}

// TestLookAloneFinishes: a recovery begins with the content that is in force.
func TestLookAloneFinishes(t *testing.T) {
	path := replaceable(t)
	if _, err := replace(path, crashAt(3)); !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	facts, held, err := Look(path, nil, true)
	if err != nil || facts.ClusterID != "b" || len(facts.Damage) > 0 {
		t.Fatalf("%+v, %v", facts, err)
	}
	storetest.Must(t, held.Close())
	checkKept(t, path)
}
