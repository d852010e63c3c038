// Package reads is the part of the native API that shows the state: semaphores, items,
// sessions, leases, waiting requests and their lists. Each reply is as recent as its query requires,
// and has what the identity of the request may read.
//
// It changes no state. Package v1 serves its routes, and uses its shapes in the replies to
// operations. It imports exchange, events, access, cluster and fsm. All of it is safe for
// concurrent use; a handler holds the state no longer than it takes to copy one page.
//
// Files:
//   - read.go: the routes, and blocking queries
//   - items.go: items, and reads that wait for a change of them
//   - groups.go: the groups of a semaphore
//   - lost.go: what lost leases of a semaphore held
//   - lists.go: the pages of lists, and their cursors
//   - shapes.go: the JSON of replies to reads
//   - shared.go: the JSON that replies to operations have as well
package reads
