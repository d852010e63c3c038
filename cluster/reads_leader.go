package cluster

import (
	"context"

	"github.com/hashicorp/raft"
)

// confirmer answers reads on the leader: an index that shows everything which was
// acknowledged before the read came, and in which nothing lives whose deadline
// has passed. Safe for concurrent use.
type confirmer struct {
	machine *machine
	rounds  *ReadRounds
}

// readSource is what read rounds ask of this node's Raft.
func readSource(r *raft.Raft, self raft.ServerID, acks *AckClock, established func() *reign) ReadSource {
	return ReadSource{
		Acks: acks,
		Self: self,
		Term: func() (uint64, bool) {
			// In this order: a reign whose term is still Raft's is not over.
			reign := established()
			term := r.CurrentTerm()
			return term, reign != nil && reign.term == term
		},
		CommitIndex: r.CommitIndex,
		Voters:      func() []raft.ServerID { return voters(r) },
		Kick:        func() { r.VerifyLeader() },
	}
}

// voters answers who votes in the latest configuration.
func voters(r *raft.Raft) []raft.ServerID {
	var found []raft.ServerID
	// The configuration is at hand; the future never blocks.
	for _, server := range r.GetConfiguration().Configuration().Servers {
		if server.Suffrage == raft.Voter {
			found = append(found, server.ID)
		}
	}
	return found
}

// confirm answers a read index and a reading of cluster time. It blocks for a
// round trip to a quorum and, when sessions are due, until they are removed.
func (c *confirmer) confirm(ctx context.Context, r *reign) (index uint64, nowMS int64, err error) {
	index, err = c.rounds.Confirm(ctx)
	if err != nil {
		return 0, 0, err
	}
	// Deadlines are those of the state at the index, or of a later one.
	if err := c.machine.progress.await(ctx, index); err != nil {
		return 0, 0, err
	}
	nowMS = r.clock.now()
	for {
		deadline, ok := c.machine.nextDeadline()
		if !ok || deadline > nowMS {
			if r.isOver() { // the round may have been that of a later one
				return 0, 0, errReignOver
			}
			return index, nowMS, nil
		}
		// One that is due but still there must not show: an entry removes it,
		// and so many at a time. What it shows then is exact at nowMS.
		if index, err = r.proposer.tick(ctx); err != nil {
			return 0, 0, err
		}
	}
}
