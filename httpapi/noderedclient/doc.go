// Package noderedclient asks a service in the interface of Node-RED's semaphore
// subflow as scripts do that were written for it: a POST, a look at the status.
// It repeats what met no answer, or 503, at the next address. It is there to test
// that such clients keep working against this service, through the restart of a
// node or the loss of the leader, and is no client to build on: that is package
// client.
//
// It knows nothing of the rest of this project. A Client is safe for concurrent
// use.
package noderedclient
