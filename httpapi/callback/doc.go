// Package callback sends notices over HTTP, to addresses that clients of the
// service have named: whoever may ask a node may make it send. So it sends
// nothing to a host that the operator has not listed, looks at the address that
// is really dialled, once the name is resolved, and follows nothing.
//
//	POST /path HTTP/1.1
//	Content-Type: application/json
//	Idempotency-Key: signalbox-notice-17-43763dc8cd8a
//
//	{"id":17,"name":"jobs","value":2,"reason":"available"}
//
// Any answer of 200 to 299 counts as delivered. cmd builds a Sender from
// --callback-allow and gives it to cluster, which calls it on the leader, and to
// httpapi, which asks it about an address before a notice is left. It decides
// nothing about semaphores, and keeps nothing.
package callback
