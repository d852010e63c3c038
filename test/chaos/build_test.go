//go:build chaos && linux

package chaos

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// hook changes one place of the sources of the program.
type hook struct{ file, find, put string }

// hooks let a test make the synced writes of a node hang or fail. They also make snapshots frequent and keep few
// entries before them in the log, so that a node that was away long enough gets a snapshot. All other code is
// unchanged.
var hooks = []hook{
	{"store/journal/file.go", `\t\treturn file, err\n`, "\t\tif err != nil {\n\t\t\treturn nil, err\n\t\t}\n\t\treturn newFaulty(file), nil\n"},
	{"cluster/raftlib/config.go", `snapshotFallback = 1 << 20`, "snapshotFallback = 1500"},
	{"cluster/raftlib/config.go", `TrailingLogs = 2048`, "TrailingLogs = 300"},
	{"cluster/raftlib/config.go", `SnapshotInterval = 30 \* time\.Second`, "SnapshotInterval = 3 * time.Second"},
}

// buildProgram builds the program with the hooks.
func buildProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	must(t, err)
	place := func(name string) string { return filepath.Join(root, name) }
	replace, texts := map[string]string{}, map[string]string{}
	for _, h := range hooks {
		if texts[h.file] == "" {
			text, err := os.ReadFile(place(h.file))
			must(t, err)
			texts[h.file] = string(text)
		}
		find := regexp.MustCompile(h.find)
		if n := len(find.FindAllString(texts[h.file], -1)); n != 1 {
			t.Fatalf("%s has %d places for %q", h.file, n, h.find)
		}
		texts[h.file] = find.ReplaceAllString(texts[h.file], h.put)
	}
	for name, text := range texts {
		changed := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		must(t, os.WriteFile(changed, []byte(text), 0o600))
		replace[place(name)] = changed
	}
	replace[place("store/journal/chaos.go")] = filepath.Join(root, "test/chaos/testdata/hooks/journal.go.txt")
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "signalbox")
	list, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	must(t, os.WriteFile(overlay, list, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, "./cmd/signalbox")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	return program
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
