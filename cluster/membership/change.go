package membership

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// memberTimeout bounds one change of the members.
	memberTimeout = 5 * time.Second
	// maxMemberText is the greatest length of a node id, in bytes.
	maxMemberText = 255
)

// Changes makes the leader's changes of the configuration, one at a time. Each change names the index of the
// configuration on which it was decided. Raft refuses the change if the configuration has changed since. Safe for
// concurrent use.
type Changes struct {
	base
	watch    *probe.Watch
	stopping context.Context
	turn     chan struct{}  // capacity 1, full while a change is under way
	entering sync.WaitGroup // the change that Raft has not yet committed or refused
}

// Begin waits until no other change is under way, and returns the configuration to change. The caller calls done at the
// end of its change. The next change begins only after Raft has committed or refused this change, so that it sees the
// result.
func (m *Changes) Begin(ctx context.Context) (index uint64, servers []raft.Server, done func(), err error) {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, nil, nil, context.Cause(ctx)
	}
	done = func() {
		go func() {
			m.entering.Wait()
			<-m.turn
		}()
	}
	index, servers, _ = m.configs.current()
	switch {
	case !m.host.Leads():
		err = outcome.ErrNotLeader
	case index == 0:
		err = outcome.ErrConfigurationChanged // index 0 would tell Raft to skip its check of the configuration
	}
	if err != nil {
		done()
	}
	return index, servers, done, err
}

// commit waits up to 5 s until a change is committed. After a timeout, Raft may still commit the change.
func (m *Changes) commit(ctx context.Context, change func(timeout time.Duration) raft.IndexFuture) error {
	timeout := m.times.Of(memberTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	m.entering.Add(1)
	return outcome.OfChange(wake.Await(ctx, func() error {
		defer m.entering.Done()
		return change(timeout).Error()
	}))
}

// add makes a node a member and waits until it has its vote.
func (m *Changes) add(ctx context.Context, id, address string) error {
	if err := CheckMember(id, address); err != nil {
		return err
	}
	voting, err := m.enter(ctx, id, address)
	if err != nil || voting {
		return err
	}
	for {
		_, servers, changed := m.configs.current()
		server, ok := Find(servers, id)
		switch {
		case !ok:
			// The apply goroutine may not have applied the addition yet.
		case server.Suffrage == raft.Voter:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s at %s", outcome.ErrCatchingUp, id, address)
		}
	}
}

// enter adds a member without a vote, or changes the address of a member. It first asks the node at that address for
// its id. voting reports whether the member has a vote.
func (m *Changes) enter(ctx context.Context, id, address string) (voting bool, err error) {
	index, servers, done, err := m.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	for _, s := range servers {
		if peer.PlainAddress(s.Address) == address && string(s.ID) != id {
			return false, fmt.Errorf("%w: %s has the address %s", outcome.ErrMemberInvalid, s.ID, address)
		}
	}
	server, ok := Find(servers, id)
	voting = ok && server.Suffrage == raft.Voter
	if ok && peer.PlainAddress(server.Address) == address {
		return voting, nil
	}
	if err := m.checkMove(ctx, servers, server, id, address); err != nil {
		return false, err
	}
	addServer := m.raft.AddNonvoter
	if voting { // AddVoter changes only the address of a member that is a voter
		addServer = m.raft.AddVoter
	}
	err = m.commit(ctx, func(timeout time.Duration) raft.IndexFuture {
		return addServer(raft.ServerID(id), peer.MoveAddress(server.Address, address), index, timeout)
	})
	if err == nil {
		m.log.Info("member added or moved", "member", id, "address", address, "voter", voting)
	}
	return voting, err
}

// remove removes a member and notifies it. To remove this node, the caller transfers leadership first.
func (m *Changes) remove(ctx context.Context, id string) error {
	index, servers, done, err := m.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	server, ok := Find(servers, id)
	if !ok {
		return nil
	}
	if err := m.checkRemoval(servers, id); err != nil {
		return err
	}
	err = m.commit(ctx, func(timeout time.Duration) raft.IndexFuture {
		return m.raft.RemoveServer(server.ID, index, timeout)
	})
	if err != nil {
		return err
	}
	m.log.Info("member removed", "member", id)
	go m.notifyRemoved(id, peer.PlainAddress(server.Address))
	return nil
}

// notifyRemoved tells a node once that it was removed, because a node that does not know asks for votes for ever
// (raft#524). A failure is only logged: the node also learns of its removal from the replies to its own probes.
func (m *Changes) notifyRemoved(id, address string) {
	ctx, cancel := context.WithTimeout(m.stopping, m.times.Of(memberTimeout))
	defer cancel()
	if _, err := m.calls.Call(ctx, address, probe.Request{Kind: probe.Removed, ID: id}); err != nil {
		m.log.Warn("a removed node could not be notified", "member", id, "address", address, "error", err)
	}
}

// raise raises the feature level after all members have confirmed that they know the level. Until the command is
// applied, all changes of the members are blocked, and the command is logged in this term or not at all. So no member
// that does not know the level can be added in between.
func (m *Changes) raise(ctx context.Context, level uint32) error {
	done, err := m.hold(ctx, level)
	if err != nil {
		return err
	}
	defer done()
	if err := m.host.Propose(ctx, fsm.RaiseLevel{Level: level}); err != nil {
		return err
	}
	m.log.Info("the feature level is raised", "level", level)
	return nil
}

// Hold blocks all changes of the members until done is called. Before that, it asks all members whether they know the
// feature level. It does not ask if the level is already in force: then all members know it, and a member that is down
// does not matter.
func (m *Changes) Hold(ctx context.Context, level uint32) (done func(), err error) {
	if level <= m.host.Level() {
		level = 0
	}
	return m.hold(ctx, level)
}

// hold does the work of Hold. With level 0 it asks no member, otherwise all members, even about a level in force.
func (m *Changes) hold(ctx context.Context, level uint32) (done func(), err error) {
	_, _, done, err = m.Begin(ctx)
	if err != nil {
		return nil, err
	}
	if level == 0 {
		return done, nil
	}
	if err := m.knownByAll(ctx, level); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// knownByAll returns an error unless every member of the latest configuration, voter or not, knows the level.
func (m *Changes) knownByAll(ctx context.Context, level uint32) error {
	servers := m.servers()
	lacking := wake.AtOnce(servers, func(s raft.Server) string { return m.lacks(ctx, s, level) })
	lacking = slices.DeleteFunc(lacking, func(lack string) bool { return lack == "" })
	if len(lacking) == 0 {
		return nil
	}
	slices.Sort(lacking)
	return fmt.Errorf("%w %d: %s", outcome.ErrLevelUnknown, level, strings.Join(lacking, ", "))
}

// lacks returns why a member can't apply commands of a level, or "".
func (m *Changes) lacks(ctx context.Context, s raft.Server, level uint32) string {
	knows := fsm.FeatureLevel
	if string(s.ID) != m.self {
		answer, err := m.calls.Ask(ctx, string(s.ID), string(s.Address))
		if err != nil {
			return fmt.Sprintf("%s at %s does not reply", s.ID, s.Address)
		}
		knows = answer.Knows
	}
	if knows < level {
		return fmt.Sprintf("%s knows level %d", s.ID, knows)
	}
	return ""
}

// transferTimeout bounds a transfer of leadership. Raft's own timeout has no effect while its request to the target
// hangs (raft#696).
const transferTimeout = 3 * time.Second

type successor struct {
	server raft.Server
	lag    uint64
}

// transfer makes one attempt to transfer leadership to the voter with that id. Without an id, it chooses the voter that
// has applied the most entries. It blocks until this node no longer leads.
func (m *Changes) transfer(ctx context.Context, id string) error {
	return m.transferTo(ctx, id, willing)
}

// transferTo is transfer to a voter whose reply to the probe satisfies fits.
func (m *Changes) transferTo(ctx context.Context, id string, fits func(*probe.Answer) bool) error {
	ctx, cancel := context.WithTimeout(ctx, m.times.Of(transferTimeout))
	defer cancel()
	if !m.host.Leads() {
		return outcome.ErrNotLeader
	}
	if id == m.self {
		return nil
	}
	target, err := m.choose(ctx, id, fits)
	if err != nil {
		return err
	}
	m.log.Info("handing leadership over", "to", string(target.server.ID), "lag", target.lag)
	return outcome.OfChange(wake.Await(ctx, m.raft.LeadershipTransferToServer(target.server.ID, target.server.Address).Error))
}

// abdicate transfers leadership so that the next leader can remove this node. It then returns outcome.ErrNotLeader, and
// the caller sends its request to the next leader.
func (m *Changes) abdicate(ctx context.Context) error {
	_, servers, _ := m.configs.current()
	if _, member := Find(servers, m.self); !member {
		return nil
	}
	if err := m.checkRemoval(servers, m.self); err != nil {
		return err
	}
	if err := m.transfer(ctx, ""); err != nil {
		return err
	}
	return outcome.ErrNotLeader
}

// choose asks the voters for their state. Of those that satisfy fits and receive this node's entries, it returns the
// voter with the smallest lag. We don't leave the choice to Raft, since it may choose a dead node to which it has sent
// many entries.
func (m *Changes) choose(ctx context.Context, id string, fits func(*probe.Answer) bool) (successor, error) {
	_, servers, _ := m.configs.current()
	var candidates []probe.Peer
	servers = slices.DeleteFunc(Voters(servers), func(v raft.Server) bool {
		return string(v.ID) == m.self || (id != "" && string(v.ID) != id)
	})
	for _, v := range servers {
		candidates = append(candidates, probe.Peer{ID: string(v.ID), Address: string(v.Address)})
	}
	var found []successor
	for i, p := range m.calls.AskAll(ctx, candidates) {
		if p.Err == nil && fits(&p.Answer) && m.host.Reaches(ctx, p.Peer.ID) {
			found = append(found, successor{servers[i], probe.Lag(m.raft.CommitIndex(), p.Answer.Applied)})
		}
	}
	if len(found) == 0 {
		if id != "" {
			return successor{}, fmt.Errorf("%w: %s is no voting member, or can't take over now", outcome.ErrNoTarget, id)
		}
		return successor{}, outcome.ErrNoTarget
	}
	return slices.MinFunc(found, func(a, b successor) int { return cmp.Compare(a.lag, b.lag) }), nil
}

// willing reports whether leadership may be transferred to a node.
func willing(a *probe.Answer) bool {
	return a.State != probe.Empty && !a.Draining && !a.StorageLow
}

// roomier reports whether a node may take over from a leader whose disk is nearly full. spent: only the leader's
// reserve is left. Then the node's disk may be nearly full too, if more than its reserve is left.
func roomier(a *probe.Answer, spent bool) bool {
	return a.State != probe.Empty && !a.Draining && !a.StorageSpent && (spent || !a.StorageLow)
}
