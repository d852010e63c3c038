// Package offline works on files that no running node uses: it reports what a data folder or a backup contains, and
// makes a new cluster from one folder after a majority of the folders is lost.
//
// It promises:
//
//   - Inspect changes no byte. It reports only what it has read with correct checksums, and
//     lists the rest as damage.
//   - Recover changes the folder in one step: after a crash at any moment the old content
//     or the new content is in force. The old content is kept beside the new content.
//   - A recovered cluster has a new id, so that nodes of the lost cluster can't take part
//     in it. Its counters of tokens, places and epochs, and its index, begin above all
//     numbers that the lost part of the log can have given out.
//   - Recover refuses while a node replies that may have later entries, since the cluster
//     may not be lost then.
//
// A folder alone can't show which of the last entries of its log are committed. Recover keeps all of them. That is
// correct: either the client of an entry got no reply, or it got a reply that remains true.
//
// The package neither logs nor prints. Package cmd/signalbox/verbs calls it. It imports store for files, backup,
// replica and fsm for the state, peer and probe to ask other nodes, and membership for ids.
//
//   - report.go: Report and its parts
//   - inspect.go: Inspect, which makes a Report
//   - recover.go: Prepare, which checks the folder and asks the other nodes; Plan.Carry, which recovers
//   - ask.go: how the folder's node, which does not run, asks the other nodes
package offline
