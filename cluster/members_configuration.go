package cluster

import (
	"sync"

	"github.com/hashicorp/raft"
)

// configurationLog knows the latest committed configuration and, which Raft does
// not tell, the index of its entry: a change that names it is refused if another
// one came first. Safe for concurrent use.
type configurationLog struct {
	snapshots raft.SnapshotStore

	mu       sync.Mutex
	index    uint64 // 0: none known
	servers  []raft.Server
	restored bool          // the machine came from a snapshot that was not looked at yet
	changed  chan struct{} // closed at the next one
}

// newConfigurationLog knows the configuration of the newest snapshot.
func newConfigurationLog(snapshots raft.SnapshotStore) *configurationLog {
	return &configurationLog{snapshots: snapshots, restored: true, changed: make(chan struct{})}
}

// note takes the configurations among entries that were committed, in their order.
func (c *configurationLog) note(entries []*raft.Log) {
	for _, entry := range entries {
		if entry.Type == raft.LogConfiguration {
			c.set(entry.Index, raft.DecodeConfiguration(entry.Data).Servers)
		}
	}
}

// jumped tells that the machine was restored from a snapshot.
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
	close(c.changed)
	c.changed = make(chan struct{})
}

// current answers the latest committed configuration that is known and a channel
// that is closed at the next one. The index is 0 while none is. The servers must
// not be changed.
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
	return c.index, c.servers, c.changed
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

// findServer answers a member by id.
func findServer(servers []raft.Server, id string) (raft.Server, bool) {
	for _, s := range servers {
		if string(s.ID) == id {
			return s, true
		}
	}
	return raft.Server{}, false
}

// votersOf answers those with a vote.
func votersOf(servers []raft.Server) []raft.Server {
	var voters []raft.Server
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, s)
		}
	}
	return voters
}
