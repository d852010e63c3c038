// Package peer is the single port between the nodes of a cluster. It carries streams of bytes from node to node: Raft's
// messages, forwarded commands, and probes. Each side begins a stream with a preamble that says which node it is. So a
// node of another cluster, a copy of a node, or a member that has lost its folder is recognised before the first
// message of the stream.
//
// The package does not read messages: its users register handlers for them. It asks an [Identity], which
// cluster/membership implements, whether another node belongs to the cluster. cluster and cmd call the package too. It
// imports internal/wake. The TLS settings in [Security] come from internal/certs, by way of cmd/signalbox. With TLS,
// every stream is encrypted, and each side shows a certificate with the id of its node. Without TLS, [CheckAddress] is
// the only protection: it allows only loopback addresses, unless the network is trusted.
//
// A node opens one [Port]. Its methods are safe for concurrent use; each handler runs in a separate goroutine.
//
//   - network.go: Network, by which peers reach each other; their addresses, and the marks in them.
//   - ended_unix.go: whether the other side has ended an idle connection.
//   - ended_other.go: the same for systems that don't show it.
//   - port.go: Identity; Port, which accepts connections, counts them, and closes them when it closes.
//   - streams.go: opening and accepting streams: preambles are exchanged and checked, refusals counted.
//   - hello.go: the preamble, its bytes and its meaning.
//   - security.go: TLS: handshakes, the name in a certificate; PlainToo, for a running cluster that gets its certificates.
//   - processes.go: the process that uses a node id, and when another process may replace it.
//   - raft.go: RaftLayer, Raft's part of the port.
package peer
