package membership

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/internal/wake"
)

// configurationLog holds the latest committed configuration and the index of its entry. Raft does not report this
// index, but a change of the configuration must name it. Safe for concurrent use.
type configurationLog struct {
	snapshots raft.SnapshotStore

	mu       sync.Mutex
	index    uint64 // 0: not known
	servers  []raft.Server
	restored bool      // the newest snapshot's configuration is still to be read
	changed  wake.Bell // rung at each new configuration
}

func newConfigurationLog(snapshots raft.SnapshotStore) *configurationLog {
	return &configurationLog{snapshots: snapshots, restored: true}
}

func (c *configurationLog) addEntry(entry *raft.Log) {
	c.set(entry.Index, raft.DecodeConfiguration(entry.Data).Servers)
}

// noteRestore notes that the machine was restored from a snapshot. The next call of current reads its configuration.
func (c *configurationLog) noteRestore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restored = true
}

func (c *configurationLog) set(index uint64, servers []raft.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if index <= c.index {
		return
	}
	c.index, c.servers = index, servers
	c.changed.Ring()
}

// current returns the latest known committed configuration, and a channel that is closed when a later configuration is
// known. The index is 0 while no configuration is known. The caller must not change servers.
func (c *configurationLog) current() (index uint64, servers []raft.Server, changed <-chan struct{}) {
	c.mu.Lock()
	unread := c.restored
	c.restored = false
	c.mu.Unlock()
	if unread {
		c.readSnapshots()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.index, c.servers, c.changed.Next()
}

// readSnapshots reads the configuration of each snapshot; Raft has committed it. If the snapshots cannot be listed, the
// next call of current tries again.
func (c *configurationLog) readSnapshots() {
	snapshots, err := c.snapshots.List()
	if err != nil {
		c.noteRestore()
		return
	}
	for _, meta := range snapshots {
		c.set(meta.ConfigurationIndex, meta.Configuration.Servers)
	}
}

// Find returns a member by id.
func Find(servers []raft.Server, id string) (raft.Server, bool) {
	for _, s := range servers {
		if string(s.ID) == id {
			return s, true
		}
	}
	return raft.Server{}, false
}

// Voters returns the members with a vote.
func Voters(servers []raft.Server) []raft.Server {
	var voters []raft.Server
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, s)
		}
	}
	return voters
}

const (
	// absentRounds is how many rounds in a row the leader must report that this node is no member. One report is not
	// enough: the entry that adds or removes this node may be on its way, and then this node learns it from its own
	// log.
	absentRounds = 4
	// neverCampaign stands in for "no election timeout", for a removed node.
	neverCampaign = 24 * time.Hour
)

// exclusion finds out from the leader's replies to probes that this node was removed. Its own log may not show it: Raft
// sends a removed node no more entries, and the entry of the removal may get lost. The node would then campaign for
// ever (raft#524).
type exclusion struct {
	base
	rounds int         // rounds in a row in which the leader reported that this node is no member
	index  uint64      // of this node's configuration when it learned of its removal
	known  atomic.Bool // this node was removed and does not campaign
}

// removed reports whether this node was removed, according to its own log or to the leader.
func (e *exclusion) removed() bool { return e.absent() || e.known.Load() }

// absent reports whether this node is missing in its own latest configuration. Raft does not campaign then.
func (e *exclusion) absent() bool {
	servers := e.servers()
	_, member := Find(servers, e.self)
	return len(servers) > 0 && !member
}

// update finds out from the other nodes' replies whether this node was removed or added again.
func (e *exclusion) update(seen map[string]probe.Seen) {
	index, _, _ := e.configs.current()
	member, ok := leaderSays(seen, index)
	switch {
	case ok && !member && !e.absent():
		if e.rounds++; e.rounds == absentRounds {
			e.index = index
			e.known.Store(true)
			e.campaignAfter(neverCampaign)
			e.log.Error("this node was removed from the cluster: it takes no part any more; stop it, or add it again")
		}
	case e.known.Load() && ((ok && member) || index > e.index):
		e.known.Store(false)
		e.campaignAfter(e.times.Of(raftlib.Tick))
		e.log.Info("this node is a member of the cluster again")
		fallthrough
	default:
		e.rounds = 0
	}
}

// leaderSays reports whether the leader's configuration contains this node. ok is false if no leader has replied, or if
// its configuration is not later than index, which is the index of this node's configuration.
func leaderSays(seen map[string]probe.Seen, index uint64) (member, ok bool) {
	for id, s := range seen {
		if s.Up() && s.Answer.Leader == id && s.Answer.State == probe.Live && s.Answer.Configuration > index {
			return s.Answer.Member, true
		}
	}
	return false, false
}

// campaignAfter sets how long this node waits without a leader before it campaigns.
func (e *exclusion) campaignAfter(timeout time.Duration) {
	config := e.raft.ReloadableConfig()
	config.HeartbeatTimeout, config.ElectionTimeout = timeout, timeout
	if err := e.raft.ReloadConfig(config); err != nil && e.raft.State() != raft.Shutdown {
		e.log.Error("raft's election times could not be changed", "error", err)
	}
}
