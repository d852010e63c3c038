package cluster

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// promotion gives members without a vote one, once they have caught up: there are
// none that shall stay without. It is the leader's part of adding a node, and of
// taking one back that had lost its folder, in whatever state a change of leader
// or a restart has left that.
type promotion struct {
	members *membership
	commit  func() uint64 // Raft's commit index

	// marks are the commit indexes that members without a vote have to reach.
	marks map[string]promotionMark
}

// promotionMark is a goal that one incarnation of a member has to reach. Another
// one may have lost what the first had.
type promotionMark struct {
	incarnation uint64
	index       uint64
	setAt       time.Time
}

// step looks at all members once; call it now and then, from one goroutine.
func (p *promotion) step(ctx context.Context) {
	if !p.members.leads() {
		p.marks = nil
		return
	}
	_, servers, _ := p.members.configs.current()
	for _, s := range servers {
		if s.Suffrage == raft.Nonvoter && p.caughtUp(string(s.ID)) {
			p.promote(ctx, s)
		}
	}
}

// caughtUp reports whether a member has applied everything that was committed when
// it was looked at before: it keeps up, rather than being a moment's length away.
func (p *promotion) caughtUp(id string) bool {
	if p.marks == nil {
		p.marks = map[string]promotionMark{}
	}
	seen := p.members.watch.all()[id]
	if !seen.up() || seen.answer.State == stateEmpty {
		delete(p.marks, id)
		return false
	}
	mark, ok := p.marks[id]
	switch {
	case !ok || mark.incarnation != seen.answer.Incarnation:
	case !seen.asked.After(mark.setAt):
		return false // nothing new
	case seen.answer.Applied >= mark.index:
		return true
	}
	p.marks[id] = promotionMark{seen.answer.Incarnation, p.commit(), time.Now()}
	return false
}

// promote gives a member its vote, unless the configuration changes meanwhile: then
// it may be one that has just lost its folder, and is looked at anew.
func (p *promotion) promote(ctx context.Context, s raft.Server) {
	m := p.members
	index, servers, done, err := m.begin(ctx)
	if err != nil {
		return
	}
	defer done()
	now, ok := findServer(servers, string(s.ID))
	if !ok || now != s || !p.still(ctx, s) {
		return
	}
	delete(p.marks, string(s.ID))
	err = m.commit(ctx, func(timeout time.Duration) raft.IndexFuture {
		return m.raft.AddVoter(s.ID, s.Address, index, timeout)
	})
	if err != nil {
		m.log.Warn("a member that has caught up could not be given its vote yet", "member", string(s.ID), "error", err)
		return
	}
	m.log.Info("a member has caught up and has its vote", "member", string(s.ID))
}

// still asks the member itself, after the configuration was read: one that lost
// its folder before that has another incarnation now, and one that loses it later
// changes the configuration before it comes in.
func (p *promotion) still(ctx context.Context, s raft.Server) bool {
	answer, err := p.members.calls.ask(ctx, string(s.ID), string(s.Address))
	mark := p.marks[string(s.ID)]
	return err == nil && answer.Incarnation == mark.incarnation && answer.Applied >= mark.index
}
