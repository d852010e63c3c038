// Package v1 is the native API, /v1: it turns requests into commands and reads of a
// cluster node, and their results into JSON. docs/api.md describes it.
//
// Each command of clients is one row of the table of operations. A single route and
// /v1/batch share the row, so that both read the same parameters and send the same replies.
// The routes of reads, events, members and backups are in packages below v1.
//
// The package makes no decision about semaphores, and knows no dialect. Package httpapi
// serves its routes. It imports exchange, strictjson, reads, events, members, snapshot, cluster and
// fsm. All of it is safe for concurrent use.
//
// Files:
//   - api.go: API, its configuration and its routes
//   - operation.go: the table of operations, and how one is performed: from its
//     parameters to its reply
//   - ops.go: the operations, one variable each, and the JSON of their replies
//   - items.go: the operations on items, with their parameters and replies
//   - params.go: the parameters of operations, from paths, headers, queries and bodies
//   - batch.go: many operations in one request
package v1
