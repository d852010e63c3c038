// Package notices delivers the notices that are due: a caller whose down was refused
// left an address, and learns there that permits are available again, or that the
// semaphore is gone.
//
// Each notice is delivered at least once, by the leader, or given up ten minutes after
// it was due. The state machine keeps it until then, so the next leader goes on with
// the notices that this one leaves over. How a notice travels is not known here: a
// [Notifier] brings it to its address.
//
// Package cluster makes a [Sender], which cluster/lead runs in each term of this node;
// httpapi/callback implements the Notifier. The package imports cluster/replica,
// internal/wake and fsm. Its methods may be called concurrently.
//
//   - sender.go: Sender tries each due notice again and again, and has it removed in the end; the bounds of the attempts at one time, in all and to one host.
package notices
