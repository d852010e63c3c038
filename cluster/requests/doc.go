// Package requests knows every command that is under way at this node, and every wait
// that a command has begun. A command of a caller of this node is a [Request]; a command that
// another node has forwarded here has an id and a [Stream]. Each request
// gets one outcome, from whichever comes first: this node's machine, which applies its
// id; the leader's reply; or the proof that it was not applied, which is a fence or a
// later term.
//
// It sends no message and never blocks: cluster/forward carries requests and gives
// their outcomes back; package cluster makes them and listens for the ends of waits.
// It imports cluster/lead, outcome and replica, and fsm.
// The life of a request: Build, Add, MarkSent; then Reply or Applied settles it. If it waits, its caller listens from
// that moment, until Conclude. The [Registry] is a sink of the replica's FSM. Everything here is safe for concurrent
// use.
//
//   - registry.go: Registry and Request: registered, sent, settled by an entry or by the leader, refused, dropped; the sizes of sessions.
//   - waits.go: the listeners for the ends of waits.
//   - streams.go: commands that other nodes have forwarded, the deliveries to them, and the fences of this node's own streams.
package requests
