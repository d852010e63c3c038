// Package terminal is what the verbs print, and what they ask: tables, JSON and bare names
// on standard output, and a question before what can't be undone.
//
// A table is for people and may change. JSON has the members of the HTTP API, and names are
// one a line: both are for programs. On a terminal, text that came from clients is printed
// without its control characters, which could drive it.
//
// The package is called by cmd/signalbox/operate.
//
//   - terminal.go: formats, tables, colours, questions
package terminal
