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

// Call is one request to the cluster; any node may reply.
type Call struct {
	Method string
	Path   []string // segments that are not encoded yet
	Query  url.Values
	Header http.Header
	Body   any // may be nil

	// Key makes a repeat return the outcome of the first attempt. With KeyOptional the call may be sent without the
	// key if the cluster has no room for more keys.
	Key         string
	KeyOptional bool

	// Until is when the wait that the request asks for ends: a node may hold the request until then. Zero: no such
	// wait.
	Until time.Time
	// Listen lets a node hold the request for as long as the attempt may take, and then reply that it still waits.
	Listen           bool
	MaxAttempt       time.Duration        // bounds an attempt; 0: no further bound
	RepeatOverloaded bool                 // repeat the call until ctx ends while the cluster is overloaded: the caller waits, although the request does not
	Patience         func() time.Duration // bounds an attempt, its wait not included; nil: Config.AttemptTimeout alone
	MaxPause         time.Duration        // bounds the pause after failures, Retry-After included; 0: no bound

	Operation Operation // lets the call share a request with other calls; zero: it does not

	OtherNode      bool // begin at another node than the last node that worked
	NoRepeat       bool // don't repeat it after an attempt that may have been carried out
	Unsure         bool // an earlier call with the same key may have been carried out
	OutlivesCaller bool // Caller.Close does not end the call

	Failed func(error) // is called with each failed attempt; may be nil
}

// waits reports whether a node may hold the request.
func (k *Call) waits() bool { return k.Listen || !k.Until.IsZero() }

// Reply is a node's reply, with a status below 300.
type Reply struct {
	Status         int
	Sent, Received Moment        // when the attempt that succeeded or was refused began and ended
	Wait           time.Duration // how long that attempt allowed the node to hold the request
	Node           *nodes.Node   // the node that was asked last
	Replayed       bool          // the outcome of an earlier attempt with the same key
	Index          uint64        // index of the state that the reply reflects; 0: unknown
	Body           []byte

	Unsure bool // for a refusal: an earlier attempt may have been carried out
}

// Early reports whether the node replied before the end of the allowed wait, or no wait was allowed.
func (r *Reply) Early() bool { return r.Wait == 0 || r.Received.Sub(r.Sent) < r.Wait }

// Decode reads the body as JSON into a value.
func (r *Reply) Decode(into any) error {
	if err := json.Unmarshal(r.Body, into); err != nil {
		return fmt.Errorf("signalbox: a node's reply can't be read: %w", err)
	}
	return nil
}

const (
	// driftParts: the client shortens spans of cluster time by 1/driftParts, in case its clock runs slower than the
	// leader's by that much.
	driftParts = 1024
	// rounding is the largest error of a node's times, because nodes count whole milliseconds.
	rounding = time.Millisecond
)

// Moment is a time by this process's own clock. Steps of the wall clock do not change it. Unlike a time.Time on Linux,
// it goes on while the machine is suspended, as cluster time does.
type Moment time.Duration

// epoch is the time of Moment 0.
var epoch = time.Now()

// Now returns the present Moment.
func (c *Caller) Now() Moment { return c.At(time.Now()) }

// At converts a time that has just been read, because a later suspension would be added to it.
func (c *Caller) At(now time.Time) Moment { return Moment(now.Sub(epoch) + c.cfg.Suspended()) }

// Until returns the time that is left until m.
func (c *Caller) Until(m Moment) time.Duration { return m.Sub(c.Now()) }

// Add returns the Moment a span later.
func (m Moment) Add(d time.Duration) Moment { return m + Moment(d) }

// Sub returns the span since another Moment.
func (m Moment) Sub(other Moment) time.Duration { return time.Duration(m - other) }

// Deadline returns the moment until which the session of this reply certainly lives, and when to renew it. The node's
// times start at an unknown moment between Sent and Received, so Deadline counts from Sent. In a replayed reply
// waitedMS belongs to an earlier attempt, so Deadline ignores it.
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
// stood still because there was no leader.
func (r *Reply) Latest(expiresInMS int64) Moment {
	left := duration(expiresInMS)
	return r.Received.Add(left + left/driftParts + rounding)
}

// duration converts a node's milliseconds to a duration of at most 200 years.
func duration(ms int64) time.Duration {
	const limit = 200 * 365 * 24 * time.Hour
	return time.Duration(min(max(ms, 0), int64(limit/time.Millisecond))) * time.Millisecond
}

// Milliseconds rounds a duration up, so that a wait is never shortened and a short ttl does not become 0, which nodes
// reject.
func Milliseconds(d time.Duration) int64 {
	whole, rest := int64(d/time.Millisecond), d%time.Millisecond
	return whole + int64(cmp.Compare(rest, 0))
}
