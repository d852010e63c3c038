package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/memnet"
)

// TestLevelOfANewCluster: it begins at its program's level, and every node shows
// what each member knows.
func TestLevelOfANewCluster(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		for _, n := range c.all {
			c.until("the level of all members on "+n.id, func() bool {
				s := n.Status()
				for _, m := range s.Members {
					if m.Knows != fsm.FeatureLevel {
						return false
					}
				}
				return s.Level == fsm.FeatureLevel && len(s.Members) == 3
			})
			if err := n.RaiseLevel(t.Context(), fsm.FeatureLevel); err != nil {
				t.Errorf("%s: raise to the level in force: %v", n.id, err)
			}
		}
	})
}

// TestLevelThatAMemberDoesNotKnow: the error names the members that don't know it and
// those that don't reply, and no entry is logged.
func TestLevelThatAMemberDoesNotKnow(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		leader := c.leader()
		silent, other := c.others(leader)[0], c.others(leader)[1]
		c.kill(silent)
		last := leader.raft().LastIndex()
		err := other.RaiseLevel(t.Context(), fsm.FeatureLevel+1)
		if !errors.Is(err, outcome.ErrLevelUnknown) {
			t.Fatalf("a level that no member knows: %v", err)
		}
		for _, want := range []string{
			silent.id + " at " + silent.id + ":8711 does not reply",
			fmt.Sprintf("%s knows level %d", leader.id, fsm.FeatureLevel), fmt.Sprintf("%s knows level %d", other.id, fsm.FeatureLevel),
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in %q", want, err)
			}
		}
		if err := leader.RaiseLevel(t.Context(), fsm.FeatureLevel); !errors.Is(err, outcome.ErrLevelUnknown) {
			t.Errorf("with a member that does not reply: %v", err)
		}
		if got := leader.raft().LastIndex(); got != last {
			t.Errorf("%d entries were logged", got-last)
		}
	})
}

// TestLevelThatAMemberWithoutAVoteMayNotKnow: it applies the same entries.
func TestLevelThatAMemberWithoutAVoteMayNotKnow(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		leader := c.leader()
		c.must(leader.raft().AddNonvoter("n2", "n2:8711", 0, 0).Error())
		err := leader.RaiseLevel(t.Context(), fsm.FeatureLevel)
		if !errors.Is(err, outcome.ErrLevelUnknown) || !strings.Contains(err.Error(), "n2 at n2:8711 does not reply") {
			t.Errorf("raised beside a member without a vote that may not know the level: %v", err)
		}
	})
}

// TestSnapshotOfANewerLevel: a node that can't read its snapshot ends with the
// reason, which Raft keeps to itself.
func TestSnapshotOfANewerLevel(t *testing.T) {
	s, err := store.Open(store.Options{Ephemeral: true, NodeID: "n1", ClusterID: fsm.ClusterID{1}.String()})
	if err != nil {
		t.Fatal(err)
	}
	configuration := membership.FirstConfiguration([]Peer{{ID: "n1", Address: "n1:8711"}})
	sink, err := s.Snapshots().Create(raft.SnapshotVersionMax, 7, 2, configuration, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	index := binary.BigEndian.AppendUint64(nil, 7)
	if _, err := sink.Write(append(index, "SIGNALBX\x01\x63"...)); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Config{NodeID: "n1", Bind: "n1:8711", Network: memnet.New().Host("n1"), Store: s})
	if err == nil || !strings.Contains(err.Error(), "feature level 99, this program knows "+fmt.Sprint(fsm.FeatureLevel)) {
		t.Errorf("started on a snapshot of level 99: %v", err)
	}
}

// TestRejoinBelowTheLevel: a program that knows less than the level in force is not
// taken back: it could not apply what comes.
func TestRejoinBelowTheLevel(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		leader := c.leader()
		older := c.others(leader)[0]
		c.kill(older)
		_, err := leader.joining.CarryOut(t.Context(), &probe.Request{
			Kind: probe.Rejoin, From: older.id, ID: older.id, Address: older.id + ":8711", Level: fsm.FeatureLevel - 1}, nil)
		if !errors.Is(err, outcome.ErrMemberInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("knows feature level %d, the cluster is at %d", fsm.FeatureLevel-1, fsm.FeatureLevel)) {
			t.Errorf("a rejoin below the level: %v", err)
		}
	})
}
