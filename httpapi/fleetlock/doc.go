// Package fleetlock is the dialect of FleetLock, by which machines of a fleet take turns to
// reboot: Zincati's clients need only a new address. docs/dialects-small.md is its contract.
//
// A slot of a group is a permit of the semaphore fleetlock/GROUP, which an operator creates.
// A machine that has a slot holds it as a lease of a session of its own, and the session's
// id is a hash of the group and of the machine's id. So a machine finds its session on any
// node, and no table is needed.
//
// cmd/signalbox opens it with New; package httpapi serves it. It imports exchange, cluster
// and fsm. It is safe for concurrent use.
//
// Files:
//   - fleetlock.go: New, the two routes, and their replies
package fleetlock
