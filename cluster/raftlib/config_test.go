package raftlib

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func TestConfig(t *testing.T) {
	logger := hclog.NewNullLogger()
	for multiplier := 1; multiplier <= 20; multiplier++ {
		c, err := Config("n1", multiplier, logger)
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
		if c.CommitTimeout != commitTimeout || c.MaxAppendEntries != 128 || !c.BatchApplyCh || c.TrailingLogs != 2048 {
			t.Errorf("multiplier %d changes what it should not: %+v", multiplier, c)
		}
		if c.ShutdownOnRemove || c.PreVoteDisabled || !c.NoLegacyTelemetry || c.LocalID != "n1" || c.Logger == nil {
			t.Errorf("multiplier %d: %+v", multiplier, c)
		}
	}
	for _, multiplier := range []int{-1, 0, 21, 1 << 40} {
		if _, err := Config("n1", multiplier, logger); err == nil {
			t.Errorf("multiplier %d was taken", multiplier)
		}
	}
	if _, err := Config("", 1, logger); err == nil {
		t.Error("an empty id was taken")
	}
}

// TestOnlyOrdinaryFaultsAreWarnings: a fault that another member causes is not an
// error in the log, and one of this node stays one.
func TestOnlyOrdinaryFaultsAreWarnings(t *testing.T) {
	var log bytes.Buffer
	config, err := Config("n1", 1, hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Error}))
	must(t, err)
	config.Logger.Error("failed to commit logs", "error", "no space left on device")
	config.Logger.Error("failed to heartbeat to", "peer", "n2:8711")
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "[ERROR] raft: failed to commit logs: error=") {
		t.Errorf("logged: %s", got)
	}
}

// TestFaultsOfADeadMemberAreNoFlood: of each kind of fault and each member, one line is logged per logEvery, with the
// number of lines that were held back.
func TestFaultsOfADeadMemberAreNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		config, err := Config("n1", 1, hclog.New(&hclog.LoggerOptions{Output: &log}))
		must(t, err)
		n3 := raft.Server{ID: "n3", Address: "n3:8711"}
		for began := time.Now(); time.Since(began) < 25*time.Second; time.Sleep(250 * time.Millisecond) { // virtual
			config.Logger.Error("failed to heartbeat to", "peer", n3.Address, "backoff time", time.Second)
			config.Logger.Error("failed to appendEntries to", "peer", n3, "error", "refused")
			config.Logger.Warn("failed to contact", "server-id", n3.ID, "time", time.Since(began))
		}
		config.Logger.Error("failed to heartbeat to", "peer", raft.ServerAddress("n2:8711"))
		config.Logger.Error("failed to commit logs")
		config.Logger.Error("failed to commit logs")
		for line, count := range map[string]int{
			"failed to heartbeat to: peer=n3:8711": 3, "failed to appendEntries to: ": 3, "failed to contact: server-id=n3": 3,
			"more=39": 6, "failed to heartbeat to: peer=n2:8711 more=0": 1, "failed to commit logs": 2,
		} {
			if got := strings.Count(log.String(), line); got != count {
				t.Errorf("%d times %q:\n%s", got, line, log.String())
			}
		}
	})
}
