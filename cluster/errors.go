package cluster

import (
	"errors"

	"github.com/hashicorp/raft"
)

// What a call can end with beside its context's error. Compare with errors.Is.
// All but ErrOutcomeUnknown mean that nothing was done and that the call may
// safely be made again.
var (
	// ErrNoLeader: no leader was found, or none could be reached, for 5 s.
	ErrNoLeader = errors.New("no leader")
	// ErrBehind: this node's own state did not come to the index that a read asked
	// for within 5 s. Another node may have it, unless no node does.
	ErrBehind = errors.New("this node is behind")
	// ErrNotApplied: a leader was found but did not take the command for 5 s, as
	// while it hands its leadership over.
	ErrNotApplied = errors.New("not applied")
	// ErrDraining: this node is about to stop. Another one can do it.
	ErrDraining = errors.New("draining")
	// ErrStorageFull: the leader's disk has too little room for more entries.
	ErrStorageFull = errors.New("storage full")
	// ErrSplitState: the members' states differ and none is a majority's, so that
	// nobody knows which is right. Readiness names the members.
	ErrSplitState = errors.New("the members' states differ")
	// ErrOverloaded: too many commands wait already.
	ErrOverloaded = errors.New("too many commands wait")
	// ErrOutcomeUnknown: the command may have been applied or may yet be. Only a
	// repeat with the same idempotency key is safe.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrNotTried: an earlier call of the same list failed, so this one was not
	// applied.
	ErrNotTried = errors.New("not tried")
)

// errRefused ends a proposal that was certainly not applied and may be sent
// again. It stays within the package.
var errRefused = errors.New("refused by the leader")

// errLate ends a proposal that was certainly not applied because it was too old when
// the leader looked at it. It may be sent again if its caller still waits.
var errLate = errors.New("too old when it came to the leader")

// errOpen ends a proposal of which nobody can tell yet whether it was applied.
var errOpen = errors.New("not known to be applied or not")

// errHalted ends a proposal on a node whose machine has stopped.
var errHalted = errors.New("the state machine has halted")

// errOtherTerm ends a proposal that Raft logged in another term than
// its own: every machine skips it.
var errOtherTerm = errors.New("logged in another term, and skipped")

// notApplied translates what Raft says of a proposal: true is certain, false
// means that the outcome is open. This is the only place that knows Raft's
// errors; one that is not listed is open, which is always safe.
func notApplied(err error) bool {
	switch {
	case errors.Is(err, raft.ErrNotLeader),
		errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, errOtherTerm):
		return true
	}
	// Among the open ones: ErrLeadershipLost (the entry is in our log and may
	// survive in another's), ErrRaftShutdown, ErrAbortedByRestore, and any error
	// of the local log, which may have stored what it failed to confirm.
	return false
}
