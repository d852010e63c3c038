package tracing

import (
	"context"
	"slices"
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Over returns a node that makes spans for the commands and reads of sampled requests. If t is nil, it returns node
// itself.
func (t *Tracing) Over(node exchange.Node) exchange.Node {
	if t == nil {
		return node
	}
	return &traced{node, t}
}

// traced is a Node whose commands carry the contexts of their spans. Calls without a span go to the embedded node
// directly.
type traced struct {
	exchange.Node
	t *Tracing
}

// under starts a span of this node as a child of another span.
func (n *traced) under(parent *span, name string, more ...*commonpb.KeyValue) *span {
	return n.t.start(parent.spanContext, name, append(more, text("signalbox.node", n.t.node))...)
}

// forward starts the span of commands on their way to the leader.
func (n *traced) forward(parent *span, more ...*commonpb.KeyValue) *span {
	return n.under(parent, "forward", append(more, text("signalbox.leader", n.Status().Leader))...)
}

// Do implements exchange.Commands.
func (n *traced) Do(ctx context.Context, call calls.Call) (*calls.Reply, error) {
	if parent := spanOf(ctx); parent != nil {
		return n.do(ctx, parent, call)
	}
	return n.Node.Do(ctx, call)
}

// do is Do for a sampled request. It is a separate function, so that call escapes to the heap for sampled requests
// alone.
func (n *traced) do(ctx context.Context, parent *span, call calls.Call) (*calls.Reply, error) {
	forward := n.forward(parent, attributesOf(call)...)
	call.Trace = contextFor(call.Command, forward)
	var grant *span
	var queuedAt uint64
	call.Queued = func(index uint64) {
		queuedAt = index
		grant = n.under(forward, "grant", attributesOf(call)...)
	}
	reply, err := n.Node.Do(ctx, call)
	if grant != nil {
		grant.link(reply.Trace)
		grant.link(n.madeReady(reply, queuedAt))
		finish(grant, reply, err)
	} else {
		forward.link(reply.Trace) // a grant of before, repeated for its key
	}
	finish(forward, reply, err)
	return reply, err
}

// contextFor returns the context that a command carries. It returns "" for a renewal, since several callers' renewals
// share one command.
func contextFor(command fsm.Command, s *span) string {
	if _, renewal := command.(fsm.Renew); renewal {
		return ""
	}
	return s.format()
}

// DoMany implements exchange.Commands. The commands of a list share one span.
func (n *traced) DoMany(ctx context.Context, list []calls.Call) ([]calls.Reply, []error) {
	parent := spanOf(ctx)
	if parent == nil {
		return n.Node.DoMany(ctx, list)
	}
	forward := n.forward(parent, number("signalbox.commands", len(list)))
	defer forward.end()
	list = slices.Clone(list) // the caller's stay as they are
	for i := range list {
		list[i].Trace = contextFor(list[i].Command, forward)
	}
	replies, errs := n.Node.DoMany(ctx, list)
	for _, err := range errs {
		forward.fail(err)
	}
	return replies, errs
}

// Read implements exchange.State. A look at this node's own state does not wait, and has no span.
func (n *traced) Read(ctx context.Context, c calls.Consistency) (calls.Reading, error) {
	parent := spanOf(ctx)
	if parent == nil || c.Stale && c.MinIndex == 0 {
		return n.Node.Read(ctx, c)
	}
	s := n.under(parent, "read", text("signalbox.leader", n.Status().Leader))
	defer s.end()
	reading, err := n.Node.Read(ctx, c)
	s.fail(err)
	return reading, err
}

// madeReady returns the context of the command that made an entry of a wait list ready, or "" if it is unknown. A
// delivery has waited for this entry since the log index since. The grant is an event of this node, which woke the
// delivery, so we search the events.
func (n *traced) madeReady(reply *calls.Reply, since uint64) string {
	for after := (replica.EventID{Index: since}); len(reply.Completed) > 0; {
		page, err := n.EventsAfter(after)
		if err != nil {
			return ""
		}
		for i := range page.Entries {
			for j := range page.Entries[i].Effects {
				if e := &page.Entries[i].Effects[j]; e.Kind == fsm.EffectGranted && e.Token == reply.Completed[0].Token {
					return e.Trace
				}
			}
		}
		if page.News != nil {
			return ""
		}
		after = page.Next
	}
	return ""
}

// attributesOf returns the attributes of a command.
func attributesOf(call calls.Call) []*commonpb.KeyValue {
	list := []*commonpb.KeyValue{text("signalbox.operation", call.Command.Op().String())}
	if names := fsm.Names(call.Command); len(names) > 0 {
		list = append(list, text("signalbox.semaphore", strings.Join(names, " ")))
	}
	if session := fsm.SessionOf(call.Command); session != 0 {
		list = append(list, number("signalbox.session", session))
	}
	if count := fsm.Permits(call.Command); count != 0 {
		list = append(list, number("signalbox.count", count))
	}
	if call.Wait > 0 {
		list = append(list, number("signalbox.wait_ms", call.Wait.Milliseconds()))
	}
	return list
}

// finish ends a span with the outcome of its command.
func finish(s *span, reply *calls.Reply, err error) {
	if s.fail(err); err == nil {
		s.set(text("signalbox.code", reply.Code.String()), number("signalbox.index", reply.Index), number("signalbox.waited_ms", reply.WaitedMS))
		if reply.Session != 0 {
			s.set(number("signalbox.session", reply.Session))
		}
		if len(reply.Grants) > 0 {
			s.set(number("signalbox.token", reply.Grants[0].Token))
		}
	}
	s.end()
}
