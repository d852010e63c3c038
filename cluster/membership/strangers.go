package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// notLooked keeps a node that could commit alone from serving before it has asked
// its listed peers to which cluster they belong.
var notLooked = "this node has not asked its listed peers yet whether they belong to its cluster"

// lookout finds out whether this node is among nodes of another cluster. Safe for
// concurrent use.
type lookout struct {
	base
	halt  *halt
	found atomic.Pointer[string] // which nodes of another cluster are around this node; nil: no such node
}

// keep keeps which nodes of another cluster are around this node.
func (l *lookout) keep(found *string) {
	l.found.Store(found)
	l.halt.note(outcome.ErrNoLeader, found != nil)
}

// alone reports whether this node could commit without others, though it has a list
// of peers.
func (l *lookout) alone() bool {
	voters := Voters(l.servers())
	return len(l.identity.listed) > 0 && len(voters) == 1 && string(voters[0].ID) == l.self
}

// run asks the listed peers that are no members to which cluster they belong,
// and keeps whether this node is among nodes of another cluster, until ctx ends.
func (l *lookout) run(ctx context.Context) {
	for {
		l.askStrangers(ctx)
		found := l.identity.strangers(l.identity.bound())
		before := l.found.Load()
		switch {
		case ctx.Err() != nil:
			return
		case found == "" && before != nil:
			l.keep(nil)
			if before != &notLooked {
				l.log.Info("this node is no longer among nodes of another cluster")
			}
		case found != "":
			if before == nil || before == &notLooked {
				l.log.Error("this node is among nodes of another cluster and serves no requests", "reason", found)
			}
			l.keep(&found)
		}
		if wake.Pause(ctx, wake.Next(probe.WatchEvery)) != nil {
			return
		}
	}
}

// askStrangers calls each listed peer that is not a member at its listed address:
// see neighbours.called. The members of another cluster's folder have the same ids.
func (l *lookout) askStrangers(ctx context.Context) {
	servers := l.servers()
	wake.AtOnce(l.identity.listed, func(p probe.Peer) error {
		if server, member := Find(servers, p.ID); member && peer.PlainAddress(server.Address) == p.Address {
			return nil // the watch asks it
		}
		_, err := l.calls.Ask(ctx, p.ID, p.Address)
		return err
	})
}

// calledByFor is how long a call from a node of another cluster counts.
const calledByFor = 10 * time.Second

// neighbours knows which of the listed peers are of this node's cluster and which
// are of another one. A node that finds itself among nodes of another cluster was
// started on the wrong folder, or its list is wrong: it must not serve. Safe for
// concurrent use.
type neighbours struct {
	listed []probe.Peer // as configured, but for this node

	mu      sync.Mutex
	ours    map[string]bool     // by address: the last call found a node of this cluster
	foreign map[string]stranger // by address: the last call that was replied to found this
	caller  stranger            // who of another cluster called this node as its member last
	callAt  time.Time
	refused string // how a peer of this cluster has refused this node last
	refusAt time.Time
}

// stranger is a node of another cluster.
type stranger struct {
	cluster     fsm.ClusterID
	description string
}

func newNeighbours(self string, peers []probe.Peer) *neighbours {
	listed := slices.DeleteFunc(slices.Clone(peers), func(p probe.Peer) bool { return p.ID == self })
	return &neighbours{listed: listed, ours: map[string]bool{}, foreign: map[string]stranger{}}
}

// Called notes how the call of an address has ended.
func (n *neighbours) Called(address string, reason peer.Refusal, theirs *peer.Hello) {
	if !slices.ContainsFunc(n.listed, func(p probe.Peer) bool { return p.Address == address }) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if theirs.Refusal == peer.RefusedFolder || theirs.Refusal == peer.RefusedIncarnation {
		n.refused, n.refusAt = fmt.Sprintf("refused by %s: %s", theirs.Describe(address), theirs.Detail), time.Now()
	}
	switch reason {
	case 0, peer.RefusedKind, peer.RefusedFolder, peer.RefusedIncarnation:
		n.ours[address] = theirs.Standing != peer.StandingEmpty
		delete(n.foreign, address)
	case peer.RefusedCluster:
		n.foreign[address] = stranger{fsm.ClusterID(theirs.Cluster), theirs.Describe(address)}
		delete(n.ours, address)
	default: // not said whose it is
		delete(n.ours, address)
		delete(n.foreign, address)
	}
}

// calledBy notes that a node of another cluster has called this one as its member.
func (n *neighbours) calledBy(theirs *peer.Hello, from string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.caller, n.callAt = stranger{fsm.ClusterID(theirs.Cluster), theirs.Describe(from)}, time.Now()
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
//
// Nodes of a cluster from which this one was recovered return one by one, and are no
// reason to stop. But if a majority of the list is there, that cluster was not lost.
func (n *neighbours) strangers(cluster fsm.ClusterID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.listed) == 0 {
		if n.caller.description == "" || time.Since(n.callAt) > calledByFor || succeeds(cluster, n.caller.cluster) {
			return ""
		}
		return fmt.Sprintf("this node alone is cluster %v, and another cluster takes it for its member: %s", cluster, n.caller.description)
	}
	own, before := 1, 0
	var found []string
	for _, p := range n.listed {
		if who, is := n.foreign[p.Address]; is {
			found = append(found, who.description)
			if succeeds(cluster, who.cluster) {
				before++
			}
		} else if n.ours[p.Address] {
			own++
		}
	}
	majority := (len(n.listed)+1)/2 + 1
	if others := len(found) - before; before < majority && (others == 0 || others < own) {
		return ""
	}
	return fmt.Sprintf("this node belongs to cluster %v, and %d of the %d listed peers belong to another cluster: %s",
		cluster, len(found), len(n.listed), strings.Join(found, "; "))
}
