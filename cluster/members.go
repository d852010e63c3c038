package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// What a change of membership or leadership can end with, beside ErrNoLeader and
// the context's error. Compare with errors.Is. But for ErrCatchingUp nothing was
// changed.
var (
	// ErrCatchingUp: the member was added but has not caught up yet. It gets its
	// vote by itself as soon as it has.
	ErrCatchingUp = errors.New("the member was added and is still catching up")
	// ErrLastVoter: the only member with a vote can't be removed.
	ErrLastVoter = errors.New("the last voting member can't be removed")
	// ErrNoTarget: no other voting member that is up, or not the one that was named,
	// can take over.
	ErrNoTarget = errors.New("no voting member to hand over to")
	// ErrMemberInvalid: the id or address is unusable, or taken, or the change would
	// leave no majority. The text says which.
	ErrMemberInvalid = errors.New("the change of membership is refused")
)

// errNotMember is the answer to a node that wants back in but is no member.
var errNotMember = errors.New("not a member of this cluster")

// errMemberAlive is the answer to a node that wants back in under the id of a
// member which is alive.
var errMemberAlive = errors.New("the member with that id is alive")

// errConfigurationChanged passes: another change came first, or the machine has not
// come to the latest one.
var errConfigurationChanged = errors.New("the configuration has just changed")

const (
	// memberTimeout bounds the committing of one change.
	memberTimeout = 5 * time.Second
	// maxMemberText bounds ids and addresses.
	maxMemberText = 255
)

// membership changes the configuration, one change at a time, on the leader. Each
// change names the committed configuration that it was decided upon, and Raft
// refuses it if another one came first. Safe for concurrent use.
type membership struct {
	raft    *raft.Raft
	self    string
	log     hclog.Logger
	configs *configurationLog
	watch   *peerWatch
	calls   *peerCalls
	// leads reports that this node leads an established term.
	leads func() bool
	// propose puts a command into the log in this node's present term, or not at all.
	propose func(ctx context.Context, command fsm.Command) error

	turn chan struct{} // has room for one: who changes something
}

func newMembership(r *raft.Raft, self string, log hclog.Logger, configs *configurationLog, watch *peerWatch, calls *peerCalls, leads func() bool,
	propose func(context.Context, fsm.Command) error) *membership {
	return &membership{raft: r, self: self, log: log, configs: configs, watch: watch, calls: calls, leads: leads, propose: propose,
		turn: make(chan struct{}, 1)}
}

// begin waits for the turn, and answers the configuration to change. done gives
// the turn back.
func (m *membership) begin(ctx context.Context) (index uint64, servers []raft.Server, done func(), err error) {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, nil, nil, context.Cause(ctx)
	}
	done = func() { <-m.turn }
	index, servers, _ = m.configs.current()
	switch {
	case !m.leads():
		err = errNotEstablished
	case index == 0:
		err = errConfigurationChanged // 0 would mean "whatever it is now" to Raft
	}
	if err != nil {
		done()
	}
	return index, servers, done, err
}

// commit waits until a change is committed, at most 5 s. Raft may go on with it
// after that.
func (m *membership) commit(ctx context.Context, change func(timeout time.Duration) raft.IndexFuture) error {
	timeout := m.calls.times.of(memberTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := await(ctx, change(timeout))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost),
		errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", errNotEstablished, err) // it may be done; doing it again is harmless
	case strings.HasPrefix(err.Error(), "configuration changed since"): // Raft has no value for it
		return fmt.Errorf("%w: %w", errConfigurationChanged, err)
	}
	return err
}

// readmit takes the vote of a member that has lost its folder, and notes its
// address. When it returns without an error that is committed by this leader, in
// the term that it answers or an earlier one. It commits something even if the
// member has no vote: only so it is certain that this node still leads, and that
// no promotion decided before can come after. The member's new folder is noted
// with its address. It fails with errMemberAlive while another process with that id
// is alive: an empty folder with a copied id must not take a healthy member's place.
func (m *membership) readmit(ctx context.Context, id, address string, by hello, from string) (term uint64, err error) {
	if err := m.checkVacant(ctx, id, by, from); err != nil {
		return 0, err
	}
	index, servers, done, err := m.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	server, ok := findServer(servers, id)
	if !ok {
		return 0, errNotMember
	}
	if address == "" {
		address = plainAddress(server.Address)
	}
	admitted := markAddress(address, by.folder)
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
	m.log.Warn("a member that lost its folder has no vote until it has caught up", "member", id, "address", address, "folder", by.folder)
	return m.raft.CurrentTerm(), nil
}

// checkVacant makes sure that no other process is alive which is the member with
// that id: neither one that has a stream with this node, nor one at the member's
// address.
func (m *membership) checkVacant(ctx context.Context, id string, by hello, from string) error {
	if by.node != id {
		return fmt.Errorf("%w: node %q can't be taken back as %q", ErrMemberInvalid, by.node, id)
	}
	if other, alive := m.calls.port.taken(by, from); alive {
		return fmt.Errorf("%w: %s", errMemberAlive, other)
	}
	_, servers, _ := m.configs.current()
	server, ok := findServer(servers, id)
	if !ok {
		return nil // begin looks again
	}
	address := plainAddress(server.Address)
	answer, err := m.calls.ask(ctx, id, address)
	if err != nil || answer.Incarnation == by.incarnation {
		return nil
	}
	return fmt.Errorf("%w: node id %q is in use at %s with folder %v, so that the node at %s (from %s) with folder %v is refused",
		errMemberAlive, id, address, answer.Folder, by.address, from, by.folder)
}

// add makes a node a member and waits until it has its vote.
func (m *membership) add(ctx context.Context, id, address string) error {
	if err := checkMember(id, address); err != nil {
		return err
	}
	voting, err := m.enter(ctx, id, address)
	if err != nil || voting {
		return err
	}
	for {
		_, servers, changed := m.configs.current()
		server, ok := findServer(servers, id)
		switch {
		case !ok:
			// The apply goroutine may not have come to it yet.
		case server.Suffrage == raft.Voter:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s at %s", ErrCatchingUp, id, address)
		}
	}
}

// enter adds a member without a vote, or updates the address of one that there is.
// It answers whether the member has a vote.
func (m *membership) enter(ctx context.Context, id, address string) (voting bool, err error) {
	index, servers, done, err := m.begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	for _, s := range servers {
		if plainAddress(s.Address) == address && string(s.ID) != id {
			return false, fmt.Errorf("%w: %s has the address %s", ErrMemberInvalid, s.ID, address)
		}
	}
	server, ok := findServer(servers, id)
	voting = ok && server.Suffrage == raft.Voter
	if ok && plainAddress(server.Address) == address {
		return voting, nil
	}
	err = m.commit(ctx, func(timeout time.Duration) raft.IndexFuture {
		if voting { // adding a voter that there is only changes its address
			return m.raft.AddVoter(server.ID, moveAddress(server.Address, address), index, timeout)
		}
		return m.raft.AddNonvoter(raft.ServerID(id), moveAddress(server.Address, address), index, timeout)
	})
	if err == nil {
		m.log.Info("member added or moved", "member", id, "address", address, "voter", voting)
	}
	return voting, err
}

// remove takes a member out and tells it. The caller hands leadership over first
// if it is this node.
func (m *membership) remove(ctx context.Context, id string) error {
	index, servers, done, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	server, ok := findServer(servers, id)
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
	go m.tell(id, plainAddress(server.Address))
	return nil
}

// checkRemoval refuses what Raft could not commit: the change counts with the
// majority of those who stay, and can't be taken back once it is in the log.
func (m *membership) checkRemoval(servers []raft.Server, id string) error {
	var stay, up int
	var silent []string
	seen := m.watch.all()
	for _, v := range votersOf(servers) {
		other := string(v.ID)
		if other == id {
			continue
		}
		stay++
		if other == m.self || seen[other].up() {
			up++
		} else {
			silent = append(silent, other)
		}
	}
	switch {
	case stay == 0:
		return ErrLastVoter
	case up <= stay/2:
		return fmt.Errorf("%w: without %s there would be no majority, since %s does not answer",
			ErrMemberInvalid, id, strings.Join(silent, ", "))
	}
	return nil
}

// tell lets a removed node know, so that it does not ask for votes for ever
// (raft#524). One that does not hear it learns it from the leader's answers.
func (m *membership) tell(id, address string) {
	ctx, cancel := context.WithTimeout(context.Background(), m.calls.times.of(memberTimeout))
	defer cancel()
	if _, err := m.calls.call(ctx, address, probeRequest{Kind: probeRemoved, ID: id}); err != nil {
		m.log.Warn("a removed node could not be told", "member", id, "address", address, "error", err)
	}
}

// checkMember refuses an id or address that can't be one.
func checkMember(id, address string) error {
	if id == "" || len(id) > maxMemberText || strings.ContainsAny(id, " \t\r\n,=/\x00") {
		return fmt.Errorf("%w: %q is no id of a node", ErrMemberInvalid, id)
	}
	if err := CheckPeerAddress(address, true); err != nil || len(address) > maxMemberText {
		return fmt.Errorf("%w: %q is not host:port", ErrMemberInvalid, address)
	}
	if strings.HasPrefix(address, ":") {
		return fmt.Errorf("%w: %q names no host", ErrMemberInvalid, address)
	}
	return nil
}
