// Package throttleclient asks a service in throttle's interface as throttle's own
// Python client does: the same requests, time limits, retries and reactions. It is
// there to test that such clients keep working against this service, through the
// restart of a node or the loss of the leader, and is no client to build on: that
// is package client.
//
// It imports no package of this project. A Client is safe for concurrent use; a Thread
// belongs to one goroutine, as a lock there belongs to a thread.
//
// Files:
//   - client.go: Client, its calls and its retries
//   - lock.go: Thread, which holds locks and sends heartbeats
package throttleclient
