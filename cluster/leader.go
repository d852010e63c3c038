package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

const (
	// barrierTimeout bounds how long a new leader's machine may take to catch up
	// with the log before it tries anew: after a restart it may have much to apply.
	barrierTimeout = 30 * time.Second
	// reignTimeout bounds the first entry of a reign.
	reignTimeout = 5 * time.Second
	// beginAgain is the pause before a leader that could not begin tries again.
	beginAgain = 100 * time.Millisecond
)

// errReignOver is why a reign's context ends.
var errReignOver = errors.New("the reign is over")

// leadership begins a reign when this node wins an election and ends it when it
// loses. One goroutine, run, does both, one after the other, so there are never
// two proposers. Another, drain, does nothing but empty Raft's notifications: a
// reader that is late would stop Raft's main loop.
type leadership struct {
	log     hclog.Logger
	raft    *raft.Raft
	self    string
	machine *machine
	acks    *AckClock
	limits  fsm.Limits
	// open makes the proposer of a reign.
	open func(term uint64, c *clock) *proposer
	// hire makes the courier of a reign.
	hire func(p *proposer) *courier
	// cluster returns the cluster's id as this node's folder has it; zero: unknown.
	cluster func() fsm.ClusterID
	// jump reports whether the counters must skip what may have been given out.
	jump func() bool
	// changed is told when a reign is established, or is over.
	changed func()

	news    chan struct{} // has room for one: look again
	current atomic.Pointer[reign]
}

// drain empties Raft's notifications into the news until they are closed.
func (l *leadership) drain(notifications <-chan bool) {
	for range notifications {
		l.look()
	}
}

// look makes run compare its reign with what Raft says now.
func (l *leadership) look() {
	signal(l.news)
}

// established answers the reign of this node, or nil while it does not lead or
// can't yet: its machine has applied the first entry of the reign's term.
func (l *leadership) established() *reign { return l.current.Load() }

// run begins and ends reigns until ctx ends. It returns once the last is over.
func (l *leadership) run(ctx context.Context) {
	defer l.end()
	for ctx.Err() == nil {
		term, leads := l.raft.CurrentTerm(), l.raft.State() == raft.Leader
		now := l.established()
		if now != nil && (!leads || now.term != term) {
			l.end()
			now = nil
		}
		var again <-chan time.Time
		if leads && now == nil && !l.begin(ctx, term) {
			again = time.After(beginAgain)
		}
		select {
		case <-l.news:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// begin establishes a reign: the machine catches up with everything that earlier
// leaders may have acknowledged, the first entry names the term, and from its
// stamp on time is this node's.
func (l *leadership) begin(ctx context.Context, term uint64) bool {
	wait, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	if err := await(wait, l.raft.Barrier(barrierTimeout)); err != nil {
		l.log.Warn("the machine has not caught up with the log", "term", term, "error", err)
		return false
	}
	c := newClock(l.machine.nowMS())
	if err := l.crown(ctx, term, c); err != nil {
		l.log.Warn("the first entry of a reign failed", "term", term, "error", err)
		return false
	}
	p := l.open(term, c)
	r := startReign(p, l.machine, l.hire(p))
	l.current.Store(r)
	r.courier.lookAtAll() // now that it is told of what comes
	l.log.Info("leading", "term", term)
	l.changed()
	return true
}

// crown logs the reign entry, past the proposer, which does not run yet.
func (l *leadership) crown(ctx context.Context, term uint64, c *clock) error {
	first := fsm.Envelope{}.Encode(l.firstEntry(term))
	ctx, cancel := context.WithTimeout(ctx, reignTimeout)
	defer cancel()
	future := l.raft.Apply(encodeEntry(term, c.stamp(), [][]byte{first}), enqueueTimeout)
	if err := await(ctx, future); err != nil {
		return err
	}
	err, _ := future.Response().(error)
	return err
}

// firstEntry returns the reign entry of a term. A state that has no cluster id yet
// gets that of the folder, or a new one if it is older than ids are, and begins at
// the highest level of this program. Any other keeps its
// level: another member may know no higher one.
func (l *leadership) firstEntry(term uint64) fsm.Reign {
	first := fsm.Reign{Term: term, Leader: l.self, Limits: l.limits, Jump: l.jump()}
	l.machine.view(func(m *fsm.Machine) { first.Cluster, first.Level = m.ClusterID(), m.FeatureLevel() })
	if first.Cluster == (fsm.ClusterID{}) {
		first.Level = fsm.FeatureLevel
		if first.Cluster = l.cluster(); first.Cluster == (fsm.ClusterID{}) {
			first.Cluster = drawUpgradedID()
		}
	}
	return first
}

// end ends the present reign, if there is one, and waits until it makes no
// further entry. Callers of earlier entries may still wait for Raft.
func (l *leadership) end() {
	r := l.current.Swap(nil)
	if r == nil {
		return
	}
	l.acks.EndTerm(r.term)
	r.stop()
	l.log.Info("no longer leading", "term", r.term)
	l.changed()
}

// await waits for a future, which Raft may never answer while it shuts down.
func await(ctx context.Context, future raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- future.Error() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
