package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/logtest"
)

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
		other := newLifeNodes(t, 3)
		defer other.stop()
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
