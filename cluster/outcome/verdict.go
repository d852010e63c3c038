package outcome

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/raft"
)

// Fate is what we know about a command after one attempt to have it applied.
type Fate uint8

const (
	// Applied: the command has its result.
	Applied Fate = iota
	// Refused: certainly not applied. It may be sent again, elsewhere or later.
	Refused
	// Late: certainly not applied, since it was too old when the leader checked it. It may be sent again if its caller
	// still waits.
	Late
	// Failed: certainly not applied, and must not be sent again.
	Failed
	// Unknown: it may have been applied, or may yet be.
	Unknown
)

// Verdict is a fate and its cause. A request ends with a requests.Settlement: a result, or a verdict. The zero value is
// Applied. Verdicts with equal fates and causes are equal.
type Verdict struct {
	Fate  Fate
	cause error // nil unless Failed or Unknown
}

// Because returns a verdict with the error for its caller.
func (f Fate) Because(cause error) Verdict { return Verdict{f, cause} }

// Retryable reports whether the command may be sent again.
func (v Verdict) Retryable() bool { return v.Fate == Refused || v.Fate == Late }

// Err returns the error for a caller to whom the verdict is final; nil when the
// command was applied.
func (v Verdict) Err() error {
	switch {
	case v.Fate == Applied:
		return nil
	case v.cause != nil:
		return v.cause
	case v.Fate == Unknown:
		return ErrOutcomeUnknown
	}
	return ErrNotApplied
}

// The responses of a state machine for an entry that it does not apply.
var (
	// ErrOtherTerm: Raft logged the entry in another term than the term in which it was proposed. Every machine skips
	// it.
	ErrOtherTerm = errors.New("logged in another term, and skipped")
	// ErrHalted: this node's machine has stopped for good. Other nodes may apply the entry.
	ErrHalted = errors.New("the state machine has halted")
)

// OfEntry returns the verdict on the commands of an entry, from the error of Raft's future or from the machine's
// response. An unlisted error leaves the outcome unknown, which is always safe.
func OfEntry(err error) Verdict {
	switch {
	case err == nil:
		return Verdict{}
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), Transferring(err), errors.Is(err, ErrOtherTerm):
		return Verdict{Fate: Refused}
	}
	// These errors, among others, leave the outcome unknown: ErrLeadershipLost (the entry is in our log, and may be in
	// the next leader's log), ErrRaftShutdown, ErrAbortedByRestore, and any error of the local log, which may have stored
	// the entry nevertheless.
	return Verdict{Fate: Unknown}
}

// Transferring reports whether Raft refused an entry because it is handing over the leadership.
func Transferring(err error) bool { return errors.Is(err, raft.ErrLeadershipTransferInProgress) }

// OfChange translates Raft's error for a change of the configuration or a hand-over of leadership: to ErrNotLeader or
// ErrConfigurationChanged if it certainly had no effect, otherwise to ErrOutcomeUnknown. For example, a leader that
// loses its leadership has the change in its log, and the next leader may commit it.
func OfChange(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), Transferring(err):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	case strings.HasPrefix(err.Error(), "configuration changed since"): // Raft has no error value for it
		return fmt.Errorf("%w: %w", ErrConfigurationChanged, err)
	}
	return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
}

// LeadershipOver reports whether a call of Raft failed because this node no longer leads.
func LeadershipOver(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) || errors.Is(err, raft.ErrRaftShutdown) || Transferring(err)
}

// NothingNew reports whether Raft took no snapshot because no entry was applied since
// the last one.
func NothingNew(err error) bool { return errors.Is(err, raft.ErrNothingNewToSnapshot) }
