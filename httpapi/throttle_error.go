package httpapi

import (
	"fmt"
	"net/http"

	"github.com/signalbox/signalbox/fsm"
)

// throttleError is a refusal as the dialect tells it: one bare text.
type throttleError struct {
	status      int
	contentType string // "" for throttle's own domain errors, which have none
	text        string
	retryAfter  string // seconds, "" none
}

// Error is the text.
func (e *throttleError) Error() string { return e.text }

// domain is one of throttle's own refusals. Its clients compare the texts, so
// the spelling is throttle's as well.
func domain(status int, text string) *throttleError {
	return &throttleError{status: status, text: text}
}

var (
	errUnknownPeer     = domain(http.StatusBadRequest, "Unknown peer")
	errNoSuchSemaphore = domain(http.StatusBadRequest, "Unknown semaphore")
	errAlreadyPending  = domain(http.StatusConflict, "Already pending. Only one pendig lock per peer is allowed.")
	errRestoreDiffers  = domain(http.StatusConflict, "Restore is not allowed to change existing peers.")
	errShrinking       = domain(http.StatusNotImplemented, "Shrinking the count of an existing lock is currently not implemented.")
)

// sentence is a refusal that throttle does not have.
func sentence(status int, text string) *throttleError {
	return &throttleError{status: status, contentType: plainText, text: text}
}

// again is what the clients should come back for by themselves: they take 503 as
// a reason to repeat, and would stop at 429, 410 or 504.
func again(text, retryAfter string) *throttleError {
	if retryAfter == "" {
		retryAfter = "1"
	}
	return &throttleError{status: http.StatusServiceUnavailable, contentType: plainText, text: text, retryAfter: retryAfter}
}

// throttleErrorOf tells a native problem, which comes from the node, from the
// limits or from reading the body.
func throttleErrorOf(p *problem) *throttleError {
	switch p.Code {
	case "outcome-unknown":
		return again("It may have been done, or not. Every request of this interface can be repeated.", "")
	case "too-large":
		return sentence(p.Status, "Failed to buffer the request body: length limit exceeded")
	}
	switch p.Status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusGatewayTimeout:
		return again(p.Detail, kinds[p.Code].retryAfter)
	}
	return sentence(p.Status, p.Detail)
}

// throttleRefused tells a result of the state machine that is not an answer.
func throttleRefused(r *fsm.Result) *throttleError {
	switch r.Code {
	case fsm.UnknownSemaphore, fsm.Deleted:
		return errNoSuchSemaphore
	case fsm.UnknownSession, fsm.ExpiredSession:
		return errUnknownPeer
	case fsm.Revoked:
		if r.Subject == "" { // the whole session
			return errUnknownPeer
		}
		return throttleRevoked("lock", r.Reason)
	case fsm.InvalidCount:
		return throttleCount(r.Asked)
	case fsm.Never:
		return domain(http.StatusConflict, fmt.Sprintf(
			"Lock can never be acquired. Lock asks for count %d yet full count is only %d.", r.Asked, r.Full))
	case fsm.LeaseExists:
		return throttleHeld(r)
	case fsm.Hierarchy:
		if r.Rule == fsm.RuleWaits {
			return errAlreadyPending
		}
		return throttleHierarchy(r.LowestLevel, r.Level)
	case fsm.SessionExists:
		return errRestoreDiffers
	case fsm.Overflow:
		return sentence(http.StatusConflict, "The counts held would leave the range of 64 bit integers. Nothing was changed.")
	case fsm.LimitReached:
		return again("A configured limit is reached: "+r.Rule.String()+". Nothing was changed.", "")
	}
	return throttleErrorOf(refused(r))
}

func throttleCount(found int64) *throttleError {
	return domain(http.StatusBadRequest, fmt.Sprintf("Lock count must be a positive number. Found: %d.", found))
}

// throttleHeld refuses another count of a lock that is held or waited for. With
// the same count it waits as part of a list, which this dialect does not have.
func throttleHeld(r *fsm.Result) *throttleError {
	switch {
	case r.Asked > r.Holding:
		return throttleHierarchy(r.Level, r.Level)
	case r.Asked < r.Holding:
		return errShrinking
	}
	return errAlreadyPending
}

// throttleHierarchy tells two levels; a semaphore without one counts as 0, which
// is throttle's default.
func throttleHierarchy(held, asked *int32) *throttleError {
	return domain(http.StatusConflict, fmt.Sprintf("Lock hierachy violation. This may deadlock. The current lock level is %d the\n"+
		"        requested lock level was %d.", levelOrZero(held), levelOrZero(asked)))
}

func levelOrZero(level *int32) int32 {
	if level == nil {
		return 0
	}
	return *level
}

// throttleRevoked tells what an operator has ended, and why.
func throttleRevoked(what, reason string) *throttleError {
	text := "An operator revoked this " + what
	if reason != "" {
		text += ": " + reason
	}
	return sentence(http.StatusConflict, text+".")
}
