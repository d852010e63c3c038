package forward

import "time"

// A command must not be logged long after its client has given up: a client without
// an idempotency key has asked for something else meanwhile, and had it acknowledged.
// The age of a command is measured on the leader's monotonic clock alone. Each
// stream brings readings of that clock to the origin. A reading, and what has passed
// since on the origin's own monotonic clock, is never ahead of the leader's clock, no
// matter how long the reading was under way. The origin writes that estimate into
// each frame of commands, taken when it saw that their callers still waited. The
// leader refuses what comes, or lies in its queue, too long after that: time in the
// origin's buffers, in the link and at a suspended process all count. A command
// that was refused as late is sent again if its caller still waits.

const (
	// freshFor is how old a command may be when it comes to the leader, beyond the
	// round trip of the stream. Each refusal as late doubles it for that command, up
	// to freshDoublings times, so that a link that has become slow carries commands.
	freshFor       = 250 * time.Millisecond
	freshDoublings = 3
	// roundTripMax bounds what a measured round trip adds to that.
	roundTripMax = time.Second
	// queueGrace is how much longer a command may wait in the leader's own queue.
	queueGrace = time.Second
	// clockEvery is how often a leader sends a reading beside those that go with other frames.
	clockEvery = 500 * time.Millisecond
	// clockKept is how long the best reading is preferred to later ones that took
	// longer: no two clocks run at quite the same rate.
	clockKept = time.Minute
)

// leaderClock is the origin's estimate of the forwarding clock of the leader that a
// stream leads to. It is never ahead of that clock. link.go fills it, under the link's mu;
// Server.propose and forwardedCommand.Withdrawn refuse by it.
type leaderClock struct {
	known     bool
	readingMS int64
	at        time.Time // when the reading came
	roundTrip time.Duration
}

// note takes a reading in. roundTrip is an upper bound of the stream's round trip, or 0.
func (c *leaderClock) note(readingMS int64, at time.Time, roundTrip time.Duration) {
	if roundTrip > 0 && (c.roundTrip == 0 || roundTrip < c.roundTrip) {
		c.roundTrip = min(roundTrip, roundTripMax)
	}
	if !c.known || readingMS >= c.estimateMS(at) || at.Sub(c.at) > clockKept {
		c.known, c.readingMS, c.at = true, readingMS, at
	}
}

// estimateMS returns what the leader's clock reads at least.
func (c *leaderClock) estimateMS(now time.Time) int64 {
	return c.readingMS + now.Sub(c.at).Milliseconds()
}

// patienceMS returns how long the leader may take a command that it has refused as
// late so many times.
func (c *leaderClock) patienceMS(refusals int) int64 {
	return (freshFor<<min(refusals, freshDoublings) + 2*c.roundTrip).Milliseconds()
}
