package store

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/storetest"
)

// recordedBuild is set in the process that TestPowerLoss starts.
const recordedBuild = "SIGNALBOX_STORE_RECORDED"

// TestPowerLoss: whatever of the unsynced sectors, sizes and names a loss of power leaves, the
// folder opens without an alarm, and has all that was acknowledged. The change under way has taken
// place as a whole or not at all. It covers the log with and without a journal and the change
// between them, stable values, witness, record, reserve and snapshots, the making of the folder, a
// loss of power during the start after another one, and one after programs that were killed: what
// the page cache had of theirs may be lost.
//
// For that, it builds this package and bbolt with package recorder in the place of os. So
// each write and each sync that they ask for is known, and one that is missing is found.
// It does not cover package os, the file system, a disk that loses what it said was synced (see
// TestDamagedFilesAreNeverBelieved), and a full disk (package store/logs has a test of that for the
// journal). The seed gives changes and losses; the journal's own goroutine drains it at any time.
//
// SIGNALBOX_STORE_CRASHES and SIGNALBOX_STORE_CRASH_SEED override the number of losses and the seed.
func TestPowerLoss(t *testing.T) {
	switch {
	case os.Getenv(recordedBuild) != "":
		loseAtEachEvent(t)
		loseAfterKills(t)
		loseInReplacement(t)
		losePower(t)
		return
	case journaled:
		t.Skip("the first run of this process has shown it with and without a journal")
	case crashes == 0:
		t.Skip("the process of the test is built without the race detector: the ordinary run has shown it")
	}
	child := exec.CommandContext(t.Context(), buildRecorded(t), "-test.run=^TestPowerLoss$", "-test.v", "-test.timeout=10h")
	child.Env = append(os.Environ(), recordedBuild+"=1")
	output, err := child.CombinedOutput()
	if err != nil || strings.Count(string(output), "losses of power") != 2 {
		t.Errorf("%v\n%s", err, output)
	}
	for line := range strings.Lines(string(output)) {
		if strings.Contains(line, "losses of power") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// recorderPath is the import path of package recorder, and inBolt the one in the build, where bbolt
// can import it too.
const (
	recorderPath = "github.com/signalbox/signalbox/test/recorder"
	inBolt       = "go.etcd.io/bbolt/recorder"
)

var importOS = regexp.MustCompile(`(?m)^(import |\t)"os"$`)

// buildRecorded builds this package's tests with the recorder in the place of package os.
func buildRecorded(t *testing.T) string {
	t.Helper()
	command := func(dir, name string, arguments ...string) string {
		c := exec.CommandContext(t.Context(), name, arguments...)
		c.Dir, c.Env = dir, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
		output, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", c, err, output)
		}
		return strings.TrimSpace(string(output))
	}
	at := t.TempDir()
	root := command(".", "go", "list", "-m", "-f", "{{.Dir}}")
	packages := command(".", "go", "list", "-deps", "-test", "-f", "{{if .Module}}{{if and .Module.Main (not .ForTest)}}{{.Dir}}{{end}}{{end}}", ".")
	for dir := range strings.FieldsSeq(packages) {
		inside, err := filepath.Rel(root, dir)
		storetest.Must(t, err)
		ours := inside == "store" || strings.HasPrefix(inside, "store/")
		copySources(t, dir, filepath.Join(at, inside), func(name, source string) string {
			if ours && !strings.HasSuffix(name, "_test.go") {
				source = importOS.ReplaceAllString(source, `${1}os "`+inBolt+`"`)
			}
			return strings.ReplaceAll(source, `"`+recorderPath+`"`, `"`+inBolt+`"`)
		})
	}
	bolt := command(".", "go", "list", "-m", "-f", "{{.Dir}}", "go.etcd.io/bbolt")
	replaced := 0
	copySources(t, bolt, filepath.Join(at, "bbolt"), func(name, source string) string {
		const call = "syscall.Fdatasync(int(db.file.Fd()))"
		if name == "bolt_linux.go" && strings.Contains(source, call) {
			source = strings.Replace(strings.Replace(source, call, "db.file.Sync()", 1), "import (\n\t\"syscall\"\n)\n", "", 1)
			replaced++
		}
		return importOS.ReplaceAllString(source, `${1}os "`+inBolt+`"`)
	})
	if replaced != 1 {
		t.Fatal("bbolt syncs in another way than it did: see that the recorder knows it")
	}
	same := func(_, source string) string { return source }
	for _, dir := range []string{"errors", "version", "internal/common", "internal/freelist"} {
		copySources(t, filepath.Join(bolt, dir), filepath.Join(at, "bbolt", dir), same)
	}
	copySources(t, filepath.Join(root, "test/recorder"), filepath.Join(at, "bbolt/recorder"), same)
	for from, to := range map[string]string{root + "/go.mod": "go.mod", root + "/go.sum": "go.sum", bolt + "/go.mod": "bbolt/go.mod"} {
		copyFile(t, from, filepath.Join(at, to), same)
	}
	const client = "github.com/signalbox/signalbox/client" // no package here needs it
	command(at, "go", "mod", "edit", "-replace", "go.etcd.io/bbolt=./bbolt", "-droprequire", client, "-dropreplace", client)
	command(at, "go", "test", "-c", "-ldflags", "-s -w", "-o", "store.test", "./store")
	return filepath.Join(at, "store.test")
}

// copySources copies the Go files of a folder, each as change returns it, but for tests of bbolt.
func copySources(t *testing.T, from, to string, change func(name, source string) string) {
	t.Helper()
	storetest.Must(t, os.MkdirAll(to, 0o700))
	files, err := filepath.Glob(filepath.Join(from, "*.go"))
	storetest.Must(t, err)
	for _, file := range files {
		if name := filepath.Base(file); !strings.HasSuffix(name, "_test.go") || filepath.Base(to) == "store" {
			copyFile(t, file, filepath.Join(to, name), change)
		}
	}
}

func copyFile(t *testing.T, from, to string, change func(name, source string) string) {
	t.Helper()
	source, err := os.ReadFile(from)
	storetest.Must(t, err)
	storetest.Must(t, os.WriteFile(to, []byte(change(filepath.Base(from), string(source))), 0o600))
}
