package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox/signalbox/client/internal/nodes"
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
	Semaphore   string // the one that the refusal is about
	Session     string // the session that it is about
	Reason      string // an operator's, for ErrRevoked
	Rule        string // the limit, or the rule of the lock hierarchy
	Permits     *int64 // of the semaphore
	Available   *int64 // of the semaphore
	QueueLength *int64 `json:"queue_length"` // how many requests wait
	Level       *int32 // of the semaphore
	Epoch       uint64 // the semaphore's present one; 0: unknown

	// Members are all members of the reply, those above among them.
	Members map[string]json.RawMessage

	RetryAfter time.Duration // as the node asked; 0 if it did not
	Address    string        // of the node
}

// code is an error's identity: that of the refusals which carry it.
type code string

// Error is the code in words.
func (c code) Error() string { return strings.ReplaceAll(string(c), "-", " ") }

// The refusals of a node. Compare with errors.Is.
var (
	ErrInvalidRequest     error = code("invalid-request") // see Error.Field
	ErrUnauthenticated    error = code("unauthenticated")
	ErrForbidden          error = code("forbidden")
	ErrUnknownSemaphore   error = code("unknown-semaphore") // create it first
	ErrUnknownSession     error = code("unknown-session")   // ended, or never opened
	ErrNotHeld            error = code("not-held")
	ErrUnavailable        error = code("unavailable")  // not free, or not in time
	ErrNever              error = code("never")        // more than the semaphore has
	ErrHierarchy          error = code("hierarchy")    // levels must fall, see Error.Rule
	ErrLeaseExists        error = code("lease-exists") // this session holds or waits for it
	ErrSessionExists      error = code("session-exists")
	ErrOverflow           error = code("overflow")            // a count would leave 64 bits
	ErrDeleted            error = code("deleted")             // the semaphore, during the wait
	ErrExpiredSession     error = code("expired-session")     // not renewed in time
	ErrRevoked            error = code("revoked")             // by an operator, see Error.Reason
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
	ErrOutcomeUnknown error = code("outcome-unknown")
)

// The errors of the Client itself. Compare with errors.Is.
var (
	// ErrUnreachable: no node replied, or not one could carry out the call; the latest
	// failure is wrapped too.
	ErrUnreachable = errors.New("no node replied")
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

// errLevelTooLow: the cluster's members don't all know the request yet.
const errLevelTooLow = code("level-too-low")

// errSilent ends an attempt at a node that takes too long.
var errSilent = errors.New("the node did not reply in time")

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
	return text
}

// Is reports whether the target is the Err… value of this code.
func (e *Error) Is(target error) bool {
	c, is := target.(code)
	return is && string(c) == e.Code
}

// noEffect reports whether the refusal makes sure that the call had no effect. A
// refusal by a proxy does not.
func (e *Error) noEffect() bool {
	return isAny(e, ErrNoLeader, ErrBehind, ErrNotApplied, ErrDraining, ErrStorageFull, ErrOverloaded, ErrSplitState, ErrLimitReached)
}

// isAny reports whether an error is one of those given.
func isAny(err error, these ...error) bool {
	return slices.ContainsFunc(these, func(one error) bool { return errors.Is(err, one) })
}

// ofNode reports whether the refusal is for a limit that each node has by itself:
// another node may have room.
func (e *Error) ofNode() bool {
	switch e.Rule {
	case "connections", "body-memory", "reply-memory", "watchers":
		return e.Is(ErrLimitReached)
	}
	return false
}

// askedFor returns how long a refusal asks to wait before the next request.
func askedFor(err error) time.Duration {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.RetryAfter
	}
	return 0
}

// final reports whether the state machine made the refusal. Then a repeat has the
// outcome of the first attempt; other refusals are about the repeat alone.
func (e *Error) final() bool {
	switch e.Status {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed, http.StatusUnprocessableEntity:
		return e.Code != ""
	}
	return false
}

// newError reads a refusal. A reply that is not a problem document of Signalbox gets an
// empty code, so that a proxy's 404 never passes for the end of a session.
func newError(node *nodes.Node, response *http.Response, r *reply) *Error {
	e := new(Error)
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) != "application/problem+json" || json.Unmarshal(r.body, e) != nil || json.Unmarshal(r.body, &e.Members) != nil {
		e = &Error{Detail: excerpt(string(r.body))}
	}
	e.Status, e.Address, e.RetryAfter = r.status, node.String(), retryAfter(response.Header.Get("Retry-After"))
	return e
}

// excerpt is the beginning of a foreign text.
func excerpt(text string) string {
	const most = 200
	text = strings.TrimSpace(text)
	if len(text) <= most {
		return text
	}
	text = text[:most]
	for !utf8.ValidString(text) && len(text) > most-utf8.UTFMax {
		text = text[:len(text)-1]
	}
	return text + "…"
}

// maxRetryAfter bounds, in seconds, how long a node is left alone.
const maxRetryAfter = 60

// retryAfter reads the header of that name: seconds. A date is not expected from a
// node, and would need a common wall clock.
func retryAfter(text string) time.Duration {
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, maxRetryAfter)) * time.Second
}
