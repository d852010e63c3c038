package cluster

import "github.com/signalbox/signalbox/fsm"

// A leader that can take no writes must not let cluster time go on: renewals would
// be refused while leases end. So there are two marks. Below the first one, the
// watermark, what grows the state is refused, and what keeps or ends leases is
// taken. Below the second one, the reserve, while the members' states differ, and
// while this node is among nodes of another cluster, nothing is taken and time stands
// still, as without a leader.

// refuses returns why this node, as the leader, must not take a command now, or
// nil. It does not block.
func (l *life) refuses(command []byte) error {
	if err := l.standstill(); err != nil {
		return err
	}
	if l.watchdog.spaceNow().Low && fsm.OpOf(command).MayGrow() {
		return ErrStorageFull
	}
	return nil
}

// standstill returns why no command at all may be taken and cluster time must
// stand still, or nil. It does not block.
func (l *life) standstill() error {
	switch {
	case l.strangers.Load() != nil:
		return ErrNoLeader
	case l.split.Load() != nil:
		return ErrSplitState
	case l.watchdog.spaceNow().Spent, l.fullPeers.Load():
		return ErrStorageFull
	}
	return nil
}

// stand stops the clock of this node's reign, or lets it go on.
func (l *life) stand() {
	if r := l.node.leadership.established(); r != nil { // also one that serves nobody
		r.clock.hold(l.standstill() != nil)
	}
}

// countFullPeers keeps whether so many voters have no room left above their
// reserve that an entry may find no majority to store it. A leader among them
// would go on telling time that no renewal could keep up with.
func (l *life) countFullPeers(seen map[string]peerSeen) {
	voting := votersOf(l.servers())
	full := 0
	for _, v := range voting {
		if other, ok := seen[string(v.ID)]; ok && other.answer.StorageSpent {
			full++
		}
	}
	l.fullPeers.Store(full > 0 && len(voting)-full <= len(voting)/2)
}
