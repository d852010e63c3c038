// Package wake holds the ways in which goroutines of a node wait and are woken. Each
// way exists once, here, so that its rules are written and tested once: no wake-up is
// lost, no caller waits on after its context has ended, and no timer is left behind.
//
// Choose by the question that the waiting goroutine has:
//
//   - "Is there more to do for me?" One goroutine that looks again: [Signal].
//   - "Has this one thing among many changed?" Goroutines that look again: [Watchers].
//   - "Has it changed?" All goroutines at once: [Bell].
//   - "What is it now?" Callers who can share a result that is found after they came:
//     [Gathering].
//   - "May I work now?" Goroutines that one change has woken, and that must leave the processors to others: [Share].
//   - "Is it over?" [Until], [Await], [Within] and [Pause] bound the wait; [Next] and [NextAfter] let pauses end at the same moment.
//
// The package knows no Raft, no commands and no peers, and imports no package of ours.
// Nearly all packages of the cluster call it, httpapi/exchange, and store/damage. Everything in it is safe for concurrent use.
//
//   - share.go: turns of many, in a share of the processors
//   - wake.go: all of them, from the signal of one goroutine to waits with a bound; Stretch, for slow networks.
package wake
