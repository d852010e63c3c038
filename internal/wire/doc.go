// Package wire decodes the primitives that two formats of Signalbox are made of:
// the bytes of the state machine's log and snapshots (package fsm), and the frames
// that nodes forward commands in (package cluster/forward).
//
// A [Decoder] belongs to one goroutine. The package does no input or output, and
// the state machine depends on it: it obeys the same rules of purity.
//
//   - decoder.go: unsigned and zigzag varints, bytes, strings, lengths of lists
package wire
