package throttle

import (
	"fmt"
	"net/http"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// domain returns a refusal in throttle's own words, which has no Content-Type. Throttle's clients compare the texts, so
// we keep throttle's spelling.
func domain(status int, text string) *exchange.Refusal {
	return &exchange.Refusal{Status: status, Text: text}
}

var (
	errUnknownPeer     = domain(http.StatusBadRequest, "Unknown peer")
	errNoSuchSemaphore = domain(http.StatusBadRequest, "Unknown semaphore")
	errAlreadyPending  = domain(http.StatusConflict, "Already pending. Only one pendig lock per peer is allowed.")
	errRestoreDiffers  = domain(http.StatusConflict, "Restore is not allowed to change existing peers.")
	errShrinking       = domain(http.StatusNotImplemented, "Shrinking the count of an existing lock is currently not implemented.")
)

// retryable returns a refusal with status 503. Throttle's clients repeat a request at 503, but give up at 429, 410 or
// 504.
func retryable(text, retryAfter string) *exchange.Refusal {
	return exchange.Retry(http.StatusServiceUnavailable, text, retryAfter)
}

// refusalOf translates a native problem: of the node, of a limit or of the body.
func refusalOf(p *exchange.Problem) *exchange.Refusal {
	switch p.Code {
	case "outcome-unknown":
		return retryable("The request may have been carried out. Every request of this interface can be repeated.", "")
	case "too-large":
		return exchange.Sentence(p.Status, "Failed to buffer the request body: length limit exceeded")
	}
	switch p.Status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusGatewayTimeout:
		return retryable(p.Detail, p.RetryAfter())
	}
	return exchange.Sentence(p.Status, p.Detail)
}

// refusedWith translates a refusal of the state machine.
func refusedWith(r *fsm.Result) *exchange.Refusal {
	why := r.Why()
	switch r.Code {
	case fsm.UnknownSemaphore, fsm.Deleted:
		return errNoSuchSemaphore
	case fsm.UnknownSession, fsm.ExpiredSession:
		return errUnknownPeer
	case fsm.Revoked:
		if r.Subject == "" { // the whole session
			return errUnknownPeer
		}
		return revokedRefusal("lock", why.Reason)
	case fsm.InvalidCount:
		return countRefusal(r.Asked)
	case fsm.Never:
		return domain(http.StatusConflict, fmt.Sprintf(
			"Lock can never be acquired. Lock asks for count %d yet full count is only %d.", r.Asked, why.Full))
	case fsm.LeaseExists:
		return heldRefusal(r)
	case fsm.Hierarchy:
		if r.Rule == fsm.RuleWaits {
			return errAlreadyPending
		}
		return hierarchyRefusal(why.LowestLevel, why.Level)
	case fsm.SessionExists:
		return errRestoreDiffers
	case fsm.Overflow:
		return exchange.Sentence(http.StatusConflict, "The counts held would leave the range of 64 bit integers. The request had no effect.")
	case fsm.LimitReached:
		return retryable(exchange.Refused(r).Detail, "")
	}
	return refusalOf(exchange.Refused(r))
}

func countRefusal(found int64) *exchange.Refusal {
	return domain(http.StatusBadRequest, fmt.Sprintf("Lock count must be a positive number. Found: %d.", found))
}

// heldRefusal refuses an acquire with another count for a lock that the peer holds or waits for. An equal count is
// refused only if the lock waits as part of a list, which this dialect does not have.
func heldRefusal(r *fsm.Result) *exchange.Refusal {
	why := r.Why()
	switch {
	case r.Asked > why.Holding:
		return hierarchyRefusal(why.Level, why.Level)
	case r.Asked < why.Holding:
		return errShrinking
	}
	return errAlreadyPending
}

// hierarchyRefusal names two levels; a semaphore without a level counts as 0, throttle's default.
func hierarchyRefusal(held, requested *int32) *exchange.Refusal {
	return domain(http.StatusConflict, fmt.Sprintf("Lock hierachy violation. This may deadlock. The current lock level is %d the\n"+
		"        requested lock level was %d.", levelOrZero(held), levelOrZero(requested)))
}

func levelOrZero(level *int32) int32 {
	if level == nil {
		return 0
	}
	return *level
}

// revokedRefusal tells a client that an operator or max_hold has ended its lock, or an operator its peer.
func revokedRefusal(revoked, reason string) *exchange.Refusal {
	text := "An operator revoked this " + revoked
	switch reason {
	case "":
	case fsm.CauseMaxHold.String():
		text = "The semaphore's longest hold ended this " + revoked
	default:
		text += ": " + reason
	}
	return exchange.Sentence(http.StatusConflict, text+".")
}
