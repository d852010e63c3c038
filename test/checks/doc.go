// Package checks compares what clients of a cluster saw, and what its nodes report, with the promises of the service.
// Two packages run a cluster under faults and use it: test/simulation in virtual time, test/chaos with real processes.
// It knows no fault and no node.
//
// Three layers find violations. Each returns them as a list of texts, which is empty for a correct run:
//
//   - the log: Log replays the events of all nodes, which EventLog merges and compares;
//   - linearizability: Linear finds an order of each semaphore's operations, by porcupine;
//   - real time: Beliefs, Grants, Writes, Indexes and Expiries compare what clients count on.
//
// Only tests import it. It imports client, cluster/replica and fsm for their types, and the clients of two dialects.
// The methods of a History and an EventLog are safe for concurrent use. The checks are to be called after the run.
//
// Files:
//
//   - history.go: History, what clients saw, and its records
//   - actor.go: Actor, a user of the Go client that fills a History
//   - plain.go: Plain, a user of plain HTTP and of two dialects
//   - log.go: EventLog, Log and Expiries
//   - linear.go: Linear and its model of one semaphore
//   - realtime.go: Judge, which makes all checks; Beliefs, Writes, Indexes, Grants
package checks
