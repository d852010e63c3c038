package raftlib

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// raftTimeout bounds one message and its reply at multiplier 1; a snapshot has that
	// much for each 256 KiB. With the library's 10 s, each message to a dead peer would
	// take 10 s.
	raftTimeout = 2 * time.Second
	// raftMaxPool is how many idle connections are kept for each peer: one for
	// heartbeats, one for entries, one spare.
	raftMaxPool = 3
	// raftInFlight of 1 turns pipelining off (2, the default, is the least that
	// overlaps). A pipeline that meets a rejected append can stop for ever
	// (raft#611, raft#612), and drains a backlog one chunk a trigger.
	raftInFlight = 1
	// appendAgain is how fast an append has to fail to be tried again at once, for each
	// connection that is kept, and retryPause is before that.
	appendAgain = 100 * time.Millisecond
	retryPause  = 5 * time.Millisecond
)

// errStalled fails Raft's messages to peers while the local log hangs.
var errStalled = errors.New("withheld from peers: the local log write hangs")

// OwnLog is this node's [Log] as a [Transport] sees it. All methods are safe for concurrent use.
type OwnLog interface {
	// Durable is [Log.Durable]; its error holds successes back.
	Durable(index uint64, limit time.Duration) error
	// Failed is [Log.Failed]; its error holds the node's candidacy back.
	Failed() error
}

// TransportConfig says how to build a [Transport].
type TransportConfig struct {
	Layer  raft.StreamLayer // closed with the transport
	Acks   *AckClock        // notes every acknowledgement
	Logger hclog.Logger
	// Stretch makes the time-outs longer, as Config's multiplier does the elections.
	Stretch wake.Stretch

	// Stalled reports whether a write of the local log has hung for too long. It is
	// asked before each message, from many goroutines, and must not block.
	Stalled func() bool
	// Log is this node's.
	Log OwnLog

	// Fault is for tests, else nil: it is asked before each message that carries
	// entries, heartbeats or a snapshot, may block, and fails it with its error.
	Fault func(peer raft.ServerID, request any) error
}

// Transport is the library's network transport without its known faults. It
// embeds the concrete type, not the interface: Raft looks for RequestPreVote by
// a type assertion and silently does without pre-vote otherwise.
type Transport struct {
	*raft.NetworkTransport
	// announcer sends what Run has to say, over connections of its own: from the pool of
	// the others it would take that of the next entries, which would have to wait for a new one.
	announcer *raft.NetworkTransport
	config    TransportConfig
	paces     paces
	commits   commits
	closing   context.Context // ends with Close
	end       context.CancelFunc
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// NewTransport starts to serve the layer. Raft's Shutdown future closes it once
// Raft has ended; Close earlier if messages under way should not be waited for.
func NewTransport(config TransportConfig) *Transport {
	closing, end := context.WithCancel(context.Background())
	over := func(layer raft.StreamLayer, pool int) *raft.NetworkTransport {
		return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream:          layer,
			Logger:          config.Logger.Named("raft-net"),
			MaxPool:         pool,
			MaxRPCsInFlight: raftInFlight,
			Timeout:         config.Stretch.Of(raftTimeout),
		})
	}
	return &Transport{
		NetworkTransport: over(config.Layer, raftMaxPool),
		announcer:        over(dialler{config.Layer, closing}, 1),
		config:           config,
		paces:            paces{aim: config.Stretch.Of(appendAim)},
		commits:          commits{news: wake.NewSignal(), peers: map[raft.ServerID]*follower{}},
		closing:          closing, end: end,
	}
}

// Close implements [raft.WithClose]. It ends the holding of heartbeats, too.
func (t *Transport) Close() error {
	t.end()
	_ = t.announcer.Close()
	return t.NetworkTransport.Close()
}

// CloseStreams closes the announcer's connections, too.
func (t *Transport) CloseStreams() {
	t.announcer.CloseStreams()
	t.NetworkTransport.CloseStreams()
}

// SetHeartbeatHandler does nothing, so heartbeats reach Raft's main loop like any
// other message. The library would handle them beside it, and change the term while
// the main loop relies on it: a deposed leader can then write an entry under the new
// term, and committed state diverges (raft#695).
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline fails, whatever the configuration: the messages of a pipeline
// would get no stamp and pass no fence.
func (t *Transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries sends entries or a heartbeat and blocks for the reply. A reply in
// the term of the request is an acknowledgement, even one that asks for older
// entries: its sender follows this leader still. A success comes back only when this
// node's own disk has the entries, too: Raft counts both at once (see Log).
//
// It leaves in args only those entries that it sends: see pace.fit. Raft takes the last
// of them for the last that the follower has, and goes on behind it.
func (t *Transport) AppendEntries(
	id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	if heartbeat(args) {
		t.commits.hold(t.closing, id, t.config.Stretch.Of(heartbeatAfter), t.config.Acks)
		defer t.commits.heard(id)
		return t.send(t.NetworkTransport, id, target, args, resp)
	}
	args.Entries = t.paces.of(id).fit(args.Entries)
	// Raft tries again after its commit timeout only. Connections that were reset fail at once.
	return t.append(t.NetworkTransport, id, target, args, resp, raftMaxPool)
}

// append sends an append that is no heartbeat, again if that fails at once, and notes what the follower
// knows then.
func (t *Transport) append(
	via *raft.NetworkTransport, id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, again int,
) error {
	// Else a follower could take an entry for committed that it has of an earlier leader,
	// behind those that this message compares.
	last, lastTerm := end(args)
	args.LeaderCommitIndex = min(args.LeaderCommitIndex, last)
	t.commits.begin(id)
	began := time.Now()
	err := t.send(via, id, target, args, resp)
	for ; err != nil && again > 0 && time.Since(began) < appendAgain && wake.Pause(t.closing, retryPause) == nil; again-- {
		err = t.send(via, id, target, args, resp)
	}
	if err == nil && resp.Success && len(args.Entries) > 0 {
		err = t.durable(last)
	}
	t.commits.end(id, target, args, lastTerm, err == nil && resp.Success)
	return err
}

// send sends a message and notes the reply.
func (t *Transport) send(
	via *raft.NetworkTransport, id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	if err := t.fence(id, args); err != nil {
		return err
	}
	began := time.Now()
	sent := t.config.Acks.Now() // before the send: a reply proves leadership up to that moment alone
	err := via.AppendEntries(id, target, args, resp)
	t.paces.of(id).note(args.Entries, time.Since(began), err, t.paces.aim)
	if err == nil && resp.Term == args.Term {
		t.config.Acks.Record(id, args.Term, sent)
	}
	return err
}

// durable waits for this node's own disk.
func (t *Transport) durable(index uint64) error {
	return t.config.Log.Durable(index, t.config.Stretch.Of(raftTimeout))
}

// InstallSnapshot sends a snapshot and blocks for the reply. It is fenced like
// AppendEntries, since it too makes a follower stay, and its success is a success for all
// entries that the snapshot covers.
func (t *Transport) InstallSnapshot(
	id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse,
	data io.Reader,
) error {
	if err := t.fence(id, args); err != nil {
		return err
	}
	if err := t.NetworkTransport.InstallSnapshot(id, target, args, resp, data); err != nil || !resp.Success {
		return err
	}
	return t.durable(args.LastLogIndex)
}

// RequestPreVote implements [raft.WithPreVote]. A node whose log hangs or finds no room for the
// entries of its last term does not campaign: it could not lead.
func (t *Transport) RequestPreVote(
	id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse,
) error {
	if err := t.campaigns(); err != nil {
		return err
	}
	return t.NetworkTransport.RequestPreVote(id, target, args, resp)
}

// RequestVote is fenced like RequestPreVote.
func (t *Transport) RequestVote(
	id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse,
) error {
	if err := t.campaigns(); err != nil {
		return err
	}
	return t.NetworkTransport.RequestVote(id, target, args, resp)
}

// campaigns returns why this node does not ask for votes, or nil.
func (t *Transport) campaigns() error {
	if t.config.Stalled() {
		return errStalled
	}
	return t.config.Log.Failed()
}

// fence fails messages that would keep followers with a leader whose own log hangs.
// Raft lets such a leader lead for ever, since only its main loop is stuck
// (raft#503); a silent one loses its followers to a leader that can write.
func (t *Transport) fence(peer raft.ServerID, request any) error {
	if t.config.Stalled() {
		return errStalled
	}
	if t.config.Fault != nil {
		return t.config.Fault(peer, request)
	}
	return nil
}

const (
	// appendAim is how long an append and its reply should take at multiplier 1, at
	// most: heartbeats share the link with it, and must come within Tick.
	appendAim = Tick / 2
	// appendFirst is the first budget of each peer, in bytes.
	appendFirst = 1 << 20
	// appendMin and appendMax bound a budget.
	appendMin = 16 << 10
	appendMax = 8 << 20
	// entryOverhead is about what an entry costs on the wire beside its data.
	entryOverhead = 64
)

// paces knows how many bytes of entries an append to each peer may have: Raft bounds
// it by their number alone, and too many bytes for a slow link never arrive within
// the time-out. Safe for concurrent use.
type paces struct {
	aim   time.Duration
	mu    sync.Mutex
	peers map[raft.ServerID]*pace
}

// of returns the pace of a peer.
func (p *paces) of(peer raft.ServerID) *pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		p.peers = map[raft.ServerID]*pace{}
	}
	if p.peers[peer] == nil {
		p.peers[peer] = &pace{budget: appendFirst}
	}
	return p.peers[peer]
}

// pace is the budget of one peer, in bytes of entries an append. Safe for concurrent
// use.
type pace struct {
	mu     sync.Mutex
	budget int
	// least is how long the fastest message has taken, with its reply; 0: no
	// message has had a reply. No budget makes an append faster.
	least time.Duration
}

// fit returns the first entries that the budget has room for, at least one of them.
func (p *pace) fit(entries []*raft.Log) []*raft.Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for i, entry := range entries {
		total += entrySize(entry)
		if i > 0 && total > p.budget {
			return entries[:i]
		}
	}
	return entries
}

// note learns from an append or a heartbeat: how many bytes it had, and how much longer
// it took than the fastest message.
//   - After a failure, the budget is half of the bytes that failed.
//   - After an append that took longer than the aim, it is as many bytes as would have
//     taken just that long.
//   - An append that used most of the budget within half of the aim doubles it.
func (p *pace) note(entries []*raft.Log, took time.Duration, err error, aim time.Duration) {
	total := 0
	for _, entry := range entries {
		total += entrySize(entry)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && (p.least == 0 || took < p.least) {
		p.least = took
	}
	took -= p.least
	if total < appendMin && (err != nil || took > aim) { // its bytes are not the cause
		return
	}
	switch {
	case err != nil:
		p.budget = min(p.budget, total) / 2
	case took > aim:
		p.budget = min(p.budget, int(float64(total)*float64(aim)/float64(took)))
	case took < aim/2 && total > p.budget/2:
		p.budget *= 2
	}
	p.budget = min(max(p.budget, appendMin), appendMax)
}

func entrySize(entry *raft.Log) int { return len(entry.Data) + len(entry.Extensions) + entryOverhead }

// ErrTermOver ends the ticks, reads and waits for acknowledgements of a term that is
// over.
var ErrTermOver = errors.New("the term is over")

// Stamp is a moment on an [AckClock]. It is a count and not a time: no two stamps are
// equal, so that a send and a later read never seem to be at the same moment, as on
// a coarse clock. Stamps of different clocks don't compare.
type Stamp uint64

// AckClock keeps, for each peer, the moment at which the last message was *sent* that
// the peer has acknowledged to this node as the leader of a term. Raft keeps the
// moment when the reply came, and so lets a reply to an older message confirm
// leadership. All methods are safe for concurrent use.
type AckClock struct {
	mu      sync.Mutex
	now     Stamp
	acks    map[raft.ServerID]ack
	over    uint64 // the terms up to this one are over
	changed wake.Bell
	waits   int // calls of Wait
	hurried wake.Bell
}

// ack is a peer's acknowledgement, in a term, of a message sent at a moment.
type ack struct {
	term uint64
	sent Stamp
}

// NewAckClock returns a clock without acknowledgements.
func NewAckClock() *AckClock {
	return &AckClock{acks: map[raft.ServerID]ack{}}
}

// Now returns a moment later than every one before it.
func (c *AckClock) Now() Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	return c.now
}

// Record notes that a peer acknowledged, in a term, a message that was sent at that
// moment. Replies may be recorded in any order.
func (c *AckClock) Record(peer raft.ServerID, term uint64, sent Stamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.acks[peer]
	if term < last.term || (term == last.term && sent <= last.sent) {
		return
	}
	c.acks[peer] = ack{term, sent}
	c.changed.Ring()
}

// EndTerm ends the waits in that term and those before it. math.MaxUint64 ends
// them for good, at shutdown.
func (c *AckClock) EndTerm(term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term > c.over {
		c.over = term
		c.changed.Ring()
	}
}

// Wait blocks until a quorum of the voters has acknowledged, in that term, messages
// sent at since or later. It fails with ctx's cause, or once the term
// is over.
//
// self counts, if it votes, as having acknowledged: the caller must have seen
// Raft's own current term equal to term after it took since. Otherwise a node that
// has voted for another leader meanwhile would count against its own vote.
func (c *AckClock) Wait(ctx context.Context, term uint64, since Stamp, voters []raft.ServerID, self raft.ServerID) error {
	c.count(1)
	defer c.count(-1)
	for {
		done, changed, err := c.check(term, since, voters, self)
		if done || err != nil {
			return err
		}
		if err := wake.Until(ctx, changed); err != nil {
			return err
		}
	}
}

// count notes that a call of Wait begins, or ends.
func (c *AckClock) count(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits += by
	c.hurried.Ring()
}

// Hurry returns a channel that the next Wait closes, or nil while one waits.
func (c *AckClock) Hurry() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits > 0 {
		return nil
	}
	return c.hurried.Next()
}

// check reports whether Wait is done and, if not, returns the channel that the next
// change closes.
func (c *AckClock) check(term uint64, since Stamp, voters []raft.ServerID, self raft.ServerID) (bool, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if term <= c.over {
		return false, nil, ErrTermOver
	}
	count := 0
	for _, voter := range voters {
		a := c.acks[voter]
		if voter == self || (a.term == term && a.sent >= since) {
			count++
		}
	}
	if count > len(voters)/2 {
		return true, nil, nil
	}
	return false, c.changed.Next(), nil
}
