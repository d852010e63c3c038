// Package events is GET /v1/events: it streams what happens to semaphores, leases, sessions and items, as server-sent
// events.
//
// A stream reads the node's history as fast as its client reads the stream, so it needs no memory beyond one write.
// exchange.Waits bounds how many woken streams read at a time. An event is encoded once for all streams. Package v1
// serves the route. The package imports exchange, cluster/outcome, cluster/replica and fsm. All exported names are safe
// for concurrent use.
//
// Files:
//   - events.go: API, how a stream begins and goes on, its filters and ids
//   - last.go: finds the beginning of a stream of the last events of a filter
//   - streams.go: the open streams, and their end
//   - tape.go: the latest events in encoded form, and who may read them
//   - shapes.go: JSON of events
package events
