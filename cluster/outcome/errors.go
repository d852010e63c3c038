package outcome

import "errors"

// The errors of a command or a read; it may also fail with the cause of its context. Compare with errors.Is. After all
// but ErrOutcomeUnknown it is safe to make the call again: it had no effect, or its request waits and keeps its place.
var (
	// ErrNoLeader: for 5 s, no leader was found or could be reached.
	ErrNoLeader = errors.New("no leader")
	// ErrBehind: this node's own state did not reach the index of a read within 5 s. Another node may have it.
	ErrBehind = errors.New("this node is behind")
	// ErrNotApplied: a leader was found but did not accept the command for 5 s, for example because it was handing over
	// its leadership.
	ErrNotApplied = errors.New("not applied")
	// ErrDraining: this node is about to stop. Another node can do it.
	ErrDraining = errors.New("draining")
	// ErrStorageFull: the leader's disk has too little room for more entries.
	ErrStorageFull = errors.New("storage full")
	// ErrSplitState: the members' states differ and no majority has the same state, so we cannot tell which one is
	// right. Readiness names the members.
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
	// ErrHistoryGone: this node no longer has the events after the given one, or a snapshot jumped over them. The
	// reader must read the state again.
	ErrHistoryGone = errors.New("the history of events does not go back so far")
)

// The errors of a change of the feature level, of membership or of leadership; it may also fail with ErrNoLeader,
// ErrOutcomeUnknown or the cause of its context. Compare with errors.Is. After ErrCatchingUp the change was made. After
// ErrOutcomeUnknown and the cause of the context it may have been made, or may yet be. It is safe to repeat any of them
// except a hand-over to any voter.
var (
	// ErrLevelUnknown: a member does not know the feature level, or did not confirm within a second that it does. The
	// text names each such member.
	ErrLevelUnknown = errors.New("not every member knows the feature level")
	// ErrCatchingUp: the member was added but has not caught up yet. It gets its vote without another call, as soon as
	// it has.
	ErrCatchingUp = errors.New("the member was added and is still catching up")
	// ErrLastVoter: the only member with a vote can't be removed.
	ErrLastVoter = errors.New("the last voting member can't be removed")
	// ErrNoTarget: no other voting member that is up can take over, or the named member cannot.
	ErrNoTarget = errors.New("no voting member to hand over to")
	// ErrMemberInvalid: the id or address is unusable or taken, or the change would leave no majority. The text says
	// which.
	ErrMemberInvalid = errors.New("the change of membership is refused")
)

// The errors of a restore from a backup; it may also fail with ErrNotLeader and the errors above. Compare with
// errors.Is. The cluster keeps its state.
var (
	// ErrBackupRefused: the backup is damaged, incomplete or of a newer version, or the data is not a backup. The text
	// says which.
	ErrBackupRefused = errors.New("the backup is refused")
	// ErrRestoring: another restore is under way.
	ErrRestoring = errors.New("another backup is being restored")
)

// The errors of a call between nodes. They stay within the cluster, which tries again with another node or later.
var (
	// ErrNotLeader: this node does not lead a term whose first entry it has applied.
	ErrNotLeader = errors.New("not the leader of an established term")
	// ErrConfigurationChanged: another change came first, or this node's machine has not reached the latest
	// configuration.
	ErrConfigurationChanged = errors.New("the configuration has just changed")
)
