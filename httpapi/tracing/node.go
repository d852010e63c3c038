package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Over returns a node that makes the spans of commands and reads of sampled requests. It
// returns the node itself when t is nil.
func (t *Tracing) Over(node exchange.Node) exchange.Node {
	if t == nil {
		return node
	}
	return &traced{node, t}
}

// traced is a Node whose commands carry the contexts of their spans. What has no span here
// goes to the node as it is.
type traced struct {
	exchange.Node
	t *Tracing
}

// sampled reports whether a request has spans.
func sampled(ctx context.Context) bool { return trace.SpanContextFromContext(ctx).IsSampled() }

// start starts a span of this node within a request.
func (n *traced) start(ctx context.Context, name string, more ...attribute.KeyValue) trace.Span {
	more = append(more, attribute.String("signalbox.node", n.t.node))
	_, span := n.t.tracer.Start(ctx, name, trace.WithAttributes(more...))
	return span
}

// Do implements exchange.Commands.
func (n *traced) Do(ctx context.Context, call cluster.Call) (*cluster.Reply, error) {
	if !sampled(ctx) {
		return n.Node.Do(ctx, call)
	}
	return n.do(ctx, call)
}

// do is Do for a sampled request; apart, since what it does makes call escape. A renewal
// carries no context: it shares its command with those of other callers.
func (n *traced) do(ctx context.Context, call cluster.Call) (*cluster.Reply, error) {
	forward := n.start(ctx, "forward", append(asked(call), attribute.String("signalbox.leader", n.Status().Leader))...)
	if _, renewal := call.Command.(fsm.Renew); !renewal && forward.SpanContext().IsSampled() {
		call.Trace = format(forward)
	}
	var grant trace.Span
	var queuedAt uint64
	call.Queued = func(index uint64) {
		queuedAt = index
		grant = n.start(trace.ContextWithSpan(ctx, forward), "grant", asked(call)...)
	}
	reply, err := n.Node.Do(ctx, call)
	if grant != nil {
		link(grant, reply.Trace)
		link(grant, n.madeReady(reply, queuedAt))
		end(grant, reply, err)
	} else {
		link(forward, reply.Trace) // a grant of before, repeated for its key
	}
	end(forward, reply, err)
	return reply, err
}

// DoMany implements exchange.Commands. The commands of a list share one span.
func (n *traced) DoMany(ctx context.Context, calls []cluster.Call) ([]cluster.Reply, []error) {
	if !sampled(ctx) {
		return n.Node.DoMany(ctx, calls)
	}
	forward := n.start(ctx, "forward", attribute.Int("signalbox.commands", len(calls)), attribute.String("signalbox.leader", n.Status().Leader))
	defer forward.End()
	if forward.SpanContext().IsSampled() {
		calls = append([]cluster.Call(nil), calls...) // the caller's stay as they are
		carried := format(forward)
		for i := range calls {
			calls[i].Trace = carried
		}
	}
	replies, errs := n.Node.DoMany(ctx, calls)
	for _, err := range errs {
		fail(forward, err)
	}
	return replies, errs
}

// Read implements exchange.State.
func (n *traced) Read(ctx context.Context, c cluster.Consistency) (cluster.Reading, error) {
	if !sampled(ctx) {
		return n.Node.Read(ctx, c)
	}
	span := n.start(ctx, "read", attribute.String("signalbox.leader", n.Status().Leader))
	defer span.End()
	reading, err := n.Node.Read(ctx, c)
	fail(span, err)
	span.SetAttributes(attribute.Bool("signalbox.stale", reading.Stale))
	return reading, err
}

// madeReady returns the context of the command that made an entry of a wait list ready, for
// a delivery that waited for one since an entry of the log; "" if it is not known. The grant
// is an event of this node, which woke the delivery.
func (n *traced) madeReady(reply *cluster.Reply, since uint64) string {
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

// asked returns the attributes of a command.
func asked(call cluster.Call) []attribute.KeyValue {
	list := []attribute.KeyValue{attribute.String("signalbox.operation", call.Command.Op().String())}
	switch names := access.Names(call.Command); len(names) {
	case 0:
	case 1:
		list = append(list, attribute.String("signalbox.semaphore", names[0]))
	default:
		list = append(list, attribute.StringSlice("signalbox.semaphores", names))
	}
	if session := exchange.SessionOf(call.Command); session != 0 {
		list = append(list, number("signalbox.session", session))
	}
	if count := countOf(call.Command); count != 0 {
		list = append(list, attribute.Int64("signalbox.count", count))
	}
	if call.Wait > 0 {
		list = append(list, attribute.Int64("signalbox.wait_ms", call.Wait.Milliseconds()))
	}
	return list
}

// countOf returns the permits that a command moves, or 0.
func countOf(command fsm.Command) int64 {
	switch c := command.(type) {
	case fsm.Acquire:
		return c.Count
	case fsm.AcquireOnce:
		return c.Count
	case fsm.Up:
		return c.Count
	case fsm.Down:
		return c.Count
	}
	return 0
}

// link links a span to the one of a trace context, if there is a context.
func link(span trace.Span, of string) {
	if to := parse(of); to.IsValid() {
		span.AddLink(trace.Link{SpanContext: to})
	}
}

// end ends a span with the outcome of its command.
func end(span trace.Span, reply *cluster.Reply, err error) {
	if fail(span, err); err == nil {
		span.SetAttributes(attribute.String("signalbox.code", reply.Code.String()), number("signalbox.index", reply.Index))
		if reply.Session != 0 {
			span.SetAttributes(number("signalbox.session", reply.Session))
		}
		if len(reply.Grants) > 0 {
			span.SetAttributes(number("signalbox.token", reply.Grants[0].Token))
		}
		if reply.WaitedMS > 0 {
			span.SetAttributes(attribute.Int64("signalbox.waited_ms", reply.WaitedMS))
		}
	}
	span.End()
}

// fail notes an error.
func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}
