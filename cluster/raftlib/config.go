package raftlib

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// Tick is the heartbeat, election and leader lease time at multiplier 1.
	// After a kill of the leader a cluster of such nodes usually writes again in
	// about a second.
	Tick = 500 * time.Millisecond
	// commitTimeout is how often Raft sends each idle follower an append, at most.
	commitTimeout = 500 * time.Millisecond
	// maxMultiplier keeps an election within a client's patience.
	maxMultiplier = 20
	// snapshotFallback is after how many entries Raft takes a snapshot by itself.
	// The node asks for one by the bytes written long before that; this only
	// bounds the log in case it does not.
	snapshotFallback = 1 << 20
)

// Config returns Raft's settings for a node. multiplier (1 to 20) stretches the
// election times for slow disks and networks; all nodes should have the same. The
// caller still sets NotifyCh. It fails on a multiplier out of range or an empty id.
func Config(id raft.ServerID, multiplier int, logger hclog.Logger) (*raft.Config, error) {
	if multiplier < 1 || multiplier > maxMultiplier {
		return nil, fmt.Errorf("raft multiplier %d is not between 1 and %d", multiplier, maxMultiplier)
	}
	tick := time.Duration(multiplier) * Tick
	config := raft.DefaultConfig()
	config.LocalID = id
	config.Logger = raftLog{logger.Named("raft")}
	config.HeartbeatTimeout = tick
	config.ElectionTimeout = tick
	config.LeaderLeaseTimeout = tick // at most the heartbeat timeout
	// After this time, or with the next entry, Raft sends an append that has failed again. Transport.Run sends idle
	// followers the commit index long before that.
	config.CommitTimeout = commitTimeout
	// The transport bounds an append by bytes; this bounds what Raft reads for one. An
	// entry is a batch of commands, up to 256 KiB.
	config.MaxAppendEntries = 128
	config.BatchApplyCh = true
	// A removed node gets the news and stops in order, its HTTP side first.
	config.ShutdownOnRemove = false
	config.TrailingLogs = 2048
	config.SnapshotInterval = 30 * time.Second // how often the fallback is looked at
	config.SnapshotThreshold = snapshotFallback
	config.NoLegacyTelemetry = true
	config.PreVoteDisabled = false // a node that comes back must not depose the leader
	if err := raft.ValidateConfig(config); err != nil {
		return nil, fmt.Errorf("raft configuration: %w", err)
	}
	return config, nil
}

// ordinary names the faults that Raft logs as errors though they say no more than
// that another member did not reply, or leads by now: each restart of a member
// brings some.
var ordinary = map[string]bool{
	"peer has newer term, stopping replication": true,
	"failed to appendEntries to":                true,
	"failed to pipeline appendEntries":          true,
	"failed to start pipeline replication to":   true,
	"failed to heartbeat to":                    true,
	"failed to make requestVote RPC":            true,
}

// raftLog writes ordinary faults as warnings, so that a log of errors alone is free
// of them.
type raftLog struct{ hclog.Logger }

// Error implements [hclog.Logger].
func (l raftLog) Error(message string, pairs ...any) {
	if ordinary[message] {
		l.Logger.Warn(message, pairs...)
		return
	}
	l.Logger.Error(message, pairs...)
}
