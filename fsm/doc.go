// Package fsm is Signalbox's deterministic state machine: semaphores, sessions,
// leases, the queue, fencing tokens, idempotency keys and cluster time.
//
// Log entries go in as bytes; results, conclusions of waits and effects come
// out. The package reads no clock, no disk and no random source, starts no
// goroutine and keeps no package variable but the table of operations, so that
// the same log gives the same bytes on every replica and at every replay.
//
// It does not propose, forward, wait or speak HTTP: package cluster feeds it
// from the Raft log and wakes who waits.
//
// A Machine may be used by one goroutine at a time. Readers and the goroutine
// that applies must be kept apart by their owner (cluster holds a RWMutex).
// A Frozen copy, once taken, may be read beside continuing applies.
package fsm
