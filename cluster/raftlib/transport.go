package raftlib

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// raftTimeout bounds one message and its reply at multiplier 1; a snapshot has that much for each 256 KiB. The
	// library's default of 10 s would let each message to a dead peer take 10 s.
	raftTimeout = 2 * time.Second
	// raftMaxPool is how many idle connections are kept for each peer: one for
	// heartbeats, one for entries, one spare.
	raftMaxPool = 3
	// raftInFlight of 1 turns pipelining off (2, the default, is the least that
	// overlaps). A pipeline that meets a rejected append can stop for ever
	// (raft#611, raft#612), and drains a backlog one chunk a trigger.
	raftInFlight = 1
	// snapshotHold bounds how long the error of a snapshot is delayed, since the reader of the snapshot stays open for
	// that time. After many such errors Raft may still pause up to 10 s.
	snapshotHold = 30 * time.Second
	// holdCheck is how often awaitReply checks that this node still leads and that the follower is still a member.
	holdCheck = time.Second
	// reachWait is how long Reaches waits for a successful append.
	reachWait = time.Second
	// commitQuiet is how long Run waits after a success, because later entries may bring the follower its commit index.
	// For example, a single client often sends its next command within that time. A waiting read shortens this to
	// readQuiet.
	commitQuiet = 3 * time.Millisecond
	readQuiet   = time.Millisecond
)

// TransferTimeout is the longest that Raft may refuse all entries because of one transfer of leadership. Raft waits for
// one election time-out (Tick) at most until the target has all entries. Then it sends its message to the target: one
// raftTimeout for the dial, and one for the message and its reply.
func TransferTimeout(stretch wake.Stretch) time.Duration {
	return stretch.Of(Tick + raftTimeout + raftTimeout)
}

// errStalled fails Raft's messages to peers while the local log hangs.
var errStalled = errors.New("withheld from peers: the local log write hangs")

// OwnLog is the part of this node's [Log] that a [Transport] uses. All methods are safe for concurrent use.
type OwnLog interface {
	// WaitDurable is [Log.WaitDurable]; its error replaces the success of a follower.
	WaitDurable(index uint64, limit time.Duration) error
	// Failed is [Log.Failed]; while it returns an error, the node does not ask for votes.
	Failed() error
}

// TransportConfig is what a [Transport] needs.
type TransportConfig struct {
	Layer  raft.StreamLayer // closed with the transport
	Acks   *AckClock        // records every acknowledgement
	Logger hclog.Logger
	// Stretch lengthens the time-outs, as Config's multiplier lengthens the elections.
	Stretch wake.Stretch

	// Stalled reports whether a write of the local log has hung for too long. Many goroutines call it before each
	// message, so it must not block.
	Stalled func() bool
	Log     OwnLog

	// Fault is nil except in tests. It is called before each message that carries entries, heartbeats or a snapshot; it
	// may block, and its error fails the message.
	Fault func(peer raft.ServerID, request any) error
}

// Transport is the library's network transport without its known faults. It
// embeds the concrete type, not the interface: Raft looks for RequestPreVote by
// a type assertion and silently does without pre-vote otherwise.
type Transport struct {
	*raft.NetworkTransport
	// announcer sends the announcements of Run over separate connections. From the common pool it would take the
	// connection of the next entries, which would then have to wait for a new connection.
	announcer *raft.NetworkTransport
	config    TransportConfig
	followers *followers
	source    atomic.Pointer[AppendSource] // nil until Run
	closing   context.Context              // ends with Close
	end       context.CancelFunc
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// NewTransport returns a transport that serves the layer. Raft's Shutdown future closes it once Raft has ended; a
// caller that does not want to wait for messages under way calls Close earlier.
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
		followers:        newFollowers(config.Stretch.Of(appendAim)),
		closing:          closing, end: end,
	}
}

// Close implements [raft.WithClose]. It also ends the delays of heartbeats and errors.
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

// AppendSource is the state of this node's Raft that appends depend on. No method blocks. All are safe for concurrent use.
type AppendSource interface {
	State() raft.RaftState
	CurrentTerm() uint64
	CommitIndex() uint64
	GetConfiguration() raft.ConfigurationFuture
}

// SetHeartbeatHandler ignores the handler, so heartbeats reach Raft's main loop like any other message. The library
// would handle them in another goroutine, which could change the term while the main loop relies on it. A deposed
// leader could then write an entry under the new term, and committed state would diverge (raft#695).
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// InstallSnapshot sends a snapshot and blocks for the reply. It passes the same fence as AppendEntries, since a
// snapshot, too, keeps a follower with this leader. Its success counts for all entries that the snapshot covers, so it
// waits for the own disk, too. It delays each error (see awaitReply).
func (t *Transport) InstallSnapshot(
	id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse,
	data io.Reader,
) error {
	err := t.fence(id, args)
	if err == nil {
		err = t.NetworkTransport.InstallSnapshot(id, target, args, resp, data)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(t.closing, snapshotHold)
		defer cancel()
		t.awaitReply(ctx, id, args.Term)
		return err
	}
	if !resp.Success {
		return nil
	}
	return t.durable(args.LastLogIndex)
}

// awaitReply delays the error of a failed append or snapshot until the follower replies to a heartbeat. Raft doubles its
// back-off (up to 10 s) on every error, so a follower that has recovered would otherwise wait for it. The delay
// also ends when this node no longer leads in the term, when the follower is no longer a member, and with ctx.
func (t *Transport) awaitReply(ctx context.Context, id raft.ServerID, term uint64) {
	replies, stop := t.followers.replies.Watch(id)
	defer stop()
	for ctx.Err() == nil && t.leads(term, id) && !sleepUnlessSignalled(ctx, holdCheck, replies) {
	}
}

// leads reports whether this node leads in the term, and the follower is a member.
func (t *Transport) leads(term uint64, follower raft.ServerID) bool {
	source := t.source.Load()
	if source == nil || (*source).CurrentTerm() != term || (*source).State() != raft.Leader {
		return false
	}
	servers := (*source).GetConfiguration().Configuration().Servers
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == follower })
}

// Reaches reports whether Raft's last append to a follower succeeded. It waits up to a second for an append in flight,
// and after a failure for the next success. We check this before a transfer of leadership: Raft refuses all writes
// during a transfer, and so for as long as it backs off from an unreachable target.
func (t *Transport) Reaches(ctx context.Context, id raft.ServerID) bool {
	ctx, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	before := t.followers.attemptsTo(id)
	for now := before; now.failing || now.inFlight > 0 && now.succeeded == before.succeeded; now = t.followers.attemptsTo(id) {
		if wake.Pause(ctx, retryPause) != nil {
			return false
		}
	}
	return true
}

// RequestPreVote implements [raft.WithPreVote]. It fails if this node could not lead, because its log hangs or has no
// room for the entries of its last term: so the node does not campaign.
func (t *Transport) RequestPreVote(
	id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse,
) error {
	return t.askVote(func() error { return t.NetworkTransport.RequestPreVote(id, target, args, resp) })
}

// RequestVote fails in the same cases as RequestPreVote.
func (t *Transport) RequestVote(
	id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse,
) error {
	return t.askVote(func() error { return t.NetworkTransport.RequestVote(id, target, args, resp) })
}

// askVote sends a request for a vote, and repeats it if it fails quickly: the pool may hold connections to the voter's
// former process, and Raft asks once a term. Without that vote the election would fail, and the next election would have
// to wait for Raft's time-outs. A voter gives the same reply to a repeated request.
func (t *Transport) askVote(send func() error) error {
	if err := t.CampaignRefusal(); err != nil {
		return err
	}
	return t.repeat(raftMaxPool, send)
}

// repeat calls send, and calls it again that many times at most while it fails quickly.
func (t *Transport) repeat(again int, send func() error) error {
	began := time.Now()
	err := send()
	for ; err != nil && again > 0 && time.Since(began) < sendAgain && wake.Pause(t.closing, retryPause) == nil; again-- {
		err = send()
	}
	return err
}

// Campaign makes this node's Raft campaign at once, without pre-vote, as if a leader had handed over to it. It blocks
// briefly, until Raft has accepted the message.
func (t *Transport) Campaign(self raft.ServerID) error {
	address := t.LocalAddr()
	header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: t.EncodePeer(self, address)}
	return t.TimeoutNow(self, address, &raft.TimeoutNowRequest{RPCHeader: header}, &raft.TimeoutNowResponse{})
}

// CampaignRefusal returns why this node does not ask for votes, or nil.
func (t *Transport) CampaignRefusal() error {
	if t.config.Stalled() {
		return errStalled
	}
	return t.config.Log.Failed()
}

// dialler is a layer that only dials: the other transport accepts connections, and closes the layer.
type dialler struct {
	raft.StreamLayer
	closing context.Context
}

func (d dialler) Accept() (net.Conn, error) {
	<-d.closing.Done()
	return nil, net.ErrClosed
}

func (d dialler) Close() error { return nil }
