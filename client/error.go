package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

// Error is a refusal, as a node tells it (RFC 9457). Compare it with the Err…
// values by errors.Is; take it out of an error with errors.As for its members. Never
// changed once made.
type Error struct {
	Status int    // of HTTP
	Code   string // "never", "unknown-semaphore", …; empty when not a node of Signalbox answered
	Title  string // the code for people
	Detail string // what happened, and what to do about it

	Field       string // the member or parameter that is wrong
	Semaphore   string // the one that the refusal is about
	Session     string // the session that it is about
	Reason      string // an operator's, for ErrRevoked
	Rule        string // the limit, or the rule of the lock hierarchy
	Permits     *int64 // of the semaphore
	Available   *int64 // of the semaphore
	QueueLength *int64 // how many requests wait
	Level       *int32 // of the semaphore
	Epoch       uint64 // the semaphore's present one; 0: not told

	// Members are all members of the reply, those above among them.
	Members map[string]json.RawMessage

	RetryAfter time.Duration // as the node asked; 0 if it did not
	Address    string        // of the node
}

// code is an error's identity: that of the refusals which carry it.
type code string

// Error is the code in words.
func (c code) Error() string { return strings.ReplaceAll(string(c), "-", " ") }

// What a node may refuse with. Compare with errors.Is.
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
	ErrOver               error = code("over")                // what the first request with this key was granted
	ErrPreconditionFailed error = code("precondition-failed") // another epoch, or it exists
	ErrTooLarge           error = code("too-large")
	ErrKeyReused          error = code("key-reused")
	ErrLimitReached       error = code("limit-reached") // nothing was done, see Error.Rule
	ErrNoLeader           error = code("no-leader")     // nothing was done
	ErrBehind             error = code("behind")        // a read's MinIndex is not there yet
	ErrNotApplied         error = code("not-applied")   // nothing was done
	ErrDraining           error = code("draining")      // the node stops; nothing was done
	ErrStorageFull        error = code("storage-full")  // nothing was done
	ErrOverloaded         error = code("overloaded")    // nothing was done; the Client tries on
	ErrSplitState         error = code("states-differ") // nothing was done; an operator must decide
	// ErrOutcomeUnknown says that the call may have been carried out or not. The
	// Client has repeated it until ctx ended.
	ErrOutcomeUnknown error = code("outcome-unknown")
)

// What the Client itself says. Compare with errors.Is.
var (
	// ErrUnreachable: no node answered, or none that could do it; the latest failure
	// is wrapped too.
	ErrUnreachable = errors.New("no node answered")
	// ErrLost: the session or lease is over without the caller's doing. Why is
	// wrapped too: a refusal such as ErrRevoked, ErrDeleted, ErrExpiredSession, or
	// ErrNotRenewed.
	ErrLost = errors.New("lost")
	// ErrNotRenewed: no renewal succeeded in time by the Client's own clock, so the
	// lease may be another's from now on.
	ErrNotRenewed = errors.New("not renewed in time")
	// ErrReleased is what Lease.Err answers once the caller has released it.
	ErrReleased = errors.New("released")
	// ErrClosed: the session or Client was closed by the caller.
	ErrClosed = errors.New("closed")
)

// errLevelTooLow: the cluster's members don't all know the request yet.
const errLevelTooLow = code("level-too-low")

// errSilent ends an attempt at a node that takes too long.
var errSilent = errors.New("the node did not answer in time")

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

// nothingDone reports whether the refusal makes sure that nothing was done. One
// that no node of Signalbox made, such as a proxy's, makes sure of nothing.
func (e *Error) nothingDone() bool {
	for _, safe := range []error{ErrNoLeader, ErrBehind, ErrNotApplied, ErrDraining, ErrStorageFull, ErrOverloaded, ErrSplitState, ErrLimitReached} {
		if e.Is(safe) {
			return true
		}
	}
	return false
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

// final reports whether the refusal is the word of the state machine, which for a
// repeat is the outcome of the first attempt; others say nothing about that one.
func (e *Error) final() bool {
	switch e.Status {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed, http.StatusUnprocessableEntity:
		return e.Code != ""
	}
	return false
}

// problem has the members that Error names.
type problem struct {
	Code, Title, Detail, Field, Semaphore, Session, Reason, Rule string

	Permits     *int64
	Available   *int64
	QueueLength *int64 `json:"queue_length"`
	Level       *int32
	Epoch       uint64
}

// newError reads a refusal. Whatever is not a problem of Signalbox's keeps an empty
// code, so that a proxy's 404 is never taken for a node's word that a session ended.
func newError(node *node, response *http.Response, r *reply) *Error {
	e := &Error{Status: r.status, Address: node.base.String(), RetryAfter: retryAfter(response.Header.Get("Retry-After"))}
	var p problem
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if strings.TrimSpace(kind) != "application/problem+json" || json.Unmarshal(r.body, &p) != nil {
		e.Detail = excerpt(string(r.body))
		return e
	}
	_ = json.Unmarshal(r.body, &e.Members) // it was an object a line ago
	e.Code, e.Title, e.Detail = p.Code, p.Title, p.Detail
	e.Field, e.Semaphore, e.Session, e.Reason, e.Rule = p.Field, p.Semaphore, p.Session, p.Reason, p.Rule
	e.Permits, e.Available, e.QueueLength, e.Level, e.Epoch = p.Permits, p.Available, p.QueueLength, p.Level, p.Epoch
	return e
}

// excerpt is the beginning of a text that somebody else wrote.
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
