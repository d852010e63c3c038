// Package callback sends notices over HTTP, to addresses that clients of the service have named. Each client that may
// use a node could thereby make it call any host. So the package sends only to hosts that the operator has listed,
// checks the resolved address before it dials, and follows no redirect.
//
//	POST /path HTTP/1.1
//	Content-Type: application/json
//	Idempotency-Key: signalbox-notice-17-43763dc8cd8a
//
//	{"id":17,"name":"jobs","value":2,"reason":"available"}
//
// Any status from 200 to 299 counts as delivered. cmd builds a Sender from --callback-allow. It gives it to cluster,
// which calls it on the leader, and to the dialects, which check an address before they store a notice.
//
// The package makes no decision about semaphores and keeps no state. It imports cluster/notices, whose Notifier it
// implements, and fsm. All of it is safe for concurrent use.
//
// Files:
//   - sender.go: Sender, which checks an address and sends one notice
//   - allow.go: the list of hosts that may be called
package callback
