package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/signalbox/signalbox/client/internal/calls"
	"github.com/signalbox/signalbox/client/internal/reply"
)

// Error is a refusal by a node (RFC 9457). Compare it with the Err…
// values by errors.Is; take it out of an error with errors.As for its members. Never
// changed once made.
type Error struct {
	Status int    // of HTTP
	Code   string // "never", "unknown-semaphore", …; empty when not made by a node of Signalbox
	Title  string // the code for people
	Detail string // what happened, and what to do about it

	Field       string // the member or parameter that is wrong
	Semaphore   string // that the refusal is about
	Group       string // of the semaphore, that the refusal is about
	Session     string // that the refusal is about
	Reason      string // an operator's, for ErrRevoked, and for ErrUnavailable of a paused semaphore
	Rule        string // the limit, the rule of the lock hierarchy, or why permits are unavailable: "paused", "group-limit"
	Permits     *int64 // of the semaphore
	Available   *int64 // of the semaphore
	QueueLength *int64 `json:"queue_length"` // how many requests wait
	Level       *int32 // of the semaphore
	Epoch       uint64 // the semaphore's present epoch; 0: unknown

	// Members are all members of the reply, also those with a field here.
	Members map[string]json.RawMessage

	RetryAfter time.Duration // as the node asked; 0 if it did not
	Address    string        // of the node
	// AvailableIn is the time until enough of a Window has come back; 0 if that is not why permits are unavailable.
	AvailableIn time.Duration `json:"-"`

	sent string // the credentials, where the refusal is about them
}

// code is an error's identity: the code of its refusals.
type code = calls.Code

// The refusals of a node. Compare with errors.Is.
var (
	ErrInvalidRequest     error = code("invalid-request")   // see Error.Field
	ErrUnauthenticated    error = code("unauthenticated")   // the nodes don't know Config.Token
	ErrForbidden          error = code("forbidden")         // they know it, and it may not do that
	ErrUnknownSemaphore   error = code("unknown-semaphore") // create it first
	ErrUnknownSession     error = code("unknown-session")   // ended, or never opened
	ErrUnknownGroup       error = code("unknown-group")     // no lease or request names it, and it has no own limit
	ErrNotHeld            error = code("not-held")
	ErrUnavailable        error = code("unavailable")      // not free, or not in time
	ErrNever              error = code("never")            // more than the semaphore has
	ErrHierarchy          error = code("hierarchy")        // levels must fall, see Error.Rule
	ErrLeaseExists        error = code("lease-exists")     // this session holds or waits for it
	ErrLineFull           error = code("line-full")        // see MaxWaiting; don't ask again in a loop
	ErrSuperseded         error = code("superseded")       // a newer request took the place, see DropOldest; don't ask again
	ErrNoTotal            error = code("no-total")         // the semaphore has only limits of groups
	ErrRequestsWaiting    error = code("requests-waiting") // Groups and NoTotal change only while no request waits
	ErrNotLost            error = code("not-lost")         // see Client.FreeLost
	ErrSessionExists      error = code("session-exists")
	ErrOverflow           error = code("overflow")            // a count would leave 64 bits
	ErrDeleted            error = code("deleted")             // the semaphore, during the wait
	ErrExpiredSession     error = code("expired-session")     // not renewed in time
	ErrRevoked            error = code("revoked")             // by an operator or after MaxHold, see Error.Reason
	ErrOver               error = code("over")                // the grant of the first request with this key
	ErrPreconditionFailed error = code("precondition-failed") // another epoch, or it exists
	ErrTooLarge           error = code("too-large")
	ErrKeyReused          error = code("key-reused")
	ErrLimitReached       error = code("limit-reached") // no effect, see Error.Rule
	ErrNoLeader           error = code("no-leader")     // no effect
	ErrBehind             error = code("behind")        // a read's MinIndex is not there yet
	ErrNotApplied         error = code("not-applied")   // no effect
	ErrDraining           error = code("draining")      // the node stops; no effect
	ErrStorageFull        error = code("storage-full")  // no effect
	ErrOverloaded         error = code("overloaded")    // no effect; the Client tries on
	ErrSplitState         error = code("states-differ") // no effect; an operator must decide
	// ErrOutcomeUnknown says that the call may have been carried out or not. The
	// Client has repeated it until ctx ended.
	ErrOutcomeUnknown = calls.ErrOutcomeUnknown
)

// The errors of the Client itself. Compare with errors.Is.
var (
	// ErrUnreachable: no node replied, or no node could carry out the call; the latest
	// failure is wrapped too.
	ErrUnreachable = calls.ErrUnreachable
	// ErrLost: the session or lease is over without the caller's doing. Why is
	// wrapped too: a refusal such as ErrRevoked, ErrDeleted, ErrExpiredSession, or
	// ErrNotRenewed.
	ErrLost = errors.New("lost")
	// ErrNotRenewed: no renewal succeeded in time by the Client's own clock, so the
	// lease may be another's from now on.
	ErrNotRenewed = errors.New("not renewed in time")
	// ErrReleased is the Lease.Err of a lease that the caller has released.
	ErrReleased = errors.New("released")
	// ErrClosed: the session or Client was closed by the caller.
	ErrClosed = errors.New("closed")
)

// Error is the status, code and detail, and the member and limit that the refusal is
// about.
func (e *Error) Error() string {
	what := e.Code
	if what == "" {
		what = http.StatusText(e.Status)
	}
	text := fmt.Sprintf("%d %s", e.Status, what)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Field != "" && !strings.Contains(text, e.Field) {
		text += fmt.Sprintf(" (field: %s)", e.Field)
	}
	if limit := string(e.Members["limit"]); limit != "" && !strings.Contains(text, limit) {
		text += fmt.Sprintf(" (limit: %s)", limit)
	}
	if e.Reason != "" {
		text += fmt.Sprintf(" (reason: %s)", e.Reason)
	}
	if e.sent != "" {
		text += fmt.Sprintf(" (sent: %s)", e.sent)
	}
	return text
}

// Is reports whether the target is the Err… value of this code.
func (e *Error) Is(target error) bool {
	c, ok := target.(code)
	return ok && string(c) == e.Code
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// newError reads the document of a refusal. If the refusal is about the credentials, the error names those that
// were sent, if they are known.
func newError(r *calls.Refusal, sent string) error {
	e := new(Error)
	if r.Document == nil || reply.ReadTimes(r.Document, e, reply.Times{"available_in_ms": &e.AvailableIn}) != nil || json.Unmarshal(r.Document, &e.Members) != nil {
		e = &Error{Detail: r.Text}
	}
	e.Status, e.Code, e.Address, e.RetryAfter = r.Status, string(r.Code), r.Address, r.RetryAfter
	if e.Is(ErrUnauthenticated) || e.Is(ErrForbidden) {
		e.sent = sent
	}
	return e
}
