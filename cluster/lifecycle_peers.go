package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// answer describes this node to another one.
func (l *life) answer(q probeRequest) probeAnswer {
	n := l.node
	a := probeAnswer{
		Node: n.config.NodeID, Incarnation: l.identity.incarnation, Peers: peerList(n.config.Peers), Knows: fsm.FeatureLevel,
		Draining: l.draining.Load(), State: l.found,
		StorageLow: l.watchdog.spaceNow().Low, StorageSpent: l.watchdog.spaceNow().Spent,
		Folder: l.identity.folder, Cluster: clusterText(l.identity.bound()), Restored: l.restored,
	}
	if proposal := l.proposal.Load(); proposal != nil {
		a.Forms = clusterText(*proposal)
	}
	r := l.raft()
	if r == nil {
		return a
	}
	a.State = stateLive
	if r.LastIndex() == 1 { // only ever the first configuration
		a.State = stateFormed
	}
	address, id := r.LeaderWithID()
	a.Leader, a.LeaderAddress = string(id), string(address)
	a.Term, a.Commit, a.Applied = r.CurrentTerm(), r.CommitIndex(), n.machine.progress.reached.Load()
	index, servers, _ := l.configs.current()
	_, member := findServer(servers, q.From)
	a.Configuration, a.Member = index, member
	a.Hashes = l.hashes.all()
	if q.State != nil {
		a.Common = l.hashes.at(q.State.Index)
	}
	return a
}

// serve does what another node asks for, but for probeAsk.
func (l *life) serve(ctx context.Context, q probeRequest) (probeReply, error) {
	if l.raft() == nil {
		return probeReply{}, errNotEstablished
	}
	m := l.members
	switch q.Kind {
	case probeRejoin:
		if level := l.node.machine.level.Load(); q.Level < level {
			return probeReply{}, fmt.Errorf("%w: %s knows feature level %d, the cluster is at %d", ErrMemberInvalid, q.ID, q.Level, level)
		}
		term, err := m.readmit(ctx, q.ID, q.Address, q.by, q.origin)
		return probeReply{Term: term, Cluster: clusterText(l.identity.bound())}, err
	case probeAdd:
		return probeReply{}, m.add(ctx, q.ID, q.Address)
	case probeRemove:
		if q.ID == m.self {
			return probeReply{}, l.abdicate(ctx)
		}
		return probeReply{}, m.remove(ctx, q.ID)
	case probeTransfer:
		return probeReply{}, m.transfer(ctx, q.ID)
	case probeRaise:
		return probeReply{}, m.raise(ctx, q.Level)
	case probeRemoved:
		l.node.log.Warn("told by the leader that this node was removed from the cluster", "leader", q.From)
		return probeReply{}, nil // the watch finds out whether it is so
	}
	return probeReply{}, errUnknownCall
}

// servers are the members of the latest configuration that this node has.
func (l *life) servers() []raft.Server {
	r := l.raft()
	if r == nil {
		return nil
	}
	return r.GetConfiguration().Configuration().Servers // never blocks
}

// removed reports whether this node's own latest configuration lacks it. Raft does
// not campaign then.
func (l *life) removed() bool {
	servers := l.servers()
	_, member := findServer(servers, l.node.config.NodeID)
	return len(servers) > 0 && !member
}

// round looks at what the others have answered.
func (l *life) round() {
	seen := l.watch.all()
	l.compareHashes(seen)
	l.countFullPeers(seen)
	l.lookForRemoval(seen)
}

// compareHashes stops this node if its state is not the majority's, and keeps
// whether the members disagree without a majority.
func (l *life) compareHashes(seen map[string]peerSeen) {
	self := l.node.config.NodeID
	own := l.hashes.all()
	told := map[string][]stateHash{}
	for id, s := range seen {
		told[id] = s.answer.Hashes
		if common := s.answer.Common; common != nil {
			told[id] = append(slices.Clone(told[id]), *common)
			if at := l.hashes.at(common.Index); at != nil && !slices.Contains(own, *at) {
				own = append(own, *at)
			}
		}
	}
	told[self] = own
	verdict, text := judgeHashes(self, told, len(l.servers()))
	switch verdict {
	case hashesOdd:
		l.node.fatal(fmt.Errorf("%w: %s; move its data folder away and start it again, and it rejoins from the others", ErrStateDiffers, text))
	case hashesSplit:
		if l.split.Swap(&text) == nil {
			l.node.log.Error("the members' states differ and none is a majority's: no writes are taken", "hashes", text)
		}
	case hashesAgree:
		if l.split.Swap(nil) != nil {
			l.node.log.Info("a majority of the members has the same state again")
		}
	}
}

// leaderCall does something that only the leader can: here if this node leads, else
// by asking the leader. It looks for one for up to 5 s.
func (n *Node) leaderCall(ctx context.Context, q probeRequest) error {
	ctx, cancel := context.WithTimeout(ctx, n.times().of(probeCallTimeout))
	defer cancel()
	for began := time.Now(); ; {
		err := n.life.askLeader(ctx, q)
		if !retryable(err) || time.Since(began) > n.times().patience(holdTimeout) {
			return leaderless(err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-n.stopping.Done():
			return ErrDraining
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// askLeader tries once.
func (l *life) askLeader(ctx context.Context, q probeRequest) error {
	r := l.raft()
	if r == nil {
		return ErrNoLeader
	}
	address, id := r.LeaderWithID()
	switch {
	case id == "":
		return ErrNoLeader
	case string(id) == l.node.config.NodeID:
		ctx, cancel := context.WithTimeout(ctx, probeServeTimeout)
		defer cancel()
		_, err := l.serve(ctx, q)
		return err
	}
	_, err := l.calls.call(ctx, string(address), q)
	return err
}

// retryable reports that nothing was done, or nothing that doing it again would
// spoil, and that it may go well with another leader or a moment later.
func retryable(err error) bool {
	for _, passes := range []error{ErrNoLeader, errNotEstablished, errUnreached, errConfigurationChanged} {
		if errors.Is(err, passes) {
			return true
		}
	}
	return false
}

// leaderless tells a caller outside this package that the leader was not found.
func leaderless(err error) error {
	if retryable(err) && !errors.Is(err, ErrNoLeader) {
		return fmt.Errorf("%w: %w", ErrNoLeader, err)
	}
	return err
}

// abdicate hands leadership over so that the next leader can remove this node, and
// sends the caller on to it.
func (l *life) abdicate(ctx context.Context) error {
	_, servers, _ := l.configs.current()
	if _, member := findServer(servers, l.node.config.NodeID); !member {
		return nil
	}
	if err := l.members.checkRemoval(servers, l.node.config.NodeID); err != nil {
		return err
	}
	if err := l.members.transfer(ctx, ""); err != nil {
		return err
	}
	return errNotEstablished
}
