package cluster

import (
	"context"
	"errors"
	"math"
	"time"
)

// A process has 5 s from SIGTERM to its end. Each step has its share, whatever the
// disk and the other nodes do.
const (
	// shutDownPause is before Raft is shut down: it is idle by then.
	shutDownPause = time.Millisecond
	// drainTimeout bounds Drain, and the draining in Close.
	drainTimeout = 1800 * time.Millisecond
	// handOverTimeout bounds the handing over of leadership, and the waiting until
	// another leader is seen.
	handOverTimeout = 1200 * time.Millisecond
	// workTimeout bounds the end of the node's own goroutines, and once more that
	// of the entries in flight.
	workTimeout = 400 * time.Millisecond
	// raftShutdownTimeout bounds Raft's own end.
	raftShutdownTimeout = 700 * time.Millisecond
	// portTimeout bounds the end of the port's handlers.
	portTimeout = 300 * time.Millisecond
)

var (
	errRaftRuns    = errors.New("raft has not ended in time")
	errPortRuns    = errors.New("the peer port has not ended in time")
	errNotAnswered = errors.New("not all calls were answered in time")
)

// Drain makes the node not ready, ends the waits of its callers and takes no
// further calls: those of ordinary sessions are answered as still waiting, those for
// a wait list with nothing ready, and their places are kept; one-shots with a key get
// ErrDraining, their place kept for the repeat on another node; other one-shots are
// withdrawn first. It blocks until every call is answered, at most 1.8 s.
func (n *Node) Drain() { n.drain(context.Background()) }

func (n *Node) drain(ctx context.Context) {
	n.life.draining.Store(true)
	n.calls.drain()
	ctx, cancel := context.WithTimeoutCause(ctx, drainTimeout, errNotAnswered)
	defer cancel()
	if err := n.calls.await(ctx); err != nil {
		n.log.Warn("drained in part", "error", err)
	}
}

// Close drains the node, if that is not done, hands leadership over, once, and stops
// it, within 5 s in all. Once ctx has ended it neither drains nor hands over any
// more. Later calls return the same.
//
// An error says what had not ended in time; the process may exit nevertheless.
// While a write hangs on the disk, Raft can't end, and closing the store would
// block.
func (n *Node) Close(ctx context.Context) error {
	n.closeOnce.Do(func() {
		n.drain(ctx)
		n.handOver(ctx)
		last := n.established()
		n.stop()
		within(workTimeout, n.running.Wait)
		if last != nil {
			within(workTimeout, last.landed)
		}
		n.closeErr = n.abort()
	})
	return n.closeErr
}

// handOver gives leadership to another node, so that the cluster need not find out
// that this one is gone, and waits until a leader is seen.
func (n *Node) handOver(ctx context.Context) {
	if n.established() == nil || ctx.Err() != nil || len(votersOf(n.life.servers())) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTimeout)
	defer cancel()
	// One attempt: a second one, against a target that hangs, could leave Raft
	// refusing everything (raft#696).
	if err := n.life.members.transfer(ctx, ""); err != nil {
		n.log.Warn("leadership was not handed over", "error", err)
		return
	}
	for {
		if _, id := n.raft.LeaderWithID(); id != "" && string(id) != n.config.NodeID {
			return
		}
		if pause(ctx, 5*time.Millisecond) != nil {
			n.log.Warn("leadership was handed over, but no leader was seen in time")
			return
		}
	}
}

// within calls something that may take longer, and waits that long at most.
func within(limit time.Duration, f func()) (ended bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// abort stops what open has started: Raft, which closes its transport, and the
// port.
func (n *Node) abort() error {
	n.stop()
	n.acks.EndTerm(math.MaxUint64)
	var errs []error
	if n.life.raft() != nil {
		errs = append(errs, n.shutDownRaft())
	} else if n.transport != nil {
		errs = append(errs, n.transport.Close())
	}
	if n.port != nil {
		closed := make(chan error, 1)
		if within(portTimeout, func() { closed <- n.port.Close() }) {
			errs = append(errs, <-closed)
		} else {
			errs = append(errs, errPortRuns)
		}
	}
	return errors.Join(errs...)
}

// shutDownRaft ends Raft, and the draining of its notifications once it has.
func (n *Node) shutDownRaft() error {
	ended := make(chan error, 1)
	go func() {
		// What Raft has been asked just before, as the barrier of a reign, is to be taken
		// in first: left in its queue, it would never be answered.
		<-time.After(shutDownPause)
		future := n.raft.Shutdown()
		_ = n.transport.Close() // else messages under way to dead peers would be waited for
		ended <- future.Error() // waits for Raft's goroutines
		close(n.raftNews)
	}()
	timer := time.NewTimer(raftShutdownTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return errRaftRuns
	}
}
