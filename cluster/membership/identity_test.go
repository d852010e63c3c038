package membership

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/fsm"
)

// TestJudge holds the table of who may open which stream to whom.
func TestJudge(t *testing.T) {
	plain, other, raised := fsm.ClusterID{1}, fsm.ClusterID{2}, fsm.ClusterID{1 | upgradedBit}
	empty := peer.Hello{Standing: peer.StandingEmpty}
	old := peer.Hello{Standing: peer.StandingOld}
	bound := func(id fsm.ClusterID) peer.Hello {
		return peer.Hello{Standing: peer.StandingBound, Cluster: peer.ID(id)}
	}
	for name, c := range map[string]struct {
		dialler, acceptor peer.Hello
		raft, probe       peer.Refusal
	}{
		"the same cluster":                      {bound(plain), bound(plain), 0, 0},
		"another cluster":                       {bound(plain), bound(other), peer.RefusedCluster, peer.RefusedCluster},
		"an empty node calls":                   {empty, bound(plain), peer.RefusedKind, 0},
		"an empty node is called":               {bound(plain), empty, peer.RefusedKind, 0},
		"two empty nodes":                       {empty, empty, peer.RefusedKind, 0},
		"two of an older release":               {old, old, 0, 0},
		"an older one is called":                {bound(raised), old, 0, 0},
		"an older one calls":                    {old, bound(raised), peer.RefusedUnbound, 0},
		"an older one of another cluster":       {bound(plain), old, peer.RefusedCluster, peer.RefusedCluster},
		"an older one of another cluster calls": {old, bound(plain), peer.RefusedCluster, peer.RefusedCluster},
		"an older one and an empty one":         {old, empty, peer.RefusedKind, 0},
	} {
		for kind, want := range map[peer.StreamKind]peer.Refusal{peer.StreamRaft: c.raft, peer.StreamForward: c.raft, peer.StreamProbe: c.probe} {
			if got := judge(kind, &c.dialler, &c.acceptor); got != want {
				t.Errorf("%s, kind %d: %v, want %v", name, kind, got, want)
			}
		}
	}
}

// admittedNode is a roster of one member: n2, with the folder that was admitted.
type admittedNode peer.ID

func (admittedNode) memberAt(string) string  { return "n2" }
func (admittedNode) admits(node string) bool { return node == "n2" }
func (f admittedNode) admittedFolder(node string) (peer.ID, bool) {
	return peer.ID(f), node == "n2"
}

// TestBothSidesCheckWhoIsThere: each side of a stream refuses another node, folder or
// process than the one that is meant, though the other side has no objection.
func TestBothSidesCheckWhoIsThere(t *testing.T) {
	cluster, folder, other := fsm.ClusterID{1}, peer.ID{2}, peer.ID{3}
	i := &identity{node: "n1", address: "n1:1", folder: peer.ID{1}, incarnation: 1, roster: admittedNode(folder), neighbours: newNeighbours("n1", nil)}
	i.bind(cluster)
	hello := func(node, target string, folder peer.ID) *peer.Hello {
		return &peer.Hello{Standing: peer.StandingBound, Cluster: peer.ID(cluster), Folder: folder, Incarnation: 9, Node: node, Target: target, Address: node + ":1"}
	}
	foreign := hello("n2", "n1", folder)
	foreign.Cluster = peer.ID{4}
	if _, detail := i.Receive(foreign, "from:1"); !strings.Contains(detail, "n1:1") || !strings.Contains(detail, "(from from:1)") {
		t.Errorf("%q does not name both addresses", detail)
	}
	for name, c := range map[string]struct {
		theirs *peer.Hello
		want   peer.Refusal
	}{
		"the member":                     {hello("n2", "n1", folder), 0},
		"a node that knows no id":        {hello("n2", "", folder), 0},
		"meant for another node":         {hello("n2", "n3", folder), peer.RefusedNode},
		"with this node's own id":        {hello("n1", "n1", other), peer.RefusedIncarnation},
		"the member with another folder": {hello("n2", "n1", other), peer.RefusedFolder},
		"a node of another cluster":      {foreign, peer.RefusedCluster},
	} {
		if got, detail := i.Receive(c.theirs, "from:1"); got != c.want || (got == 0) != (detail == "") {
			t.Errorf("received %s: %v %q, want %v", name, got, detail, c.want)
		}
	}
	for name, c := range map[string]struct {
		target string
		mark   peer.ID
		theirs *peer.Hello
		want   peer.Refusal
	}{
		"the member":                          {"n2", folder, hello("n2", "", folder), 0},
		"whoever is there":                    {"", peer.ID{}, hello("n3", "", other), 0},
		"another node":                        {"n2", peer.ID{}, hello("n3", "", other), peer.RefusedNode},
		"another folder than the address has": {"n3", folder, hello("n3", "", other), peer.RefusedFolder},
		"another folder than was admitted":    {"n2", peer.ID{}, hello("n2", "", other), peer.RefusedFolder},
	} {
		if got, detail := i.Accept(peer.StreamRaft, c.target, c.mark, c.theirs, "at:1"); got != c.want || (got == 0) != (detail == "") {
			t.Errorf("found %s: %v %q, want %v", name, got, detail, c.want)
		}
	}
}
