package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// calledByFor is how long a call from a node of another cluster counts.
const calledByFor = 10 * time.Second

// neighbours knows which of the listed peers are of this node's cluster and which
// are of another one. A node that finds itself among nodes of another cluster was
// started on the wrong folder, or its list is wrong: it must not serve. A nil one
// knows nobody. Safe for concurrent use.
type neighbours struct {
	listed []Peer // as configured, but for this node

	mu      sync.Mutex
	ours    map[string]bool   // by address: the last call found a node of this cluster
	foreign map[string]string // by address: the last call that was replied to found this
	caller  string            // who of another cluster called this node as its member last
	callAt  time.Time
	refused string // how a peer of this cluster has refused this node last
	refusAt time.Time
}

func newNeighbours(self string, peers []Peer) *neighbours {
	listed := slices.DeleteFunc(slices.Clone(peers), func(p Peer) bool { return p.ID == self })
	return &neighbours{listed: listed, ours: map[string]bool{}, foreign: map[string]string{}}
}

// called notes how the call of an address has ended.
func (n *neighbours) called(address string, reason refusal, theirs *hello) {
	if n == nil || !slices.ContainsFunc(n.listed, func(p Peer) bool { return p.Address == address }) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if theirs.refusal == refusedFolder || theirs.refusal == refusedIncarnation {
		n.refused, n.refusAt = fmt.Sprintf("refused by %s: %s", theirs.who(address), theirs.detail), time.Now()
	}
	switch reason {
	case 0, refusedKind, refusedFolder, refusedIncarnation:
		n.ours[address] = theirs.standing != standingEmpty
		delete(n.foreign, address)
	case refusedCluster:
		n.foreign[address] = theirs.who(address)
		delete(n.ours, address)
	default: // not said whose it is
		delete(n.ours, address)
		delete(n.foreign, address)
	}
}

// calledBy notes that a node of another cluster has called this one as its member.
func (n *neighbours) calledBy(theirs *hello, from string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.caller, n.callAt = theirs.who(from), time.Now()
}

// outcast returns how peers of this cluster refuse this node, or "".
func (n *neighbours) outcast() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refused == "" || time.Since(n.refusAt) > calledByFor {
		return ""
	}
	return n.refused
}

// strangers describes the nodes of another cluster among which this node is, or
// returns "": as many of the listed peers as there are nodes of its own cluster, or,
// for a node without listed peers, one that calls it as its member.
func (n *neighbours) strangers(cluster fsm.ClusterID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.listed) == 0 {
		if n.caller == "" || time.Since(n.callAt) > calledByFor {
			return ""
		}
		return fmt.Sprintf("this node alone is cluster %v, and another cluster takes it for its member: %s", cluster, n.caller)
	}
	own := 1
	var found []string
	for _, p := range n.listed {
		if who, is := n.foreign[p.Address]; is {
			found = append(found, who)
		} else if n.ours[p.Address] {
			own++
		}
	}
	if len(found) == 0 || len(found) < own {
		return ""
	}
	return fmt.Sprintf("this node belongs to cluster %v, and %d of the %d listed peers belong to another cluster: %s",
		cluster, len(found), len(n.listed), strings.Join(found, "; "))
}
