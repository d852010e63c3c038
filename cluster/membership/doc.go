// Package membership knows the members of the cluster: how a node comes in, whether all of
// them belong together, and how the leader changes them.
//
// A node has a [Joining] from its start. It opens the peer port, replies to the probes
// of other nodes and, with Form, finds out whether the node forms a cluster with its
// listed peers or must be taken back by a living cluster. Only then may Raft run, and
// Start makes the node's [Members]: it watches the other members, has the leader Add,
// Remove, Transfer and Raise, and stops the node if its state is not the majority's.
//
//  1. A voter that has lost its folder takes no part in Raft until a leader has
//     committed that it has no vote.
//  2. Two nodes form with the same cluster id or not at all, and a stream between nodes
//     of different clusters is refused by both.
//  3. Each change names the committed configuration that it was decided upon; Raft
//     refuses it if another change came first.
//
// The package opens no Raft and stores only the cluster's id, the mark of a restored
// folder and, before Raft runs, the term of a leader. It serves no commands or reads,
// and does not decide about readiness: package cluster does, its only user. It imports
// cluster/outcome, peer, probe and raftlib, internal/wake and fsm.
//
// All exported methods may be called concurrently, but for TermBegan, Restored and
// Configured, which are for Raft's apply goroutine.
//
//   - joining.go: Joining, a node on its way into its cluster, and what it needs from its node; a folder that was put back from a backup.
//   - form.go: how nodes with empty folders form a cluster, and how one of them has a living cluster take it back.
//   - identity.go: how a node describes itself on a stream, and how it judges the other side.
//   - strangers.go: whether the listed peers belong to another cluster.
//   - members.go: Members, which watches the members once Raft runs, and calls that the leader carries out.
//   - configuration.go: the latest committed configuration and its index; how a node learns that it was removed.
//   - change.go: the leader adds and removes members, raises the feature level and hands leadership over.
//   - checks.go: what an id and an address may be; whether a majority stays; the node at a new address is asked who it is.
//   - readmit.go: the leader takes a member's vote that lost its folder, and gives votes to members that caught up.
//   - compare.go: the comparison of the members' state hashes.
package membership
