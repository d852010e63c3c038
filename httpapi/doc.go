// Package httpapi is Signalbox's native REST API: it turns HTTP requests into
// calls on a cluster node and their outcomes back into HTTP. It is the only
// place that knows routes, statuses and JSON.
//
// A request goes through New's Handler: path put into one spelling, routed,
// counted, guarded (panics, foreign origins, slashes), read strictly into
// params, performed by the node, rendered. What a client may ask the state
// machine is one row of the table of operations, shared by the single routes
// and by /v1/batch, so that both answer alike. Everything that can be refused
// is one row of the tables in problem.go.
//
// It keeps no state of the service, knows no Raft and decides nothing about
// semaphores. Package cluster does not know it; cmd builds a Handler over a
// node and serves it with a Server. All of it is safe for concurrent use.
//
// Another dialect is one file with one function that adds its routes to the
// same router, as addNativeRoutes does. Errors that reach the end of the chain are
// rendered as problem+json; a dialect renders its own before that, in a
// middleware of its route group.
package httpapi
