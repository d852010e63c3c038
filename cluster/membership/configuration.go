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

// configurationLog knows the latest committed configuration and the index of its
// entry, which Raft does not show: Raft refuses a change that names the index if
// another change came first. Safe for concurrent use.
type configurationLog struct {
	snapshots raft.SnapshotStore

	mu       sync.Mutex
	index    uint64 // 0: not known
	servers  []raft.Server
	restored bool      // the machine came from a snapshot that was not looked at yet
	changed  wake.Bell // rung at the next one
}

// newConfigurationLog knows the configuration of the newest snapshot.
func newConfigurationLog(snapshots raft.SnapshotStore) *configurationLog {
	return &configurationLog{snapshots: snapshots, restored: true}
}

// note takes in the entry of a configuration, which is committed.
func (c *configurationLog) note(entry *raft.Log) {
	c.set(entry.Index, raft.DecodeConfiguration(entry.Data).Servers)
}

// jumped notes that the machine was restored from a snapshot.
func (c *configurationLog) jumped() {
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

// current returns the latest committed configuration that is known, and a channel
// that is closed at the next one. The index is 0 while it is not known. The servers
// must not be changed.
func (c *configurationLog) current() (index uint64, servers []raft.Server, changed <-chan struct{}) {
	c.mu.Lock()
	look := c.restored
	c.restored = false
	c.mu.Unlock()
	if look {
		c.look()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.index, c.servers, c.changed.Next()
}

// look reads the newest snapshot's configuration, which is committed. It is
// looked for later again if that fails.
func (c *configurationLog) look() {
	snapshots, err := c.snapshots.List()
	if err != nil {
		c.jumped()
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
	// absentRounds is for how many rounds a leader must deny a node that thinks
	// itself a member: the entry that says so may be on its way.
	absentRounds = 4
	// neverCampaign are the election times of a node that must not campaign.
	neverCampaign = 24 * time.Hour
)

// exclusion is a removal of this node that its own log does not show. Raft sends a
// removed node no entry after the one that removes it, and that one may not
// arrive, so that the node would campaign for ever (raft#524). It learns of its
// removal from the leader's replies to the probe.
type exclusion struct {
	base
	rounds int         // in which the leader denied this node without a break
	index  uint64      // of the configuration that this node had then
	known  atomic.Bool // this node is out, and does not campaign
}

// removed reports whether this node is out of the cluster: its own latest
// configuration lacks it, and then Raft does not campaign, or the leader says so.
func (e *exclusion) removed() bool { return e.absent() || e.known.Load() }

// absent reports whether this node's own latest configuration lacks it.
func (e *exclusion) absent() bool {
	servers := e.servers()
	_, member := Find(servers, e.self)
	return len(servers) > 0 && !member
}

// look finds out from the others' replies whether this node is out, or back in.
func (e *exclusion) look(seen map[string]probe.Seen) {
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

// leaderSays returns whether the leader's configuration has this node. said is false
// unless a leader has replied whose configuration is later than this node's.
func leaderSays(seen map[string]probe.Seen, index uint64) (member, ok bool) {
	for id, s := range seen {
		if s.Up() && s.Answer.Leader == id && s.Answer.State == probe.Live && s.Answer.Configuration > index {
			return s.Answer.Member, true
		}
	}
	return false, false
}

// campaignAfter sets for how long the leader must be silent before this node campaigns.
func (e *exclusion) campaignAfter(timeout time.Duration) {
	config := e.raft.ReloadableConfig()
	config.HeartbeatTimeout, config.ElectionTimeout = timeout, timeout
	if err := e.raft.ReloadConfig(config); err != nil && e.raft.State() != raft.Shutdown {
		e.log.Error("raft's election times could not be changed", "error", err)
	}
}
