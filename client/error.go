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

// Error is a refusal by a node (RFC 9457). Compare it with the Err… values by errors.Is; get its members by errors.As.
// It never changes.
type Error struct {
	Status int    // the HTTP status
	Code   string // "never", "unknown-semaphore", …; "" if a proxy made the reply
	Title  string // the code in words
	Detail string // what happened, and what to do about it

	Field       string // the member or parameter that is wrong
	Semaphore   string // the refused semaphore
	Group       string // the refused group of the semaphore
	Session     string // the refused session
	Reason      string // given by the operator who revoked the lease or paused the semaphore
	Rule        string // the limit, the rule of the lock hierarchy, or why permits are unavailable: "paused", "group-limit"
	Permits     *int64 // of the semaphore
	Available   *int64 // of the semaphore
	QueueLength *int64 `json:"queue_length"` // how many requests wait
	Level       *int32 // of the semaphore
	Epoch       uint64 // the semaphore's present epoch; 0: unknown

	// Members has all members of the reply, even those for which there is a field here.
	Members map[string]json.RawMessage

	RetryAfter time.Duration // how long the node asks to wait; 0: it does not ask
	Address    string        // the address of the node
	// AvailableIn is the time until a Window has given enough permits back; 0 if the permits are unavailable for
	// another reason.
	AvailableIn time.Duration `json:"-"`

	sent string // the credentials that the refusal is about; "" for other refusals
}

// code is the code of a refusal, as an error for errors.Is.
type code = calls.Code

// The refusals of a node. Compare with errors.Is.
var (
	ErrInvalidRequest     error = code("invalid-request")   // see Error.Field
	ErrUnauthenticated    error = code("unauthenticated")   // the nodes don't know Config.Token
	ErrForbidden          error = code("forbidden")         // the token does not allow the call
	ErrUnknownSemaphore   error = code("unknown-semaphore") // create it first
	ErrUnknownSession     error = code("unknown-session")   // ended, or never opened
	ErrUnknownGroup       error = code("unknown-group")     // no lease, request or limit names the group
	ErrNotHeld            error = code("not-held")
	ErrUnavailable        error = code("unavailable")      // the permits are not available, or were not in time
	ErrNever              error = code("never")            // the request asks for more permits than the semaphore has
	ErrHierarchy          error = code("hierarchy")        // levels must fall, see Error.Rule
	ErrLeaseExists        error = code("lease-exists")     // this session already holds or waits for the semaphore
	ErrLineFull           error = code("line-full")        // see MaxWaiting; don't ask again in a loop
	ErrSuperseded         error = code("superseded")       // a newer request took the place, see DropOldest; don't ask again
	ErrNoTotal            error = code("no-total")         // the semaphore has only limits of groups
	ErrRequestsWaiting    error = code("requests-waiting") // Groups and NoTotal change only while no request waits
	ErrNotLost            error = code("not-lost")         // see Client.FreeLost
	ErrSessionExists      error = code("session-exists")
	ErrOverflow           error = code("overflow")            // a count would exceed 64 bits
	ErrDeleted            error = code("deleted")             // the semaphore was deleted during the wait
	ErrExpiredSession     error = code("expired-session")     // not renewed in time
	ErrRevoked            error = code("revoked")             // by an operator or after MaxHold, see Error.Reason
	ErrOver               error = code("over")                // the first request with this key was granted a lease, which is over
	ErrPreconditionFailed error = code("precondition-failed") // the semaphore has another epoch, or exists already
	ErrTooLarge           error = code("too-large")
	ErrKeyReused          error = code("key-reused")
	ErrLimitReached       error = code("limit-reached") // no effect; Error.Rule names the limit
	ErrNoLeader           error = code("no-leader")     // no effect
	ErrBehind             error = code("behind")        // the node has not applied the log up to MinIndex
	ErrNotApplied         error = code("not-applied")   // no effect
	ErrDraining           error = code("draining")      // the node stops; no effect
	ErrStorageFull        error = code("storage-full")  // no effect
	ErrOverloaded         error = code("overloaded")    // no effect; the Client repeats the call
	ErrSplitState         error = code("states-differ") // no effect; an operator must decide
	// ErrOutcomeUnknown says that the call may have been carried out or not, although the Client has repeated it until
	// ctx ended.
	ErrOutcomeUnknown = calls.ErrOutcomeUnknown
)

// The errors of the Client itself. Compare with errors.Is.
var (
	// ErrUnreachable: no node replied, or no node could carry out the call. It comes with the latest failure.
	ErrUnreachable = calls.ErrUnreachable
	// ErrLost: the session or lease ended without a call of its holder. It comes with the reason: a refusal such as
	// ErrRevoked, ErrDeleted or ErrExpiredSession, or ErrNotRenewed.
	ErrLost = errors.New("lost")
	// ErrNotRenewed: no renewal succeeded in time by the Client's own clock, so the cluster may now grant the permits
	// to another client.
	ErrNotRenewed = errors.New("not renewed in time")
	// ErrReleased is what Lease.Err returns after Release.
	ErrReleased = errors.New("released")
	// ErrClosed: the session or Client was closed by the caller.
	ErrClosed = errors.New("closed")
)

// Error returns the status, code and detail of the refusal, and its field, limit and reason.
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

// newError reads the problem document of a refusal. sent describes the credentials that the request carried; an error
// about credentials names them.
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
