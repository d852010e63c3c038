package offline

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/store/folder"
	"github.com/signalbox/signalbox/test/memnet"
)

// peers is the list for the new cluster.
var peers = []probe.Peer{{ID: "n1", Address: "n1.example:8711"}, {ID: "n2", Address: "n2.example:8711"}, {ID: "n3", Address: "new.example:8711"}}

// planned prepares a recovery in a network in which no other node is.
func planned(t *testing.T, path string, with ...func(*Config)) (*Plan, error) {
	t.Helper()
	c := Config{Folder: path, Peers: peers, Network: memnet.New().Host("n1")}
	for _, change := range with {
		change(&c)
	}
	p, err := Prepare(t.Context(), c)
	if err == nil {
		t.Cleanup(func() { _ = p.Close() }) // again
	}
	return p, err
}

// recovered recovers a folder.
func recovered(t *testing.T, path string, with ...func(*Config)) Recovered {
	t.Helper()
	p, err := planned(t, path, with...)
	must(t, err)
	made, err := p.Carry(t.Context())
	must(t, err)
	must(t, p.Close())
	return made
}

// machineOf returns the state with which a node would start on a folder, and the
// configuration of its snapshot.
func machineOf(t *testing.T, path string) (*fsm.Machine, *raft.SnapshotMeta) {
	t.Helper()
	view, err := store.Look(path, false)
	must(t, err)
	defer func() { must(t, view.Close()) }()
	if len(view.Damage) > 0 || len(view.Snapshots) != 1 || view.Log.Last != 0 {
		t.Fatalf("damage %v, snapshots %v, log to %d", view.Damage, view.Snapshots, view.Log.Last)
	}
	reader := view.Snapshot(view.Snapshots[0].ID)
	_, err = io.ReadFull(reader, make([]byte, 8)) // the index, see replica
	must(t, err)
	state, err := fsm.Restore(reader)
	must(t, err)
	return state, view.Snapshots[0]
}

// TestRecover: the new cluster has all that the folder had, and counters and an index
// above all that can have been given out.
func TestRecover(t *testing.T) {
	for _, snapshot := range []uint64{0, 5, 9} {
		path := madeFolder(t, entriesOf(three, usual()...), snapshot)
		before, err := Inspect(path, 9)
		must(t, err)
		made := recovered(t, path)

		state, meta := machineOf(t, path)
		if state.ClusterID().String() != made.Cluster || made.Cluster == cluster.String() {
			t.Errorf("the state is of cluster %v, the folder of %s", state.ClusterID(), made.Cluster)
		}
		if made.Index != 9+1<<32 || meta.Index != made.Index || meta.ConfigurationIndex != made.Index || meta.Term != 3 {
			t.Errorf("it begins at %d, with the snapshot %+v", made.Index, meta)
		}
		holders, waiters := state.Holders("db", 0, 9), state.Waiters("db", fsm.LinePlace{}, 9)
		if len(holders) != 1 || holders[0].Token != 1 || len(waiters) != 1 || waiters[0].Session != 42 || state.NowMS() != 8000 {
			t.Errorf("holders %+v, waiters %+v at %d", holders, waiters, state.NowMS())
		}
		next := state.Apply(made.Index+1, fsm.EncodeEntry(8000, [][]byte{
			fsm.Envelope{}.Encode(fsm.Acquire{Session: 41, Name: "jobs", Count: 1, TTLMS: fsm.KeepTTL}),
			fsm.Envelope{}.Encode(fsm.CreateSemaphore{Name: "new", Permits: 1}),
		}))
		if granted, created := next.Commands[0].Result, next.Commands[1].Result; granted.Grants[0].Token != 3+1<<44 || created.Semaphore.Epoch != 3+1<<44 {
			t.Errorf("the next token is %+v, the next epoch %+v", granted, created)
		}
		after, err := Inspect(path, 9)
		must(t, err)
		id := after.Folder.ID
		want := []Member{{"n1", "n1.example:8711", id, true}, {"n2", "n2.example:8711", "", false}, {"n3", "new.example:8711", "", false}}
		if !reflect.DeepEqual(after.Members, want) || id == before.Folder.ID || after.Folder.Cluster != made.Cluster || after.Folder.Term != 3 {
			t.Errorf("members %+v of folder %+v", after.Members, after.Folder)
		}
		kept, err := Inspect(made.Kept, 9)
		must(t, err)
		kept.Path = path
		if !reflect.DeepEqual(kept, before) {
			t.Errorf("the old content was %+v and is %+v", before, kept)
		}
		s, err := store.Open(store.Options{Folder: path, NodeID: "n1", Journal: true})
		must(t, err)
		if s.ClusterID() != made.Cluster || s.RestoredTerm() != 0 {
			t.Errorf("a node would start in cluster %s", s.ClusterID())
		}
		must(t, s.Close())
	}
}

// TestRecoverKeepsWhatRaftWould: the state is what the library's own recovery
// makes of the folder, with the jumps.
func TestRecoverKeepsWhatRaftWould(t *testing.T) {
	log := entriesOf(three, usual()...)
	log = append(log,
		&raft.Log{Index: 10, Term: 3, Type: raft.LogNoop},
		&raft.Log{Index: 11, Term: 3, Type: raft.LogCommand, Data: log[2].Data}, // of another term: skipped
		&raft.Log{Index: 12, Term: 3, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(three)})
	for _, snapshot := range []uint64{0, 5} {
		path := madeFolder(t, log, snapshot)
		other := filepath.Join(t.TempDir(), "n1")
		must(t, os.CopyFS(other, os.DirFS(path)))
		s, err := store.Open(store.Options{Folder: other, NodeID: "n1", Journal: true})
		must(t, err)
		r := replica.New(replica.Config{})
		feed := r.FSM(replica.FSMConfig{Fatal: func(err error) { t.Error(err) }, SnapshotDue: func() {}})
		config, err := raftlib.Config("n1", 1, hclog.NewNullLogger())
		must(t, err)
		_, transport := raft.NewInmemTransport("n1")
		must(t, raft.RecoverCluster(config, feed, s.Logs(), s.Stable(), s.Snapshots(), transport, three))
		must(t, s.Close())

		made := recovered(t, path)
		state, _ := machineOf(t, path)
		if made.Index != 12+1<<32 {
			t.Errorf("it begins at %d", made.Index)
		}
		r.View(func(theirs *fsm.Machine) {
			id, err := fsm.ParseClusterID(made.Cluster)
			must(t, err)
			theirs.Recovered(id)
			var ours, raftOnes bytes.Buffer
			must(t, errors.Join(state.Freeze().Write(&ours), theirs.Freeze().Write(&raftOnes)))
			if !bytes.Equal(ours.Bytes(), raftOnes.Bytes()) {
				t.Errorf("with a snapshot at %d the states differ", snapshot)
			}
		})
	}
}

// TestRecoverTwice: a second recovery begins where the first one did, above it.
func TestRecoverTwice(t *testing.T) {
	path := madeFolder(t, entriesOf(three, usual()...), 5)
	first := recovered(t, path)
	second := recovered(t, path)
	state, _ := machineOf(t, path)
	if second.Index != 9+2<<32 || first.Cluster == second.Cluster || first.Kept == second.Kept || len(state.Holders("db", 0, 9)) != 1 {
		t.Errorf("first %+v, then %+v", first, second)
	}
	for _, kept := range []string{first.Kept, second.Kept} {
		if _, err := Inspect(kept, 0); err != nil {
			t.Error(err)
		}
	}
}

// TestDamagedFolderIsRecovered as far as it is sound, if that is asked for.
func TestDamagedFolderIsRecovered(t *testing.T) {
	toDamage := func(c *Config) { c.UpToDamage = true }
	for name, c := range map[string]struct {
		spoil func(path string)
		last  uint64
	}{
		"its last entry": {func(path string) { spoil(t, path, "raft.db", "jobs") }, 8},
		"a page":         {func(path string) { must(t, os.Truncate(filepath.Join(path, "raft.db"), 8192)) }, 5},
		"the vote":       {func(path string) { spoil(t, path, "raft.db", "LastVoteCand") }, 9},
		"the witness":    {func(path string) { must(t, os.Remove(filepath.Join(path, "witness"))) }, 9},
		"the snapshot":   {func(path string) { spoil(t, path, "snapshots.db", "jobs") }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := madeFolder(t, entriesOf(three, usual()...), 5)
			c.spoil(path)
			before := snapshotOf(t, filepath.Join(path, "raft.db"))
			if _, err := planned(t, path); !errors.Is(err, ErrDamaged) {
				t.Fatalf("without leave: %v", err)
			}
			if c.last == 0 {
				if _, err := planned(t, path, toDamage); err == nil || !strings.Contains(err.Error(), "holds no state") {
					t.Errorf("without any sound entry: %v", err)
				}
				return
			}
			made := recovered(t, path, toDamage)
			if made.Index != c.last+1<<32 {
				t.Errorf("it begins at %d", made.Index)
			}
			machineOf(t, path)
			after := snapshotOf(t, filepath.Join(made.Kept, "raft.db"))
			if len(after) != 1 || after[filepath.Join(made.Kept, "raft.db")] != before[filepath.Join(path, "raft.db")] {
				t.Error("the damaged log is not kept as it was")
			}
		})
	}
}

func TestRecoverRefuses(t *testing.T) {
	formed := func(t *testing.T) string { return madeFolder(t, entriesOf(three)[:1], 0) }
	whole := func(t *testing.T) string { return madeFolder(t, entriesOf(three, usual()...), 0) }
	for name, c := range map[string]struct {
		made func(*testing.T) string
		with func(*Config)
		want string
	}{
		"no folder":          {func(t *testing.T) string { return filepath.Join(t.TempDir(), "x") }, func(*Config) {}, "no such file"},
		"an empty folder":    {func(t *testing.T) string { return t.TempDir() }, func(*Config) {}, "is empty"},
		"formed alone":       {formed, func(*Config) {}, "holds no state"},
		"a list without it":  {whole, func(c *Config) { c.Peers = peers[1:] }, `lacks node "n1"`},
		"a list of no peers": {whole, func(c *Config) { c.Peers = nil }, `lacks node "n1"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := planned(t, c.made(t), c.with); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	path := whole(t)
	s, err := store.Open(store.Options{Folder: path, NodeID: "n1", Journal: true})
	must(t, err)
	if _, err := planned(t, path); !errors.Is(err, folder.ErrLocked) {
		t.Errorf("under a running node: %v", err)
	}
	must(t, s.Close())
	p, err := planned(t, path)
	must(t, err)
	if _, err := store.Open(store.Options{Folder: path, NodeID: "n1", Journal: true}); !errors.Is(err, folder.ErrLocked) {
		t.Errorf("a node that starts meanwhile: %v", err)
	}
	must(t, p.Close())
	if got := hashOf(entriesOf(three, usual()...)); reportOf(t, path).Latest.Hash != got {
		t.Error("a plan that was not carried out has changed the folder")
	}
}

func reportOf(t *testing.T, path string) *Report {
	t.Helper()
	report, err := Inspect(path, 0)
	must(t, err)
	return report
}

// TestProcessesThatAreNoNodes: whatever takes connections at a member's address may be a
// node that hangs, or one whose certificate is not accepted: it hinders a recovery, also
// if it has come while a person thought.
func TestProcessesThatAreNoNodes(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"silent":  func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"closing": func(conn net.Conn) { _ = conn.Close() },
		"babbling": func(conn net.Conn) {
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = conn.Close()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			network := memnet.New()
			path := madeFolder(t, entriesOf(three, usual()...), 0)
			on := func(c *Config) { c.Network = network.Host("n1") }
			p, err := planned(t, path, on)
			must(t, err)
			if len(p.Others) != 3 { // n3 at both of its addresses
				t.Errorf("asked %+v", p.Others)
			}
			for _, o := range p.Others {
				if !o.Silent || !strings.Contains(o.Found, "connection refused") {
					t.Errorf("asked %+v", o)
				}
			}
			listener, err := network.Host("n3").Listen("n3.example:8711") // its old address
			must(t, err)
			go func() {
				for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
					go serve(conn)
				}
			}()
			_, err = p.Carry(t.Context())
			if !errors.Is(err, ErrAlive) || !strings.Contains(err.Error(), "n3 at n3.example:8711: a process takes connections there") {
				t.Errorf("%s: carried out: %v", name, err)
			}
			must(t, p.Close())
			if _, err := planned(t, path, on); !errors.Is(err, ErrAlive) {
				t.Errorf("%s: prepared: %v", name, err)
			}
			must(t, listener.Close())
			recovered(t, path, on)
		})
	}
}

// TestPlanAsksAsOneProcess: a node that has not seen the end of the first question yet must not
// take the second one for the question of a copy.
func TestPlanAsksAsOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		path := madeFolder(t, entriesOf(three, usual()...), 0)
		p, err := planned(t, path, func(c *Config) { c.Network = network.Host("n1") })
		must(t, err)
		listener, err := network.Host("n2").Listen("n2.example:8711")
		must(t, err)
		defer listener.Close()
		hellos := make(chan string, 2)
		go func() {
			for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
				sent := make([]byte, 1024)
				n, _ := conn.Read(sent)
				hellos <- string(sent[:n])
				_ = conn.Close()
			}
		}()
		for range 2 {
			if _, err := p.ask(t.Context()); !errors.Is(err, ErrAlive) {
				t.Error(err)
			}
		}
		if first, second := <-hellos, <-hellos; first == "" || first != second {
			t.Errorf("%x, then %x", first, second)
		}
	})
}

// cutNetwork swallows all packets.
type cutNetwork struct{ peer.Network }

// Dial implements [peer.Network].
func (cutNetwork) Dial(ctx context.Context, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestCutOffNodesDontHinder: a machine that is gone may swallow packets.
func TestCutOffNodesDontHinder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := madeFolder(t, entriesOf(three, usual()...), 0)
		began := time.Now()
		p, err := planned(t, path, func(c *Config) { c.Network = cutNetwork{} })
		if err != nil || time.Since(began) > 10*time.Second {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		must(t, p.Close())
	})
}
