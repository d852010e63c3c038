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

// TestSnapshotOfANewerLevel: a node that can't read its snapshot ends with the
// reason, which Raft keeps to itself.
func TestSnapshotOfANewerLevel(t *testing.T) {
	s, err := store.Open(store.Options{Ephemeral: true, NodeID: "n1", ClusterID: fsm.ClusterID{1}.String()})
	must(t, err)
	configuration := membership.FirstConfiguration([]Peer{{ID: "n1", Address: "n1:8711"}})
	sink, err := s.Snapshots().Create(raft.SnapshotVersionMax, 7, 2, configuration, 1, nil)
	must(t, err)
	index := binary.BigEndian.AppendUint64(nil, 7)
	if _, err := sink.Write(append(index, "SIGNALBX\x01\x63"...)); err != nil {
		t.Fatal(err)
	}
	must(t, sink.Close())
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
