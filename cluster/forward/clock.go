package forward

import "time"

// A command must not be logged long after its client has given up. For example, a client without an idempotency key may
// have sent another request since. So the leader measures the age of a command, on its own monotonic clock:
//
// 1. The leader sends readings of this clock on each stream. The origin estimates the clock as the reading plus the time since
//    then. The estimate is never ahead of the leader's clock, however long the reading was under way.
// 2. When the origin sees that callers still wait, it puts its estimate into their frame of commands.
// 3. The leader refuses commands that arrive, or wait in its queue, too long after that. So the time in the origin's buffers,
//    on the network and in a suspended process counts. The origin sends a late command again if its caller still waits.

const (
	// freshFor is how old a command may be when it arrives at the leader, in addition to the round trip of the stream.
	// Each refusal as late doubles it for that command, up to freshDoublings times, so that a link that has become slow
	// still carries commands.
	freshFor       = 250 * time.Millisecond
	freshDoublings = 3
	// roundTripMax bounds the measured round trip that is added to freshFor.
	roundTripMax = time.Second
	// queueGrace is how much longer a command may wait in the leader's own queue.
	queueGrace = time.Second
	// clockEvery is how often a leader sends a reading even without other frames.
	clockEvery = 500 * time.Millisecond
	// clockKept is how long the best reading is preferred to later readings with longer round trips. It is bounded
	// because no two clocks run at exactly the same rate.
	clockKept = time.Minute
)

// leaderClock is the origin's estimate of the leader's forwarding clock, for one stream. It is never ahead of that
// clock. The link's mu guards it.
type leaderClock struct {
	known     bool
	readingMS int64
	at        time.Time // when the reading came
	roundTrip time.Duration
}

// note records a reading. roundTrip is an upper bound of the round trip of the stream, or 0.
func (c *leaderClock) note(readingMS int64, at time.Time, roundTrip time.Duration) {
	if roundTrip > 0 && (c.roundTrip == 0 || roundTrip < c.roundTrip) {
		c.roundTrip = min(roundTrip, roundTripMax)
	}
	if !c.known || readingMS >= c.estimateMS(at) || at.Sub(c.at) > clockKept {
		c.known, c.readingMS, c.at = true, readingMS, at
	}
}

// estimateMS returns a lower bound of the leader's clock.
func (c *leaderClock) estimateMS(now time.Time) int64 {
	return c.readingMS + now.Sub(c.at).Milliseconds()
}

// patienceMS returns how long the leader may accept a command that it has already refused as late this many times.
func (c *leaderClock) patienceMS(refusals int) int64 {
	return (freshFor<<min(refusals, freshDoublings) + 2*c.roundTrip).Milliseconds()
}
