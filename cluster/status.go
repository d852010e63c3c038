package cluster

import (
	"cmp"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// Status is the cluster as one node sees it. It is the caller's.
type Status struct {
	Node          string // this node's id
	Cluster       string // the cluster's id; "" while this node doesn't know it
	Leader        string // its id; "" while none is known
	Term          uint64
	CommitIndex   uint64 // as far as this node knows
	AppliedIndex  uint64 // by this node's machine; StateHash is the hash there
	ClusterTimeMS int64  // this node's estimate
	StateHash     [16]byte
	Level         uint32   // the feature level in force, as far as this node knows
	Members       []Member // by id
}

// Member is one member of the cluster as one node sees it.
type Member struct {
	ID      string
	Address string // of its peer port
	Voter   bool
	Leader  bool
	// Knows is the highest feature level that its program knows, 0 before it answered.
	Knows uint32
	// LastContact is how long ago it answered this node; 0 for this node itself,
	// -1 when it never has since this node started.
	LastContact time.Duration
	// Lag is by how many entries its machine trailed when it answered last.
	Lag uint64
}

// Status describes the cluster, also while there is no leader, or while this node
// has not come into the cluster yet; the members are the configured ones then. It
// does not block.
func (n *Node) Status() Status {
	l := n.life
	s := Status{Node: n.config.NodeID, Cluster: clusterText(l.identity.bound()), ClusterTimeMS: n.machine.estimateMS(), Level: n.machine.level.Load()}
	s.AppliedIndex, s.StateHash = n.machine.reading()
	r := l.raft()
	if r == nil {
		for _, p := range n.config.Peers {
			s.Members = append(s.Members, Member{ID: p.ID, Address: p.Address, LastContact: -1})
		}
	} else {
		_, leader := r.LeaderWithID()
		s.Leader, s.Term, s.CommitIndex = string(leader), r.CurrentTerm(), r.CommitIndex()
		s.Members = l.describeMembers(r, s)
	}
	slices.SortFunc(s.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return s
}

// describeMembers says what this node knows of each member.
func (l *life) describeMembers(r *raft.Raft, s Status) []Member {
	seen := l.watch.all()
	commit := s.CommitIndex
	for _, other := range seen {
		commit = max(commit, other.answer.Commit) // a node that is cut off knows an old one
	}
	var members []Member
	for _, server := range r.GetConfiguration().Configuration().Servers { // never blocks
		m := Member{
			ID: string(server.ID), Address: plainAddress(server.Address), Voter: server.Suffrage == raft.Voter,
			Leader: string(server.ID) == s.Leader, LastContact: -1, Lag: commit,
		}
		other := seen[m.ID]
		switch {
		case m.ID == s.Node:
			m.LastContact, m.Lag, m.Knows = 0, lagBehind(commit, s.AppliedIndex), fsm.FeatureLevel
		case !other.came.IsZero():
			m.LastContact, m.Lag, m.Knows = time.Since(other.came), other.lag, other.answer.Knows
		}
		members = append(members, m)
	}
	return members
}
