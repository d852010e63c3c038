// Package wire decodes the primitives of two formats of Signalbox: the log and the snapshots of the state machine
// (package fsm), and the frames in which nodes forward commands (package cluster/forward).
//
// A [Decoder] belongs to one goroutine. The package does no input or output. It obeys the rules of purity of the state
// machine, which depends on it.
//
//   - decoder.go: unsigned and zigzag varints, bytes, strings, lengths of lists
package wire
