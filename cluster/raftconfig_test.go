package cluster

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func TestRaftConfig(t *testing.T) {
	logger := hclog.NewNullLogger()
	for multiplier := 1; multiplier <= 20; multiplier++ {
		c, err := RaftConfig("n1", multiplier, logger)
		if err != nil {
			t.Fatalf("multiplier %d: %v", multiplier, err)
		}
		if err := raft.ValidateConfig(c); err != nil {
			t.Errorf("multiplier %d: %v", multiplier, err)
		}
		want := time.Duration(multiplier) * 500 * time.Millisecond
		if c.HeartbeatTimeout != want || c.ElectionTimeout != want || c.LeaderLeaseTimeout != want {
			t.Errorf("multiplier %d: %v, %v, %v", multiplier, c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout)
		}
		if c.CommitTimeout != 5*time.Millisecond || c.MaxAppendEntries != 128 || !c.BatchApplyCh || c.TrailingLogs != 2048 {
			t.Errorf("multiplier %d changes what it should not: %+v", multiplier, c)
		}
		if c.ShutdownOnRemove || c.PreVoteDisabled || !c.NoLegacyTelemetry || c.LocalID != "n1" || c.Logger == nil {
			t.Errorf("multiplier %d: %+v", multiplier, c)
		}
	}
	for _, multiplier := range []int{-1, 0, 21, 1 << 40} {
		if _, err := RaftConfig("n1", multiplier, logger); err == nil {
			t.Errorf("multiplier %d was taken", multiplier)
		}
	}
	if _, err := RaftConfig("", 1, logger); err == nil {
		t.Error("an empty id was taken")
	}
}
