// Package httpapi serves the HTTP API of a node: the native API (v1) and the dialects
// that it is given, on one router, behind the same guards.
//
// A request passes Handler: its path gets one spelling, it is routed, counted, guarded
// against panics, wrong hosts and foreign origins, given its identity, and then handled by
// the package of its route. An error that a handler returns is sent in the form of the
// route's owner: as a problem (RFC 9457) natively, by Dialect.Render for a dialect.
//
// A dialect is a folder with a function New that returns an exchange.Dialect. Package
// cmd/signalbox lists the dialects in one table; no package here imports one.
//
// The packages below, from the ground up: strictjson reads JSON; access decides who may
// do what; exchange is one request and its reply; v1, throttle, nodered and consul are APIs;
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
//     guards of every request: their number, probes, panics, hosts, origins
//   - admit.go: the identity and the origin of each request, for tokens and the audit log
//   - health.go: the metrics, the routes for probes
//   - server.go: Server
//   - connections.go: the bound on connections, failed handshakes
package httpapi
