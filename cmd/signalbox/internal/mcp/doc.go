// Package mcp lets a language model hold permits: it serves the Model Context Protocol on two
// streams, for "signalbox mcp". A Server has one session, which it opens for the first acquire, keeps
// renewed, and ends when the input ends. So the permits of a model that is gone are free at once.
//
// Calls of tools run beside each other, and a cancelled call ends. A request waits on, though, when
// the acquire that asked for it has returned, since clients bound the time of a call: the next
// acquire of the same permits continues to wait in the same place. See
// https://modelcontextprotocol.io/specification.
//
// The package is called by cmd/signalbox.
//
//   - server.go: Server; the protocol: JSON-RPC 2.0, a message a line
//   - tools.go: the tools, and their parameters
//   - permits.go: the requests and the leases of the session
package mcp
