// Package metrics counts what the log changes in the state of this node: commands, entries, changes, grants and ends of
// leases, in total and by semaphore. Every node applies the same log, so nodes that have run equally long have equal
// counts.
//
// Package cluster has the metrics that are read from the node when Prometheus asks. This package knows the state
// machine, and no other part of the node.
//
// # Files
//
//   - counters.go: Counters, which count as entries are applied.
//   - semaphores.go: Semaphores: the names with separate metrics, and their gauges.
package metrics
