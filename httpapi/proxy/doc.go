// Package proxy sends each request to the cell that has its name, for clients that know no cells. It serves the native API
// and the dialects.
//
// # What callers can rely on
//
//  1. A request goes to the cell of the names in its path, query or body. A request without a name goes to the cell of
//     its session, and without a session to the cell of the prefix "".
//  2. A request over two cells is refused with 409 other-cell, and has no effect. So is a request about a whole
//     cluster. A path that begins with /cells/N goes to cell N without these rules. There what grants or counts permits, or
//     changes an item, is refused for the names of other cells.
//  3. GET /v1/semaphores, /v1/sessions and /v1/events have what all cells have, and a batch may have operations for
//     several cells.
//  4. A request goes to a second node only if the first did not get it, or if twice is the same as once: a read, or an
//     Idempotency-Key.
//  5. Bodies that have to be read are bounded in size, time and number. Other bodies, and all replies, pass as they come.
//
// It keeps no state but which node of each cell worked last, and makes no decision about access: tokens pass through
// it. It reads dialects' requests as far as names and sessions, and imports no dialect. The command line runs it. All
// of it is safe for concurrent use.
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
