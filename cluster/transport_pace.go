package cluster

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// appendAim is how long an append and its reply should take at multiplier 1, at
	// most: heartbeats share the link with it, and must come within raftTick.
	appendAim = raftTick / 2
	// appendFirst is the budget of a peer of which nothing is known, in bytes.
	appendFirst = 1 << 20
	// appendMin and appendMax bound a budget.
	appendMin = 16 << 10
	appendMax = 8 << 20
	// entryOverhead is about what an entry costs on the wire beside its data.
	entryOverhead = 64
)

// paces knows how many bytes of entries an append to each peer may have: Raft bounds
// it by their number alone, and too many bytes for a slow link never arrive within
// the time-out. Safe for concurrent use.
type paces struct {
	aim   time.Duration
	mu    sync.Mutex
	peers map[raft.ServerID]*pace
}

// of returns the pace of a peer.
func (p *paces) of(peer raft.ServerID) *pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers == nil {
		p.peers = map[raft.ServerID]*pace{}
	}
	if p.peers[peer] == nil {
		p.peers[peer] = &pace{budget: appendFirst}
	}
	return p.peers[peer]
}

// pace is the budget of one peer, in bytes of entries an append. Safe for concurrent
// use.
type pace struct {
	mu     sync.Mutex
	budget int
	// least is how long the fastest message has taken, with its reply; 0: none has been
	// replied to. No budget makes an append faster.
	least time.Duration
}

// fit returns the first entries that the budget has room for, at least one of them.
func (p *pace) fit(entries []*raft.Log) []*raft.Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for i, entry := range entries {
		total += entrySize(entry)
		if i > 0 && total > p.budget {
			return entries[:i]
		}
	}
	return entries
}

// note learns from an append or a heartbeat. After a failure the budget is half of what
// failed. Beyond the least time that a message takes, an append that took longer than
// the aim has the budget shrink to what would have taken as long as that; one that
// used most of the budget within half of the aim doubles it.
func (p *pace) note(entries []*raft.Log, took time.Duration, err error, aim time.Duration) {
	total := 0
	for _, entry := range entries {
		total += entrySize(entry)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && (p.least == 0 || took < p.least) {
		p.least = took
	}
	took -= p.least
	if total < appendMin && (err != nil || took > aim) { // its bytes are not what took long
		return
	}
	switch {
	case err != nil:
		p.budget = min(p.budget, total) / 2
	case took > aim:
		p.budget = min(p.budget, int(float64(total)*float64(aim)/float64(took)))
	case took < aim/2 && total > p.budget/2:
		p.budget *= 2
	}
	p.budget = min(max(p.budget, appendMin), appendMax)
}

func entrySize(entry *raft.Log) int { return len(entry.Data) + len(entry.Extensions) + entryOverhead }
