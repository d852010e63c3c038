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

// configurationLog holds the latest committed configuration and the index of its entry, which Raft does not report. A
// change names that index, and Raft refuses the change if another change came first. Safe for concurrent use.
type configurationLog struct {
	snapshots raft.SnapshotStore

	mu       sync.Mutex
	index    uint64 // 0: not known
	servers  []raft.Server
	restored bool      // the configuration of the newest snapshot was not read yet
	changed  wake.Bell // rung at each new configuration
}

// newConfigurationLog returns a log that begins with the configuration of the newest snapshot.
func newConfigurationLog(snapshots raft.SnapshotStore) *configurationLog {
	return &configurationLog{snapshots: snapshots, restored: true}
}

// addEntry stores the configuration of a committed entry.
func (c *configurationLog) addEntry(entry *raft.Log) {
	c.set(entry.Index, raft.DecodeConfiguration(entry.Data).Servers)
}

// noteRestore notes that the machine was restored from a snapshot, whose configuration is read at the next call of
// current.
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

// current returns the latest committed configuration that is known, and a channel that is closed when a later one is
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

// readSnapshots reads the configurations of the snapshots, which are committed. If the snapshots cannot be listed, the
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
	// absentRounds is how many rounds in a row the leader must deny that this node is a member. A single denial is not
	// enough: the entry of the removal may still be on its way, and then this node's own log shows it.
	absentRounds = 4
	// neverCampaign is the election timeout of a node that must not campaign.
	neverCampaign = 24 * time.Hour
)

// exclusion finds out that this node was removed although its own log does not show it. Raft sends a removed node no
// entry after the entry that removes it, and that entry may get lost, so that the node would campaign for ever
// (raft#524). So the node learns of its removal from the leader's replies to the probe.
type exclusion struct {
	base
	rounds int         // rounds in a row in which the leader denied this node
	index  uint64      // of this node's configuration when it found out
	known  atomic.Bool // this node was removed, and does not campaign
}

// removed reports whether this node is no longer a member: its own latest configuration lacks it (then Raft does not
// campaign), or the leader says so.
func (e *exclusion) removed() bool { return e.absent() || e.known.Load() }

// absent reports whether this node's own latest configuration lacks it.
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

// leaderSays returns whether the leader's configuration has this node. ok is false unless a leader has replied whose
// configuration is later than index, the index of this node's configuration.
func leaderSays(seen map[string]probe.Seen, index uint64) (member, ok bool) {
	for id, s := range seen {
		if s.Up() && s.Answer.Leader == id && s.Answer.State == probe.Live && s.Answer.Configuration > index {
			return s.Answer.Member, true
		}
	}
	return false, false
}

// campaignAfter sets how long this node hears no leader before it campaigns.
func (e *exclusion) campaignAfter(timeout time.Duration) {
	config := e.raft.ReloadableConfig()
	config.HeartbeatTimeout, config.ElectionTimeout = timeout, timeout
	if err := e.raft.ReloadConfig(config); err != nil && e.raft.State() != raft.Shutdown {
		e.log.Error("raft's election times could not be changed", "error", err)
	}
}
