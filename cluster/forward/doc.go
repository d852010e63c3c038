// Package forward carries commands to the leader, on any node, and their outcomes back. A
// [Router] sends the commands of this node's callers: to this node's own term while it
// leads, otherwise over a stream to the leader. A [Server] is the other end of such
// streams. Both guarantee:
//
//  1. Commands of a call are sent in their order, and sent again only when they are
//     certainly not in the log.
//  2. A command that is held or sent has an outcome in bounded time: from the leader, or
//     from this node's own machine, through the registry of requests.
//  3. A command whose caller has given up is not logged long after that.
//
// Members of different versions exchange these frames: a number is never used again, and an addition
// belongs to a feature level (ADR 10). TestFramesAreForEver pins the bytes. A Router and a Server may
// be used by any number of goroutines.
//
// The package knows Raft only as far as its [Node] says who leads. It makes no decision
// about a command: cluster/requests keeps what is known of each, cluster/lead logs them.
// Package cluster calls it; it imports these two, cluster/outcome and replica, fsm,
// internal/wake and internal/wire.
//
//   - submit.go: Router.Submit and Router.ReadIndex: how a call is carried, and how long it waits.
//   - router.go: Router finds the leader and keeps a route to it; the route to this node's own term.
//   - link.go: the route to another node: a stream, and the commands and reads without a reply on it.
//   - clock.go: how old a command may be when it arrives at the leader; the origin estimates the leader's clock.
//   - server.go: Server takes commands and reads from other nodes' streams.
//   - outbox.go: the messages of a leader on a stream, gathered without blocking.
//   - codec.go: the frames of a stream, byte by byte.
package forward
