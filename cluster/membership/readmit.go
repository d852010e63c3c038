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

// Readmit takes the vote from a member that has lost its folder, and stores the member's address with the id of the new
// folder. On success both are committed, in the returned term or an earlier term.
//
// It commits an entry even if the member already has no vote. Only a commit proves that this node still leads, and that
// no earlier promotion of the member can still take effect.
//
// It fails with probe.ErrMemberAlive while another process with that id is alive, because an empty folder with a copied
// id must not replace a healthy member.
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

// checkVacant fails while another process is alive under that member id. It looks for a process with a stream to this
// node and for a process at the member's address.
func (m *Changes) checkVacant(ctx context.Context, id string, caller peer.Hello, from string) error {
	if caller.Node != id {
		return fmt.Errorf("%w: node %q can't be taken back as %q", outcome.ErrMemberInvalid, caller.Node, id)
	}
	if process, alive := m.port.AliveAs(caller, from); alive {
		return fmt.Errorf("%w: %s", probe.ErrMemberAlive, process)
	}
	_, servers, _ := m.configs.current()
	server, ok := Find(servers, id)
	if !ok {
		return nil // Readmit looks for the member again after Begin
	}
	address := peer.PlainAddress(server.Address)
	answer, err := m.calls.Ask(ctx, id, address)
	if err != nil || answer.Incarnation == caller.Incarnation {
		return nil
	}
	return fmt.Errorf("%w: node id %q is in use at %s with folder %v, so that the node at %s (from %s) with folder %v is refused",
		probe.ErrMemberAlive, id, address, answer.Folder, caller.Address, from, caller.Folder)
}

// promotion gives a vote to each member without a vote that has caught up. So an addition or a readmission is completed
// even after a restart or a change of leader.
type promotion struct {
	*Changes

	// marks are the indexes, by node id, that members without a vote must apply before they get a vote.
	marks map[string]promotionMark
}

// promotionMark is the index that a member must reach. It counts for one incarnation only, because after a restart the
// member may have lost its folder.
type promotionMark struct {
	incarnation uint64
	index       uint64
	setAt       time.Time
}

// promoteReady gives votes to the members that have caught up. One goroutine calls it repeatedly.
func (p *promotion) promoteReady(ctx context.Context) {
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

// caughtUp reports whether a member has applied all entries up to its mark, the commit index at an earlier check. Under
// load a member would never reach the present commit index.
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
		return false // this node asked before it set the mark
	case seen.Answer.Applied >= mark.index:
		return true
	}
	p.marks[id] = promotionMark{seen.Answer.Incarnation, p.raft.CommitIndex(), time.Now()}
	return false
}

// promote gives a member its vote, unless the configuration has changed since the check: the change may be the
// readmission of this member with an empty folder.
func (p *promotion) promote(ctx context.Context, s raft.Server) {
	index, servers, done, err := p.Begin(ctx)
	if err != nil {
		return
	}
	defer done()
	now, ok := Find(servers, string(s.ID))
	if !ok || now != s || !p.confirmCaughtUp(ctx, s) {
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

// confirmCaughtUp asks the member again after Begin has read the configuration. If the member lost its folder before
// that, its incarnation differs. If it loses its folder later, its readmission changes the configuration, so that Raft
// refuses the promotion.
func (p *promotion) confirmCaughtUp(ctx context.Context, s raft.Server) bool {
	answer, err := p.calls.Ask(ctx, string(s.ID), string(s.Address))
	mark := p.marks[string(s.ID)]
	return err == nil && answer.Incarnation == mark.incarnation && answer.Applied >= mark.index
}
