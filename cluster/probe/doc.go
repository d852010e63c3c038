// Package probe carries questions and requests between nodes, besides Raft's messages and forwarded commands: questions
// about a node's state, and requests that only a leader can carry out, for example to add a member. It works as soon as
// the peer port listens, with or without Raft.
//
// The package makes no decision: a [Responder] describes its node and carries out requests, and a [Dial] function opens
// connections. Package cluster/membership implements both, and cluster uses the types. The package imports
// cluster/election, cluster/outcome and internal/wake.
//
// Calls, Server and Watch are safe for concurrent use; only one goroutine may use a link at a time.
//
//   - wire.go: the messages, their limits and their encoding on a stream.
//   - calls.go: Dial; Calls, with which a node asks other nodes; link, a stream to one node; the errors that nodes send each other.
//   - serve.go: Responder and Server, with which a node replies.
//   - watch.go: Watch, which asks all other members in rounds and keeps their replies.
package probe
