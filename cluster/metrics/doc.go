// Package metrics counts what the log does to the state of this node: commands, entries,
// changes, grants and ends of leases, in all and by semaphore. Every node applies the same
// log, so that every node that has run as long has the same counts.
//
// What is read off a node when Prometheus asks is in package cluster. This package knows
// the state machine, and no other part of the node.
//
// # Files
//
//   - counters.go: Counters: what is counted as entries are applied.
//   - semaphores.go: Semaphores: the names that have metrics of their own, and their gauges.
package metrics
