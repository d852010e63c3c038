// Package notices delivers the notices that are due. A caller whose down was refused has left an address; a notice
// tells that address that permits are available again, or that the semaphore is gone.
//
// The leader delivers each notice at least once, or gives it up ten minutes after it was due. The state machine keeps a
// notice until then, so the next leader continues with the notices that this leader has not finished. The package does
// not know how a notice travels: a [Notifier] brings it to its address.
//
// Package cluster makes a [Sender], which cluster/lead runs in each term of this node; httpapi/callback implements the
// Notifier. The package imports cluster/replica, internal/wake and fsm. Its methods may be called concurrently.
//
//   - sender.go: Sender tries each due notice repeatedly, and has it removed in the end; the limits of concurrent attempts, in total and to one host.
package notices
