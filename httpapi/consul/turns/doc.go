// Package turns decides in which order the waiting queries of Consul's clients hear of a
// change. The clients' own algorithm lets every contender write as soon as its query is
// replied to, and one of them wins. A late reply is still correct: so the contender that has
// waited longest hears first, and mostly wins before the others write.
//
// It guarantees, for each watched name or prefix on this node:
//
//   - A change wakes all monitors at once, before any other query.
//   - The other queries stand in a line, in the order in which they came. A change wakes the first
//     of them at once, and one more each 10 ms. A query is not woken later than 250 ms after
//     the first change since it was woken last.
//   - A query that is asked again on its connection within a second stands where it stood,
//     unless the connection has written what it waited for.
//   - While a turn is on, an acquire of the key on another connection is held back. A turn begins
//     with the change that frees the key, if a query stands in line for it, and ends when the
//     key is held again, or 15 ms later. If the connection has begun to write by then, it ends with
//     the outcome, 250 ms later at most: where commits are slow, 15 ms would be no turn.
//   - While a woken query's connection writes, its line pauses. One acquire or check-and-set of a
//     key is under way at a time. Most of the others are then refused without the log.
//
// It does not promise that the first of a line wins, nor any order among nodes: the
// state machine alone decides who holds an item. It knows no HTTP and no item's value. Package
// httpapi/consul calls it, through Lines; a waiting query costs an entry of its line, and each line one
// goroutine while a query stands in it. All of it is safe for concurrent use.
//
// Files:
//   - lines.go: Lines: queries come and go; writes that wait for each other; what is kept of connections
//   - line.go: the line of one name or prefix: changes, the moments at which queries are woken, turns
package turns
