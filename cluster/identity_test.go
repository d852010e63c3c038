package cluster

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/logtest"
	"github.com/signalbox/signalbox/test/memnet"
)

// identityOther makes another cluster of as many nodes, with the same ids and
// addresses on a network of its own. finish ends it; a node whose store was taken
// over must be killed before.
func identityOther(c *lifeNodes, count int) (other *lifeNodes, finish func()) {
	c.t.Helper()
	other = &lifeNodes{nodes: &nodes{t: c.t, net: memnet.New()}, fatals: map[string][]error{}, logs: map[string]*logtest.Log{}}
	for i := range count {
		other.all = append(other.all, &testNode{id: fmt.Sprintf("n%d", i+1)})
	}
	return other, other.stop
}

// identityTwin is another process with a node's id, at another address.
func identityTwin(c *lifeNodes, n *testNode, s *store.Store) *testNode {
	c.t.Helper()
	log := logtest.New()
	c.logs["twin"] = log
	config := Config{NodeID: n.id, Bind: "twin:8711", Network: c.net.Host("twin"), Store: s, Logger: log,
		OnFatal: func(err error) { c.failed("twin", err) }}
	for _, peer := range c.all {
		address := peer.id + ":8711"
		if peer.id == n.id {
			address = config.Bind
		}
		config.Peers = append(config.Peers, Peer{ID: peer.id, Address: address})
	}
	node, err := Start(c.t.Context(), config)
	c.must(err)
	return &testNode{Node: node, id: n.id, store: s, up: true}
}

// identityEnd closes a twin and its store.
func identityEnd(c *lifeNodes, twin *testNode) {
	c.t.Helper()
	if _, err := c.closeTook(twin); err != nil {
		c.t.Error(err)
	}
	c.must(twin.store.Close())
}

// never checks for half a minute that a condition does not come true.
func (c *lifeNodes) never(what string, holds func() bool) {
	c.t.Helper()
	for range 300 {
		if holds() {
			c.t.Fatal(what)
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
}

// TestClusterHasOneIDFromItsFormationOn: in the folders, in the state and in the
// first entry; another cluster of the same names has another one.
func TestClusterHasOneIDFromItsFormationOn(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		other, finish := identityOther(c, 3)
		defer finish()
		seen := map[string]bool{}
		for _, one := range []*lifeNodes{c, other} {
			one.begin(one.all...)
			one.ready(one.all...)
			want := one.all[0].store.ClusterID()
			seen[want] = true
			for _, n := range one.all {
				var state fsm.ClusterID
				n.View(func(m *fsm.Machine) { state = m.ClusterID() })
				if n.store.ClusterID() != want || state.String() != want || n.joining.Cluster() != state || n.Status().Cluster != want {
					t.Errorf("%s: folder %q, state %v, want %s", n.id, n.store.ClusterID(), state, want)
				}
			}
			one.wipe(one.all[0])
			one.begin(one.all[0])
			one.ready(one.all[0])
			if got := one.all[0].store.ClusterID(); got != want {
				t.Errorf("a node that was taken back has %q, want %s", got, want)
			}
		}
		if len(seen) != 2 || seen[""] {
			t.Errorf("two clusters have the ids %v", seen)
		}
	})
}

// TestMemberOnAnotherClustersFolderStaysOut: its node id and its address are right,
// and it must neither be taken for the member nor be mended into one.
func TestMemberOnAnotherClustersFolderStaysOut(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		other, finish := identityOther(c, 3)
		defer finish()
		for _, one := range []*lifeNodes{c, other} {
			one.begin(one.all...)
			one.ready(one.all...)
			one.kill(one.all[2])
		}
		c.semaphore("db", 9)
		other.semaphore("db", 5)
		n := c.all[2]
		own := n.store
		n.store, other.all[2].store = other.all[2].store, own // closed with the other cluster
		c.begin(n)
		index := n.raft().LastIndex()
		c.never("a node of another cluster is ready, leads, or takes entries", func() bool {
			return n.Ready() || n.established() != nil || n.raft().LastIndex() != index
		})
		for _, id := range []string{c.all[0].store.ClusterID(), n.store.ClusterID()} {
			if check := c.check(n, "cluster"); check.OK || !strings.Contains(check.Detail, id) {
				t.Errorf("the check of n3: %+v does not name cluster %s", check, id)
			}
		}
		for _, healthy := range c.all[:2] {
			if !healthy.Ready() || refusedCount(t, healthy.joining.Port(), "cluster") == 0 {
				t.Errorf("%s: ready %t, refused %v", healthy.id, healthy.Ready(), refusedCount(t, healthy.joining.Port(), "cluster"))
			}
			said := c.logs[healthy.id].Lines("a stream of a peer is refused")
			if len(said) < 3 || len(said) > 8 || !strings.Contains(said[0], "local=") || !strings.Contains(said[0], "remote=") {
				t.Errorf("%s said %d times in half a minute: %.300q", healthy.id, len(said), said)
			}
		}
		c.wipe(n)
		c.begin(n)
		c.ready(n)
		if held, _ := c.read(n, "db"); held.Permits != 9 {
			t.Errorf("with an empty folder it shows %+v", held)
		}
	})
}

// TestNodeThatCouldCommitAloneServesNobodyAmongStrangers: a folder of a cluster of one
// node, started with the list of another cluster.
func TestNodeThatCouldCommitAloneServesNobodyAmongStrangers(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		n := c.all[0]
		other, finish := identityOther(c, 1)
		defer finish()
		other.begin(other.all...)
		other.ready(other.all...)
		other.semaphore("db", 5)
		other.kill(other.all[0])
		c.kill(n)
		n.store, other.all[0].store = other.all[0].store, n.store
		for _, healthy := range c.all[1:] { // it may be elected before it knows who they are
			c.net.Delay(n.id, healthy.id, 100*time.Millisecond)
			c.net.Delay(healthy.id, n.id, 100*time.Millisecond)
		}
		c.begin(n)
		c.until("its Raft runs", func() bool { return n.raft() != nil })
		if check := c.check(n, "cluster"); check.OK || !strings.Contains(check.Detail, "has not asked its listed peers yet") {
			t.Errorf("before it has asked: %+v", check)
		}
		create := Call{Command: fsm.CreateSemaphore{Name: "more", Permits: 1}}
		if _, err := n.Do(t.Context(), create); !errors.Is(err, outcome.ErrNoLeader) {
			t.Errorf("a command among strangers: %v", err)
		}
		if _, err := n.Read(t.Context(), Consistency{}); !errors.Is(err, outcome.ErrNoLeader) {
			t.Errorf("a read among strangers: %v", err)
		}
		if check := c.check(n, "leader"); n.raft().State() != raft.Leader || check.OK {
			t.Errorf("Raft takes it for the leader (%v), and it does not lead: %+v", n.raft().State(), check)
		}
		if check := c.check(n, "cluster"); n.Ready() || check.OK || !strings.Contains(check.Detail, "2 of the 2 listed peers belong to another cluster") {
			t.Errorf("ready %t, %+v", n.Ready(), check)
		}
		for _, healthy := range c.all[1:] {
			if !healthy.Ready() {
				t.Errorf("%s is not ready: %+v", healthy.id, healthy.Checks())
			}
			c.kill(healthy)
		}
		c.never("it serves because the others are silent", n.Ready)
		c.kill(n)
		c.peers = []Peer{{ID: n.id, Address: n.id + ":8711"}}
		c.begin(n)
		c.ready(n)
		c.do(n, create.Command, fsm.OK)
	})
}

// TestWipedNodeStartedWithoutPeersIsNotTakenForTheMember: it forms a cluster of its
// own, and the one that it belonged to must not write into it.
func TestWipedNodeStartedWithoutPeersIsNotTakenForTheMember(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 9)
		n := c.all[2]
		c.kill(c.all[0])
		c.kill(c.all[1])
		c.wipe(n)
		c.peers = []Peer{{ID: n.id, Address: n.id + ":8711"}}
		c.begin(n)
		c.ready(n)
		session := c.open(n, 10*time.Second)
		c.peers = nil
		c.begin(c.all[:2]...)
		c.until("it knows that something is wrong", func() bool {
			check := c.check(n, "cluster")
			return !check.OK && strings.Contains(check.Detail, "another cluster takes it for its member") && !n.Ready()
		})
		if _, err := n.Do(t.Context(), Call{Command: fsm.CreateSemaphore{Name: "more", Permits: 1}}); !errors.Is(err, outcome.ErrNoLeader) {
			t.Errorf("a command among strangers: %v", err)
		}
		c.never("a session ends that can't be renewed", func() bool {
			found := false
			n.View(func(m *fsm.Machine) { _, found = m.Session(session) })
			return !found
		})
		c.never("it got the cluster's entries", func() bool { _, found := stale(n, "db"); return found })
		c.ready(c.all[:2]...)
		c.wipe(n)
		c.peers = nil
		c.begin(n)
		c.ready(c.all...)
		if held, _ := c.read(n, "db"); held.Permits != 9 {
			t.Errorf("with the list it shows %+v", held)
		}
	})
}

// TestEmptyFolderWithACopiedNodeIDIsRefused as long as the member lives; then it takes
// its place, and the member's old folder is refused for good.
func TestEmptyFolderWithACopiedNodeIDIsRefused(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		member := c.others(c.leader())[0]
		index, _ := c.leader().joining.Configuration()
		s, err := store.OpenEphemeral(member.id)
		c.must(err)
		twin := identityTwin(c, member, s)
		defer identityEnd(c, twin)
		c.never("an empty folder took a living member's place", func() bool {
			now, _ := c.leader().joining.Configuration()
			return now != index || twin.raft() != nil
		})
		check := c.check(twin, "cluster")
		if check.OK || !strings.Contains(check.Detail, "at "+member.id+":8711") || !strings.Contains(check.Detail, "at twin:8711") {
			t.Errorf("%+v does not name both addresses", check)
		}
		if !member.Ready() {
			t.Errorf("%s is not ready: %+v", member.id, member.Checks())
		}
		c.kill(member)
		c.ready(twin)
		c.until("it has the vote", func() bool { return c.suffrage(c.leader(), member.id) == "voter" })
		server, _ := membership.Find(c.leader().joining.Servers(), member.id)
		if want := peer.MarkAddress("twin:8711", peer.ID(s.FolderID())); server.Address != want {
			t.Errorf("the member is %v, want %v", server.Address, want)
		}
		for _, m := range c.leader().Status().Members {
			if m.ID == member.id && m.Address != "twin:8711" {
				t.Errorf("the status shows %+v", m)
			}
		}
		c.begin(member)
		c.never("the folder that was replaced is back", func() bool { return member.Ready() || member.established() != nil })
		if check := c.check(member, "cluster"); check.OK || !strings.Contains(check.Detail, "admitted with folder "+s.FolderID().String()) {
			t.Errorf("%+v does not name the folder that was admitted", check)
		}
		if !twin.Ready() {
			t.Errorf("the member that was admitted is not ready: %+v", twin.Checks())
		}
		c.kill(member)
	})
}

// TestVotesOfAReplacedFolderDoNotCount: with the vote of a folder that was replaced, a
// node that lacks later committed entries would be elected.
func TestVotesOfAReplacedFolderDoNotCount(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		replaced, kept := c.others(c.leader())[0], c.others(c.leader())[1]
		c.kill(replaced)
		old := replaced.store
		replaced.store = nil
		c.begin(replaced)
		c.voting([]string{"n1", "n2", "n3"}, c.all...)
		leader := c.leader()
		for _, n := range []*testNode{leader, replaced} {
			if n != kept {
				c.kill(n)
			}
		}
		if leader == kept {
			t.Fatal("the test needs another leader")
		}
		c.must(replaced.store.Close())
		replaced.store = old
		c.begin(replaced)
		c.never("a leader was elected with the vote of a folder that was replaced", func() bool {
			return kept.raft().State() == raft.Leader || replaced.raft().State() == raft.Leader
		})
		if refusedCount(t, kept.joining.Port(), "folder") == 0 {
			t.Error("no stream was refused for its folder")
		}
	})
}

// TestNodeThatTrailsFollowsAMemberThatWasReplacedSince: its log still says that the
// leader's node id belongs to the folder before.
func TestNodeThatTrailsFollowsAMemberThatWasReplacedSince(t *testing.T) {
	lifeBubble(t, 5, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		replaced, trails := c.all[4], c.all[3]
		replace := func(up ...*testNode) {
			c.wipe(replaced)
			c.begin(replaced)
			for _, n := range up {
				c.until(n.id+" knows the new folder's vote", func() bool {
					server, _ := membership.Find(n.joining.Servers(), replaced.id)
					return server == raft.Server{ID: server.ID, Address: peer.MarkAddress("n5:8711", peer.ID(replaced.store.FolderID())), Suffrage: raft.Voter}
				})
			}
		}
		replace(c.all...)
		c.kill(trails)
		replace(c.all[:3]...)
		c.ready(replaced)
		c.must(c.leader().TransferLeadership(t.Context(), replaced.id))
		c.until("it leads", func() bool { return replaced.established() != nil })
		time.Sleep(30 * time.Second) // virtual: the leader before sends it nothing any more
		c.begin(trails)
		c.ready(trails)
		if c.leader() != replaced {
			t.Error("the test needs the member that was replaced as the leader")
		}
	})
}

// TestCopiedFolderOfALiveNodeIsRefused: of two processes with one folder the later is,
// by each member, also by one that was started after both.
func TestCopiedFolderOfALiveNodeIsRefused(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.bolt = true
		c.begin(c.all...)
		c.ready(c.all...)
		member := c.others(c.leader())[0]
		c.kill(member)
		folder := member.store.Path()
		c.must(member.store.Close())
		copied := c.t.TempDir()
		c.must(os.CopyFS(copied, os.DirFS(folder)))
		var err error
		member.store, err = store.Open(store.Options{NodeID: member.id, Folder: folder, Journal: true})
		c.must(err)
		c.begin(member)
		c.ready(c.all...)
		s, err := store.Open(store.Options{NodeID: member.id, Folder: copied, Journal: true})
		c.must(err)
		twin := identityTwin(c, member, s)
		defer identityEnd(c, twin)
		c.never("the copy is ready or leads", func() bool { return twin.Ready() || twin.established() != nil || !member.Ready() })
		check := c.check(twin, "cluster")
		if check.OK || !strings.Contains(check.Detail, "at "+member.id+":8711") || !strings.Contains(check.Detail, "at twin:8711") {
			t.Errorf("%+v does not name both addresses", check)
		}
		late := c.others(member)[0]
		c.kill(late)
		time.Sleep(5 * time.Second) // virtual
		c.begin(late)
		c.ready(c.all...)
		c.never("the copy is ready or leads", func() bool { return twin.Ready() || twin.established() != nil || !member.Ready() })
	})
}

// TestAddressThatLeadsToAnotherNode: a name that collides, or an address that was
// given to another one, reaches neither Raft nor forwarding nor the probe.
func TestAddressThatLeadsToAnotherNode(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.peers = []Peer{{ID: "n1", Address: "n1:8711"}, {ID: "n2", Address: "n2:8711"}, {ID: "n3", Address: "n3:8711"}}
		c.begin(c.all...)
		c.ready(c.all...)
		from := c.all[0]
		for _, kind := range []peer.StreamKind{peer.StreamRaft, peer.StreamForward, peer.StreamProbe} {
			if _, err := from.joining.Port().DialNode(t.Context(), kind, "n2:8711", "n3"); !peer.RefusedFor(err, peer.RefusedNode) {
				t.Errorf("a stream of kind %d for n3 came to n2: %v", kind, err)
			}
		}
		if got := refusedCount(t, c.all[1].joining.Port(), "node"); got != 3 {
			t.Errorf("n2 has refused %v streams", got)
		}
	})
}

// TestNodeWhosePeersAreOfTwoClustersStaysOut: it can't know which is its own.
func TestNodeWhosePeersAreOfTwoClustersStaysOut(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		other, finish := identityOther(c, 3)
		defer finish()
		for _, one := range []*lifeNodes{c, other} {
			one.begin(one.all...)
			one.ready(one.all...)
			one.kill(one.all[2])
		}
		c.kill(c.all[1])
		other.kill(other.all[1])
		c.all[1].store, other.all[1].store = other.all[1].store, c.all[1].store
		n := c.all[2]
		c.wipe(n)
		c.begin(c.all[1], n)
		c.never("it came in somewhere", func() bool { return n.raft() != nil || n.Ready() })
		check := c.check(n, "cluster")
		for _, id := range []string{c.all[0].store.ClusterID(), c.all[1].store.ClusterID()} {
			if check.OK || !strings.Contains(check.Detail, id) {
				t.Errorf("%+v does not name cluster %s", check, id)
			}
		}
	})
}

// TestEmptyPeerIsNoStranger: a node that is a cluster alone adds one with an empty
// folder, which is in its list, and serves all the time.
func TestEmptyPeerIsNoStranger(t *testing.T) {
	lifeBubble(t, 2, func(t *testing.T, c *lifeNodes) {
		first, added := c.all[0], c.all[1]
		c.peers = []Peer{{ID: "n1", Address: "n1:8711"}}
		c.begin(first)
		c.ready(first)
		c.kill(first)
		c.peers = nil
		c.begin(first, added)
		c.ready(first)
		c.must(first.AddMember(t.Context(), added.id, added.id+":8711"))
		c.ready(added)
		for _, n := range c.all {
			if said := len(c.logs[n.id].Lines("among nodes of another cluster")); said != 0 {
				t.Errorf("%s said %d times that there are strangers", n.id, said)
			}
			if got := refusedCount(t, n.joining.Port(), "cluster"); got != 0 {
				t.Errorf("%s has refused %v streams", n.id, got)
			}
		}
	})
}

// refusedCount is how many streams a port has refused for a reason, as the metric says.
func refusedCount(t *testing.T, p *peer.Port, reason string) (count float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.Metrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if len(metric.GetLabel()) > 0 && metric.GetLabel()[0].GetValue() == reason {
				count = metric.GetCounter().GetValue()
			}
		}
	}
	return count
}
