// Package throttleclient asks a service in throttle's interface as throttle's own
// Python client does: the same requests, time limits, retries and reactions. It is
// there to test that such clients keep working against this service, through the
// restart of a node or the loss of the leader, and is no client to build on: that
// is package client.
//
// It knows nothing of the rest of this project. A Client is safe for concurrent
// use; a Thread belongs to one goroutine, as a lock there belongs to a thread.
package throttleclient
