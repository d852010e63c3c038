// Package queues decides in which order a change wakes the waiting queries of Consul's clients.
// Each contender for a key writes as soon as it has the reply to its query, and one of them wins. A
// late reply is still correct. So the package first wakes the contender that has waited longest: it
// mostly wins before the others write.
//
// It guarantees, for each watched name or prefix on this node:
//
//   - A change wakes all monitors at once, before any other query.
//   - The other queries wait in a queue, in the order in which they came. A change wakes the first
//     at once, and the next every 10 ms. A query is not woken later than 250 ms after
//     the first change since it was last woken.
//   - A query that is repeated on its connection within a second keeps its ticket, its rank in the queue,
//     unless the connection has written what it waited for.
//   - A change that frees a key opens a window for the connection of the first query that waits for the key:
//     acquires on other connections wait meanwhile. The window closes when the key is held again, or after
//     15 ms. If the connection has begun to write by then, the window closes with the outcome, after 250 ms
//     at most: where commits are slow, 15 ms would be too short to win.
//   - While a woken query's connection writes, its queue pauses. One acquire or check-and-set of a
//     key is under way at a time. Most of the others are then refused without the log.
//
// It does not promise that the first of a queue wins, nor any order among nodes: the
// state machine alone decides who holds an item. It knows no HTTP and no item's value. Package
// httpapi/consul calls it, through Queues; a waiting query costs an entry of its queue, and each queue one
// goroutine while a query is in it. All of it is safe for concurrent use.
//
// Files:
//   - queues.go: Queues: queries come and go; writes that wait for each other; the tickets of connections
//   - queue.go: the queue of one name or prefix: changes, the moments at which queries are woken, windows
package queues
