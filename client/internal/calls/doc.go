// Package calls sends one call to a cluster: to one node after the other, until one of
// them has replied.
//
// # What callers can rely on
//
//  1. Caller.Do returns with a reply, with a refusal that holds for all nodes, or when ctx ends.
//     After a refusal by a node's own rule (a limit, a token file, a certificate) it asks each other
//     node once. A ctx without a deadline counts as ended once no node could carry the call out for
//     Config.GiveUpAfter.
//  2. A call that fails at one node (no connection, 502, 503, 504, silence) goes to the
//     next node with the same key, so that it is carried out once. There is a pause after each
//     round over all nodes, which grows, and no pause within a round. No node is asked before
//     the time of its Retry-After.
//  3. A node that accepts requests and never replies takes its share of the call's time,
//     and no more. From then on the other nodes are asked first.
//  4. An error wraps ErrOutcomeUnknown if an attempt may have been carried out and its
//     outcome is not known. It wraps ErrUnreachable if no node replied, or no node could
//     carry out the call.
//  5. A refusal reaches the caller as a *Refusal that wraps the error of Config.Refused.
//     Only a problem document has a Code, so that a proxy's reply is not taken for a node's.
//  6. The credentials go with every request to the given addresses; package credentials
//     has their guarantees.
//  7. A redirect is followed only if the user's http.Client follows it.
//  8. While a request to a node is under way, further calls with an Operation gather, and
//     share the next request. Guarantees 1 to 5 hold for each call: a call leaves the request
//     when its ctx ends, and only that call is repeated.
//
// A Caller may be used by any number of goroutines. Its only goroutines are one for each shared
// request, which ends with the last of its calls.
//
// Packages client and client/operator use it. It knows the batch route (gather.go), no
// other route, and the codes that decide which node is asked next (caller.go, refusal.go).
//
//   - call.go: one call, its reply, and the deadline that a reply stands for, by a clock that counts suspension
//   - clock_linux.go: how long the machine was suspended
//   - clock_other.go: other systems, where the suspension is not measured
//   - caller.go: Config, Do: nodes asked in turn until there is an outcome
//   - outage.go: a line in the log when no node replies
//   - attempt.go: one request to one node, and the time it may take
//   - gather.go: attempts of several calls in one request
//   - stream.go: a reply that is read while it is sent; a read that is asked again after each change
//   - upload.go: a body that is sent to the leader, once
//   - refusal.go: refusals, and which of them end a call
//   - pause.go: pauses between attempts; contexts, errors and keys of calls
package calls
