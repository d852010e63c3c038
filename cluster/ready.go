package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// readyEvery is how often a node checks whether it still knows a leader, and the shortest time between its reads
	// while it is not caught up.
	readyEvery = 100 * time.Millisecond
	// readyTimeout bounds one attempt to read; after it the node tries again.
	readyTimeout = 2 * time.Second
	// readyProof is how often a node that is caught up reads to confirm that it still is.
	readyProof = time.Second
	// readyPatience is how long such reads may fail before the node is no longer ready: as long as a client's read
	// waits.
	readyPatience = calls.ReadTimeout
)

// Check is one condition of readiness. A node is ready when all are OK.
type Check struct {
	Name   string // stable: "leader", "address", "cluster", "caught-up", "member", "storage", "state-hash", "draining"
	OK     bool
	Detail string // a sentence, also when it is OK
	// Moved is set while the cluster has another address for this node than its configuration. It is this node with the
	// configured address, which the cluster must get.
	Moved *Peer
}

// checker makes the checks of a node at one moment.
type checker struct {
	node    *Node
	running *raftParts // nil until Raft runs
}

// check returns a check with the detail good or bad.
func check(name string, ok bool, good, bad string) Check {
	if ok {
		return Check{Name: name, OK: true, Detail: good}
	}
	return Check{Name: name, Detail: bad}
}

// leader checks whether requests would find a leader.
func (k checker) leader() Check {
	c, r := Check{Name: "leader"}, k.running
	if r == nil {
		c.Detail = "this node waits for its peers, to form a cluster or to rejoin one"
		return c
	}
	_, id := r.raft.LeaderWithID()
	switch {
	case id == "":
		c.Detail = "no leader is known"
	case string(id) == k.node.config.NodeID && r.leadership.Established() == nil:
		c.Detail = "this node was elected and is about to lead"
	default:
		c.OK, c.Detail = true, fmt.Sprintf("the leader is %s", id)
	}
	return c
}

// address checks whether the other members can reach this node. A different address does no harm as long as a leader is
// known: for example, two names may lead to the same host.
func (k checker) address() Check {
	c := Check{Name: "address", OK: true, Detail: "the cluster has this node's address"}
	self := *k.node.config.self()
	server, member := membership.Find(k.node.joining.Servers(), self.ID)
	if !member || peer.PlainAddress(server.Address) == self.Address {
		return c
	}
	c.OK, c.Moved = k.leader().OK, &self
	c.Detail = fmt.Sprintf("the cluster has %s at %s, and it is configured at %s: the others may not reach it until a member with a leader is given the new address",
		self.ID, peer.PlainAddress(server.Address), self.Address)
	return c
}

// cluster checks whether this node has joined its cluster, and is not in another cluster.
func (k checker) cluster() Check {
	c := Check{Name: "cluster"}
	strangers := ""
	if k.running != nil {
		strangers = k.running.members.Strangers()
	}
	delayed := k.node.joining.Delayed()
	switch {
	case strangers != "":
		c.Detail = strangers
	case delayed != "":
		c.Detail = delayed
	case k.node.joining.Cluster() == (fsm.ClusterID{}):
		c.Detail = "this node does not know its cluster's id yet"
	default:
		c.Detail = k.node.joining.LastRefusal()
		if c.OK = c.Detail == "" || k.leader().OK; c.OK {
			c.Detail = fmt.Sprintf("this node belongs to cluster %v", k.node.joining.Cluster())
		}
	}
	return c
}

// member checks whether this node is in the cluster, as far as it knows.
func (k checker) member() Check {
	return check("member", k.running == nil || !k.running.members.Removed(), "this node is a member of the cluster",
		"this node was removed from the cluster: stop it, or add it again")
}

// stateHash checks whether this node has the same state as the others.
func (k checker) stateHash() Check {
	c := Check{Name: "state-hash", OK: true, Detail: "no member's state differs"}
	if k.running == nil {
		return c
	}
	if split := k.running.members.Split(); split != "" {
		c.OK, c.Detail = false, "the members' states differ and none is a majority's, so that writes are refused: "+split
	} else if difference := k.running.members.Differs(); difference != "" {
		c.OK, c.Detail = false, "this node's state differs from the leader's: "+difference
	}
	return c
}

// storage checks whether this node can store entries.
func (k checker) storage() Check {
	c := Check{Name: "storage"}
	stuck := stuckFor(k.node)
	damage := k.node.config.Store.Damage()
	space := k.running.space()
	switch {
	case damage != nil:
		c.Detail = damage.Error()
	case stuck > k.node.times.Of(stallLimit):
		c.Detail = fmt.Sprintf("a write of the log has hung for %v", stuck.Round(time.Second))
	case space.Spent:
		c.Detail = fmt.Sprintf("the disk is full down to the reserve: %d bytes are free", space.Free)
	case space.Low: // ready, so that renewals and releases arrive
		c.OK, c.Detail = true, fmt.Sprintf("the disk is nearly full: %d bytes are free, for what keeps or ends leases", space.Free)
	default:
		c.OK, c.Detail = true, "the data folder can be written to"
	}
	return c
}

// caughtUp returns the result of the last reads.
func (k checker) caughtUp() Check {
	c := Check{Name: "caught-up", Detail: "this node has not yet applied what the leader had committed"}
	if k.running == nil {
		return c
	}
	switch found := k.running.caughtUp.Load(); {
	case found == nil:
	case found.ok:
		c.OK, c.Detail = true, "this node has applied what the leader had committed"
	default:
		c.Detail = found.why
	}
	if !c.OK && k.node.replica.RestorePending() {
		c.Detail = "this node has the state of a restore that is not in force; if that lasts, the other members went on without it: " +
			"restart this node, and if it still says so stop it, empty its data folder and start it"
	}
	return c
}

// readProof sets a node's caughtUp by linearizable reads: a read must have succeeded since the node knows the leader,
// and again recently. The node's own indexes prove too little, because after a restart Raft knows neither the committed
// nor the applied index. Only the goroutine of run uses its fields.
type readProof struct {
	node    *Node
	running *raftParts
	results chan readResult // of the read under way
	reading bool            // a read is under way
	lost    int             // how often the leader has been lost
	began   time.Time       // when the last read began
	proven  time.Time       // when a read succeeded last
}

func newReadProof(n *Node, r *raftParts) *readProof {
	return &readProof{node: n, running: r, results: make(chan readResult, 1)}
}

// readResult is the result of a read. lost is how often the leader had been lost when the read began.
type readResult struct {
	lost int
	err  error
}

// run reads until ctx ends.
func (p *readProof) run(ctx context.Context) {
	look := time.NewTimer(wake.Next(readyEvery))
	defer look.Stop()
	for {
		p.look(ctx)
		select {
		case r := <-p.results:
			p.judge(r)
		case <-look.C:
			look.Reset(wake.Next(readyEvery))
		case <-ctx.Done():
			return
		}
	}
}

// look begins a read if one is due.
func (p *readProof) look(ctx context.Context) {
	if !(checker{p.node, p.running}).leader().OK {
		p.lost++
		p.running.caughtUp.Store(nil)
		return
	}
	found := p.running.caughtUp.Load()
	pause := readyEvery // also between reads that fail at once
	if found != nil && found.ok {
		pause = readyProof
	}
	// The next read is due at the wall clock's first multiple of pause after the last one: nodes whose clocks agree share the cost.
	if p.reading || time.Since(p.began) < pause-time.Duration(p.began.UnixNano())%pause {
		return
	}
	p.reading, p.began = true, time.Now()
	lost, known := p.lost, found != nil && found.ok
	go func() {
		try, cancel := context.WithTimeout(ctx, p.node.times.Of(readyTimeout))
		defer cancel()
		_, err := p.node.Read(try, calls.Consistency{})
		if err == nil && !known {
			err = p.running.members.MatchLeader(try)
		}
		p.results <- readResult{lost, err} // never blocks: there is only one read at a time
	}()
}

// judge records the result of a read, unless the leader was lost since the read began.
func (p *readProof) judge(r readResult) {
	p.reading = false
	if r.lost != p.lost {
		return
	}
	found := p.running.caughtUp.Load()
	switch {
	case r.err == nil:
		p.proven = time.Now()
		p.running.caughtUp.Store(&catchUp{ok: true})
	case found != nil && time.Since(p.proven) >= p.node.times.Of(readyPatience):
		if found.ok {
			p.node.log.Warn("not ready: linearizable reads fail here", "error", r.err)
		}
		p.running.caughtUp.Store(&catchUp{why: fmt.Sprintf("linearizable reads have failed on this node for %v: %v",
			time.Since(p.proven).Round(time.Second), r.err)})
	}
}
