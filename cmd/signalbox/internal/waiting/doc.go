// Package waiting shows on a terminal what a request waits for: its place in the line, and who holds the permits. If
// the output is not a terminal, it shows no line.
//
// The commands run, elect and acquire use it while they wait. It reads the state of one node every two seconds, and
// sends no other request.
//
//   - waiting.go: Show, and the line's text
package waiting
