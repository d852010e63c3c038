package membership

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
)

// TestJudge holds the table of who may open which stream to whom.
func TestJudge(t *testing.T) {
	plain, other := fsm.ClusterID{1}, fsm.ClusterID{2}
	empty := peer.Hello{Standing: peer.StandingEmpty}
	bound := func(id fsm.ClusterID) peer.Hello {
		return peer.Hello{Standing: peer.StandingBound, Cluster: peer.ID(id)}
	}
	for name, c := range map[string]struct {
		dialler, acceptor peer.Hello
		raft, probe       peer.Refusal
	}{
		"the same cluster":        {bound(plain), bound(plain), 0, 0},
		"another cluster":         {bound(plain), bound(other), peer.RefusedCluster, peer.RefusedCluster},
		"an empty node calls":     {empty, bound(plain), peer.RefusedKind, 0},
		"an empty node is called": {bound(plain), empty, peer.RefusedKind, 0},
		"two empty nodes":         {empty, empty, peer.RefusedKind, 0},
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
// process than the process that is meant, though the other side has no objection.
func TestBothSidesCheckWhoIsThere(t *testing.T) {
	cluster, folder, other := fsm.ClusterID{1}, peer.ID{2}, peer.ID{3}
	i := &identity{node: "n1", address: "n1:1", folder: peer.ID{1}, incarnation: 1, roster: admittedNode(folder), evidence: newEvidence("n1", nil)}
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
		remote *peer.Hello
		want   peer.Refusal
	}{
		"the member":                     {hello("n2", "n1", folder), 0},
		"a node that knows no id":        {hello("n2", "", folder), 0},
		"meant for another node":         {hello("n2", "n3", folder), peer.RefusedNode},
		"with this node's own id":        {hello("n1", "n1", other), peer.RefusedIncarnation},
		"the member with another folder": {hello("n2", "n1", other), peer.RefusedFolder},
		"a node of another cluster":      {foreign, peer.RefusedCluster},
	} {
		if got, detail := i.Receive(c.remote, "from:1"); got != c.want || (got == 0) != (detail == "") {
			t.Errorf("received %s: %v %q, want %v", name, got, detail, c.want)
		}
	}
	for name, c := range map[string]struct {
		target string
		mark   peer.ID
		remote *peer.Hello
		want   peer.Refusal
	}{
		"the member":                          {"n2", folder, hello("n2", "", folder), 0},
		"whoever is there":                    {"", peer.ID{}, hello("n3", "", other), 0},
		"another node":                        {"n2", peer.ID{}, hello("n3", "", other), peer.RefusedNode},
		"another folder than the address has": {"n3", folder, hello("n3", "", other), peer.RefusedFolder},
		"another folder than was admitted":    {"n2", peer.ID{}, hello("n2", "", other), peer.RefusedFolder},
	} {
		if got, detail := i.Accept(peer.StreamRaft, c.target, c.mark, c.remote, "at:1"); got != c.want || (got == 0) != (detail == "") {
			t.Errorf("found %s: %v %q, want %v", name, got, detail, c.want)
		}
	}
}

// TestRecoveredID: the id of a recovered cluster shows that it comes after the one before,
// and after all before that; never the other way round, nor beside others.
func TestRecoveredID(t *testing.T) {
	formed := formedID(map[string]peer.ID{"n1": {1}})
	for name, before := range map[string]fsm.ClusterID{
		"formed": formed, "that happens to have the mark": {1, 8: 'R', 'C', 7},
	} {
		first := RecoveredID(before)
		second, sibling := RecoveredID(first), RecoveredID(before)
		switch {
		case !succeeds(first, before), !succeeds(second, before), !succeeds(second, first):
			t.Errorf("%s: %v, %v and %v are no line", name, before, first, second)
		case succeeds(before, first), succeeds(first, first), first == sibling, succeeds(first, sibling), succeeds(sibling, first):
			t.Errorf("%s: %v and %v succeed too much", name, first, sibling)
		case succeeds(first, fsm.ClusterID{9}):
			t.Errorf("%s: it succeeds a stranger", name)
		}
	}
}

// TestAmongStrangers: how many nodes of which clusters keep a node from serving.
func TestAmongStrangers(t *testing.T) {
	before := fsm.ClusterID{1, 2, 3}
	recovered := RecoveredID(before)
	five := []probe.Peer{{ID: "n1", Address: "1"}, {ID: "n2", Address: "2"}, {ID: "n3", Address: "3"}, {ID: "n4", Address: "4"}, {ID: "n5", Address: "5"}}
	for name, c := range map[string]struct {
		seen []fsm.ClusterID // at the addresses of n2 and those after it
		want bool
	}{
		"none":                                {nil, false},
		"a node of its own":                   {[]fsm.ClusterID{recovered}, false},
		"a stranger":                          {[]fsm.ClusterID{{9}}, true},
		"a stranger, and one of its own":      {[]fsm.ClusterID{{9}, recovered}, false},
		"two strangers, and one of its own":   {[]fsm.ClusterID{{9}, recovered, {9}}, true},
		"a lost one":                          {[]fsm.ClusterID{before}, false},
		"two lost ones":                       {[]fsm.ClusterID{before, before}, false},
		"a majority that was not lost":        {[]fsm.ClusterID{before, before, before}, true},
		"all others":                          {[]fsm.ClusterID{before, before, before, before}, true},
		"a lost one, and a stranger":          {[]fsm.ClusterID{before, {9}}, true},
		"a lost one, a stranger, and its own": {[]fsm.ClusterID{before, {9}, recovered}, false},
	} {
		n := newEvidence("n1", five)
		for i, cluster := range c.seen {
			reason := peer.RefusedCluster
			if cluster == recovered {
				reason = 0
			}
			n.Called(five[i+1].Address, reason, &peer.Hello{Standing: peer.StandingBound, Cluster: peer.ID(cluster), Node: five[i+1].ID})
		}
		if got := n.strangers(recovered); (got != "") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for caller, want := range map[fsm.ClusterID]bool{before: false, {9}: true} {
		n := newEvidence("n1", five[:1])
		n.noteCaller(&peer.Hello{Standing: peer.StandingBound, Cluster: peer.ID(caller), Node: "n2"}, "2")
		if got := n.strangers(recovered); (got != "") != want {
			t.Errorf("called by %v: %q", caller, got)
		}
	}
}
