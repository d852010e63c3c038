// Package tracing makes OpenTelemetry spans of requests and sends them to a collector over OTLP/HTTP. It is off unless
// the environment names a collector: [Open] then returns nil, the node is not wrapped, and no command carries a trace
// context.
//
// A traced request has these spans:
//
//	METHOD /route       the request, until its reply; a child of the client's span
//	├ forward           a command's way to the leader and its outcome's way back
//	│ ├ commit          on the leader: the command's entry, until it is applied there
//	│ └ grant           the wait for a grant; it links to the forward span of the command
//	│                   that made room
//	└ read              the confirmation of a linearizable read
//
// The context of the forward span travels in the command (fsm.Envelope.Trace), through the log, and the state machine
// passes it on to the grants that the command causes. So the waiter's node knows which release led to the grant, even if
// another node received the release. The number of spans that wait for the collector is bounded: further spans are
// dropped and counted, and no request waits for the collector. The package has OTLP's messages from a library; the rest
// of an SDK is here, in little code.
//
// The package keeps no secret in a span: neither tokens of identities, nor metadata, nor values. It makes no decision
// about requests. Package cmd/signalbox wires it; it imports cluster, cluster/replica, fsm, httpapi/access and
// httpapi/exchange. All of it is safe for concurrent use.
//
// Files:
//   - tracing.go: Tracing: opened from the environment, closed; the commits that a leader reports
//   - environment.go: what the variables say: which traces are sampled, and the node's resource
//   - request.go: the span of a request, traceparent in and out
//   - node.go: the spans of commands and reads
//   - span.go: a span, and its span context
//   - outbox.go: the spans that wait for the collector, within a bound
//   - upload.go: one batch, sent by HTTP
package tracing
