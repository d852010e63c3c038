package raftlib

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// Tick is the heartbeat, election and leader lease time at multiplier 1. With it, a cluster usually writes again
	// about a second after its leader was cut off; the end of a leader's process is noticed sooner, see package election.
	Tick = 500 * time.Millisecond
	// commitTimeout is how often Raft sends each idle follower an append, at most.
	commitTimeout = 500 * time.Millisecond
	// maxMultiplier keeps an election within a client's patience.
	maxMultiplier = 20
	// snapshotFallback is the number of entries after which Raft takes a snapshot without a request from the node. The
	// node requests one by the bytes written, long before that. The fallback bounds the log if the node does not.
	snapshotFallback = 1 << 20
)

// Config returns Raft's settings for a node. multiplier (1 to 20) lengthens the election times for slow disks and
// networks; it should be the same on all nodes. The caller still sets NotifyCh. Config fails if the multiplier is out
// of range or the id is empty.
func Config(id raft.ServerID, multiplier int, logger hclog.Logger) (*raft.Config, error) {
	if multiplier < 1 || multiplier > maxMultiplier {
		return nil, fmt.Errorf("raft multiplier %d is not between 1 and %d", multiplier, maxMultiplier)
	}
	tick := time.Duration(multiplier) * Tick
	config := raft.DefaultConfig()
	config.LocalID = id
	config.Logger = raftLog{logger.Named("raft"), wake.NewPace[fault](logEvery)}
	config.HeartbeatTimeout = tick
	config.ElectionTimeout = tick
	config.LeaderLeaseTimeout = tick // at most the heartbeat timeout
	// After this time, or with the next entry, Raft repeats a failed append. Transport.Run sends idle followers the
	// commit index long before that.
	config.CommitTimeout = commitTimeout
	// The transport bounds an append by bytes; this bounds how many entries Raft reads for it. An entry is a batch of
	// commands, up to 256 KiB.
	config.MaxAppendEntries = 128
	config.BatchApplyCh = true
	// A removed node learns of it and stops in order, its HTTP side first.
	config.ShutdownOnRemove = false
	config.TrailingLogs = 2048
	config.SnapshotInterval = 30 * time.Second // how often Raft checks the fallback
	config.SnapshotThreshold = snapshotFallback
	config.NoLegacyTelemetry = true
	config.PreVoteDisabled = false // a node that returns must not depose the leader
	if err := raft.ValidateConfig(config); err != nil {
		return nil, fmt.Errorf("raft configuration: %w", err)
	}
	return config, nil
}

// ordinary has the messages that Raft logs as errors although they only mean that another member did not reply, or that
// it leads now. Each restart of a member causes some of them.
var ordinary = map[string]bool{
	"peer has newer term, stopping replication": true,
	"failed to appendEntries to":                true,
	"failed to pipeline appendEntries":          true,
	"failed to start pipeline replication to":   true,
	"failed to heartbeat to":                    true,
	"failed to make requestVote RPC":            true,
}

// silence is the message that Raft itself logs as a warning, in the first moments of a member's silence.
const silence = "failed to contact"

// logEvery is how often the same ordinary fault of a member is logged. Raft repeats some of them three times a second for
// as long as a member is down.
const logEvery = 10 * time.Second

// raftLog writes ordinary faults as warnings, so that they do not appear among the errors, and holds repeats back.
type raftLog struct {
	hclog.Logger
	faults *wake.Pace[fault]
}

type fault struct{ message, member string }

// Error implements [hclog.Logger].
func (l raftLog) Error(message string, pairs ...any) {
	if ordinary[message] {
		l.warnOf(message, pairs)
		return
	}
	l.Logger.Error(message, pairs...)
}

// Warn implements [hclog.Logger].
func (l raftLog) Warn(message string, pairs ...any) {
	if message == silence {
		l.warnOf(message, pairs)
		return
	}
	l.Logger.Warn(message, pairs...)
}

// warnOf logs a fault, whose first pair names the member, at most once per logEvery, with the number of repeats since
// its last line, which may be of an earlier outage.
func (l raftLog) warnOf(message string, pairs []any) {
	f := fault{message: message}
	if len(pairs) > 1 {
		f.member = fmt.Sprint(pairs[1])
	}
	if unlogged, ok := l.faults.Pass(f); ok {
		l.Logger.Warn(message, append(slices.Clone(pairs), "more", unlogged)...)
	}
}
