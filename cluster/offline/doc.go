// Package offline works on files that no node has open: it reports what a data folder or a backup contains, and makes a
// new cluster from one folder after a majority of the folders is lost.
//
// It promises:
//
//   - Inspect changes no byte. All that it reports was read with correct checksums; all else
//     is listed as damage.
//   - Recover changes the folder in one step: after a crash at any moment the old content
//     or the new content is in force. The old content is kept beside the new content.
//   - A recovered cluster has a new id, so that nodes of the lost cluster can't take part
//     in it. Its counters of tokens, places and epochs, and its index, are above all
//     numbers that the lost part of the log can have given out.
//   - Recover refuses while a node replies that may have later entries, since that cluster
//     may not be lost.
//
// A folder alone can't show which of the last entries of its log are committed. Recover keeps all of them: their
// clients have had no reply, or a reply that remains true.
//
// The package logs and prints no line. Package cmd/signalbox/verbs calls it. It imports store for files, backup,
// replica and fsm for the state, peer and probe to ask other nodes, and membership for ids.
//
//   - report.go: Report and its parts
//   - inspect.go: Inspect, which fills it
//   - recover.go: Prepare, which checks the folder and asks the other nodes; Plan.Carry, which recovers
//   - ask.go: the replies of other nodes to a node that is not running
package offline
