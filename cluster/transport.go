package cluster

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// raftTimeout bounds one message and its reply at multiplier 1; a snapshot has that
	// much for each 256 KiB. The customary 10 s would make a dead peer cost 10 s a
	// message.
	raftTimeout = 2 * time.Second
	// raftMaxPool is how many idle connections are kept for each peer: one for
	// heartbeats, one for entries, one spare.
	raftMaxPool = 3
	// raftInFlight of 1 turns pipelining off (2, the default, is the least that
	// overlaps). A pipeline that meets a rejected append can stop for ever
	// (raft#611, raft#612), and drains a backlog one chunk a trigger.
	raftInFlight = 1
)

// errStalled is what Raft's messages to peers fail with while the local log hangs.
var errStalled = errors.New("withheld from peers: the local log write hangs")

// TransportConfig says how to build a [Transport].
type TransportConfig struct {
	Layer  raft.StreamLayer // closed with the transport
	Acks   *AckClock        // told of every acknowledgement
	Logger hclog.Logger
	// Multiplier stretches the time-outs as RaftConfig's does the elections; 0: 1.
	Multiplier int

	// Stalled reports that a write of the local log has hung for too long. It is
	// asked before each message, from many goroutines, and must not block.
	Stalled func() bool

	// Fault is for tests, else nil: it is asked before each message that carries
	// entries, heartbeats or a snapshot, may block, and fails it with its error.
	Fault func(peer raft.ServerID, request any) error
}

// Transport is the library's network transport without its known faults. It
// embeds the concrete type, not the interface: Raft looks for RequestPreVote by
// a type assertion and silently does without pre-vote if it finds none.
type Transport struct {
	*raft.NetworkTransport
	acks    *AckClock
	paces   paces
	stalled func() bool
	fault   func(raft.ServerID, any) error
}

var (
	_ raft.Transport   = (*Transport)(nil)
	_ raft.WithPreVote = (*Transport)(nil)
	_ raft.WithClose   = (*Transport)(nil)
)

// NewTransport starts to serve the layer. Raft's Shutdown future closes it once
// Raft has ended; Close earlier if messages under way should not be waited for.
func NewTransport(config TransportConfig) *Transport {
	multiplier := time.Duration(max(config.Multiplier, 1))
	return &Transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream:          config.Layer,
			Logger:          config.Logger.Named("raft-net"),
			MaxPool:         raftMaxPool,
			MaxRPCsInFlight: raftInFlight,
			Timeout:         multiplier * raftTimeout,
		}),
		acks:    config.Acks,
		paces:   paces{aim: multiplier * appendAim},
		stalled: config.Stalled,
		fault:   config.Fault,
	}
}

// SetHeartbeatHandler does nothing, so heartbeats reach Raft's main loop like any
// other message. The library would handle them beside it, changing the term under
// its feet: a deposed leader can then write an entry under the new term, and
// committed state diverges (raft#695).
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntriesPipeline says that there is none, whatever the configuration: what
// it sent would carry no stamp and pass no fence.
func (t *Transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries sends entries or a heartbeat and blocks for the reply. A reply in
// the term of the request is an acknowledgement, even one that asks for older
// entries: its sender follows this leader still.
//
// It leaves in args only those entries that it sends: see pace.fit. Raft looks there
// for what the follower has, and goes on behind it.
func (t *Transport) AppendEntries(
	id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse,
) error {
	if err := t.fence(id, args); err != nil {
		return err
	}
	pace := t.paces.of(id)
	args.Entries = pace.fit(args.Entries)
	began := time.Now()
	sent := t.acks.Now() // before the send: a reply proves nothing later than that
	err := t.NetworkTransport.AppendEntries(id, target, args, resp)
	pace.note(args.Entries, time.Since(began), err, t.paces.aim)
	if err != nil {
		return err
	}
	if resp.Term == args.Term {
		t.acks.Record(id, args.Term, sent)
	}
	return nil
}

// InstallSnapshot sends a snapshot and blocks for the reply. It is fenced like
// AppendEntries, since it too makes a follower stay.
func (t *Transport) InstallSnapshot(
	id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse,
	data io.Reader,
) error {
	if err := t.fence(id, args); err != nil {
		return err
	}
	return t.NetworkTransport.InstallSnapshot(id, target, args, resp, data)
}

// fence fails what would keep followers with a leader whose own log hangs: Raft
// itself lets it lead for ever, since only its main loop is stuck (raft#503).
// Silent, it loses them to a leader that can write.
func (t *Transport) fence(peer raft.ServerID, request any) error {
	if t.stalled() {
		return errStalled
	}
	if t.fault != nil {
		return t.fault(peer, request)
	}
	return nil
}
