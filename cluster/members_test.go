package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
)

func TestMemberChangesThatAreRefused(t *testing.T) {
	formedBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		leader := c.leader()
		for _, bad := range [][2]string{{"", "n4:1"}, {"n4", ""}, {"n4", "n4"}, {"n4", ":1"}, {"n4", "[]:1"}, {"n4", "n4:x"}, {"n4", "n4:0"}, {"n4", "n4:08711"}, {"n4", "0.0.0.0:8711"}, {"n4", "[::]:8711"}, {"n4", "[::ffff:0.0.0.0]:1"},
			{"n4", "224.0.0.1:1"}, {"n4", "[ff02::1]:1"}, {"n4", "255.255.255.255:1"}, {"n4", "10.0.0.256:1"}, {"n4", "7:1"}, {"n4", "//n4:1"}, {"n4", "n4..x:1"}, {"n4", "-n4:1"}, {"n4", "u@n4:1"}, {"n 4", "n4:1"}, {"n=4", "n4:1"},
			{strings.Repeat("n", 256), "n4:1"}, {"n4", strings.Repeat("n", 256) + ":1"}} {
			if err := leader.AddMember(t.Context(), bad[0], bad[1]); !errors.Is(err, outcome.ErrMemberInvalid) {
				t.Errorf("%q at %q: %v", bad[0], bad[1], err)
			}
		}
	})
}

// TestConfigurationLogKnowsIndexes: each committed configuration with the index of
// its entry, also after a restart from a snapshot.
func TestConfigurationLogKnowsIndexes(t *testing.T) {
	lifeBubble(t, 1, func(t *testing.T, c *lifeNodes) {
		n := c.all[0]
		c.begin(n)
		c.ready(n)
		c.must(n.raft().AddNonvoter("n2", "n2:8711", 0, time.Second).Error())
		index, servers := n.joining.Configuration()
		var entry raft.Log
		c.must(n.store.Logs().GetLog(index, &entry))
		if entry.Type != raft.LogConfiguration || len(servers) != 2 {
			t.Fatalf("at %d is a %v; servers %v", index, entry.Type, servers)
		}
		config := n.raft().ReloadableConfig()
		config.TrailingLogs = 1
		c.must(n.raft().ReloadConfig(config))
		c.semaphore("db", 1)
		c.must(n.raft().Snapshot().Error())
		c.kill(n)
		c.begin(n)
		if again, servers := n.joining.Configuration(); again != index || len(servers) != 2 {
			t.Errorf("after a restart: configuration %d, %v, want %d", again, servers, index)
		}
	})
}
