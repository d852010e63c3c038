// Package raftlib makes hashicorp/raft fit for this service: settings, a transport
// without the library's known faults, and the strict read index that the library does
// not have. The faults are named where the code works around them, by their numbers
// among the library's issues:
//
//   - A heartbeat handled outside the main loop can make committed state diverge
//     (raft#695): [Transport] passes all messages to the main loop.
//   - A pipeline that meets a rejected append can stop for ever (raft#611, raft#612):
//     it is off.
//   - A leader whose disk hangs leads for ever (raft#503): its transport falls silent.
//   - VerifyLeader accepts replies to older messages as a proof of leadership:
//     [AckClock] records when each acknowledged message was sent, and [ReadRounds]
//     confirms reads by these times.
//   - A leader writes to its disk before it sends entries to its followers: [Log] lets all
//     disks work at the same time.
//   - Raft doubles its back-off from a follower on every error, up to 10 s: the transport delays
//     errors until the follower replies again: append errors from the second in a row on, snapshot
//     errors for 30 s at most.
//   - Raft sends an idle follower the commit index only at its commit timeout:
//     [Transport.Run] sends one append when the commit index has moved.
//
// The package knows no command, no state machine and no port. Package cluster opens
// Raft with these parts; cluster/lead, cluster/membership and cmd call it too. It imports
// internal/wake. Raft's goroutines call the transport; any goroutine may call
// the rest.
//
//   - config.go: the settings of a node's Raft, and its log, where ordinary faults are warnings.
//   - transport.go: Transport: opens and closes, delays errors, sends snapshots, asks for votes.
//   - appends.go: how the leader sends appends, heartbeats and announcements of the commit index; and what it learns
//     from these about a follower: pace, attempts, heartbeats, announcement, acknowledgements (AckClock).
//   - log.go: Log, which a leader writes while its followers write theirs.
//   - rounds.go: ReadRounds, which confirm reads by rounds of acknowledgements, and the waits for these (Wait, EndTerm of AckClock).
package raftlib
