// Package lead does the leader's work in one term of Raft. A [Leadership] begins a [Term]
// when the node has won an election and has applied everything that earlier leaders may
// have acknowledged. It ends the term when the node no longer leads. A term guarantees:
//
//  1. There is one proposer at a time, and each of its entries names its own term. Once Run has
//     ended a term, the term makes no further entry.
//  2. Cluster time never goes back, not even from one leader to the next, and stands
//     still while the leader can accept no command.
//  3. ReadIndex returns an index that shows everything which was acknowledged before
//     the call, and a time by which no deadline at that index has passed.
//  4. For each command that it accepts, the machine gives a result, by the command's
//     id, or the term calls [Proposal.Failed]; both may happen if the outcome was unknown.
//
// Methods of Leadership and Term may be called by any goroutine; in a term, the proposer and the ticker
// have one goroutine each.
//
// cluster/forward, not this package, finds the leader, carries commands between nodes and
// knows their callers. Package cluster, as the [Node], decides which commands a full disk
// or a split state forbids. Package cluster calls this package, and so do
// cluster/forward and cluster/requests; it imports cluster/outcome, raftlib and
// replica, internal/wake and fsm.
//
//   - leadership.go: Leadership, which begins and ends terms; Term: propose, tick, confirm a read; what both need of Raft and of their node.
//   - proposer.go: puts all commands that wait into one entry of the log.
//   - queue.go: the commands that wait: their classes, their order, their bounds.
//   - clock.go: time: the leader's clock, the ticker, which logs entries without commands; Pulse, which notices that the process was suspended.
package lead
