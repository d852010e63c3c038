package calls

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/signalbox/signalbox/client/internal/nodes"
)

// Call is one request to the cluster, to whichever node replies.
type Call struct {
	Method string
	Path   []string // plain segments
	Query  url.Values
	Header http.Header
	Body   any // may be nil

	// Key makes a repeat return the outcome of the first attempt. With KeyOptional the request is safe to
	// repeat without it too, if the cluster has no room for more keys.
	Key         string
	KeyOptional bool

	// Until is the end of a wait that the request names to the cluster: a node may hold the request until then.
	// Zero: no such wait.
	Until time.Time
	// Listen lets a node hold the request as long as the attempt allows, and then reply that there is no outcome yet.
	Listen   bool
	Longest  time.Duration        // bounds an attempt; 0: no further bound
	Try      bool                 // it does not wait, but its caller does: an overloaded cluster is asked again until ctx ends
	Patience func() time.Duration // bounds an attempt without its wait; nil: Config.AttemptTimeout alone
	MaxPause time.Duration        // bounds the pause after failures, Retry-After included; 0: no bound

	Operation Operation // lets it share a request with other calls; the zero value doesn't

	Elsewhere bool // begin at another node than the last that worked
	Once      bool // not repeated after an attempt that may have been carried out
	Unsure    bool // an earlier call with the same key may have been carried out
	Outlives  bool // Caller.Close does not end the call

	Failed func(error) // is called with each failed attempt; may be nil
}

// waits reports whether a node may hold the request.
func (k *Call) waits() bool { return k.Listen || !k.Until.IsZero() }

// Reply is a node's reply, with a status below 300.
type Reply struct {
	Status         int
	Sent, Received Moment        // of the attempt that succeeded or was refused
	Wait           time.Duration // how long that attempt allowed the node to hold it
	Node           *nodes.Node   // asked last
	Replayed       bool          // the outcome of an earlier attempt with the same key
	Index          uint64        // of the state that the reply reflects; 0 unknown
	Body           []byte

	Unsure bool // of a refusal: an attempt before it may have been carried out
}

// Early reports whether a node replied before the end of the wait that it was allowed,
// or was not allowed to wait.
func (r *Reply) Early() bool { return r.Wait == 0 || r.Received.Sub(r.Sent) < r.Wait }

// Decode reads the body as JSON into a value.
func (r *Reply) Decode(into any) error {
	if err := json.Unmarshal(r.Body, into); err != nil {
		return fmt.Errorf("signalbox: a node's reply can't be read: %w", err)
	}
	return nil
}

const (
	// driftParts: the client shortens spans of cluster time by 1/driftParts, because its clock may run that
	// much slower than the leader's.
	driftParts = 1024
	// rounding is the error of the nodes' clocks, which count whole milliseconds.
	rounding = time.Millisecond
)

// Moment is a time by this process's own clock, which a step of the wall clock does not move. Like cluster
// time, it goes on while the machine is suspended; a time.Time stands still then on Linux.
type Moment time.Duration

// epoch is the Moment 0.
var epoch = time.Now()

// Now returns the present Moment.
func (c *Caller) Now() Moment { return c.At(time.Now()) }

// At returns the Moment of a time that has just been read.
func (c *Caller) At(now time.Time) Moment { return Moment(now.Sub(epoch) + c.cfg.Suspended()) }

// Until returns the time that is left to a Moment.
func (c *Caller) Until(m Moment) time.Duration { return m.Sub(c.Now()) }

// Add returns the Moment a span later.
func (m Moment) Add(d time.Duration) Moment { return m + Moment(d) }

// Sub returns the span since another Moment.
func (m Moment) Sub(other Moment) time.Duration { return time.Duration(m - other) }

// Deadline returns until when the session of this reply certainly lives, and when to renew it. waitedMS starts when
// the node got this attempt, so after Sent. A reply that repeats an earlier outcome has the waitedMS of the earlier
// attempt, which is ignored.
func (r *Reply) Deadline(waitedMS, expiresInMS int64) (deadline, renewAt Moment) {
	granted := r.Sent
	if !r.Replayed {
		waited := duration(waitedMS)
		granted = granted.Add(waited - waited/driftParts)
	}
	granted = min(granted, r.Received) // no reply precedes its grant
	left := duration(expiresInMS)
	return granted.Add(left - left/driftParts - rounding), granted.Add(left / 3)
}

// Latest returns when a deadline that is expiresInMS ahead has certainly passed by cluster time, unless cluster time
// stood still without a leader.
func (r *Reply) Latest(expiresInMS int64) Moment {
	left := duration(expiresInMS)
	return r.Received.Add(left + left/driftParts + rounding)
}

// duration is a node's number of milliseconds, at most 200 years.
func duration(ms int64) time.Duration {
	const limit = 200 * 365 * 24 * time.Hour
	return time.Duration(min(max(ms, 0), int64(limit/time.Millisecond))) * time.Millisecond
}

// Milliseconds rounds up, so that a wait is never shortened and a short ttl does not become 0, which nodes reject.
func Milliseconds(d time.Duration) int64 {
	whole, rest := int64(d/time.Millisecond), d%time.Millisecond
	return whole + int64(cmp.Compare(rest, 0))
}
