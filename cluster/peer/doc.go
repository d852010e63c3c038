// Package peer is the single port between the nodes of a cluster. It carries streams of bytes from node to node: Raft's
// messages, forwarded commands, and probes. Each side begins a stream with a preamble that says which node it is. So a
// node of another cluster, a copy of a node, or a member that has lost its folder is recognised before the first
// message of the stream.
//
// The package reads no message: the handlers that its users register do. It does not know either who belongs to the
// cluster: it asks an [Identity], which cluster/membership implements. cluster and cmd call the package too. It imports
// internal/wake. The TLS settings in [Security] come from internal/certs, by way of cmd/signalbox. With TLS, every
// stream is encrypted, both sides show a certificate, and the name in it must be the node from which the stream claims
// to come. Without TLS, only [CheckAddress] keeps strangers out.
//
// A node opens one [Port]. Its methods are safe for concurrent use; each handler runs in a separate goroutine.
//
//   - network.go: Network, by which peers reach each other; their addresses, and the marks in them.
//   - ended_unix.go: whether the other side has ended a connection that has no reader.
//   - ended_other.go: the same on systems that don't show it.
//   - port.go: Identity; Port, which accepts connections, counts them, and closes them when it closes.
//   - streams.go: Dial and its other side: preambles are exchanged and judged, and refusals counted.
//   - hello.go: the preamble, its bytes and its meaning.
//   - security.go: TLS: handshakes, the name in a certificate; PlainToo, for a cluster that gets its certificates while it runs.
//   - processes.go: the process that uses a node id, and when another process may replace it.
//   - raft.go: RaftLayer, Raft's part of the port.
package peer
