package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestSums: no sum of the tree is above its ceiling in sums.txt.
func TestSums(t *testing.T) {
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("git counts the entries of the root, and this is not a clone")
	}
	output, err := exec.Command("scripts/sums.sh").CombinedOutput()
	if t.Logf("%s", output); err != nil {
		t.Errorf("%v: lower the sum; or raise its ceiling in test/rules/sums.txt, and write in the commit what the reader gets for it", err)
	}
}

// TestSumsAreCounted counts a small tree. Its sums then are the ceilings, and a test longer by one line is above them.
func TestSumsAreCounted(t *testing.T) {
	script, err := os.ReadFile("scripts/sums.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir, sample := t.TempDir(), readSample(t, "test/rules/testdata/sums/tree.txt")
	sample.files["scripts/sums.sh"] = &fstest.MapFile{Data: script}
	if err := os.CopyFS(dir, sample.files); err != nil {
		t.Fatal(err)
	}
	run := func(line string) (string, error) {
		command := exec.Command("bash", "-c", line)
		command.Dir = dir
		output, err := command.CombinedOutput()
		return string(output), err
	}
	if output, err := run("git init -q && git add -A && bash scripts/sums.sh"); err == nil || strings.Count(output, "above its ceiling") != len(sample.want) {
		t.Errorf("sums without a ceiling: %v\n%s", err, output)
	}
	if output, err := run("bash scripts/sums.sh -write"); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	written, err := os.ReadFile(filepath.Join(dir, "test/rules/sums.txt"))
	if want := strings.Join(sample.want, "\n") + "\n"; err != nil || string(written) != want {
		t.Errorf("%v\n%s", err, written)
	}
	output, err := run("echo >>test/memnet/net.go; bash scripts/sums.sh")
	if err == nil || strings.Count(output, "above") != 1 || !strings.Contains(output, "test lines: above its ceiling") {
		t.Errorf("a line more: %v\n%s", err, output)
	}
}
