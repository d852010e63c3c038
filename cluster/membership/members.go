package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/election"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// leaderPatience is how long a call waits for a leader.
const leaderPatience = 5 * time.Second

// Raft is the part of Raft that a membership needs. Only changes block: for timeout at
// most, until Raft takes them in. Their futures block until the change is committed or
// refused. All methods are safe for concurrent use.
type Raft interface {
	State() raft.RaftState
	LeaderWithID() (raft.ServerAddress, raft.ServerID)
	CurrentTerm() uint64
	CommitIndex() uint64
	LastIndex() uint64
	GetConfiguration() raft.ConfigurationFuture

	// The changes; each fails if index is not the index of the latest configuration.
	AddVoter(id raft.ServerID, address raft.ServerAddress, index uint64, timeout time.Duration) raft.IndexFuture
	AddNonvoter(id raft.ServerID, address raft.ServerAddress, index uint64, timeout time.Duration) raft.IndexFuture
	DemoteVoter(id raft.ServerID, index uint64, timeout time.Duration) raft.IndexFuture
	RemoveServer(id raft.ServerID, index uint64, timeout time.Duration) raft.IndexFuture
	LeadershipTransferToServer(id raft.ServerID, address raft.ServerAddress) raft.Future

	// A node that was removed must not campaign.
	ReloadableConfig() raft.ReloadableConfig
	ReloadConfig(raft.ReloadableConfig) error
}

// base is the common ground of the parts of [Members]: the node's Raft, and the parts of the node that
// it had before Raft ran.
type base struct {
	raft     Raft
	self     string // the node's id
	host     Node
	hashes   Hashes
	times    wake.Stretch
	log      hclog.Logger
	identity *identity
	port     *peer.Port
	calls    *probe.Calls
	configs  *configurationLog
}

// servers returns the members of the latest configuration that Raft has, committed
// or not. It does not block.
func (b *base) servers() []raft.Server { return b.raft.GetConfiguration().Configuration().Servers }

// Members knows the members of the cluster, on a node whose Raft runs. Any node
// may be asked for a change; the leader makes it. Safe for concurrent use.
type Members struct {
	base
	stopping   context.Context
	watch      *probe.Watch
	changes    *Changes
	exclusion  exclusion
	strangers  strangersCheck
	comparison comparison
	halt       *halt
}

// halt gives the node the reason why it must take no command, whenever it changes, so that no
// command has to ask for it. Safe for concurrent use.
type halt struct {
	host    Node
	mu      sync.Mutex
	reasons map[error]error // by reason: the reason, or nil while it does not hold
}

// note notes whether a reason holds.
func (h *halt) note(reason error, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reasons[reason] = nil
	if holds {
		h.reasons[reason] = reason
	}
	h.host.Halted(cmp.Or(h.reasons[outcome.ErrNoLeader], h.reasons[outcome.ErrSplitState], h.reasons[outcome.ErrStorageFull]))
}

// newMembers returns the members for a node whose Raft runs. It asks no
// other node until Run.
func newMembers(r Raft, j *Joining) *Members {
	c := &j.config
	b := base{
		raft: r, self: c.Self.ID, host: c.Node, hashes: c.Hashes, times: c.Times, log: j.log,
		identity: j.identity, port: j.port, calls: j.calls, configs: j.configs,
	}
	h := &halt{host: c.Node, reasons: map[error]error{}}
	m := &Members{
		base: b, stopping: c.Stopping, halt: h,
		exclusion: exclusion{base: b}, strangers: strangersCheck{base: b, halt: h}, comparison: comparison{base: b, halt: h},
	}
	m.strangers.begin()
	m.watch = probe.NewWatch(j.calls, m)
	m.changes = &Changes{base: b, watch: m.watch, stopping: c.Stopping, turn: make(chan struct{}, 1)}
	return m
}

// Run watches the other members, checks for nodes of another cluster, ends the streams of nodes that were
// removed and, while this node leads, promotes members that have caught up. It returns once ctx has ended.
func (m *Members) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { m.watch.Run(ctx) })
	running.Go(func() { m.strangers.run(ctx) })
	running.Go(func() {
		p := promotion{Changes: m.changes}
		for wake.Pause(ctx, wake.Next(probe.WatchEvery)) == nil {
			p.step(ctx)
			m.port.EndStrangers()
		}
	})
	running.Wait()
}

// HandOver gives leadership, once, to the voter that trails least and blocks until this
// node leads no more. It fails with outcome.ErrNoTarget if no other voter can lead.
func (m *Members) HandOver(ctx context.Context) error { return m.changes.transfer(ctx, "") }

// GiveWay does what HandOver does, to a node with more room on its disk than this node, whose disk is
// nearly full; spent: only its reserve is left.
func (m *Members) GiveWay(ctx context.Context, spent bool) error {
	return m.changes.transferTo(ctx, "", func(a *probe.Answer) bool { return roomier(a, spent) })
}

// Changes returns the changes that this node makes as the leader.
func (m *Members) Changes() *Changes { return m.changes }

// Seen returns the last reply of each other member, and when it came, by node id.
func (m *Members) Seen() map[string]probe.Seen { return m.watch.All() }

// Removed reports whether this node is out of the cluster, as far as it knows.
func (m *Members) Removed() bool { return m.exclusion.removed() }

// Strangers describes the nodes of another cluster among which this node is, so that it
// must serve no requests, or returns "".
func (m *Members) Strangers() string { return text(&m.strangers.reason) }

// Split returns how the members' states differ without a majority, or "".
func (m *Members) Split() string { return text(&m.comparison.split) }

// Differs returns how this node's state differs from the leader's, or "".
func (m *Members) Differs() string { return text(&m.comparison.differs) }

// text returns a text that may not be set.
func text(p *atomic.Pointer[string]) string {
	if s := p.Load(); s != nil {
		return *s
	}
	return ""
}

// MatchLeader compares this node's state with the leader's, at the last index that this
// node has applied. It fails with ErrStateDiffers, or if they could not be compared.
func (m *Members) MatchLeader(ctx context.Context) error { return m.comparison.matchLeader(ctx) }

// Call has the leader carry out a request to add or remove a member, to hand leadership
// over or to raise the feature level: here if this node leads, else by asking the
// leader, for which it looks for up to 5 s. It blocks until that is done: a member that
// was added has its vote then, and an old leader leads no more. It is safe to repeat.
//
// Errors: the errors of package outcome for changes, ErrNoLeader, ctx's cause. Once an attempt
// may have had its effect, any failure after it is ErrOutcomeUnknown.
func (m *Members) Call(ctx context.Context, q *probe.Request) error {
	ctx, cancel := context.WithTimeout(ctx, m.times.Of(probe.CallTimeout))
	defer cancel()
	unknown := false
	for began := time.Now(); ; {
		err := m.askLeader(ctx, q)
		if errors.Is(err, outcome.ErrOutcomeUnknown) {
			unknown = true
		}
		if !m.retryable(err, q) || time.Since(began) > m.times.Patience(leaderPatience) {
			return settled(err, unknown)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-m.stopping.Done():
			return settled(outcome.ErrDraining, unknown)
		case <-ctx.Done():
			return settled(context.Cause(ctx), unknown)
		}
	}
}

// askLeader makes one attempt of Call.
func (m *Members) askLeader(ctx context.Context, q *probe.Request) error {
	address, id := m.raft.LeaderWithID()
	switch {
	case id == "":
		return outcome.ErrNoLeader
	case string(id) == m.self:
		ctx, cancel := context.WithTimeout(ctx, probe.ServeTimeout)
		defer cancel()
		_, err := m.carryOut(ctx, q, nil)
		return err
	}
	_, err := m.calls.Call(ctx, string(address), *q)
	return err
}

// retryable reports whether it is safe to ask again, and may go well with another
// leader or a moment later: the call had no effect, or repeating it is harmless. A hand-over
// is not repeated, nor is a change of the leader itself, which begins with a hand-over:
// Raft refuses all writes while one goes on.
func (m *Members) retryable(err error, q *probe.Request) bool {
	_, leader := m.raft.LeaderWithID()
	again := q.Kind != probe.Transfer && q.ID != string(leader)
	return passes(err) || again && errors.Is(err, outcome.ErrOutcomeUnknown)
}

// passes reports whether a call had no effect, for want of a leader that could carry it out.
func passes(err error) bool {
	return slices.ContainsFunc([]error{outcome.ErrNoLeader, outcome.ErrNotLeader, probe.ErrUnreached, outcome.ErrConfigurationChanged},
		func(e error) bool { return errors.Is(err, e) })
}

// settled returns the error of a call whose last attempt ended with err; unknown: one of its attempts may have had
// its effect.
func settled(err error, unknown bool) error {
	switch {
	case err == nil, errors.Is(err, outcome.ErrCatchingUp), errors.Is(err, outcome.ErrOutcomeUnknown):
		return err
	case unknown, errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %v", outcome.ErrOutcomeUnknown, err) // the refusal of a repeat does not count
	case passes(err) && !errors.Is(err, outcome.ErrNoLeader):
		return fmt.Errorf("%w: %w", outcome.ErrNoLeader, err)
	}
	return err
}

// AskVoter puts the question of this node's candidacy to a voter, and blocks for the reply.
func (m *Members) AskVoter(ctx context.Context, voter raft.Server, q election.Question) (election.Reply, error) {
	reply, err := m.calls.Call(ctx, string(voter.Address), probe.Request{Kind: probe.Elect, Elect: &q})
	if err == nil && reply.Elect == nil {
		err = probe.ErrMalformed
	}
	if err != nil {
		return election.Reply{}, err
	}
	return *reply.Elect, nil
}

// describe returns a, completed with this node's view of its Raft.
func (m *Members) describe(a probe.Answer, q *probe.Request) probe.Answer {
	a.State = probe.Live
	if m.raft.LastIndex() == 1 { // only ever the first configuration
		a.State = probe.Formed
	}
	address, id := m.raft.LeaderWithID()
	a.Leader, a.LeaderAddress = string(id), string(address)
	a.Term, a.Commit, a.Applied = m.raft.CurrentTerm(), m.raft.CommitIndex(), m.host.Applied()
	index, servers, _ := m.configs.current()
	_, member := Find(servers, q.From)
	a.Configuration, a.Member = index, member
	a.Hashes = allHashes(m.hashes)
	if q.State != nil {
		a.Common = hashAt(m.hashes, q.State.Index)
	}
	return a
}

// carryOut carries out a request, which came on conn; nil: this node makes the request.
func (m *Members) carryOut(ctx context.Context, q *probe.Request, conn net.Conn) (probe.Reply, error) {
	switch q.Kind {
	case probe.Rejoin:
		if level := m.host.Level(); q.Level < level {
			return probe.Reply{}, fmt.Errorf("%w: %s knows feature level %d, the cluster is at %d", outcome.ErrMemberInvalid, q.ID, q.Level, level)
		}
		if conn == nil {
			return probe.Reply{}, probe.ErrUnknownCall
		}
		term, err := m.changes.Readmit(ctx, q.ID, q.Address, peer.HelloOf(conn), conn.RemoteAddr().String())
		return probe.Reply{Term: term, Cluster: clusterText(m.identity.bound())}, err
	case probe.Add:
		return probe.Reply{}, m.changes.add(ctx, q.ID, q.Address)
	case probe.Remove:
		if q.ID == m.self {
			return probe.Reply{}, m.changes.abdicate(ctx)
		}
		return probe.Reply{}, m.changes.remove(ctx, q.ID)
	case probe.Transfer:
		return probe.Reply{}, m.changes.transfer(ctx, q.ID)
	case probe.Raise:
		return probe.Reply{}, m.changes.raise(ctx, q.Level)
	case probe.Elect:
		if q.Elect == nil {
			return probe.Reply{}, probe.ErrUnknownCall
		}
		reply := m.host.Judge(ctx, *q.Elect)
		return probe.Reply{Elect: &reply}, nil
	case probe.Removed:
		m.log.Warn("the leader says that this node was removed from the cluster", "leader", q.From)
		return probe.Reply{}, nil // the watch finds out whether this is true
	}
	return probe.Reply{}, probe.ErrUnknownCall
}

// Servers returns the members of the latest configuration that this node has,
// committed or not.
func (m *Members) Servers() []raft.Server { return m.servers() }

// Committed returns the commit index that this node knows.
func (m *Members) Committed() uint64 { return m.raft.CommitIndex() }

// Round implements [probe.Subject].
func (m *Members) Round(seen map[string]probe.Seen) {
	m.comparison.look(seen)
	m.countFullPeers(seen)
	m.exclusion.look(seen)
}

// outdated reports whether another member knows a later committed configuration.
func (m *Members) outdated() bool {
	index, _, _ := m.configs.current()
	for _, other := range m.watch.All() {
		if other.Up() && other.Answer.Configuration > index {
			return true
		}
	}
	return false
}

// countFullPeers halts this node while too few voters have room above their reserve to store an entry:
// a leader would go on with cluster time, and leases would end because no renewal is stored.
func (m *Members) countFullPeers(seen map[string]probe.Seen) {
	voting := Voters(m.Servers())
	full := 0
	for _, v := range voting {
		if other, ok := seen[string(v.ID)]; ok && other.Answer.StorageSpent {
			full++
		}
	}
	m.halt.note(outcome.ErrStorageFull, full > 0 && len(voting)-full <= len(voting)/2)
}

// LeaderElsewhere returns the leader of a later term than the given one, and that term, as other members
// report them; an empty id if no member does.
func (m *Members) LeaderElsewhere(term uint64) (address, id string, latest uint64) {
	latest = term
	for _, other := range m.watch.All() {
		a := other.Answer
		if other.Up() && a.Term > latest && a.Leader != "" && a.Leader != m.self {
			address, id, latest = a.LeaderAddress, a.Leader, a.Term
		}
	}
	return address, id, latest
}

// clusterText is an id as probe messages have it: "" for zero.
func clusterText(id fsm.ClusterID) string {
	if id == (fsm.ClusterID{}) {
		return ""
	}
	return id.String()
}
