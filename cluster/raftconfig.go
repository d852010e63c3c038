package cluster

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// raftTick is the heartbeat, election and leader lease time at multiplier 1.
	// After a kill of the leader a cluster of such nodes writes again in 0.7 to
	// 1.2 s.
	raftTick = 500 * time.Millisecond
	// maxRaftMultiplier keeps an election within a client's patience.
	maxRaftMultiplier = 20
	// snapshotFallback is after how many entries Raft takes a snapshot by itself.
	// The node asks for one by the bytes written long before that; this only
	// bounds the log should nobody ask.
	snapshotFallback = 1 << 20
)

// RaftConfig returns Raft's settings for a node. multiplier (1 to 20) stretches the
// election times for slow disks and networks; all nodes should have the same. The
// caller still sets NotifyCh. It fails on a multiplier out of range or an empty id.
func RaftConfig(id raft.ServerID, multiplier int, logger hclog.Logger) (*raft.Config, error) {
	if multiplier < 1 || multiplier > maxRaftMultiplier {
		return nil, fmt.Errorf("raft multiplier %d is not between 1 and %d", multiplier, maxRaftMultiplier)
	}
	tick := time.Duration(multiplier) * raftTick
	config := raft.DefaultConfig()
	config.LocalID = id
	config.Logger = raftLog{logger.Named("raft")}
	config.HeartbeatTimeout = tick
	config.ElectionTimeout = tick
	config.LeaderLeaseTimeout = tick // at most the heartbeat timeout
	// How long an idle follower trails: its machine is behind by about this much.
	config.CommitTimeout = 5 * time.Millisecond
	// The transport bounds an append by bytes; this bounds what Raft reads for one. An
	// entry is a batch of commands, up to 256 KiB.
	config.MaxAppendEntries = 128
	config.BatchApplyCh = true
	// A removed node is told so and stops in order, its HTTP side first.
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
