package cluster

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// absentRounds is for how many rounds a leader must deny a node that thinks
	// itself a member: the entry that says so may be on its way.
	absentRounds = 4
	// hushed are the election times of a node that must not campaign.
	hushed = 24 * time.Hour
)

// exclusion is what a node knows of its removal when its own log does not tell.
// Raft sends a removed node nothing after the entry that removes it, and that one
// may not arrive, so that the node would campaign for ever (raft#524). It learns
// it from the leader's answers.
type exclusion struct {
	rounds int         // in which the leader denied this node without a break
	index  uint64      // of the configuration that this node had then
	told   atomic.Bool // this node is out, and does not campaign
}

// known reports that the leader has told this node that it is out.
func (e *exclusion) known() bool { return e.told.Load() }

// lookForRemoval finds out from the others' answers whether this node is out, or
// back in.
func (l *life) lookForRemoval(seen map[string]peerSeen) {
	e := &l.exclusion
	own, _, _ := l.configs.current()
	member, told := leaderSays(seen, own)
	switch {
	case told && !member && !l.removed():
		if e.rounds++; e.rounds == absentRounds {
			e.index = own
			e.told.Store(true)
			l.hush(hushed)
			l.node.log.Error("this node was removed from the cluster: it takes no part any more; stop it, or add it again")
		}
	case e.known() && ((told && member) || own > e.index):
		e.told.Store(false)
		l.hush(time.Duration(l.node.config.RaftMultiplier) * raftTick)
		l.node.log.Info("this node is a member of the cluster again")
		fallthrough
	default:
		e.rounds = 0
	}
}

// leaderSays answers what the leader's configuration says of this node, if a leader
// has answered that has a later one than this node.
func leaderSays(seen map[string]peerSeen, own uint64) (member, told bool) {
	for id, s := range seen {
		if s.up() && s.answer.Leader == id && s.answer.State == stateLive && s.answer.Configuration > own {
			return s.answer.Member, true
		}
	}
	return false, false
}

// hush sets after what silence of the leader this node campaigns.
func (l *life) hush(timeout time.Duration) {
	r := l.raft()
	config := r.ReloadableConfig()
	config.HeartbeatTimeout, config.ElectionTimeout = timeout, timeout
	if err := r.ReloadConfig(config); err != nil && r.State() != raft.Shutdown {
		l.node.log.Error("raft's election times could not be changed", "error", err)
	}
}
