// Package events is GET /v1/events: the stream of what happens to semaphores, leases and
// sessions, as server-sent events. It also bounds the watchers of a node: the streams
// and, counted with them, the blocking queries of package v1.
//
// A stream reads the node's history at the pace of its client, so it takes no memory
// beyond one write. Package v1 serves the route. The package imports exchange,
// cluster/outcome, cluster/replica and fsm. All of it is safe for concurrent use.
//
// Files:
//   - events.go: API, a stream's course, its filters and ids
//   - last.go: where the last events of a filter begin
//   - streams.go: the open streams, their bound and their end
//   - shapes.go: JSON of events
package events
