// Package replica has this node's copy of the cluster's state, and the watchers of it.
// Raft's log reaches the copy through [FSM], which Raft gets; callers
// read it with View, wait for an index with Await, and are woken by Watch, WatchItems, Listen,
// HoldersChanged and EventsAfter when something has changed.
//
// It sends no message, proposes no command and knows no other node. Nor does it know
// whether the copy is up to date: cluster/lead finds that out with a read index.
// Other parts of a node that follow the log are sinks: they are given to the FSM, as
// a list in the order of their calls.
//
// Package cluster makes one Replica for a node, and its FSM once the node opens its
// Raft; cluster/requests, cluster/notices, cluster/lead and cluster/forward read it,
// as httpapi does. It imports cluster/outcome, internal/wake and fsm.
// Raft's apply goroutine calls the FSM; everything else may be used concurrently.
//
//   - replica.go: Replica: the state, the index that it has reached, and the watchers of both; FSM and Sink: how an entry of the log is applied, which parts follow it, and when a snapshot is due.
//   - items.go: who watches which items, and the numbers of their changes.
//   - snapshot.go: how the FSM writes and restores a snapshot.
//   - history.go: past events, which readers follow page by page, and past state hashes, for comparison with other nodes.
package replica
