// Package membership brings a node into its cluster, checks that all members belong to the same cluster, and carries
// out the leader's changes of the members.
//
// A node has a [Joining] from its start. The Joining opens the peer port and replies to the probes of other nodes. Its
// method Form finds out whether the node forms a new cluster with its listed peers, or must be admitted again by a
// living cluster. Only then may Raft run, and Start returns the node's [Members]. They watch the other members. On the
// leader, they add and remove members, transfer leadership and raise the feature level. They also stop the node if its
// state differs from the state of a majority.
//
//  1. A voter that has lost its folder takes no part in Raft until a leader has
//     committed that this node has no vote.
//  2. Two nodes form a cluster with the same cluster id, or form no cluster. Both sides
//     refuse a stream between nodes of different clusters.
//  3. Each change names the committed configuration on which it was decided. Raft
//     refuses the change if another change came first.
//
// The package does not open Raft. It stores only the cluster's id, the mark of a restored folder and, before Raft runs,
// the term of a leader. It serves no commands or reads. Its only user, package cluster, decides whether the node is
// ready. It imports cluster/outcome, peer, probe and raftlib, internal/wake and fsm.
//
// All exported methods may be called concurrently, except TermBegan, SnapshotRestored and Configured, which only Raft's
// apply goroutine may call.
//
//   - joining.go: Joining, a node before it is in its cluster, and what it needs from the node; a folder restored from a backup.
//   - form.go: how nodes with empty folders form a cluster, and how a living cluster admits such a node again.
//   - identity.go: how a node describes itself on a stream, and how it judges the other side.
//   - strangers.go: whether the listed peers belong to another cluster.
//   - members.go: Members, which watches the members once Raft runs, and calls that the leader carries out.
//   - configuration.go: the latest committed configuration and its index; how a node learns that it was removed.
//   - change.go: the leader adds and removes members, raises the feature level and hands leadership over.
//   - checks.go: valid ids and addresses; whether a majority stays; which node is at a new address.
//   - readmit.go: the leader takes the vote from a member that lost its folder, and gives votes to members that caught up.
//   - compare.go: the comparison of the members' state hashes.
package membership
