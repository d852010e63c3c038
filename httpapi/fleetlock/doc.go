// Package fleetlock is the dialect of FleetLock, by which machines of a fleet take turns to
// reboot: Zincati's clients need only a new address. docs/dialects-small.md is its contract.
//
// A slot of a group is a permit of the semaphore fleetlock/GROUP, which an operator creates.
// A machine that has a slot holds it as the lease of a one-shot session, whose id is derived from
// the group and from the machine's id. So a machine finds its session on any node, and no table
// is needed; no other client can make a session with this id. The session ends with the lease.
//
// cmd/signalbox opens it with New; package httpapi serves it. It imports exchange, cluster
// and fsm. It is safe for concurrent use.
//
// Files:
//   - fleetlock.go: New, the two routes, and their replies
package fleetlock
