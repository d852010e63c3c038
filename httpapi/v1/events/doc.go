// Package events is GET /v1/events: the stream of what happens to semaphores, leases and
// sessions, as server-sent events.
//
// A stream reads the node's history at the pace of its client, in its turn (exchange.Waits), so it
// takes no memory beyond one write. An event is encoded once for all streams. Package v1 serves the
// route. The package imports exchange, cluster/outcome, cluster/replica and fsm. All of it is safe for
// concurrent use.
//
// Files:
//   - events.go: API, a stream's course, its filters and ids
//   - last.go: where the last events of a filter begin
//   - streams.go: the open streams, and their end
//   - tape.go: the latest events in encoded form, and who may read them
//   - shapes.go: JSON of events
package events
