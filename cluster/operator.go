package cluster

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/forward"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// Status is the cluster as one node sees it. It belongs to the caller.
type Status struct {
	Node          string // this node's id
	Cluster       string // the cluster's id; "" while this node doesn't know it
	Leader        string // its id; "" while no leader is known
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
	State   MemberState
	// Knows is the highest feature level that its program knows, 0 before its first reply.
	Knows uint32
	// LastContact is how long ago it last replied to this node. It is 0 for this node, and -1 if the member has not
	// replied since this node started.
	LastContact time.Duration
	// Lag is by how many entries its machine trailed at its last reply. Lag, Low and Spent say how a member is now only
	// if it is up.
	Lag uint64
	// Low and Spent are the marks of the free room on its disk at its last reply, see store.Space; false before the
	// first reply.
	Low, Spent bool
}

// MemberState says whether a member replies to a node.
type MemberState string

// The states of members.
const (
	MemberUnknown MemberState = "unknown" // it was not asked yet
	MemberUp      MemberState = "up"
	MemberDown    MemberState = "down" // see probe.DownAfter
)

// Majority reports whether this node and the members that are up have more than half of the votes. Otherwise it knows
// no leader, or soon will not.
func (s Status) Majority() bool {
	voters, up := 0, 0
	for _, m := range s.Members {
		if m.Voter {
			voters++
			if m.State == MemberUp {
				up++
			}
		}
	}
	return 2*up > voters
}

// Status describes the cluster, even while there is no leader. Before this node is in its cluster, the members are the
// configured ones. It does not block.
func (n *Node) Status() Status {
	s := Status{Node: n.config.NodeID, ClusterTimeMS: n.replica.EstimateMS(), Level: n.replica.Level()}
	s.AppliedIndex, s.StateHash = n.replica.Reading()
	if id := n.joining.Cluster(); id != (fsm.ClusterID{}) {
		s.Cluster = id.String()
	}
	r := n.running.Load()
	if r == nil {
		for _, p := range n.config.Peers {
			s.Members = append(s.Members, Member{ID: p.ID, Address: p.Address, State: MemberUnknown, LastContact: -1})
		}
	} else {
		_, leader := r.raft.LeaderWithID()
		s.Leader, s.Term, s.CommitIndex = string(leader), r.raft.CurrentTerm(), r.raft.CommitIndex()
		s.Members = describeMembers(r.members, s, r.space())
	}
	slices.SortFunc(s.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return s
}

// Checks returns whether the node should get requests, with the reasons. It does not block.
func (n *Node) Checks() []Check {
	c := checker{n, n.running.Load()}
	return []Check{
		c.leader(), c.address(), c.cluster(), c.caughtUp(), c.member(), c.storage(), c.stateHash(),
		check("draining", !n.Draining(), "this node takes requests", "this node is about to stop"),
	}
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

// Collector returns all metrics of this node, for one registry. Their names begin with "signalbox_". A collection
// blocks no longer than a read of the machine.
func (n *Node) Collector() prometheus.Collector {
	return &collector{counted: append(n.metrics.All(), n.joining.Port().Metrics()), gauges: gauges(n)}
}

// describeMembers returns what this node knows about each member. room is the room on its own disk.
func describeMembers(m *membership.Members, s Status, room store.Space) []Member {
	seen := m.Seen()
	commit := s.CommitIndex
	for _, other := range seen {
		commit = max(commit, other.Answer.Commit) // a node that is disconnected knows only an old index
	}
	var members []Member
	for _, server := range m.Servers() {
		member := Member{
			ID: string(server.ID), Address: peer.PlainAddress(server.Address), Voter: server.Suffrage == raft.Voter,
			Leader: string(server.ID) == s.Leader, State: MemberUnknown, LastContact: -1, Lag: commit,
		}
		other := seen[member.ID]
		switch {
		case member.ID == s.Node:
			member.State, member.LastContact, member.Lag, member.Knows = MemberUp, 0, probe.Lag(commit, s.AppliedIndex), fsm.FeatureLevel
			member.Low, member.Spent = room.Low, room.Spent
		case !other.Came.IsZero():
			member.State, member.LastContact, member.Lag, member.Knows = MemberUp, time.Since(other.Came), other.Lag, other.Answer.Knows
			member.Low, member.Spent = other.Answer.StorageLow, other.Answer.StorageSpent
		}
		if other.Down() {
			member.State = MemberDown
		}
		members = append(members, member)
	}
	return members
}

// CheckPeerAddress returns why other nodes cannot reach a node at host:port, or nil. It sends no message.
func CheckPeerAddress(address string) error { return peer.CheckReachable(address) }

// AddMember makes the node with that id and address a member and blocks until it has caught up and has its vote. An
// existing member gets the new address. Any node accepts the call; the leader does the work, once the node itself has
// replied at the address. It is safe to repeat.
//
// Errors: ErrCatchingUp if the member was added but has no vote after 10 s, or when ctx ended: it gets the vote later,
// without another call. ErrMemberInvalid, ErrNoLeader, ErrOutcomeUnknown, ctx's cause; when a voter moves, also
// ErrNoTarget as for RemoveMember.
func (n *Node) AddMember(ctx context.Context, id, address string) error {
	if err := membership.CheckMember(id, address); err != nil {
		return err
	}
	return n.askLeader(ctx, &probe.Request{Kind: probe.Add, ID: id, Address: address})
}

// RemoveMember removes a node from the cluster for good and notifies it; a leader hands over first. It is no error if
// the node is not a member. It blocks until the removal is committed. Any node accepts the call; the leader does the
// work. It is safe to repeat.
//
// Errors: ErrLastVoter; ErrMemberInvalid if the remaining members would have no majority that is up; ErrNoTarget if the
// leader finds no successor; ErrNoLeader; ErrOutcomeUnknown; ctx's cause.
func (n *Node) RemoveMember(ctx context.Context, id string) error {
	return n.askLeader(ctx, &probe.Request{Kind: probe.Remove, ID: id})
}

// TransferLeadership makes the voting member with that id the leader or, if id is empty, a member that trails least. It
// tries once and blocks until the old leader no longer leads, at most 3 s. If id is the present leader, it has no
// effect.
//
// Errors: ErrNoTarget, ErrNoLeader, ErrOutcomeUnknown if the target did not take over in time, ctx's cause.
func (n *Node) TransferLeadership(ctx context.Context, id string) error {
	return n.askLeader(ctx, &probe.Request{Kind: probe.Transfer, ID: id})
}

// RaiseLevel raises the cluster's feature level for ever and blocks until the leader has applied that. It is no error
// if the level is in force already. Any node accepts the call; the leader does the work. It is safe to repeat.
//
// Errors: ErrLevelUnknown, ErrNoLeader, ErrOutcomeUnknown, ctx's cause.
func (n *Node) RaiseLevel(ctx context.Context, level uint32) error {
	return n.askLeader(ctx, &probe.Request{Kind: probe.Raise, Level: level})
}

// askLeader sends a request to the leader after this node's Raft runs. It waits for Raft up to forward.HoldTimeout, and
// then fails with ErrNoLeader.
func (n *Node) askLeader(ctx context.Context, q *probe.Request) error {
	waiting, cancel := context.WithTimeoutCause(ctx, n.times.Patience(forward.HoldTimeout), outcome.ErrNoLeader)
	defer cancel()
	select {
	case <-n.opened:
		return n.running.Load().members.Call(ctx, q)
	case <-n.stopping.Done():
		return outcome.ErrDraining
	case <-waiting.Done():
		return context.Cause(waiting)
	}
}

// Backup returns the state of the cluster, as recent as a linearizable read. It blocks only for that read.
//
// Errors: as Read.
func (n *Node) Backup(ctx context.Context) (*backup.Backup, error) {
	began := time.Now()
	if _, err := n.Read(ctx, calls.Consistency{}); err != nil {
		return nil, err
	}
	return backup.Of(n.replica.Freeze(), began), nil
}

// Restore replaces the state of the cluster by the state of a backup, if this node leads: see
// [backup.Restorer.Restore], also for the errors.
func (n *Node) Restore(ctx context.Context, from io.Reader, order backup.Order) (backup.Restored, error) {
	r := n.running.Load()
	if r == nil {
		return backup.Restored{}, outcome.ErrNotLeader
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.stopping, func() { cancel(outcome.ErrDraining) })()
	return r.restorer.Restore(ctx, from, order)
}
