package outcome

import "errors"

// The errors of a command or a read, beside its context's cause. Compare with
// errors.Is. After all but ErrOutcomeUnknown it is safe to make the call again: it had no
// effect, or its request waits and keeps its place.
var (
	// ErrNoLeader: for 5 s, no leader was found or could be reached.
	ErrNoLeader = errors.New("no leader")
	// ErrBehind: this node's own state did not come to the index that a read asked
	// for within 5 s. Another node may have it.
	ErrBehind = errors.New("this node is behind")
	// ErrNotApplied: a leader was found but did not take the command for 5 s, as
	// while it hands its leadership over.
	ErrNotApplied = errors.New("not applied")
	// ErrDraining: this node is about to stop. Another one can do it.
	ErrDraining = errors.New("draining")
	// ErrStorageFull: the leader's disk has too little room for more entries.
	ErrStorageFull = errors.New("storage full")
	// ErrSplitState: the members' states differ and no majority has the same one, so
	// the right one is not known. Readiness names the members.
	ErrSplitState = errors.New("the members' states differ")
	// ErrOverloaded: too many commands wait already.
	ErrOverloaded = errors.New("too many commands wait")
	// ErrOutcomeUnknown: the command may have been applied or may yet be. Only a
	// repeat with the same idempotency key is safe.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrNotTried: an earlier call of the same list failed, so this one was not
	// applied.
	ErrNotTried = errors.New("not tried")
	// ErrBelowLevel: the command needs a higher feature level than the cluster has.
	ErrBelowLevel = errors.New("the feature level of the cluster is too low")
	// ErrHistoryGone: the events after the one named are no longer kept on this node,
	// or a snapshot jumped over them. The reader must read the state again.
	ErrHistoryGone = errors.New("the history of events does not go back so far")
)

// The errors of a change of the feature level, of membership or of leadership, beside
// ErrNoLeader, ErrOutcomeUnknown and the context's cause. Compare with errors.Is. After
// ErrCatchingUp the change was made; after ErrOutcomeUnknown and the context's cause it may
// have been, or may yet be. Repeating it is harmless, but for a hand-over to any voter.
var (
	// ErrLevelUnknown: a member does not know the feature level, or did not say
	// within a second that it does. The text names each such member.
	ErrLevelUnknown = errors.New("not every member knows the feature level")
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

// The errors of a restore from a backup, beside ErrNotLeader and those above. Compare with
// errors.Is. The cluster has the state that it had.
var (
	// ErrBackupRefused: the backup is damaged, incomplete, of a newer version, or none. The
	// text says which.
	ErrBackupRefused = errors.New("the backup is refused")
	// ErrRestoring: another restore is under way.
	ErrRestoring = errors.New("another backup is being restored")
)

// The errors of a call between nodes. They stay within the cluster, which tries again
// elsewhere or later.
var (
	// ErrNotLeader: this node does not lead a term whose first entry it has applied.
	ErrNotLeader = errors.New("not the leader of an established term")
	// ErrConfigurationChanged: another change came first, or this node's machine has
	// not come to the latest configuration.
	ErrConfigurationChanged = errors.New("the configuration has just changed")
)
