package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
)

// Readmit takes the vote of a member that has lost its folder, and notes its address
// with the new folder. When it returns without an error, this leader has committed
// that, in the term that it returns or an earlier one. It commits an entry even if
// the member has no vote: only so it is certain that this node still leads, and that
// no promotion decided before can come after. It fails with probe.ErrMemberAlive while
// another process with that id is alive: an empty folder with a copied id must not
// take a healthy member's place.
func (m *Changes) Readmit(ctx context.Context, id, address string, caller peer.Hello, from string) (term uint64, err error) {
	if err := m.checkVacant(ctx, id, caller, from); err != nil {
		return 0, err
	}
	index, servers, done, err := m.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	server, ok := Find(servers, id)
	if !ok {
		return 0, probe.ErrNotMember
	}
	if address == "" {
		address = peer.PlainAddress(server.Address)
	}
	admitted := peer.MarkAddress(address, caller.Folder)
	if server.Suffrage == raft.Voter {
		var demoted raft.IndexFuture
		err := m.commit(ctx, func(timeout time.Duration) raft.IndexFuture {
			demoted = m.raft.DemoteVoter(server.ID, index, timeout)
			return demoted
		})
		if err != nil {
			return 0, err
		}
		index = demoted.Index()
	}
	err = m.commit(ctx, func(timeout time.Duration) raft.IndexFuture {
		return m.raft.AddNonvoter(server.ID, admitted, index, timeout)
	})
	if err != nil {
		return 0, err
	}
	m.log.Warn("a member that lost its folder has no vote until it has caught up", "member", id, "address", address, "folder", caller.Folder)
	return m.raft.CurrentTerm(), nil
}

// checkVacant fails while another process is alive as the member with that id: one
// that has a stream with this node, or one at the member's address.
func (m *Changes) checkVacant(ctx context.Context, id string, caller peer.Hello, from string) error {
	if caller.Node != id {
		return fmt.Errorf("%w: node %q can't be taken back as %q", outcome.ErrMemberInvalid, caller.Node, id)
	}
	if process, alive := m.port.Taken(caller, from); alive {
		return fmt.Errorf("%w: %s", probe.ErrMemberAlive, process)
	}
	_, servers, _ := m.configs.current()
	server, ok := Find(servers, id)
	if !ok {
		return nil // begin looks again
	}
	address := peer.PlainAddress(server.Address)
	answer, err := m.calls.Ask(ctx, id, address)
	if err != nil || answer.Incarnation == caller.Incarnation {
		return nil
	}
	return fmt.Errorf("%w: node id %q is in use at %s with folder %v, so that the node at %s (from %s) with folder %v is refused",
		probe.ErrMemberAlive, id, address, answer.Folder, caller.Address, from, caller.Folder)
}

// promotion gives members without a vote one, once they have caught up: no member
// shall stay without. It ends the adding of a node, and the readmission of one that
// had lost its folder, in whatever state a change of leader or a restart has left
// that.
type promotion struct {
	*Changes

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
	if !p.host.Leads() {
		p.marks = nil
		return
	}
	_, servers, _ := p.configs.current()
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
	seen := p.watch.All()[id]
	if !seen.Up() || seen.Answer.State == probe.Empty {
		delete(p.marks, id)
		return false
	}
	mark, ok := p.marks[id]
	switch {
	case !ok || mark.incarnation != seen.Answer.Incarnation:
	case !seen.Asked.After(mark.setAt):
		return false // no news
	case seen.Answer.Applied >= mark.index:
		return true
	}
	p.marks[id] = promotionMark{seen.Answer.Incarnation, p.raft.CommitIndex(), time.Now()}
	return false
}

// promote gives a member its vote, unless the configuration changes meanwhile: then
// it may be one that has just lost its folder, and is looked at anew.
func (p *promotion) promote(ctx context.Context, s raft.Server) {
	index, servers, done, err := p.Begin(ctx)
	if err != nil {
		return
	}
	defer done()
	now, ok := Find(servers, string(s.ID))
	if !ok || now != s || !p.still(ctx, s) {
		return
	}
	delete(p.marks, string(s.ID))
	err = p.commit(ctx, func(timeout time.Duration) raft.IndexFuture {
		return p.raft.AddVoter(s.ID, s.Address, index, timeout)
	})
	if err != nil {
		p.log.Warn("a member that has caught up could not be given its vote yet", "member", string(s.ID), "error", err)
		return
	}
	p.log.Info("a member has caught up and has its vote", "member", string(s.ID))
}

// still asks the member itself, after the configuration was read: one that lost
// its folder before that has another incarnation now, and one that loses it later
// changes the configuration before it comes in.
func (p *promotion) still(ctx context.Context, s raft.Server) bool {
	answer, err := p.calls.Ask(ctx, string(s.ID), string(s.Address))
	mark := p.marks[string(s.ID)]
	return err == nil && answer.Incarnation == mark.incarnation && answer.Applied >= mark.index
}
