// Package waiting shows on a terminal what a request waits for: its place in the line, and who holds
// the permits. On anything but a terminal it shows no line.
//
// The commands run, elect and acquire call it while they wait. It reads a node's own state every two
// seconds, and sends no other request.
//
//   - waiting.go: Show, and the line's text
package waiting
