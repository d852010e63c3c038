// Package proxy sends each request to the cell to which the name in the request belongs, for clients that don't know the
// cells. It serves the native API and the dialects.
//
// # What callers can rely on
//
//  1. A request goes to the cell of the names in its path, query or body. A request without a name goes to the cell of
//     its session, and without a session to the cell of the prefix "".
//  2. A request about names of two cells is refused with 409 other-cell, and has no effect. So is a request about a
//     whole cluster. These rules do not apply to a path that begins with /cells/N: it goes to cell N. If such a request
//     grants or counts permits, or changes an item, it is refused for the names of other cells.
//  3. GET /v1/semaphores, /v1/sessions and /v1/events merge the replies of all cells, and a batch may have operations
//     for several cells.
//  4. A request is sent to a second node only if the first did not get it, or if it is safe to repeat: a read, or a
//     request with an Idempotency-Key.
//  5. Bodies that the proxy has to read are bounded in size, time and number. Other bodies, and all replies, pass as
//     they come.
//
// It remembers only which node of each cell worked last, and makes no decision about access: it passes tokens on. It
// reads the names and sessions in requests of dialects, and imports no dialect. The command line runs it. All of it is
// safe for concurrent use.
//
//   - proxy.go: Config, Proxy, one request and its refusals
//   - server.go: the server, and the time that a client has to read
//   - subject.go: the names and sessions of a native request, and which cell has them
//   - dialects.go: the names and sessions of requests of dialects
//   - body.go: bodies that have to be read
//   - node.go: the nodes of a cell, one after the other
//   - gather.go: one request to several cells
//   - lists.go: lists of all cells
//   - batch.go: batches
//   - events.go: the events of all cells as one stream
package proxy
