// Package consul is the dialect of Consul's sessions and keys. Consul's clients build their locks
// and semaphores on these: consul lock, and Lock and Semaphore of the Go client, need only a new
// address. docs/dialect-consul.md is the contract.
//
// The package translates only: a key is an item, and the state machine decides which session holds
// it, and how long other sessions may not acquire it afterwards. Statuses, bodies and the texts of
// refusals are the same bytes as Consul's, since the clients compare them. A failure of this
// cluster is 500 and a sentence: only at 500 do the clients' monitors try again.
//
// A GET with an index waits for a change in a queue of package queues. So a change wakes the
// waiting queries of this node one after another, and not all at once.
//
// cmd/signalbox opens it with New; package httpapi serves it. It imports exchange,
// cluster, cluster/outcome, fsm and queues. It is safe for concurrent use.
//
// Files:
//   - consul.go: New, commands and their outcomes, refusals, the token of a request
//   - query.go: the members of a query, keys in paths, the checks in their order
//   - reply.go: replies to the byte, their headers, and lists within a size and a budget
//   - read.go: the routes of keys, GET of keys, and the index of what a query shows
//   - wait.go: queries that wait for a change
//   - write.go: PUT and DELETE of keys
//   - session.go: the routes of sessions, and their ids
//   - about.go: what a client gives to a session, from its body to the text that is kept
//   - agent.go: the routes about nodes
package consul
