// Package nodered is the dialect of the "Semaphore Service" subflow of Node-RED: its
// clients need only a new address. docs/dialect-nodered.md is its contract.
//
// The package translates only: the state machine decides which request is granted,
// refused or waited for. In addition to the flow's members a body may have an amount, a wait
// or a callback.
//
// cmd/signalbox opens it with New; package httpapi serves it. It imports exchange,
// strictjson, cluster and fsm. It is safe for concurrent use.
//
// Files:
//   - nodered.go: New, the routes, and their replies
//   - body.go: bodies, and the members that a semaphore keeps
//   - value.go: values, amounts, waits and callbacks
package nodered
