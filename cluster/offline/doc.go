// Package offline works on files that no node has open: it reports what a data folder
// or a backup holds, and makes a cluster of one folder when a majority is lost.
//
// It promises:
//
//   - Inspect changes no byte. Whatever it reports was read with right checksums; all else
//     is listed as damage.
//   - Recover changes the folder in one step: after a crash at any moment the old content
//     or the new one is in force. The old content is kept beside the new one.
//   - A recovered cluster has an id of its own, so that nodes of the cluster before can't
//     take part in it. Its counters of tokens, places and epochs, and its index, are above
//     all that the lost part of the log can have given out.
//   - Recover refuses while a node replies that may know of more, since that cluster may
//     not be lost.
//
// What a folder alone can't show is which of the last entries of its log are committed.
// Recover keeps all of them. Their clients have had no reply, or the right one.
//
// The package writes no logs of its own and prints nothing. Package cmd/signalbox/verbs
// calls it. It imports store for files, backup, replica and fsm for the state, peer and probe to
// ask other nodes, and membership for ids.
//
//   - report.go: Report and its parts
//   - inspect.go: Inspect, which fills it
//   - recover.go: Prepare, which looks at folder and nodes; Plan.Carry, which recovers
//   - ask.go: what other nodes reply to a node that is not running
package offline
