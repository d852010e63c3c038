package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/peer"
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
		synctest.Wait() // n2 counts a refusal once it has sent it
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
	must(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if len(metric.GetLabel()) > 0 && metric.GetLabel()[0].GetValue() == reason {
				count = metric.GetCounter().GetValue()
			}
		}
	}
	return count
}
