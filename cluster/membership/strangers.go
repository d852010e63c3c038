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

// A node among nodes of another cluster has the wrong folder or the wrong list of peers, and must not serve. The port
// reports to evidence to which cluster each called node belongs. strangersCheck calls the listed peers repeatedly, and
// halts the node.

// evidence collects what calls have shown about the clusters of the listed peers. Safe for concurrent use.
type evidence struct {
	listed []probe.Peer // as configured, without this node

	mu        sync.Mutex
	ours      map[string]bool     // by address: the last call reached a node of this cluster
	foreign   map[string]stranger // by address: the node of another cluster that the last call reached
	caller    stranger            // the last node of another cluster that took this node for its member
	calledAt  time.Time
	refusal   string // the last refusal by a peer of this cluster
	refusedAt time.Time
}

type stranger struct {
	cluster     fsm.ClusterID
	description string
}

// evidenceAge is how long evidence counts a refusal, or a call from a node of another cluster.
const evidenceAge = 10 * time.Second

func newEvidence(self string, peers []probe.Peer) *evidence {
	listed := slices.DeleteFunc(slices.Clone(peers), func(p probe.Peer) bool { return p.ID == self })
	return &evidence{listed: listed, ours: map[string]bool{}, foreign: map[string]stranger{}}
}

// Called implements [peer.Identity]: it records the result of a call to an address.
func (e *evidence) Called(address string, reason peer.Refusal, remote *peer.Hello) {
	if !slices.ContainsFunc(e.listed, func(p probe.Peer) bool { return p.Address == address }) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if remote.Refusal == peer.RefusedFolder || remote.Refusal == peer.RefusedIncarnation {
		e.refusal, e.refusedAt = fmt.Sprintf("refused by %s: %s", remote.Describe(address), remote.Detail), time.Now()
	}
	switch reason {
	case 0, peer.RefusedKind, peer.RefusedFolder, peer.RefusedIncarnation:
		e.ours[address] = remote.Standing != peer.StandingEmpty
		delete(e.foreign, address)
	case peer.RefusedCluster:
		e.foreign[address] = stranger{fsm.ClusterID(remote.Cluster), remote.Describe(address)}
		delete(e.ours, address)
	default: // the refusal does not show the peer's cluster
		delete(e.ours, address)
		delete(e.foreign, address)
	}
}

// noteCaller records a node of another cluster that has called this node as its member.
func (e *evidence) noteCaller(remote *peer.Hello, from string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.caller, e.calledAt = stranger{fsm.ClusterID(remote.Cluster), remote.Describe(from)}, time.Now()
}

// refusedBy returns the last refusal of this node by a peer of its cluster if it is at most 10 s old, else "".
func (e *evidence) refusedBy() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refusal == "" || time.Since(e.refusedAt) > evidenceAge {
		return ""
	}
	return e.refusal
}

// strangers returns which nodes of another cluster keep this node from serving, or "". A node stops serving when at
// least as many listed peers belong to another cluster as to its own (it counts itself). A node without listed peers
// stops when a node of another cluster calls it.
//
// Exception: after this cluster was recovered from a lost cluster, single nodes of the lost cluster may come back, and
// do not count. If they are a majority of the list, however, that cluster was not lost.
func (e *evidence) strangers(cluster fsm.ClusterID) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.listed) == 0 {
		if e.caller.description == "" || time.Since(e.calledAt) > evidenceAge || succeeds(cluster, e.caller.cluster) {
			return ""
		}
		return fmt.Sprintf("this node alone is cluster %v, and another cluster takes it for its member: %s", cluster, e.caller.description)
	}
	ours, lost, other := 1, 0, 0
	var descriptions []string
	for _, p := range e.listed {
		node, foreign := e.foreign[p.Address]
		switch {
		case foreign && succeeds(cluster, node.cluster):
			lost++
		case foreign:
			other++
		case e.ours[p.Address]:
			ours++
		}
		if foreign {
			descriptions = append(descriptions, node.description)
		}
	}
	majority := (len(e.listed)+1)/2 + 1
	if lost >= majority || other > 0 && other >= ours {
		return fmt.Sprintf("this node belongs to cluster %v, and %d of the %d listed peers belong to another cluster: %s",
			cluster, lost+other, len(e.listed), strings.Join(descriptions, "; "))
	}
	return ""
}

// strangersCheck halts the node while it is among nodes of another cluster. Safe for concurrent use.
type strangersCheck struct {
	base
	halt   *halt
	reason atomic.Pointer[string] // why this node must not serve, else nil
}

// notChecked is the reason while a node that could commit alone has not asked its listed peers yet.
var notChecked = "this node has not asked its listed peers yet whether they belong to its cluster"

// begin halts this node if it could commit alone, until it has asked its listed peers. In a larger cluster, a commit
// needs a majority, so the other nodes are of the same cluster.
func (c *strangersCheck) begin() {
	voters := Voters(c.servers())
	if len(c.identity.listed) > 0 && len(voters) == 1 && string(voters[0].ID) == c.self {
		c.setReason(&notChecked)
	}
}

func (c *strangersCheck) setReason(reason *string) {
	c.reason.Store(reason)
	c.halt.set(outcome.ErrNoLeader, reason != nil)
}

// run asks the listed peers and updates the reason repeatedly, until ctx ends.
func (c *strangersCheck) run(ctx context.Context) {
	for {
		c.askPeers(ctx)
		if ctx.Err() != nil {
			return
		}
		c.update(c.identity.strangers(c.identity.bound()))
		if wake.Pause(ctx, wake.Next(probe.WatchEvery)) != nil {
			return
		}
	}
}

// askPeers calls the listed peers at their listed addresses; the port reports the results to evidence. It skips a peer
// that is a member at its listed address because the watch calls it. If a member has that id but another address, the
// node at the listed address may belong to another cluster that uses the same node ids.
func (c *strangersCheck) askPeers(ctx context.Context) {
	servers := c.servers()
	wake.AtOnce(c.identity.listed, func(p probe.Peer) error {
		if server, member := Find(servers, p.ID); member && peer.PlainAddress(server.Address) == p.Address {
			return nil
		}
		_, err := c.calls.Ask(ctx, p.ID, p.Address)
		return err
	})
}

// update sets the reason and logs the change. "" means no reason.
func (c *strangersCheck) update(reason string) {
	before := c.reason.Load()
	among := before != nil && before != &notChecked
	switch {
	case reason != "":
		if !among {
			c.log.Error("this node is among nodes of another cluster and serves no requests", "reason", reason)
		}
		c.setReason(&reason)
	case before != nil:
		c.setReason(nil)
		if among {
			c.log.Info("this node is no longer among nodes of another cluster")
		}
	}
}
