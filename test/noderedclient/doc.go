// Package noderedclient asks a service in the interface of Node-RED's semaphore
// subflow as scripts do that were written for it: a POST, a look at the status.
// It repeats a request that got no reply, or 503, at the next address. It tests
// that such clients keep working against this service, through the restart of a
// node or the loss of the leader, and is no client to build on: that is package
// client.
//
// It imports no package of this project. A Client is safe for concurrent use.
//
// Files:
//   - client.go: Client, its calls and its retries
package noderedclient
