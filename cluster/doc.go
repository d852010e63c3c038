// Package cluster owns one Raft node: its peer port, its transport, and what
// Signalbox needs of consensus that the library does not give.
//
// The lower layer, from the wire up:
//
//   - [Network] is how bytes travel: [TCPNetwork], or package memnet in tests.
//   - [PeerPort] is the one port that peers use. The first byte of a connection
//     says what it is for: Raft, forwarded commands, or the probe.
//   - [RaftLayer] is Raft's share of that port; it advertises a name, not an IP.
//   - [Transport] wraps the library's network transport and removes known faults
//     of it: heartbeats beside the main loop (raft#695), pipelining (raft#611,
//     raft#612), and a leader with a hung disk (raft#503).
//   - [AckClock] knows what was acknowledged of what was sent since when, and
//     [ReadRounds] builds the strict read index upon it.
//
// The package knows nothing of HTTP, and the machine (package fsm) and the data
// folder (package store) know nothing of it.
package cluster
