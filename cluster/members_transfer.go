package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store"
)

// transferTimeout bounds a handing over. Raft gives up after an election timeout,
// unless its request to the target hangs (raft#696).
const transferTimeout = 3 * time.Second

// successor is a voter that could lead.
type successor struct {
	server raft.Server
	lag    uint64
}

// transfer hands leadership over, once, to the voter named, or to the one that
// trails least if id is empty. It blocks until this node does not lead any more.
func (m *membership) transfer(ctx context.Context, id string) error {
	return m.transferTo(ctx, id, (*probeAnswer).willing)
}

// transferTo is transfer to a voter that fits.
func (m *membership) transferTo(ctx context.Context, id string, fits func(*probeAnswer) bool) error {
	ctx, cancel := context.WithTimeout(ctx, m.calls.times.of(transferTimeout))
	defer cancel()
	if !m.leads() {
		return errNotEstablished
	}
	if id == m.self {
		return nil
	}
	target, err := m.choose(ctx, id, fits)
	if err != nil {
		return err
	}
	m.log.Info("handing leadership over", "to", string(target.server.ID), "lag", target.lag)
	return await(ctx, m.raft.LeadershipTransferToServer(target.server.ID, target.server.Address))
}

// choose asks the voters that come into question, and answers the one that is up
// and trails least. Raft's own choice is by what it last sent, to a dead one too.
func (m *membership) choose(ctx context.Context, id string, fits func(*probeAnswer) bool) (successor, error) {
	_, servers, _ := m.configs.current()
	var mu sync.Mutex
	var asking sync.WaitGroup
	var found []successor
	for _, v := range votersOf(servers) {
		if string(v.ID) == m.self || (id != "" && string(v.ID) != id) {
			continue
		}
		asking.Go(func() {
			answer, err := m.calls.ask(ctx, string(v.ID), string(v.Address))
			mu.Lock()
			defer mu.Unlock()
			if err == nil && fits(&answer) {
				found = append(found, successor{v, lagBehind(m.raft.CommitIndex(), answer.Applied)})
			}
		})
	}
	asking.Wait()
	if len(found) == 0 {
		if id != "" {
			return successor{}, fmt.Errorf("%w: %s is no voting member, or can't take over now", ErrNoTarget, id)
		}
		return successor{}, ErrNoTarget
	}
	return slices.MinFunc(found, func(a, b successor) int { return cmp.Compare(a.lag, b.lag) }), nil
}

// willing reports whether a node may be made the leader.
func (a *probeAnswer) willing() bool {
	return a.State != stateEmpty && !a.Draining && !a.StorageLow
}

// roomier reports whether a node may be made the leader in place of one whose disk
// has no more room than that: one that is low gives way to one that is not, and
// one that has only its reserve left to any other.
func (a *probeAnswer) roomier(than store.Space) bool {
	return a.State != stateEmpty && !a.Draining && !a.StorageSpent && (than.Spent || !a.StorageLow)
}

// lagBehind answers by how many entries a machine trails.
func lagBehind(commit, applied uint64) uint64 {
	return commit - min(applied, commit)
}
