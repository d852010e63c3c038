// Package offline works on files that no node has open: it reports what a data folder
// or a backup holds.
//
// It promises:
//
//   - Inspect changes no byte. Whatever it reports was read with right checksums; all else
//     is listed as damage.
//
// What a folder alone can't show is which of the last entries of its log are committed.
// A report has the state at the last index that is known to be, and at the end.
//
// The package writes no logs of its own and prints nothing. Package cmd/signalbox/verbs
// calls it. It imports store for files, replica and fsm for the state.
//
//   - report.go: Report and its parts
//   - inspect.go: Inspect, which fills it
package offline
