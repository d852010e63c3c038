package membership

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/election"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/memnet"
)

// memoryFolder is a data folder in memory.
type memoryFolder struct {
	*raft.InmemStore
	snapshots raft.SnapshotStore
	cluster   string
	restored  uint64
	lost      int                           // how many folders the node has had before
	gate      atomic.Pointer[chan struct{}] // writes of the log wait until it is closed; nil: they don't
}

// hang makes writes of the log wait until release is called.
func (f *memoryFolder) hang() (release func()) {
	gate := make(chan struct{})
	f.gate.Store(&gate)
	return func() { f.gate.Store(nil); close(gate) }
}

func (f *memoryFolder) StoreLogs(entries []*raft.Log) error {
	if gate := f.gate.Load(); gate != nil {
		<-*gate
	}
	return f.InmemStore.StoreLogs(entries)
}

func newMemoryFolder() *memoryFolder {
	return &memoryFolder{InmemStore: raft.NewInmemStore(), snapshots: raft.NewInmemSnapshotStore()}
}

func (f *memoryFolder) Logs() raft.LogStore               { return f.InmemStore }
func (f *memoryFolder) Stable() raft.StableStore          { return f.InmemStore }
func (f *memoryFolder) Snapshots() raft.SnapshotStore     { return f.snapshots }
func (f *memoryFolder) ClusterID() string                 { return f.cluster }
func (f *memoryFolder) SetClusterID(id string) error      { f.cluster = id; return nil }
func (f *memoryFolder) RestoredTerm() uint64              { return f.restored }
func (f *memoryFolder) SetRestoredTerm(term uint64) error { f.restored = term; return nil }
func (f *memoryFolder) All() iter.Seq2[uint64, [16]byte]  { return func(func(uint64, [16]byte) bool) {} }
func (f *memoryFolder) Latest() (uint64, [16]byte)        { return 0, [16]byte{} }
func (f *memoryFolder) At(uint64) ([16]byte, bool)        { return [16]byte{}, false }

// idleNode is a node that has applied no entry. It keeps why it must end.
type idleNode struct{ fatals []error }

func (h *idleNode) Applied() uint64          { return 0 }
func (h *idleNode) Level() uint32            { return 0 }
func (h *idleNode) ClusterID() fsm.ClusterID { return fsm.ClusterID{} }
func (h *idleNode) Draining() bool           { return false }
func (h *idleNode) Space() (low, spent bool) { return false, false }
func (h *idleNode) Judge(context.Context, election.Question) election.Reply {
	return election.Reply{}
}
func (h *idleNode) Reaches(context.Context, string) bool       { return true }
func (h *idleNode) Leads() bool                                { return false }
func (h *idleNode) Propose(context.Context, fsm.Command) error { return nil }
func (h *idleNode) Halted(error)                               {}
func (h *idleNode) Fatal(err error)                            { h.fatals = append(h.fatals, err) }

// joiningNode opens the nth of the three nodes n1, n2 and n3 on a folder.
func joiningNode(t *testing.T, n *memnet.Network, nth int, folder *memoryFolder, node Node, restored bool) *Joining {
	t.Helper()
	id := fmt.Sprintf("n%d", nth)
	j, err := Open(Config{
		Self: bootstrapThree[nth-1], Peers: bootstrapThree, Folder: folder, FolderID: bootstrapFolders[id], Network: n.Host(id), Bind: id + ":1",
		FolderRestored: restored, Hashes: folder, Times: 1, Node: node, Logger: hclog.NewNullLogger(), Stopping: t.Context(),
	})
	must(t, err)
	t.Cleanup(func() { _ = j.Port().Close() })
	j.Serve()
	return j
}

// boundFolder returns the folder of a member of the cluster that the three form, in
// term 3.
func boundFolder(t *testing.T) *memoryFolder {
	t.Helper()
	folder := newMemoryFolder()
	folder.cluster = formedID(bootstrapFolders).String()
	must(t, folder.SetUint64(keyCurrentTerm, 3))
	return folder
}

// TestEmptyNodesFormOneCluster: as soon as the last is there, with one id, which their
// folders keep.
func TestEmptyNodesFormOneCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		formed := make(chan error, 3)
		var nodes []*Joining
		folders := []*memoryFolder{newMemoryFolder(), newMemoryFolder(), newMemoryFolder()}
		for i, folder := range folders {
			if i == 2 {
				time.Sleep(time.Minute) // virtual: the others wait for it
				if len(formed) > 0 {
					t.Fatal("two of three have formed a cluster")
				}
			}
			j := joiningNode(t, n, i+1, folder, &idleNode{}, false)
			if !j.AsksPeers() {
				t.Errorf("n%d does not ask its peers", i+1)
			}
			nodes = append(nodes, j)
			go func() { formed <- j.Form(t.Context()) }()
		}
		for range nodes {
			must(t, <-formed)
		}
		want := formedID(bootstrapFolders)
		for i, j := range nodes {
			if j.Cluster() != want || folders[i].cluster != want.String() || j.Delayed() != "" {
				t.Errorf("n%d is in cluster %v, its folder in %q, delayed %q", i+1, j.Cluster(), folders[i].cluster, j.Delayed())
			}
		}
	})
}

// TestEmptyNodeBesideALiveOneWaits: it must be taken back by a leader, and says so
// until it is.
func TestEmptyNodeBesideALiveOneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		live := newMemoryFolder()
		live.cluster = formedID(bootstrapFolders).String()
		must(t, live.SetUint64(keyCurrentTerm, 3))
		joiningNode(t, n, 1, live, &idleNode{}, false)
		j := joiningNode(t, n, 2, newMemoryFolder(), &idleNode{}, false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := j.Form(ctx); err == nil || !strings.Contains(j.Delayed(), "taken back by the cluster: no leader") {
			t.Errorf("%v, delayed %q", err, j.Delayed())
		}
		if j.Cluster() != (fsm.ClusterID{}) {
			t.Errorf("it is in cluster %v", j.Cluster())
		}
	})
}

// TestRestoredFolderBesideOneThatWasNot: it must not start.
func TestRestoredFolderBesideOneThatWasNot(t *testing.T) {
	for name, c := range map[string]struct {
		other bool // the other node's folder was put back, too
		want  string
	}{
		"alone":  {false, "its folder was not restored"},
		"as all": {true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New()
				var nodes []*Joining
				for i, restored := range []bool{true, c.other} {
					nodes = append(nodes, joiningNode(t, n, i+1, boundFolder(t), &idleNode{}, restored))
				}
				err := nodes[0].PrepareRestored(t.Context())
				if got := fmt.Sprint(err); err != nil != (c.want != "") || !strings.Contains(got, c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				folder := nodes[0].config.Folder
				if since := folder.RestoredTerm(); (since == 3) != (c.want == "") {
					t.Errorf("it counts as restored since term %d", since)
				}
				if term, err := folder.Stable().GetUint64(keyCurrentTerm); err != nil || (term == 3+restoredTerms) != (c.want == "") {
					t.Errorf("it is in term %d, %v", term, err)
				}
			})
		})
	}
}

// TestRestoredFolderOfALiveMember: a copy, put back beside the member itself, must not
// start, though all others were put back too.
func TestRestoredFolderOfALiveMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		joiningNode(t, n, 2, boundFolder(t), &idleNode{}, true)
		member := joiningNode(t, n, 1, boundFolder(t), &idleNode{}, true)
		conn, err := member.port.DialNode(t.Context(), peer.StreamProbe, "n2:1", "n2")
		must(t, err)
		defer func() { _ = conn.Close() }()
		config := member.config
		config.Folder, config.Network, config.Bind = boundFolder(t), n.Host("copy"), "copy:1"
		copied, err := Open(config)
		must(t, err)
		defer func() { _ = copied.Port().Close() }()
		if err := copied.PrepareRestored(t.Context()); !peer.RefusedFor(err, peer.RefusedIncarnation) {
			t.Errorf("a copy beside the live member: %v", err)
		}
	})
}

// TestRestoredUntilALeaderJumps: only the first entry of a later term with a jump says
// that the numbers which may have been given out are skipped.
func TestRestoredUntilALeaderJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := newMemoryFolder()
		folder.restored = 3
		j := joiningNode(t, memnet.New(), 1, folder, &idleNode{}, false)
		for _, entry := range []fsm.Applied{{Term: 4}, {Term: 3, Jump: true}} {
			if j.clearRestored(&entry); folder.restored != 3 {
				t.Errorf("%+v cleared it", entry)
			}
		}
		if j.clearRestored(&fsm.Applied{Term: 4, Jump: true}); folder.restored != 0 {
			t.Errorf("after the jump it counts as restored since term %d", folder.restored)
		}
	})
}

// TestReadmissionBesideALiveMember: a member is found alive by its stream with the
// leader, and by its reply at its address; either is enough to refuse its double.
func TestReadmissionBesideALiveMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		leader := joiningNode(t, n, 1, boundFolder(t), &idleNode{}, false)
		member := joiningNode(t, n, 2, boundFolder(t), &idleNode{}, false)
		changes := &Changes{base: base{port: leader.port, calls: leader.calls, configs: leader.configs}}
		double := peer.Hello{Standing: peer.StandingEmpty, Folder: peer.ID{9}, Incarnation: 9, Node: "n2", Address: "double:1"}
		configured := func(index uint64, address raft.ServerAddress) {
			leader.Configured(&raft.Log{Index: index, Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "n2", Address: address}}})})
		}
		check := func(id string) error { return changes.checkVacant(t.Context(), id, double, "from:1") }

		configured(1, "n2:1")
		if err := check("n2"); !errors.Is(err, probe.ErrMemberAlive) {
			t.Errorf("beside a member that replies at its address: %v", err)
		}
		configured(2, "gone:1")
		if err := check("n2"); err != nil {
			t.Errorf("beside a member of which nothing is seen: %v", err)
		}
		conn, err := member.port.DialNode(t.Context(), peer.StreamProbe, "n1:1", "n1")
		must(t, err)
		defer func() { _ = conn.Close() }()
		if err := check("n2"); !errors.Is(err, probe.ErrMemberAlive) {
			t.Errorf("beside a member with a stream: %v", err)
		}
		if err := check("n3"); !errors.Is(err, outcome.ErrMemberInvalid) {
			t.Errorf("as another member: %v", err)
		}
	})
}

// TestStateOfAnotherClusterEndsTheNode: the state of another cluster is fatal.
func TestStateOfAnotherClusterEndsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, node := newMemoryFolder(), &idleNode{}
		j := joiningNode(t, memnet.New(), 1, folder, node, false)
		must(t, j.bindFolder(fsm.ClusterID{5}))
		j.checkCluster(fsm.ClusterID{5})
		if folder.cluster != (fsm.ClusterID{5}).String() || len(node.fatals) != 0 {
			t.Errorf("the folder is of cluster %s, %v", folder.cluster, node.fatals)
		}
		j.checkCluster(fsm.ClusterID{6})
		if len(node.fatals) != 1 || j.Cluster() != (fsm.ClusterID{5}) {
			t.Errorf("%v, cluster %v", node.fatals, j.Cluster())
		}
		hello := j.Identity().Hello(peer.StreamProbe, "n2")
		if hello.Standing != peer.StandingBound || hello.Cluster != (peer.ID{5}) || j.Describe(&probe.Request{}).Cluster != folder.cluster {
			t.Errorf("it says %+v", hello)
		}
	})
}

// formingNode is a node that forms its cluster while it describes itself.
type formingNode struct {
	idleNode
	form func()
}

func (h *formingNode) Draining() bool {
	if form := h.form; form != nil {
		h.form = nil
		form()
	}
	return false
}

// TestReplyWhileTheClusterForms: a node that is described as formed has the cluster's id.
// Without it, a node that still forms would take the cluster for an old one, and never
// come in.
func TestReplyWhileTheClusterForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder, node := newMemoryFolder(), &formingNode{}
		self := bootstrapThree[0]
		j, err := Open(Config{
			Self: self, Peers: []probe.Peer{self}, Folder: folder, FolderID: peer.ID{1}, Network: memnet.New().Host("n1"), Bind: self.Address,
			Hashes: folder, Times: 1, Node: node, Logger: hclog.NewNullLogger(), Stopping: t.Context(),
		})
		must(t, err)
		var r *raft.Raft
		node.form = func() {
			must(t, j.Form(t.Context()))
			config, err := raftlib.Config("n1", 1, hclog.NewNullLogger())
			must(t, err)
			_, transport := raft.NewInmemTransport(raft.ServerAddress(self.Address))
			must(t, raft.BootstrapCluster(config, folder, folder, folder.snapshots, transport, FirstConfiguration([]probe.Peer{self})))
			if r, err = raft.NewRaft(config, &member{joining: j}, folder, folder, folder.snapshots, transport); err != nil {
				t.Fatal(err)
			}
			j.Start(r)
		}
		for range 2 {
			if a := j.Describe(&probe.Request{}); a.State != probe.Empty && a.Cluster == "" {
				t.Errorf("described as %s, without the id of a cluster", a.State)
			}
		}
		if err := errors.Join(r.Shutdown().Error(), j.Port().Close()); err != nil {
			t.Error(err)
		}
	})
}
