// Package election makes a node campaign before Raft's time-outs when there can be no leader: after the process of a
// leader has ended, and after a start. Without it, hashicorp/raft waits for 0.5 to 1 s without a heartbeat in all
// cases.
//
// # How a dead leader is recognised
//
// The operating system closes the sockets of a process that ends, and refuses new connections. So a follower dials the
// leader's peer port when its Raft stream from the leader ends. "Connection refused" proves that the process has ended,
// and so does a handshake with the member's next process. A handshake with the same process, a time-out or another
// error is no proof. If a leader was stopped (SIGSTOP), cut off, or lost its power, only Raft's time-outs notice it.
//
// # How the followers agree on one candidate
//
// A candidate asks all other voters. A voter agrees if it has no leader either, and if it knows no better candidate. A
// voter has no leader if it knows no leader, or is in the dead leader's term and finds the same process dead. A better
// candidate has a longer log or, of equal logs, a lower id. A worse candidate waits for a moment. With the agreement of
// a majority the candidate has its Raft campaign without pre-vote, since the agreement has replaced pre-vote: a
// majority has no living leader.
//
// # What can't go wrong
//
//  1. Raft alone keeps elections safe. The package only chooses the moment of a campaign: terms, votes and the
//     comparison of logs are left to Raft, so a wrong proof may cost an election, never an entry.
//  2. A living leader is deposed only if a majority of voters each know no leader, or have dialled the leader's
//     process and found it dead, after their stream from it ended or after a time without contact. A question names the
//     dead process and the term in which it led. A term has one leader, so the answer can't count against
//     the member's next process. A process can die only once: a second proof against the same
//     process is not believed for 30 s, a third for 60 s, and so on.
//
// The package knows no port and no store: package cluster gives it Raft, the questions to other voters, and the dial.
// All methods are safe for concurrent use.
//
//   - election.go: Election, which finds reasons to campaign, asks the other voters and replies to them.
//   - proof.go: proofs, which finds out whether the process of a leader has ended.
package election
