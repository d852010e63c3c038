// Package wake contains the ways in which goroutines of a node wait and are woken. Each way exists only here, so that
// its rules are written and tested once: no wake-up is lost, no caller waits after its context has ended, and no timer
// is left behind.
//
// Choose by the question of the waiting goroutine:
//
//   - "Is there more to do for me?" One goroutine that checks again: [Signal].
//   - "Has this key among many changed?" Goroutines that check again: [Watchers].
//   - "Has it changed?" All goroutines at once: [Bell].
//   - "What is it now?" Callers who can share a result that is computed after their calls: [Gathering].
//   - "May I work now?" Goroutines that one change has woken, and that must leave processors to others: [Share].
//   - "Is it over?" [Until], [Await], [Within] and [Pause] bound the wait; [Next] and [NextAfter] let pauses end at the same moment.
//   - "May I say so again?" Events that repeat, such as lines of the log: [Pace].
//
// The package knows no Raft, no commands and no peers, and imports no package of ours. Nearly all packages of the
// cluster, httpapi/exchange and store/damage call it. All of it is safe for concurrent use.
//
//   - share.go: Share, turns of many goroutines in a share of the processors
//   - pace.go: Pace, one of many equal events per interval
//   - wake.go: all other ways, from Signal to waits with a bound; Stretch, for slow networks.
package wake
