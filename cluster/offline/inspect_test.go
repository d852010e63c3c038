package offline

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/store/archive"
	"github.com/signalbox/signalbox/store/folder"
)

var update = flag.Bool("update", false, "write the golden files")

// cluster is the id of the samples' cluster.
var cluster = fsm.ClusterID{0x1a, 2, 3, 4, 15: 0xff}

// three are the members of the samples.
var three = raft.Configuration{Servers: []raft.Server{
	{ID: "n1", Address: "n1.example:8711"}, {ID: "n2", Address: "n2.example:8711"}, {ID: "n3", Address: "n3.example:8711"},
}}

// entriesOf makes the log of a cluster: its configuration, a first leader, and then the
// commands, each in another entry.
func entriesOf(c raft.Configuration, commands ...fsm.Command) []*raft.Log {
	log := []*raft.Log{{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c)}}
	first := fsm.StartTerm{Term: 2, Leader: "n2", Limits: fsm.DefaultLimits(), Cluster: cluster, Level: 1}
	for i, command := range append([]fsm.Command{first}, commands...) {
		request := fsm.RequestID{Origin: 7, Sequence: uint64(i)}
		data := replica.EncodeTermEntry(2, int64(1000*(i+1)), [][]byte{fsm.Envelope{Request: request}.Encode(command)})
		log = append(log, &raft.Log{Index: uint64(i + 2), Term: 2, Type: raft.LogCommand, Data: data})
	}
	return log
}

// usual are commands after which some of everything is there.
func usual() []fsm.Command {
	return []fsm.Command{
		fsm.CreateSemaphore{Name: "db", Permits: 2}, // index 3
		fsm.CreateSemaphore{Name: "jobs", Permits: 5},
		fsm.OpenSession{Session: 41, TTLMS: 60_000}, // index 5
		fsm.OpenSession{Session: 42, TTLMS: 60_000},
		fsm.Acquire{Session: 41, Name: "db", Count: 2, TTLMS: fsm.KeepTTL}, // index 7
		fsm.Acquire{Session: 42, Name: "db", Count: 1, TTLMS: fsm.KeepTTL},
		fsm.Acquire{Session: 42, Name: "jobs", Count: 3, TTLMS: fsm.KeepTTL}, // index 9
	}
}

// madeFolder makes the folder of n1: a log and, unless 0, a snapshot of its state at an
// index, with all entries before that cut off.
func madeFolder(t *testing.T, log []*raft.Log, snapshot uint64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n1")
	s, err := store.Open(store.Options{Folder: path, NodeID: "n1", ClusterID: cluster.String(), Journal: true})
	must(t, err)
	must(t, s.Logs().StoreLogs(log))
	must(t, s.Stable().SetUint64([]byte("LastVoteTerm"), 2))
	must(t, s.Stable().Set([]byte("LastVoteCand"), []byte("n2.example:8711")))
	must(t, s.Stable().SetUint64([]byte("CurrentTerm"), 3))
	if snapshot > 0 {
		feed := replica.New(replica.Config{}).FSM(replica.FSMConfig{Fatal: func(error) {}, SnapshotDue: func() {}})
		for _, entry := range log[:snapshot] {
			feed.Apply(entry)
		}
		state, err := feed.Snapshot()
		must(t, err)
		sink, err := s.Snapshots().Create(1, snapshot, log[snapshot-1].Term, raft.DecodeConfiguration(log[0].Data), 1, nil)
		must(t, err)
		must(t, state.Persist(sink))
		must(t, s.Logs().DeleteRange(1, snapshot))
	}
	must(t, s.Close())
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFolderIsReported compares the whole report, as JSON, with one for ever.
func TestFolderIsReported(t *testing.T) {
	path := madeFolder(t, entriesOf(three, usual()...), 7)
	report, err := Inspect(path, 5)
	must(t, err)
	id := report.Folder.ID
	got, err := json.MarshalIndent(report, "", "  ")
	must(t, err)
	got = bytes.ReplaceAll(bytes.ReplaceAll(got, []byte(path), []byte("PATH")), []byte(id), []byte("FOLDER"))
	golden := filepath.Join("testdata", "folder.json")
	if *update {
		must(t, os.WriteFile(golden, got, 0o600))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("the report has changed:\n%s", got)
	}
}

// TestCommittedIsWhatIsKnown: the log alone does not show what is committed, unless
// this node is the only voter.
func TestCommittedIsWhatIsKnown(t *testing.T) {
	alone := raft.Configuration{Servers: three.Servers[:1]}
	learner := raft.Configuration{Servers: slices.Clone(three.Servers[:2])}
	learner.Servers[0].Suffrage = raft.Nonvoter
	for name, c := range map[string]struct {
		members   raft.Configuration
		snapshot  uint64
		committed uint64
		latest    bool
	}{
		"log alone":        {three, 0, 0, true},
		"with a snapshot":  {three, 5, 5, true},
		"all in it":        {three, 9, 9, false},
		"the only voter":   {alone, 5, 9, false},
		"the only learner": {learner, 5, 5, true},
	} {
		report, err := Inspect(madeFolder(t, entriesOf(c.members, usual()...), c.snapshot), 1)
		must(t, err)
		if report.CommittedIndex != c.committed || (report.Latest != nil) != c.latest {
			t.Errorf("%s: committed %d, latest %+v", name, report.CommittedIndex, report.Latest)
		}
		end := report.Latest
		if end == nil {
			end = report.Committed
		}
		if end.Index != 9 || end.Leases != 2 || end.Waiting != 1 || end.Hash != hashOf(entriesOf(c.members, usual()...)) {
			t.Errorf("%s: at the end %+v", name, end)
		}
	}
}

// hashOf returns the state hash of a log as a machine alone has it.
func hashOf(log []*raft.Log) string {
	r := replica.New(replica.Config{})
	feed := r.FSM(replica.FSMConfig{Fatal: func(error) {}, SnapshotDue: func() {}})
	for _, entry := range log {
		feed.Apply(entry)
	}
	_, hash := r.Reading()
	return fsm.ClusterID(hash).String() // hexadecimal digits
}

func TestTopSemaphores(t *testing.T) {
	var commands []fsm.Command
	for i, name := range []string{"a", "b", "c", "d"} {
		commands = append(commands, fsm.CreateSemaphore{Name: name, Permits: 9})
		for n := range i {
			session := uint64(10*i + n + 1)
			commands = append(commands, fsm.OpenSession{Session: session, TTLMS: 60_000}, fsm.Acquire{Session: session, Name: name, Count: 1, TTLMS: fsm.KeepTTL})
		}
	}
	path := madeFolder(t, entriesOf(three, commands...), 0)
	for top, want := range map[int]string{0: "", 2: "d3 c2", 9: "d3 c2 b1"} {
		report, err := Inspect(path, top)
		must(t, err)
		var got []string
		for _, s := range report.Latest.MostLeases {
			got = append(got, s.Name+string(rune('0'+s.Leases)))
		}
		if strings.Join(got, " ") != want || len(report.Latest.MostWaiting) != 0 {
			t.Errorf("top %d: %v, waiting %v", top, got, report.Latest.MostWaiting)
		}
	}
}

// snapshotOf returns names, modes, times and contents of all files below a folder.
func snapshotOf(t *testing.T, path string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must(t, filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := []byte{}
		if !entry.IsDir() {
			content, err = os.ReadFile(name)
		}
		found[name] = info.Mode().String() + info.ModTime().Format(time.RFC3339Nano) + string(content)
		return err
	}))
	return found
}

// TestInspectChangesNothing: neither a sound folder nor a damaged one, whose files may
// be read and no more.
func TestInspectChangesNothing(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		path := madeFolder(t, entriesOf(three, usual()...), 5)
		if damaged {
			spoil(t, path, "raft.db", "jobs")
		}
		for name := range snapshotOf(t, path) {
			if name != path {
				must(t, os.Chmod(name, 0o400))
			}
		}
		must(t, os.Chmod(path, 0o500))
		before := snapshotOf(t, path)
		report, err := Inspect(path, 1)
		if err != nil || (len(report.Damage) > 0) != damaged {
			t.Fatalf("%+v, %v", report, err)
		}
		after := snapshotOf(t, path)
		if len(before) != len(after) {
			t.Errorf("files have come or gone")
		}
		for name := range before {
			if before[name] != after[name] {
				t.Errorf("%s has changed", name)
			}
		}
		must(t, os.Chmod(path, 0o700)) // to be removed
	}
}

// TestFolderIsLocked: a running node's folder is refused, and no node starts on one that
// is read; two may read at the same time.
func TestFolderIsLocked(t *testing.T) {
	path := madeFolder(t, entriesOf(three), 0)
	s, err := store.Open(store.Options{Folder: path, NodeID: "n1", Journal: true})
	must(t, err)
	if _, err := Inspect(path, 1); !errors.Is(err, folder.ErrLocked) || !strings.Contains(err.Error(), "in use by process") {
		t.Errorf("of a running node: %v", err)
	}
	must(t, s.Close())
	view, err := store.Look(path, false)
	must(t, err)
	if _, err := store.Open(store.Options{Folder: path, NodeID: "n1", Journal: true}); !errors.Is(err, folder.ErrLocked) {
		t.Errorf("a node under a reader: %v", err)
	}
	if _, err := store.Look(path, true); !errors.Is(err, folder.ErrLocked) {
		t.Errorf("alone beside another: %v", err)
	}
	_, err = Inspect(path, 1)
	must(t, err)
	must(t, view.Close())
	must(t, os.Remove(filepath.Join(path, "lock"))) // as in a copy
	_, err = Inspect(path, 1)
	must(t, err)
}

func TestOthersAreRefused(t *testing.T) {
	empty, foreign, newer := t.TempDir(), t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(foreign, "notes"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(newer, "FORMAT"), []byte("signalbox data folder\nformat 99\ncrc32c 8f8af8be\n"), 0o600))
	text := filepath.Join(foreign, "notes")
	for path, want := range map[string]string{
		filepath.Join(empty, "x"): "no such file", empty: "is empty", foreign: "not a Signalbox data folder",
		text: "this is no backup of Signalbox",
	} {
		if _, err := Inspect(path, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Errorf("an empty folder got %v, %v", entries, err)
	}
}

// spoil changes one bit of a file wherever it has a text: bbolt leaves older pages.
func spoil(t *testing.T, path, name, text string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path, name))
	must(t, err)
	spoilt := bytes.ReplaceAll(content, []byte(text), append([]byte{text[0] ^ 1}, text[1:]...))
	if bytes.Equal(spoilt, content) {
		t.Fatalf("%s lacks %q", name, text)
	}
	must(t, os.WriteFile(filepath.Join(path, name), spoilt, 0o600))
}

// replaceByOlder opens the folder, stores entry 10, and puts the file of before in its place.
func replaceByOlder(t *testing.T, path, name string, journal bool) {
	t.Helper()
	s, err := store.Open(store.Options{Folder: path, NodeID: "n1", Journal: journal})
	must(t, err)
	before, err := os.ReadFile(filepath.Join(path, name))
	must(t, err)
	must(t, s.Logs().StoreLog(&raft.Log{Index: 10, Term: 3, Type: raft.LogNoop}))
	must(t, s.Close())
	must(t, os.WriteFile(filepath.Join(path, name), before, 0o600))
}

// TestDamageIsListed: each kind of damage is listed, and the sound rest is reported.
func TestDamageIsListed(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(path string)
		want  []string
		last  uint64 // of the state
	}{
		"an entry":         {func(path string) { spoil(t, path, "raft.db", "jobs") }, []string{"raft.db at index 9"}, 8},
		"a snapshot":       {func(path string) { spoil(t, path, "snapshots.db", "jobs") }, []string{"snapshot 2-5-", "can't be read"}, 0},
		"term, vote":       {func(path string) { spoil(t, path, "raft.db", "LastVoteCand") }, []string{"stable values"}, 9},
		"the witness":      {func(path string) { must(t, os.Truncate(filepath.Join(path, "witness"), 10)) }, []string{"witness is damaged"}, 9},
		"no witness":       {func(path string) { must(t, os.Remove(filepath.Join(path, "witness"))) }, []string{"witness is damaged: the file is missing"}, 9},
		"no log":           {func(path string) { must(t, os.Remove(filepath.Join(path, "raft.db"))) }, []string{"raft.db is damaged: the file is missing"}, 5},
		"a page":           {func(path string) { must(t, os.Truncate(filepath.Join(path, "raft.db"), 8192)) }, []string{"raft.db", "pages"}, 5},
		"the last entries": {func(path string) { replaceByOlder(t, path, "raft.db", false) }, []string{"raft.db at index 10", "ends at 9"}, 9},
		"an old log":       {func(path string) { replaceByOlder(t, path, "raft.db", true) }, []string{"raft.db is damaged", "term and vote stored last are missing"}, 10},
		"an old journal":   {func(path string) { replaceByOlder(t, path, "journal", true) }, []string{"journal at index 9 is damaged: change 3 is missing"}, 10},
		"no journal": {func(path string) {
			replaceByOlder(t, path, "journal", true)
			must(t, os.Remove(filepath.Join(path, "journal")))
		}, []string{"journal is damaged: the file is missing"}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			path := madeFolder(t, entriesOf(three, usual()...), 5)
			c.spoil(path)
			report, err := Inspect(path, 1)
			must(t, err)
			found := strings.Join(report.Damage, "\n")
			for _, want := range c.want {
				if !strings.Contains(found, want) {
					t.Errorf("it lacks %q:\n%s", want, found)
				}
			}
			last := uint64(0)
			for _, s := range []*State{report.Committed, report.Latest} {
				if s != nil {
					last = s.Index
				}
			}
			if last != c.last {
				t.Errorf("the state ends at %d", last)
			}
		})
	}
}

func TestBackupIsReported(t *testing.T) {
	machine := fsm.New()
	for _, entry := range entriesOf(three, usual()...)[1:] {
		machine.Apply(entry.Index, entry.Data[1:])
	}
	var encoded bytes.Buffer
	w, err := archive.NewWriter(&encoded, archive.Header{Index: 9, Term: 2, ClusterTimeMS: 8000, WallTime: time.UnixMilli(1_767_225_600_000), Level: 1, Cluster: cluster})
	must(t, err)
	must(t, machine.Freeze().Write(w))
	must(t, w.Close())
	path := filepath.Join(t.TempDir(), "backup")
	inspect := func(content []byte) (*Report, error) {
		must(t, os.WriteFile(path, content, 0o600))
		return Inspect(path, 3)
	}
	report, err := inspect(encoded.Bytes())
	must(t, err)
	if b, s := report.Backup, report.Committed; len(report.Damage) > 0 || report.Kind != "backup" || b.Cluster != cluster.String() || b.Index != 9 ||
		s.Leases != 2 || s.Hash != hashOf(entriesOf(three, usual()...)) || s.MostWaiting[0].Name != "db" {
		t.Errorf("%+v, %+v", report, s)
	}
	for at, want := range map[int]string{20: "its header", encoded.Len() / 2: "chunk 0", encoded.Len() - 1: "its final checksum"} {
		damaged := bytes.Clone(encoded.Bytes())
		damaged[at] ^= 1
		report, err := inspect(damaged)
		must(t, err)
		if report.Committed != nil || len(report.Damage) != 1 || !strings.Contains(report.Damage[0], want) {
			t.Errorf("byte %d: %+v", at, report)
		}
	}
	report, err = inspect(encoded.Bytes()[:encoded.Len()-40])
	must(t, err)
	if len(report.Damage) != 1 || !strings.Contains(report.Damage[0], "cut short") {
		t.Errorf("cut: %+v", report)
	}
}
