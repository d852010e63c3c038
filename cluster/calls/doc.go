// Package calls carries out the calls and the reads of a node's callers: from a command to its reply, also when the
// command has to wait. Any node carries out any call: package forward brings the command to the leader, and package
// requests knows it until its entry is applied here.
//
// What callers can rely on is said in package cluster, whose Node has the [Executor]. The package knows no Raft, no
// members and no disk.
//
// Files, in reading order:
//
//   - call.go: Call, Reply, and the Executor: from the command of a caller to its reply.
//   - wait.go: how a call listens for the end of a wait, or for an entry of a wait list.
//   - renewals.go: gathers the renewals of many callers into one command.
//   - read.go: reads and their consistency.
package calls
