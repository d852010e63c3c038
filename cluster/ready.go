package cluster

import (
	"context"
	"fmt"
	"time"
)

const (
	// readyEvery is how often a node looks whether it still knows a leader.
	readyEvery = 100 * time.Millisecond
	// readyTimeout bounds one attempt to catch up; then it is tried again.
	readyTimeout = 2 * time.Second
)

// Check is one condition of readiness. A node is ready when all are OK.
type Check struct {
	Name   string // stable: "leader", "cluster", "caught-up", "member", "storage", "state-hash", "draining"
	OK     bool
	Detail string // a sentence, also when it is OK
}

// Checks looks whether the node should get requests. It does not block.
func (n *Node) Checks() []Check {
	l := n.life
	checks := []Check{l.checkLeader(), l.checkCluster()}
	add := func(name string, ok bool, good, bad string) {
		detail := good
		if !ok {
			detail = bad
		}
		checks = append(checks, Check{Name: name, OK: ok, Detail: detail})
	}
	add("caught-up", l.caughtUp.Load(), "this node has applied what the leader had committed",
		"this node has not yet applied what the leader had committed")
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

// keepReady keeps caughtUp, until ctx ends: it is set once this node's machine has
// what the leader confirms as committed after this node came to know it, and
// cleared when the leader is gone. After a restart Raft remembers neither what was
// committed nor what was applied, so that a node's own indexes prove nothing.
func (l *life) keepReady(ctx context.Context) {
	for {
		known := l.checkLeader().OK
		if !known {
			l.caughtUp.Store(false)
		} else if !l.caughtUp.Load() {
			try, cancel := context.WithTimeout(ctx, l.node.times().of(readyTimeout))
			_, err := l.node.Read(try, Consistency{})
			if err == nil {
				err = l.matchLeader(try)
			}
			cancel()
			if err == nil {
				l.caughtUp.Store(true)
			}
		}
		if pause(ctx, readyEvery) != nil {
			return
		}
	}
}
