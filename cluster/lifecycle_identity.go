package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// errStateUnmatched says that the leader has not compared its state with this node's.
var errStateUnmatched = errors.New("the leader has no state hash at this node's index")

// notLooked keeps a node that could commit alone from serving before it has asked
// its listed peers whose they are.
var notLooked = "this node has not asked its listed peers yet whether they belong to its cluster"

// settle finds out, before the peer port opens, what the folder makes of this node.
func (l *life) settle() error {
	s := l.node.config.Store
	var err error
	if l.found, err = folderState(s.Logs(), s.Stable(), s.Snapshots()); err != nil {
		return err
	}
	l.restored = l.node.config.Restored || s.Restored() != 0
	if l.found == stateEmpty {
		l.identity.stand(standingEmpty)
		return nil
	}
	if s.ClusterID() == "" {
		l.identity.stand(standingOld)
		return nil
	}
	cluster, err := fsm.ParseClusterID(s.ClusterID())
	if err != nil {
		return fmt.Errorf("the cluster of the data folder: %w", err)
	}
	l.identity.bind(cluster)
	return nil
}

// bindTo takes the cluster's id that the machine has come to. It is called by the
// apply goroutine; it writes to the folder only the first time.
func (l *life) bindTo(cluster fsm.ClusterID) {
	bound := l.identity.bound()
	if cluster == (fsm.ClusterID{}) || cluster == bound {
		return
	}
	if bound != (fsm.ClusterID{}) {
		l.node.fatal(fmt.Errorf("the data folder belongs to cluster %v, and the state in it to cluster %v: move the folder away and start this node again, and it rejoins", bound, cluster))
		return
	}
	if err := l.node.config.Store.SetClusterID(cluster.String()); err != nil {
		l.node.fatal(fmt.Errorf("note the cluster's id: %w", err))
		return
	}
	l.identity.bind(cluster)
	l.node.log.Info("the cluster has an id now", "cluster", cluster)
}

// memberAt returns the id of the member with that address, marked or not.
func (l *life) memberAt(address string) string {
	for _, s := range l.servers() {
		if string(s.Address) == address || plainAddress(s.Address) == address {
			return string(s.ID)
		}
	}
	for _, p := range l.node.config.Peers {
		if p.Address == address {
			return p.ID
		}
	}
	return ""
}

// admittedFolder returns the folder that was admitted under a node id, as the latest
// configuration in this node's log says. A node whose configuration is older than what
// others have committed knows of none: it would refuse a leader that was admitted with
// another folder since, and could not catch up while that one leads. Whom this node
// dials it still knows by its mark.
func (l *life) admittedFolder(node string) (store.FolderID, bool) {
	server, _ := findServer(l.servers(), node)
	_, folder := splitAddress(server.Address)
	return folder, folder != (store.FolderID{}) && !l.outdated()
}

// outdated reports whether another member knows a later committed configuration.
func (l *life) outdated() bool {
	index, _, _ := l.configs.current()
	for _, other := range l.watch.all() {
		if other.up() && other.answer.Configuration > index {
			return true
		}
	}
	return false
}

// alone reports whether this node could commit without others, though it has a list
// of peers.
func (l *life) alone() bool {
	voters := votersOf(l.node.raft.GetConfiguration().Configuration().Servers) // never blocks
	return len(l.identity.neighbours.listed) > 0 && len(voters) == 1 && string(voters[0].ID) == l.node.config.NodeID
}

// lookAround asks the listed peers that are no members whose they are, and keeps
// whether this node is among nodes of another cluster, until ctx ends.
func (l *life) lookAround(ctx context.Context) {
	for {
		l.askStrangers(ctx)
		found := l.identity.neighbours.strangers(l.identity.bound())
		before := l.strangers.Load()
		switch {
		case ctx.Err() != nil:
			return
		case found == "" && before != nil:
			l.strangers.Store(nil)
			l.node.router.look()
			if before != &notLooked {
				l.node.log.Info("this node is no longer among nodes of another cluster")
			}
		case found != "":
			if before == nil || before == &notLooked {
				l.node.log.Error("this node is among nodes of another cluster and serves nobody", "reason", found)
			}
			l.strangers.Store(&found)
		}
		if pause(ctx, watchEvery) != nil {
			return
		}
	}
}

// askStrangers calls each listed peer that is no member: see neighbours.called.
func (l *life) askStrangers(ctx context.Context) {
	servers := l.servers()
	var asking sync.WaitGroup
	for _, p := range l.identity.neighbours.listed {
		if _, member := findServer(servers, p.ID); member {
			continue // called often enough
		}
		asking.Go(func() { _, _ = l.calls.ask(ctx, p.ID, p.Address) })
	}
	asking.Wait()
}

// checkCluster asks whether this node has come into its cluster, and is in no other.
func (l *life) checkCluster() Check {
	c := Check{Name: "cluster"}
	strangers, coming := l.strangers.Load(), l.coming.Load()
	switch {
	case strangers != nil:
		c.Detail = *strangers
	case coming != nil:
		c.Detail = *coming
	case l.identity.bound() == (fsm.ClusterID{}):
		c.Detail = "this node does not know its cluster's id yet"
	default:
		c.Detail = l.identity.neighbours.outcast()
		if c.OK = c.Detail == "" || l.checkLeader().OK; c.OK {
			c.Detail = fmt.Sprintf("this node belongs to cluster %v", l.identity.bound())
		}
	}
	return c
}

// matchLeader compares this node's state with the leader's, at the last index that
// this node's machine has come to.
func (l *life) matchLeader(ctx context.Context) error {
	address, id := l.node.raft.LeaderWithID()
	if string(id) == l.node.config.NodeID {
		l.differs.Store(nil)
		return nil // a majority has elected it, and compares itself with it
	}
	own := l.hashes.latest()
	if own == nil {
		return errStateUnmatched
	}
	link := probeLink{calls: l.calls, id: string(id), address: string(address)}
	defer link.close()
	reply, err := link.call(ctx, probeRequest{Kind: probeAsk, State: own})
	switch {
	case err != nil:
		return err
	case reply.Answer == nil || reply.Answer.Common == nil || reply.Answer.Common.Index != own.Index:
		return errStateUnmatched
	case *reply.Answer.Common != *own:
		text := describeHashes(own.Index, map[string][16]byte{l.node.config.NodeID: own.Hash, string(id): reply.Answer.Common.Hash})
		if l.differs.Swap(&text) == nil {
			l.node.log.Error("this node's state differs from the leader's: it stays out of service", "hashes", text)
		}
		return ErrStateDiffers
	}
	l.differs.Store(nil)
	return nil
}

// noteRestored records that the folder was put back, unless a member is alive whose
// folder was not: this node's would have forgotten what it has acknowledged to it.
func (l *life) noteRestored(ctx context.Context) error {
	if l.found == stateEmpty {
		return errors.New("the data folder is empty: there is nothing that was restored")
	}
	if err := l.checkRestored(ctx); err != nil {
		return err
	}
	s := l.node.config.Store
	if s.Restored() != 0 {
		return nil // by an earlier start; no leader has dealt with it yet
	}
	term, err := s.Stable().GetUint64(keyCurrentTerm)
	if err != nil {
		return fmt.Errorf("look into the data folder: %w", err)
	}
	return s.SetRestored(term)
}

// checkRestored asks all listed peers at once whether their folders were put back.
func (l *life) checkRestored(ctx context.Context) error {
	listed := l.identity.neighbours.listed
	errs := make([]error, len(listed))
	var asking sync.WaitGroup
	for i, p := range listed {
		asking.Go(func() {
			answer, err := l.calls.ask(ctx, p.ID, p.Address)
			switch {
			case refusedFor(err, refusedIncarnation), refusedFor(err, refusedFolder):
				errs[i] = err
			case err == nil && answer.State != stateEmpty && !answer.Restored:
				errs[i] = fmt.Errorf("member %s at %s is alive and its folder was not restored: stop all members and restore each, or start this one with an empty folder", p.ID, p.Address)
			}
		})
	}
	asking.Wait()
	return errors.Join(errs...)
}

// jumped clears the record of a restored folder once a leader has dealt with it: in
// an entry of a later term than any before, and not one that the folder had already.
func (l *life) jumped(entry *fsm.Applied) {
	s := l.node.config.Store
	if since := s.Restored(); !entry.Jump || since == 0 || entry.Term <= since {
		return
	}
	if err := s.SetRestored(0); err != nil { // the next term jumps again, which is harmless
		l.node.log.Warn("the folder still counts as restored", "error", err)
	}
}
