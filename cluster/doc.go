// Package cluster runs one node of a Signalbox cluster. [Start] opens the node's port and
// its Raft on a data folder and returns a [Node], which its caller closes. Any node takes
// any call: it carries commands to the leader and asks the leader what a read needs.
//
// # What callers can rely on
//
//  1. A [calls.Reply] means that the command is applied, and stored by a majority: a leader that
//     dies, and the crash of any minority, do not lose it. Every node applies all
//     commands in the same order.
//  2. The command of a call is applied at most once. After [outcome.ErrOutcomeUnknown], and
//     after the end of the call's ctx, it may have been applied or may be yet: only a repeat
//     with the same [calls.Call.Key] is safe. After any other error it is safe to make the call
//     again: the command had no effect, or it waits, and its place is kept as [calls.Executor.Do] and
//     [Node.Drain] say.
//  3. When a leader dies or hands over, this node sends the commands of its callers that
//     were certainly not applied to the next leader, in the same order, for up to 5 s:
//     callers see a delay. A command with an unknown outcome waits until the log shows it, and
//     ends with ErrOutcomeUnknown if the log does not.
//  4. [calls.Executor.DoMany] applies the calls of a list in their order, though other commands may
//     come between them. After the first error, calls that were certainly not applied have
//     [outcome.ErrNotTried].
//  5. [calls.Executor.Read] with the zero [calls.Consistency] is linearizable: [Node.View] then shows
//     everything that any node had acknowledged before Read was called.
//  6. Every call returns when its ctx ends, and [Node.Close] within 5 s, no matter what the
//     disk and the other nodes do.
//
// Package cluster/outcome has the errors of calls, and explains what each error says about
// the command. [Config.RaftMultiplier] lengthens the times above. All methods of Node are
// safe for concurrent use.
//
// # Files
//
//   - config.go: Config, its defaults, and what tests replace.
//   - node.go: Node and its parts; raftParts, the parts that need Raft.
//   - lifecycle.go: Start, and the end: Drain, Close, with the hand-over of leadership.
//   - running.go: opens Raft and the parts that need it, once the node is in its cluster, and ends Raft.
//   - adapters.go: when the node may lead and take commands; an adapter for each interface through which a package below sees the node.
//   - callers.go: what callers see of the state: View, changes and events. Do, DoMany and Read are those of calls.Executor.
//   - operator.go: the calls for operators: status, members, leader, level, backup and restore.
//   - ready.go: the checks of readiness, and the reads that prove them.
//   - gauges.go: the gauges that Prometheus reads; package cluster/metrics has the counters.
//
// The work is done in the packages below, which this package connects: cluster/peer (the port between nodes),
// cluster/calls (the calls of callers, until their replies), cluster/membership (who is a member),
// cluster/raftlib (Raft without its known faults), cluster/replica (this node's copy of the state),
// cluster/requests (the commands under way here, even if a reply is lost), cluster/forward (carries them to the
// leader and back), cluster/lead (the leader's work in one term), cluster/backup (backup and restore),
// cluster/notices (delivers due notices), cluster/watchdog (faults that Raft misses). The package touches the
// data folder through package store alone, the state through package fsm, and knows neither HTTP nor flags.
// cmd/signalbox and the packages of httpapi call it.
package cluster
