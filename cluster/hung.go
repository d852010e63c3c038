package cluster

import "github.com/hashicorp/raft"

// A leader whose disk hangs does not know that it leads no more: Raft's main loop
// waits for the write. Its followers elect another one, since this node stops
// holding them (see Transport). These functions take from it meanwhile what it
// can't do: the commands that wait for their place in the log go to the next
// leader, and only those that were given to Raft are without an outcome.

// hung reports that a write of the log takes so long that this node can't lead.
func (l *life) hung() bool {
	return l.node.config.Store.StuckFor() > l.node.times().of(stallLimit)
}

// leading returns this node's reign as long as it can carry anything, or nil.
func (n *Node) leading() *reign {
	if n.life.hung() {
		return nil
	}
	return n.established()
}

// giveBack fails the commands that wait at this node's proposer while its disk
// hangs, so that each is sent again, to the next leader.
func (l *life) giveBack() {
	reign := l.node.established()
	if reign == nil || !l.hung() {
		return
	}
	l.node.router.drop(reign.term) // first, so that what comes back is not sent here at once
	for _, p := range reign.proposer.surrender() {
		p.failed(errRefused)
	}
	l.node.router.look()
}

// leaderElsewhere returns the leader of a later term than this, as other members
// report it; an empty id if none does.
func (l *life) leaderElsewhere(term uint64) (address raft.ServerAddress, id raft.ServerID, in uint64) {
	in = term
	for _, other := range l.watch.all() {
		a := other.answer
		if other.up() && a.Term > in && a.Leader != "" && a.Leader != l.node.config.NodeID {
			address, id, in = raft.ServerAddress(a.LeaderAddress), raft.ServerID(a.Leader), a.Term
		}
	}
	return address, id, in
}
