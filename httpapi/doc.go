// Package httpapi serves the HTTP API of a node: the native API (v1) and the dialects of
// its configuration, on one router, with the same guards.
//
// Handler normalises the path of a request, routes and counts the request, recovers from
// panics, refuses wrong hosts and foreign origins, and finds the request's identity. Then
// the package of the route handles the request. If that fails, the error is sent as a
// problem (RFC 9457) for a native route, and by Dialect.Render for a route of a dialect.
//
// A dialect is a package with a function New that returns an exchange.Dialect. Package
// cmd/signalbox lists the dialects in one table; no package here imports a dialect.
//
// The packages below: strictjson reads JSON; access decides who may do what; exchange
// reads requests and sends replies; v1, throttle, nodered and consul are APIs;
// ui is the console, a page that uses v1. Further packages are audit, the log of changes;
// callback, which delivers notices over HTTP; declare, which applies a file of semaphores;
// and tracing, which makes spans of requests.
//
// The package keeps no state of the service and makes no decision about semaphores.
// Package cluster does not know it; cmd builds a Handler and serves it with a Server.
// It imports access, exchange, ui and v1. All of it is safe for concurrent use.
//
// Files:
//   - handler.go: Handler and its configuration, the routes, the form of an error, and the
//     guards of every request: the limit of requests, panics, hosts, origins
//   - admit.go: the identity and the origin of each request, for tokens and the audit log
//   - health.go: the metrics, the routes for probes
//   - server.go: Server
//   - connections.go: the bound on connections, failed handshakes
package httpapi
