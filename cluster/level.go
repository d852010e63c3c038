package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// What a command or a raise can end with because of the feature level. Compare with
// errors.Is. Nothing was done.
var (
	// ErrBelowLevel: the command needs a higher feature level than the cluster has.
	ErrBelowLevel = errors.New("the feature level of the cluster is too low")
	// ErrLevelUnknown: a member does not know the feature level, or did not say
	// within a second that it does. The text names each such member.
	ErrLevelUnknown = errors.New("not every member knows the feature level")
)

// RaiseLevel raises the cluster's feature level for ever and blocks until that is
// applied by the leader. A level that is in force already is no error. Any node
// may be asked; the leader does it. It is safe to repeat.
//
// Errors: ErrLevelUnknown, ErrNoLeader, ctx's cause.
func (n *Node) RaiseLevel(ctx context.Context, level uint32) error {
	return n.leaderCall(ctx, probeRequest{Kind: probeRaise, Level: level})
}

// raise is the leader's part. No member comes in while it has the turn, and the
// command is logged in this term or not at all: so all members at that moment
// have said that they know the level.
func (m *membership) raise(ctx context.Context, level uint32) error {
	_, _, done, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := m.knownByAll(ctx, level); err != nil {
		return err
	}
	if err := m.propose(ctx, fsm.RaiseLevel{Level: level}); err != nil {
		return err
	}
	m.log.Info("the feature level is raised", "level", level)
	return nil
}

// knownByAll asks every member of the latest configuration, with a vote or without.
func (m *membership) knownByAll(ctx context.Context, level uint32) error {
	servers := m.raft.GetConfiguration().Configuration().Servers // never blocks
	var mu sync.Mutex
	var lacking []string
	var asking sync.WaitGroup
	for _, s := range servers {
		asking.Go(func() {
			if lack := m.lacks(ctx, s, level); lack != "" {
				mu.Lock()
				defer mu.Unlock()
				lacking = append(lacking, lack)
			}
		})
	}
	asking.Wait()
	if len(lacking) == 0 {
		return nil
	}
	slices.Sort(lacking)
	return fmt.Errorf("%w %d: %s", ErrLevelUnknown, level, strings.Join(lacking, ", "))
}

// lacks returns why a member can't take a level, or "".
func (m *membership) lacks(ctx context.Context, s raft.Server, level uint32) string {
	knows := fsm.FeatureLevel
	if string(s.ID) != m.self {
		answer, err := m.calls.ask(ctx, string(s.ID), string(s.Address))
		if err != nil {
			return fmt.Sprintf("%s at %s does not answer", s.ID, s.Address)
		}
		knows = answer.Knows
	}
	if knows < level {
		return fmt.Sprintf("%s knows level %d", s.ID, knows)
	}
	return ""
}

// proposeHere puts a command into the log in this node's present term, or not at
// all, and blocks until it is applied. errNotEstablished: it was not applied.
func (n *Node) proposeHere(ctx context.Context, command fsm.Command) error {
	reign := n.established()
	if reign == nil {
		return errNotEstablished
	}
	q := n.requests.build(command, fsm.Envelope{})
	if n.requests.add([]*request{q}) == 0 {
		return ErrOverloaded
	}
	if back := n.openLocal(reign).send([]*request{q}); len(back) > 0 {
		n.requests.drop(q)
		return errNotEstablished
	}
	select {
	case came := <-q.outcome:
		if came.err == errRefused {
			n.requests.drop(q)
			return errNotEstablished
		}
		return came.err
	case <-ctx.Done():
		n.requests.drop(q)
		return context.Cause(ctx)
	}
}

// admits refuses a command that needs a higher level than the cluster has: members
// that don't know it could not apply it as the others do.
func (m *machine) admits(command []byte) error {
	if fsm.CommandLevel(command) > m.level.Load() {
		return ErrBelowLevel
	}
	return nil
}
