package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/memnet"
)

// testdata has the data folders of three nodes n1, n2 and n3 at each feature level, and every later program opens
// them. The folders of released levels stay as they are. Before a level is released, this command rewrites its folders:
//
//	go test ./cluster -run 'TestFoldersOfThisLevel|TestFoldersWithoutJournal' -update
var updateFolders = flag.Bool("update", false, "write the data folders of this level anew")

func goldenFolders(level int) string { return fmt.Sprintf("testdata/level-%d.tar.gz", level) }

// yearsMS is a ttl that outlives the folders.
const yearsMS = 10 * 365 * 24 * 3600 * 1000

// sizeRecord names a file's size in an archive, whose files lack the zeros at
// their end.
const sizeRecord = "SIGNALBOX.size"

// TestFoldersOfThisLevel opens folders as this level has them.
func TestFoldersOfThisLevel(t *testing.T) {
	path := goldenFolders(int(fsm.FeatureLevel))
	if *updateFolders {
		inFolders(t, "", func(c *nodes, dir string) {
			c.fillFolders()
			c.stop()
			packFolders(t, dir, path)
		})
	}
	inFolders(t, path, func(c *nodes, _ string) {
		c.checkFolders()
		for _, n := range c.all {
			c.call(n, ownSession(n.DrawSession()), fsm.LimitReached)
		}
		c.leader().View(func(m *fsm.Machine) {
			if owner, _ := m.OwnerOf(43); owner != "ops" {
				c.t.Errorf("the owner of a session that was taken over is %q", owner)
			}
			lock, _ := m.Item("p/.lock")
			config, _ := m.Item("p/config")
			holder, _ := m.Holder(46)
			if lock.Session != 46 || lock.Locks != 1 || config.Value != "one" || config.Flags != 7 || holder.About != "about" || m.ItemIndex("p/gone") != 5 {
				c.t.Errorf("%+v, %+v, of %+v, and a delete %d", lock, config, holder, m.ItemIndex("p/gone"))
			}
		})
	})
}

// TestFoldersWithoutJournal: folders of this level as nodes without a journal leave them,
// opened with one and without; and those with a journal, opened without one.
func TestFoldersWithoutJournal(t *testing.T) {
	with, path := goldenFolders(int(fsm.FeatureLevel)), fmt.Sprintf("testdata/level-%d-no-journal.tar.gz", fsm.FeatureLevel)
	without := func(o *store.Options) { o.Journal = false }
	journals := func(t *testing.T, dir string) (found int) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(dir, "*", "journal"))
		must(t, err)
		return len(names)
	}
	if *updateFolders {
		inFolders(t, with, func(c *nodes, dir string) {
			c.stop()
			packFolders(t, dir, path)
		}, without)
	}
	for name, folders := range map[string]struct {
		path     string
		change   func(*store.Options)
		journals int
	}{
		"made without, opened without": {path, without, 0}, "made without, opened with": {path, func(*store.Options) {}, 3}, "made with, opened without": {with, without, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inFolders(t, folders.path, func(c *nodes, dir string) {
				c.checkFolders()
				if found := journals(t, dir); found != folders.journals {
					t.Errorf("%d of the folders have a journal", found)
				}
			}, folders.change)
		})
	}
}

// ownSession opens a session of an identity that may have one.
func ownSession(id uint64) calls.Call {
	return calls.Call{Command: fsm.OpenSession{Session: id, TTLMS: yearsMS}, Owner: "ci", Limits: fsm.OwnerLimits{Sessions: 1}}
}

// inFolders runs a test on three nodes with the folders of an archive, or with new
// ones.
func inFolders(t *testing.T, archive string, test func(c *nodes, dir string), changes ...func(*store.Options)) {
	t.Helper()
	dir := t.TempDir()
	if archive != "" {
		unpackFolders(t, archive, dir)
	}
	synctest.Test(t, func(t *testing.T) {
		c := &nodes{t: t, net: memnet.New(), setups: []func(*Config){func(config *Config) {
			config.OnFatal = func(err error) { t.Errorf("%s must not go on: %v", config.NodeID, err) }
		}}}
		for _, id := range []string{"n1", "n2", "n3"} {
			options := store.Options{Folder: filepath.Join(dir, id), NodeID: id, Journal: true}
			for _, change := range changes {
				change(&options)
			}
			s, err := store.Open(options)
			c.must(err)
			c.all = append(c.all, &testNode{id: id, store: s})
		}
		for _, n := range c.all {
			c.start(n)
		}
		c.leader()
		test(c, dir)
		if c.all[0].up {
			c.stop()
		}
	})
}

// fillFolders makes what checkFolders looks for.
func (c *nodes) fillFolders() {
	leader := c.leader()
	level := int32(1)
	do := func(command fsm.Command, want fsm.Code) { c.do(leader, command, want) }
	do(fsm.CreateSemaphore{Name: "db", Permits: 2, Level: &level, Metadata: []fsm.Pair{{Key: "team", Value: "ci"}}}, fsm.OK)
	do(fsm.CreateSemaphore{Name: "jobs"}, fsm.OK)
	do(fsm.CreateSemaphore{Name: "gone", Permits: 1}, fsm.OK)
	do(fsm.DeleteSemaphore{Name: "gone"}, fsm.OK)
	do(fsm.RestoreSession{Session: 41, TTLMS: yearsMS, Leases: []fsm.Want{{Semaphore: "db", Count: 2}}, Metadata: []fsm.Pair{{Key: "host", Value: "a"}}}, fsm.OK)
	do(fsm.RestoreSession{Session: 42, TTLMS: yearsMS}, fsm.OK)
	do(fsm.RestoreSession{Session: 43, TTLMS: yearsMS}, fsm.OK)
	do(fsm.Acquire{Session: 42, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.Waiting)
	do(fsm.Acquire{Session: 43, Name: "db", Count: 2, TTLMS: fsm.KeepTTL}, fsm.Waiting)
	do(fsm.ListAdd{Session: 42, Name: "jobs", Count: 2}, fsm.OK)
	c.call(leader, calls.Call{Command: fsm.Up{Name: "jobs", Count: 1}, Key: "golden-key-0000000001"}, fsm.OK)
	c.call(leader, calls.Call{Command: fsm.Down{Name: "jobs", Count: 1}, Key: "golden-key-0000000002"}, fsm.Unavailable)
	do(fsm.PutSemaphore{Name: "jobs", OnlyExisting: true}, fsm.OK)
	c.call(leader, calls.Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: 43, TTLMS: fsm.KeepTTL}}}, Owner: "ops"}, fsm.OK)
	do(fsm.CreateSemaphore{Name: "held", Permits: 1}, fsm.OK)
	do(fsm.RestoreSession{Session: 44, TTLMS: yearsMS, Leases: []fsm.Want{{Semaphore: "held", Count: 1}}}, fsm.OK)
	do(fsm.RevokeLease{Session: 44, Name: "held", Reason: "maintenance"}, fsm.OK)
	c.call(leader, ownSession(45), fsm.OK)
	do(fsm.OpenHolder{Session: 46, TTLMS: yearsMS, About: "about", DeleteItems: true, DelayMS: 15_000}, fsm.OK)
	do(fsm.ItemAcquire{Name: "p/.lock", Value: "held", Session: 46}, fsm.OK)
	do(fsm.ItemPut{Name: "p/config", Value: "one", Flags: 7}, fsm.OK)
	do(fsm.ItemPut{Name: "p/gone"}, fsm.OK)
	do(fsm.ItemDelete{Name: "p/gone"}, fsm.OK)
}

// checkFolders checks that every node has what the folders hold, with the same
// state hash, this program's level and one cluster id.
func (c *nodes) checkFolders() {
	c.t.Helper()
	leader := c.leader()
	for _, n := range c.all {
		if _, err := n.Read(c.t.Context(), calls.Consistency{}); err != nil {
			c.t.Fatalf("%s: %v", n.id, err)
		}
		c.until("the level of "+n.id, func() bool { return n.Status().Level == fsm.FeatureLevel })
		n.View(func(m *fsm.Machine) {
			db, _ := m.Semaphore("db")
			jobs, _ := m.Semaphore("jobs")
			list := m.WaitList(42)
			holders, waiters, revoked := m.Holders("db", 0, 10), m.Waiters("db", fsm.LinePlace{}, 10), m.Holders("held", 0, 10)
			_, gone := m.Semaphore("gone")
			switch {
			case db.Permits != 2 || db.Held != 2 || *db.Level != 1 || db.Epoch != 1 || db.Metadata[0].Value != "ci" || gone:
				c.t.Errorf("%s: db is %+v, a deleted semaphore is there: %v", n.id, db, gone)
			case len(holders) != 1 || holders[0].Session != 41 || holders[0].Token != 1 || holders[0].Metadata[0].Value != "a":
				c.t.Errorf("%s: db is held by %+v", n.id, holders)
			case len(waiters) != 2 || waiters[0].Session != 42 || waiters[1].Session != 43 || waiters[1].Wants[0].Count != 2:
				c.t.Errorf("%s: for db wait %+v", n.id, waiters)
			case len(list) != 1 || list[0].Granted != 1 || jobs.Offset != 0:
				c.t.Errorf("%s: the wait list is %+v, jobs %+v", n.id, list, jobs)
			case len(revoked) != 1 || !revoked[0].Revoked || revoked[0].Reason != "maintenance":
				c.t.Errorf("%s: the revoked lease is %+v", n.id, revoked)
			case m.ClusterID() == fsm.ClusterID{}:
				c.t.Errorf("%s: no cluster id", n.id)
			}
			leader.View(func(other *fsm.Machine) {
				if n != leader && (m.ClusterID() != other.ClusterID() || m.Index() == other.Index() && m.Hash() != other.Hash()) {
					c.t.Errorf("%s and %s differ", n.id, leader.id)
				}
			})
		})
	}
	replay, err := leader.Do(c.t.Context(), calls.Call{Command: fsm.Down{Name: "jobs", Count: 1}, Key: "golden-key-0000000002"})
	if err != nil || replay.Code != fsm.Unavailable && replay.Code != fsm.OK {
		c.t.Errorf("a key from the folders: %v, %v", replay.Code, err)
	}
	if !replay.Replayed {
		c.t.Error("a key from the folders is not known")
	}
}

// packFolders writes the folders in dir into an archive, without what a start makes anew.
func packFolders(t *testing.T, dir, path string) {
	t.Helper()
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	packed := tar.NewWriter(compressed)
	for _, id := range []string{"n1", "n2", "n3"} {
		for _, name := range []string{"FORMAT", "raft.db", "snapshots.db", "witness", "journal"} {
			content, err := os.ReadFile(filepath.Join(dir, id, name))
			if name == "journal" && errors.Is(err, os.ErrNotExist) {
				continue
			}
			must(t, err)
			cut := bytes.TrimRight(content, "\x00")
			header := &tar.Header{Name: id + "/" + name, Mode: 0o600, Size: int64(len(cut)), ModTime: time.Unix(0, 0),
				PAXRecords: map[string]string{sizeRecord: strconv.Itoa(len(content))}}
			must(t, packed.WriteHeader(header))
			if _, err := packed.Write(cut); err != nil {
				t.Fatal(err)
			}
		}
	}
	must(t, errors.Join(packed.Close(), compressed.Close(), os.WriteFile(path, archive.Bytes(), 0o644)))
}

// unpackFolders writes the folders of an archive into dir.
func unpackFolders(t *testing.T, path, dir string) {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	must(t, err)
	for packed := tar.NewReader(compressed); ; {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		size, err := strconv.ParseInt(header.PAXRecords[sizeRecord], 10, 64)
		must(t, err)
		content, err := io.ReadAll(packed)
		must(t, err)
		at := filepath.Join(dir, header.Name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.WriteFile(at, content, 0o600), os.Truncate(at, size)))
	}
}
