package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSums: no sum of the tree is above its ceiling in sums.txt.
func TestSums(t *testing.T) {
	output, err := exec.Command("scripts/sums.sh").CombinedOutput()
	if t.Logf("%s", output); err != nil {
		t.Errorf("%v: lower the sum; or raise its ceiling in test/rules/sums.txt, and write in the commit what the reader gets for it", err)
	}
}

// TestSumsAreCounted counts a small tree. Its sums then are the ceilings, and a test longer by one line is above them.
func TestSumsAreCounted(t *testing.T) {
	dir, sample := t.TempDir(), readSample(t, "test/rules/testdata/sums/tree.txt")
	for name, file := range sample.files {
		place(t, dir, name, string(file.Data))
	}
	place(t, dir, "scripts/sums.sh", script(t, "sums.sh"))
	place(t, dir, "scripts/files.sh", script(t, "files.sh"))
	run := func(line string) (string, error) {
		command := exec.Command("bash", "-c", line)
		command.Dir = dir
		output, err := command.CombinedOutput()
		return string(output), err
	}
	if output, err := run("echo /signalbox >.gitignore && git init -q && git add -A && touch signalbox && bash scripts/sums.sh"); err == nil || strings.Count(output, "above its ceiling") != len(sample.want) {
		t.Errorf("sums without a ceiling: %v\n%s", err, output)
	}
	if output, err := run("bash scripts/sums.sh -write"); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	written, err := os.ReadFile(filepath.Join(dir, "test/rules/sums.txt"))
	if want := strings.Join(sample.want, "\n") + "\n"; err != nil || string(written) != want {
		t.Errorf("%v\n%s", err, written)
	}
	// A folder that is no clone has the same sums: what .gitignore names is no entry of the root.
	if output, err := run("mv .git ..git && echo ..git >>.gitignore && bash scripts/sums.sh"); err != nil {
		t.Errorf("no clone: %v\n%s", err, output)
	}
	if output, err := run("touch new && bash scripts/sums.sh"); err == nil || !strings.Contains(output, "entries of the root: above") {
		t.Errorf("no clone, and an entry more: %v\n%s", err, output)
	}
	output, err := run("rm new; echo >>test/memnet/net.go; bash scripts/sums.sh")
	if err == nil || strings.Count(output, "above") != 1 || !strings.Contains(output, "test lines: above its ceiling") {
		t.Errorf("a line more: %v\n%s", err, output)
	}
}
