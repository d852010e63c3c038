// Package mcp lets a language model hold permits: it serves the Model Context Protocol on two streams, for "signalbox
// mcp". A Server has one session. It opens the session for the first acquire, renews it, and ends it when the input
// ends, so that the permits of a model that is gone are free at once.
//
// Calls of tools run concurrently, and can be cancelled. Clients bound the time of a call, so a request for permits
// continues after its acquire call has returned: the next acquire of the same permits joins it, and it keeps its place
// in the line. See https://modelcontextprotocol.io/specification.
//
// The package is called by cmd/signalbox.
//
//   - server.go: Server; the protocol: JSON-RPC 2.0, one message per line
//   - tools.go: the tools, and their parameters
//   - permits.go: the requests and the leases of the session
package mcp
