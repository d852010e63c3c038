// Package probe carries the questions that nodes ask each other beside Raft's messages
// and forwarded commands: how a node is, and the requests that only a leader can carry
// out for another node, as to add a member. It works from the moment the peer port
// listens, with or without Raft.
//
// It makes no decision: a [Responder] describes its node and carries requests out. It opens no
// connections by itself either: [Dial] does. Package cluster/membership implements both;
// cluster reads its types. It imports cluster/outcome and internal/wake.
//
// Calls, a Server and a Watch may be used concurrently, a link by one goroutine at a
// time.
//
//   - wire.go: the messages, their limits and how they stand on a stream.
//   - calls.go: Dial; Calls, by which a node asks another one; link, the stream to one node; the errors that pass between nodes.
//   - serve.go: Responder and Server, by which a node replies.
//   - watch.go: Watch, which asks all other members in rounds and keeps their replies.
package probe
