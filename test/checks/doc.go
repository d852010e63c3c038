// Package checks holds what clients saw of a cluster, and what its nodes say that they did, to
// the promises of the service. The runs under faults feed it: test/simulation in virtual
// time, test/chaos with real processes. It knows no fault and no node.
//
// Three layers find what is broken, each as a list of texts, empty for a sound run:
//
//   - the log: Log replays the events of all nodes, which EventLog merges and compares;
//   - linearizability: Linear finds an order of each semaphore's operations, by porcupine;
//   - real time: Beliefs, Grants, Writes, Indexes and Expiries compare what clients count on.
//
// Only tests import it. It imports client, cluster/replica and fsm for their types, and the clients
// of two dialects. The methods of a History and an EventLog are safe for concurrent use; the checks are
// for the time after the run.
//
// Files:
//
//   - history.go: History, what clients saw, and its records
//   - actor.go: Actor, a user of the Go client that fills a History
//   - plain.go: Plain, a user of plain HTTP and of two dialects
//   - log.go: EventLog, Log and Expiries
//   - linear.go: Linear and its model of one semaphore
//   - realtime.go: Judge, which does all; Beliefs, Writes, Indexes, Grants
package checks
