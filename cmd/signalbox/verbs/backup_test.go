package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
	"github.com/signalbox/signalbox/store/archive"
)

// executed runs a subcommand and returns what it printed.
func executed(command *cobra.Command, arguments ...string) (string, error) {
	var out bytes.Buffer
	command.SetOut(&out)
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetArgs(append([]string{}, arguments...)) // with nil it would take the arguments of the test
	err := command.Execute()
	return out.String(), err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func noVariable(string) (string, bool) { return "", false }

// fileID is the id of the cluster of backupFile.
const fileID = "c0000000000000000000000000000000"

// backupFile returns the bytes of a backup.
func backupFile(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, archive.Header{Index: 7, WallTime: time.UnixMilli(0), Cluster: [16]byte{0xc0}})
	if err == nil {
		_, err = w.Write(bytes.Repeat([]byte("state"), 1000))
	}
	if err == nil {
		err = w.Close()
	}
	must(t, err)
	return out.Bytes()
}

// fakeCluster serves nodes n1, n2, … and one of them leads.
type fakeCluster struct {
	leader   atomic.Int32 // n1 is 1; 0: no leader
	file     []byte       // the reply to a backup
	restored []byte       // the body of a restore
	refuse   string       // the problem that refuses a restore
	asked    string       // the query of a restore
	id       string       // of the cluster
	urls     []string
}

func newFakeCluster(t *testing.T, nodes int, leader int32) *fakeCluster {
	c := &fakeCluster{file: backupFile(t), id: fileID}
	c.leader.Store(leader)
	for id := int32(1); id <= int32(nodes); id++ {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
			leads := `null`
			if l := c.leader.Load(); l > 0 {
				leads = fmt.Sprintf(`"n%d"`, l)
			}
			fmt.Fprintf(w, `{"node":"n%d","cluster":"%s","leader":%s}`, id, c.id, leads)
		})
		mux.HandleFunc("GET /v1/semaphores", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"semaphores":[{}],"next":null}`) })
		mux.HandleFunc("GET /v1/sessions", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"sessions":[],"next":null}`) })
		mux.HandleFunc("GET /v1/snapshot", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(c.file) })
		mux.HandleFunc("PUT /v1/snapshot", func(w http.ResponseWriter, r *http.Request) {
			refuse, status := c.refuse, http.StatusUnprocessableEntity
			if id != c.leader.Load() {
				refuse, status = `{"code":"not-leader"}`, http.StatusServiceUnavailable
			}
			if refuse != "" {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(status)
				fmt.Fprint(w, refuse)
				return
			}
			c.restored, _ = io.ReadAll(r.Body)
			c.asked = r.URL.RawQuery
			fmt.Fprint(w, `{"index":1033}`)
		})
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		c.urls = append(c.urls, server.URL)
	}
	return c
}

func (c *fakeCluster) flag() string { return "--addr=" + strings.Join(c.urls, ",") }

// TestBackupWritesAWholeFile: backup writes a complete file, or leaves the existing file unchanged.
func TestBackupWritesAWholeFile(t *testing.T) {
	c := newFakeCluster(t, 2, 1)
	name := filepath.Join(t.TempDir(), "a.backup")
	out, err := executed(newBackup(noVariable), name, "--addr=http://127.0.0.1:1,"+c.urls[1])
	if err != nil || !strings.Contains(out, "index 7 of cluster c0000000000000000000000000000000") {
		t.Fatalf("%q, %v", out, err)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, c.file) {
		t.Errorf("the file has %d bytes, %v", len(got), err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if out, err := executed(newBackup(noVariable), "-", c.flag()); err != nil || out != string(c.file) {
		t.Errorf("to standard output: %d bytes, %v", len(out), err)
	}
	whole := c.file
	c.file = whole[:len(whole)-9]
	for _, target := range []string{name, "-"} {
		if _, err := executed(newBackup(noVariable), target, c.flag()); err == nil || !strings.Contains(err.Error(), "cut short") {
			t.Errorf("a reply that is cut, to %s: %v", target, err)
		}
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("a failed backup has changed the file: %d bytes, %v", len(got), err)
	}
	if left, err := os.ReadDir(filepath.Dir(name)); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestRestoreFindsTheLeader: restore finds the leader, even if it is elected while the command looks for it.
func TestRestoreFindsTheLeader(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.backup")
	must(t, os.WriteFile(name, backupFile(t), 0o600))
	c := newFakeCluster(t, 3, 3)
	out, err := executed(newRestore(noVariable), name, "--yes", "--sessions=end", c.flag())
	if err != nil || out != "restored, at index 1033\n" || !bytes.Equal(c.restored, c.file) || c.asked != "cluster="+fileID+"&from="+fileID+"&sessions=end" {
		t.Errorf("%q, %v; asked %q with %d bytes", out, err, c.asked, len(c.restored))
	}
	c = newFakeCluster(t, 3, 0)
	time.AfterFunc(300*time.Millisecond, func() { c.leader.Store(2) })
	if _, err := executed(newRestore(noVariable), name, "--yes", c.flag()); err != nil || c.asked != "cluster="+fileID+"&from="+fileID {
		t.Errorf("%v; asked %q", err, c.asked)
	}
}

// TestRestoreSaysWhatIsLost: the question names both clusters and states.
func TestRestoreSaysWhatIsLost(t *testing.T) {
	c := newFakeCluster(t, 1, 1)
	client, err := signalbox.New(signalbox.Config{Addresses: c.urls})
	must(t, err)
	flags := cli.AddClusterFlags(pflag.NewFlagSet("", pflag.PanicOnError), noVariable)
	r := restoration{target: flags, name: "a.backup", sessions: "end", header: archive.Header{Index: 7, WallTime: time.Now().Add(-time.Hour), Cluster: [16]byte{0xc0}}}
	for id, lost := range map[string]string{fileID: "up to 23 in the log, are lost", "0b": "all that this one has is lost"} {
		got, err := r.question(t.Context(), client, operator.New(client), &operator.Cluster{ID: id, CommitIndex: 30})
		for _, want := range []string{"state of cluster " + id + " (http://127.0.0.1:8701)", "at index 30 now, with semaphores: 1, sessions: 0",
			"a.backup is of cluster " + fileID + " at index 7", "1h ago", lost, "All sessions end."} {
			if err != nil || !strings.Contains(got, want) {
				t.Errorf("%q lacks %q, %v", got, want, err)
			}
		}
	}
}

// TestRestoreRefuses: restore refuses a damaged file and wrong flags before it sends any request. It also reports what
// the leader refuses.
func TestRestoreRefuses(t *testing.T) {
	c := newFakeCluster(t, 1, 1)
	folder := t.TempDir()
	good, bad := filepath.Join(folder, "good"), filepath.Join(folder, "bad")
	must(t, os.WriteFile(good, c.file, 0o600))
	must(t, os.WriteFile(bad, c.file[:50], 0o600))
	for _, r := range []struct{ arguments, want string }{
		{bad, "bad: the backup is cut short"}, {filepath.Join(folder, "none"), "no such file"}, {"", "needs a FILE"},
		{good + " --sessions=all", `--sessions: "all" is neither keep nor end`},
	} {
		if _, err := executed(newRestore(noVariable), append(strings.Fields(r.arguments), c.flag())...); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s: %v, want %q", r.arguments, err, r.want)
		}
	}
	c.id = "0b000000000000000000000000000000"
	_, err := executed(newRestore(noVariable), good, "--yes", c.flag())
	if cli.StatusOf(err) != cli.StatusRefused || !strings.Contains(err.Error(), "good is a backup of cluster "+fileID) || !strings.Contains(err.Error(), "is cluster "+c.id) {
		t.Errorf("of another cluster: %v", err)
	}
	if _, err := executed(newRestore(noVariable), good, "--other-cluster", c.flag()); !errors.Is(err, cli.ErrNoTerminal) || cli.StatusOf(err) != cli.StatusUsage {
		t.Errorf("without a terminal: %v", err)
	}
	if c.restored != nil {
		t.Error("it was sent, though nobody confirmed it")
	}
	if _, err := executed(newRestore(noVariable), good, "--other-cluster", "--yes", c.flag()); err != nil || c.asked != "cluster="+c.id+"&from="+fileID {
		t.Errorf("of another cluster: %v, asked %q", err, c.asked)
	}
	c.restored, c.id = nil, fileID
	c.refuse = `{"code":"backup-refused","detail":"No.","reason":"it is newer"}`
	if _, err := executed(newRestore(noVariable), good, "--yes", c.flag()); err == nil || !strings.Contains(err.Error(), "422 backup-refused: No. (reason: it is newer)") {
		t.Errorf("refused by the leader: %v", err)
	}
	if c.restored != nil {
		t.Error("a refused restore was sent")
	}
}
