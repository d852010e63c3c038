package cluster

import (
	"fmt"
	"time"
)

// Check is one condition of readiness. A node is ready when all are OK.
type Check struct {
	Name   string // stable: "leader", "address", "cluster", "caught-up", "member", "storage", "state-hash", "draining"
	OK     bool
	Detail string // a sentence, also when it is OK
	// Moved is this node with its configured address, where the cluster has another
	// one for it and must be given this one; nil otherwise.
	Moved *Peer
}

// Checks looks whether the node should get requests. It does not block.
func (n *Node) Checks() []Check {
	l := n.life
	checks := []Check{l.checkLeader(), l.checkAddress(), l.checkCluster()}
	add := func(name string, ok bool, good, bad string) {
		detail := good
		if !ok {
			detail = bad
		}
		checks = append(checks, Check{Name: name, OK: ok, Detail: detail})
	}
	checks = append(checks, l.checkCaughtUp())
	add("member", !l.removed() && !l.exclusion.known(), "this node is a member of the cluster",
		"this node was removed from the cluster: stop it, or add it again")
	checks = append(checks, l.checkStorage())
	split, own := l.split.Load(), l.differs.Load()
	differ := ""
	switch {
	case split != nil:
		differ = "the members' states differ and none is a majority's, so that writes are refused: " + *split
	case own != nil:
		differ = "this node's state differs from the leader's: " + *own
	}
	add("state-hash", split == nil && own == nil, "no member's state differs", differ)
	add("draining", !l.draining.Load(), "this node takes requests", "this node is about to stop")
	return checks
}

// Ready reports whether all checks are OK.
func (n *Node) Ready() bool {
	for _, c := range n.Checks() {
		if !c.OK {
			return false
		}
	}
	return true
}

// checkLeader asks whether requests would find a leader.
func (l *life) checkLeader() Check {
	c := Check{Name: "leader"}
	r := l.raft()
	if r == nil {
		c.Detail = "this node waits for its peers, to form a cluster or to rejoin one"
		return c
	}
	_, id := r.LeaderWithID()
	switch {
	case id == "":
		c.Detail = "no leader is known"
	case string(id) == l.node.config.NodeID && l.node.established() == nil:
		c.Detail = "this node was elected and is about to lead"
	default:
		c.OK, c.Detail = true, fmt.Sprintf("the leader is %s", id)
	}
	return c
}

// checkAddress asks whether the others can reach this node. Addresses that differ
// do no harm as long as a leader is known: names may lead to the same place.
func (l *life) checkAddress() Check {
	c := Check{Name: "address", OK: true, Detail: "the cluster has this node's address"}
	self := *l.node.config.self()
	server, member := findServer(l.servers(), self.ID)
	if !member || string(server.Address) == self.Address {
		return c
	}
	c.OK, c.Moved = l.checkLeader().OK, &self
	c.Detail = fmt.Sprintf("the cluster has %s at %s, and it is configured at %s: the others may not reach it until a member with a leader is given the new address",
		self.ID, server.Address, self.Address)
	return c
}

// checkStorage asks whether this node can store what it gets.
func (l *life) checkStorage() Check {
	c := Check{Name: "storage"}
	stuck := l.node.config.Store.StuckFor()
	damage := l.node.config.Store.Damage()
	space := l.watchdog.spaceNow()
	switch {
	case damage != nil:
		c.Detail = damage.Error()
	case stuck > l.node.times().of(stallLimit):
		c.Detail = fmt.Sprintf("a write of the log hangs since %v", stuck.Round(time.Second))
	case space.Spent:
		c.Detail = fmt.Sprintf("the disk is full down to the reserve: %d bytes are free", space.Free)
	case space.Low: // ready, so that renewals and releases arrive
		c.OK, c.Detail = true, fmt.Sprintf("the disk is nearly full: %d bytes are free, for what keeps or ends leases", space.Free)
	default:
		c.OK, c.Detail = true, "the data folder can be written to"
	}
	return c
}
