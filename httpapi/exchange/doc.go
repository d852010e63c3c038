// Package exchange handles a request and its reply, for every API of a node: it reads
// bodies, queries and paths within bounds of size, time and memory; it translates the
// refusals of the state machine and the errors of the cluster into problems (RFC 9457);
// it sends replies with the index that they reflect. The native API and each dialect
// are built on an Exchange, so that limits and errors are the same in all of them.
//
// A Dialect is the API of another system: its routes, the form of its errors, its
// metrics. Package httpapi serves it. A dialect's package may import exchange, strictjson,
// fsm, cluster and cluster/outcome.
//
// The package has no routes and makes no decision about semaphores. All of it is safe for
// concurrent use. It imports access, audit, cluster, cluster/outcome, cluster/replica,
// fsm, strictjson and internal/wake.
//
// Files:
//   - node.go: Node, the methods of a cluster node that the APIs call; Dialect, Route
//   - guard.go: guarded, a Node that checks each call against the identity of its request; Rights
//   - audited.go: a line of the audit log for each change
//   - exchange.go: Exchange, its configuration and its parts
//   - request.go: names, ids, keys, durations and queries; Perform, which every API calls for a command
//   - server.go: limits of a server that net/http does not set by default
//   - settings.go: the names of groups, and the optional settings of semaphores in JSON
//   - body.go: Bodies: reads bodies, within limits of size, time and memory
//   - replies.go: Replies and Reads: replies and their headers, the state with its index, JSON
//   - refusal.go: Refusal, an error in the form of a dialect
//   - budget.go: the budgets of memory; ReplyMemory
//   - waits.go: Waits: bounds the requests that wait for a change, and how many work at a time after it
//   - problem.go: the table of problems, its rows for codes and errors, and the members
//     of one problem
package exchange
