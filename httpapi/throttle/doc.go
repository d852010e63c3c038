// Package throttle is the dialect of throttle 0.5, a semaphore service: its Python and
// Rust clients need only a new address. A peer is a session, a lock is a lease.
//
// The package translates only. The state machine decides which lock is granted, refused
// or waited for, in throttle's order of checks. Statuses and the texts of refusals are
// throttle's own, as its clients compare them; the wording of a syntax error is not.
// docs/migrating.md has the differences.
//
// cmd/signalbox opens it with New; package httpapi serves it. It imports exchange,
// strictjson, cluster and fsm. It is safe for concurrent use.
//
// Files:
//   - throttle.go: New, the routes, and replies to the byte
//   - peer.go: the routes of peers, restores and the remainder
//   - acquire.go: acquiring a lock, and blocking for it
//   - body.go: bodies, the order in which they are checked, and queries
//   - duration.go: durations, in humantime's grammar
//   - errors.go: refusals in throttle's words
//   - metrics.go: throttle's four gauges
package throttle
