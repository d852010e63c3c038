// Package probe carries the questions and requests between nodes that are neither Raft's messages nor forwarded
// commands: how a node is, and requests that only a leader can carry out for another node, for example to add a member.
// It works as soon as the peer port listens, with or without Raft.
//
// The package makes no decision: a [Responder] describes its node and carries requests out. It opens no connection
// either: [Dial] does. Package cluster/membership implements both, and cluster reads the types. The package imports
// cluster/election, cluster/outcome and internal/wake.
//
// Calls, a Server and a Watch may be used concurrently, a link by one goroutine at a time.
//
//   - wire.go: the messages, their limits and their encoding on a stream.
//   - calls.go: Dial; Calls, with which a node asks another node; link, the stream to one node; the errors that pass between nodes.
//   - serve.go: Responder and Server, with which a node replies.
//   - watch.go: Watch, which asks all other members in rounds and keeps their replies.
package probe
