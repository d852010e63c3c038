// Package raftlib makes hashicorp/raft fit for this service: settings, a transport
// without the library's known faults, and the strict read index that the library does
// not have. The faults are named where the code works around them, by their numbers
// among the library's issues:
//
//   - A heartbeat handled beside the main loop can make committed state diverge
//     (raft#695): [Transport] sends all messages through the main loop.
//   - A pipeline that meets a rejected append can stop for ever (raft#611, raft#612):
//     it is off.
//   - A leader whose disk hangs leads for ever (raft#503): its transport falls silent.
//   - VerifyLeader takes replies to older messages for a proof of leadership:
//     [AckClock] knows when each acknowledged message was sent, and [ReadRounds]
//     confirms reads by it.
//   - A leader's disk and its followers' work one after the other: [Log] lets them work
//     at the same time.
//   - After each failure Raft pauses twice as long before it sends entries again, up to 10 s:
//     the transport holds failures back until the follower replies again, those of entries
//     from the second one on, those of a snapshot for 30 s at most.
//   - An idle follower learns what is committed only by messages that Raft sends all the
//     time: [Transport.Run] sends them when there is something to learn.
//
// The package knows no command, no state machine and no port. Package cluster opens
// Raft with these parts; cluster/lead, cluster/membership and cmd call it too. It imports
// internal/wake. Raft's goroutines call the transport; any goroutine may call
// the rest.
//
//   - config.go: the settings of a node's Raft, and its log, where ordinary faults are warnings.
//   - transport.go: Transport, which sends Raft's messages while this node's log allows that.
//   - appends.go: the appends to followers, as many entries as the link can take; what followers have acknowledged (AckClock) and know of the commit index.
//   - log.go: Log, which a leader writes beside its followers.
//   - rounds.go: ReadRounds, which confirm reads by rounds of acknowledgements, and the waits for these.
package raftlib
