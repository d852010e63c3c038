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

// Raft is the part of Raft that a membership needs. Only the methods that change the configuration block, for at most
// timeout until Raft has accepted the change. Their futures block until the change is committed or refused. All methods
// are safe for concurrent use.
type Raft interface {
	State() raft.RaftState
	LeaderWithID() (raft.ServerAddress, raft.ServerID)
	CurrentTerm() uint64
	CommitIndex() uint64
	LastIndex() uint64
	GetConfiguration() raft.ConfigurationFuture

	// Each change fails if index is not the index of the latest configuration.
	AddVoter(id raft.ServerID, address raft.ServerAddress, index uint64, timeout time.Duration) raft.IndexFuture
	AddNonvoter(id raft.ServerID, address raft.ServerAddress, index uint64, timeout time.Duration) raft.IndexFuture
	DemoteVoter(id raft.ServerID, index uint64, timeout time.Duration) raft.IndexFuture
	RemoveServer(id raft.ServerID, index uint64, timeout time.Duration) raft.IndexFuture
	LeadershipTransferToServer(id raft.ServerID, address raft.ServerAddress) raft.Future

	// A removed node gets other timeouts, so that it does not campaign.
	ReloadableConfig() raft.ReloadableConfig
	ReloadConfig(raft.ReloadableConfig) error
}

// base has what all parts of [Members] use.
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

// servers returns the members of the latest configuration in the log, which may not be committed. It does not block.
func (b *base) servers() []raft.Server { return b.raft.GetConfiguration().Configuration().Servers }

// Members watches and changes the members of the cluster, on a node whose Raft runs. Any node accepts a request for a
// change and sends it to the leader. Safe for concurrent use.
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

// halt tells the node why it must refuse commands, whenever the reason changes. So the node need not check before each
// command. Safe for concurrent use.
type halt struct {
	host    Node
	mu      sync.Mutex
	reasons map[error]error // each reason that holds maps to itself, a reason that has ended to nil
}

// set records whether a reason holds, and tells the node the reason that now takes precedence.
func (h *halt) set(reason error, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reasons[reason] = nil
	if holds {
		h.reasons[reason] = reason
	}
	h.host.Halted(cmp.Or(h.reasons[outcome.ErrNoLeader], h.reasons[outcome.ErrSplitState], h.reasons[outcome.ErrStorageFull]))
}

// newMembers returns Members that ask other nodes only after Run.
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

// Run watches the other members, checks whether the listed peers belong to another cluster, and closes the streams of
// removed nodes. On the leader, it also gives votes to members that have caught up. It returns after ctx has ended.
func (m *Members) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { m.watch.Run(ctx) })
	running.Go(func() { m.strangers.run(ctx) })
	running.Go(func() {
		p := promotion{Changes: m.changes}
		for wake.Pause(ctx, wake.Next(probe.WatchEvery)) == nil {
			p.promoteReady(ctx)
			m.port.EndStrangers()
		}
	})
	running.Wait()
}

// HandOver transfers leadership to the voter with the smallest lag, in one attempt, and blocks until this node no
// longer leads. It fails with outcome.ErrNoTarget if no other voter can lead.
func (m *Members) HandOver(ctx context.Context) error { return m.changes.transfer(ctx, "") }

// GiveWay is HandOver for a leader whose disk is nearly full: it considers only nodes with more free space. spent: only
// the reserve of this node's disk is left.
func (m *Members) GiveWay(ctx context.Context, spent bool) error {
	return m.changes.transferTo(ctx, "", func(a *probe.Answer) bool { return roomier(a, spent) })
}

// Changes returns the object with which this node changes the members while it leads.
func (m *Members) Changes() *Changes { return m.changes }

// Seen returns the last reply of each other member and its time of arrival, by node id.
func (m *Members) Seen() map[string]probe.Seen { return m.watch.All() }

// Removed reports whether this node was removed, according to its own log or to the leader.
func (m *Members) Removed() bool { return m.exclusion.removed() }

// Strangers returns why this node must serve no requests because listed peers belong to another cluster, or "".
func (m *Members) Strangers() string { return text(&m.strangers.reason) }

// Split returns how the members' states differ while no state has a majority, else "".
func (m *Members) Split() string { return text(&m.comparison.split) }

// Differs returns how this node's state differs from the leader's, or "".
func (m *Members) Differs() string { return text(&m.comparison.differs) }

func text(p *atomic.Pointer[string]) string {
	if s := p.Load(); s != nil {
		return *s
	}
	return ""
}

// MatchLeader compares this node's state with the leader's state, at the last index that this node has applied. It
// fails with ErrStateDiffers, or with another error if the states could not be compared.
func (m *Members) MatchLeader(ctx context.Context) error { return m.comparison.matchLeader(ctx) }

// Call has the leader carry out a request to add or remove a member, to transfer leadership or to raise the feature
// level. If no leader can carry it out, Call tries again for up to 5 s. It blocks until the request is done, for
// example until an added member has its vote, or until the old leader no longer leads. A caller may repeat it safely.
//
// Errors: the errors of package outcome for changes, ErrNoLeader, ctx's cause. If an attempt may have taken effect,
// later errors except ErrCatchingUp become ErrOutcomeUnknown.
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

// retryable reports whether Call may try again: the attempt had no effect, or a repetition is harmless. After an
// unknown outcome, Call does not repeat a transfer, because Raft refuses all writes during a transfer. A change of the
// leader itself is not repeated either, since it begins with a transfer.
func (m *Members) retryable(err error, q *probe.Request) bool {
	_, leader := m.raft.LeaderWithID()
	again := q.Kind != probe.Transfer && q.ID != string(leader)
	return passes(err) || again && errors.Is(err, outcome.ErrOutcomeUnknown)
}

// passes reports whether a call failed without an effect because no leader could carry it out.
func passes(err error) bool {
	return slices.ContainsFunc([]error{outcome.ErrNoLeader, outcome.ErrNotLeader, probe.ErrUnreached, outcome.ErrConfigurationChanged},
		func(e error) bool { return errors.Is(err, e) })
}

// settled returns the final error of a call. err is the error of its last attempt. unknown says that an attempt may
// have taken effect.
func settled(err error, unknown bool) error {
	switch {
	case err == nil, errors.Is(err, outcome.ErrCatchingUp), errors.Is(err, outcome.ErrOutcomeUnknown):
		return err
	case unknown, errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %v", outcome.ErrOutcomeUnknown, err) // the refusal of a repeated request does not show whether an earlier attempt took effect
	case passes(err) && !errors.Is(err, outcome.ErrNoLeader):
		return fmt.Errorf("%w: %w", outcome.ErrNoLeader, err)
	}
	return err
}

// AskVoter asks a voter whether it agrees that this node campaigns, and blocks for the reply.
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

// describe adds the state of this node's Raft to a.
func (m *Members) describe(a probe.Answer, q *probe.Request) probe.Answer {
	a.State = probe.Live
	if m.raft.LastIndex() == 1 { // entry 1 is always the first configuration
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

// carryOut carries out a request. conn is the stream of a remote request, or nil for this node's own request.
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
		return probe.Reply{Term: term, Cluster: ClusterText(m.identity.bound())}, err
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
		return probe.Reply{}, nil // exclusion checks the leader's statement in the next rounds
	}
	return probe.Reply{}, probe.ErrUnknownCall
}

// Servers returns the members of the latest configuration in the log, which may not be committed.
func (m *Members) Servers() []raft.Server { return m.servers() }

// Committed returns the commit index that this node knows.
func (m *Members) Committed() uint64 { return m.raft.CommitIndex() }

// Round implements [probe.Subject].
func (m *Members) Round(seen map[string]probe.Seen) {
	m.comparison.compareReplies(seen)
	m.countFullPeers(seen)
	m.exclusion.update(seen)
}

// outdated reports whether another member knows a later committed configuration than this node.
func (m *Members) outdated() bool {
	index, _, _ := m.configs.current()
	for _, other := range m.watch.All() {
		if other.Up() && other.Answer.Configuration > index {
			return true
		}
	}
	return false
}

// countFullPeers halts this node while a majority of the voters has only its disk reserve left and stores no commands.
// Otherwise a leader would let cluster time go on, and leases would expire because no renewal could be stored.
func (m *Members) countFullPeers(seen map[string]probe.Seen) {
	voting := Voters(m.Servers())
	full := 0
	for _, v := range voting {
		if other, ok := seen[string(v.ID)]; ok && other.Answer.StorageSpent {
			full++
		}
	}
	m.halt.set(outcome.ErrStorageFull, full > 0 && len(voting)-full <= len(voting)/2)
}

// LeaderElsewhere returns the leader with the latest term that other members report, if that term is later than term.
// Else id is empty and latest is term.
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

// ClusterText returns a cluster id as probe messages carry it, with "" for zero.
func ClusterText(id fsm.ClusterID) string {
	if id == (fsm.ClusterID{}) {
		return ""
	}
	return id.String()
}
