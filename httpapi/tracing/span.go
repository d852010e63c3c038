package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

type spanContext struct {
	trace   [16]byte
	span    [8]byte
	sampled bool
}

// header is the header with the context of a span, in the form of W3C's Trace Context.
const header = "traceparent"

// format returns the context of a sampled span as headers and commands carry it: 55 bytes.
func (p spanContext) format() string {
	return "00-" + hex.EncodeToString(p.trace[:]) + "-" + hex.EncodeToString(p.span[:]) + "-01"
}

// parse reads a traceparent of any version, as far as this version knows it.
func parse(text string) (p spanContext, valid bool) {
	part := strings.Split(text, "-")
	if len(part) < 4 || len(part[0]) != 2 || len(part[1]) != 32 || len(part[2]) != 16 || len(part[3]) != 2 ||
		part[0] == "ff" || part[0] == "00" && len(part) > 4 || text != strings.ToLower(text) {
		return spanContext{}, false
	}
	var version, flags [1]byte
	for i, to := range [][]byte{version[:], p.trace[:], p.span[:], flags[:]} {
		if _, err := hex.Decode(to, []byte(part[i])); err != nil {
			return spanContext{}, false
		}
	}
	p.sampled = flags[0]&1 != 0
	return p, p.trace != [16]byte{} && p.span != [8]byte{}
}

// span is a sampled span. It is used by one goroutine at a time, and not after end.
type span struct {
	*tracepb.Span
	spanContext
	t *Tracing
}

// start starts a span under a parent, or without one if the parent's span id is 0.
func (t *Tracing) start(parent spanContext, name string, attributes ...*commonpb.KeyValue) *span {
	s := &span{spanContext: spanContext{trace: parent.trace, sampled: true}, t: t}
	binary.BigEndian.PutUint64(s.span[:], rand.Uint64()|1) // not 0
	s.Span = &tracepb.Span{Name: name, Kind: tracepb.Span_SPAN_KIND_INTERNAL, TraceId: s.trace[:], SpanId: s.span[:],
		StartTimeUnixNano: uint64(time.Now().UnixNano()), Attributes: attributes}
	if parent.span != [8]byte{} {
		s.ParentSpanId = parent.span[:]
	}
	return s
}

// newTrace returns the context of a new trace, which has no span yet.
func newTrace() (p spanContext) {
	binary.BigEndian.PutUint64(p.trace[:], rand.Uint64())
	binary.BigEndian.PutUint64(p.trace[8:], rand.Uint64()|1) // not 0
	return p
}

func (s *span) set(more ...*commonpb.KeyValue) {
	for _, a := range more {
		s.Attributes = slices.DeleteFunc(s.Attributes, func(before *commonpb.KeyValue) bool { return before.Key == a.Key })
	}
	s.Attributes = append(s.Attributes, more...)
}

// link links the span to the span of a trace context; "" has no effect.
func (s *span) link(trace string) {
	if to, valid := parse(trace); valid {
		s.Links = append(s.Links, &tracepb.Span_Link{TraceId: to.trace[:], SpanId: to.span[:]})
	}
}

// fail marks the span as failed, unless err is nil.
func (s *span) fail(err error) {
	if err != nil {
		s.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: err.Error()} // state: the outcome
	}
}

// end hands the span to the outbox. It does not block.
func (s *span) end() {
	s.EndTimeUnixNano = uint64(time.Now().UnixNano())
	s.t.outbox.add(s.Span)
}

// spanKey is the key of the span that a context is in.
type spanKey struct{}

// with returns a context within a span.
func with(ctx context.Context, s *span) context.Context { return context.WithValue(ctx, spanKey{}, s) }

// spanOf returns the span that a context is in, or nil: the request is not sampled.
func spanOf(ctx context.Context) *span {
	s, _ := ctx.Value(spanKey{}).(*span)
	return s
}

func text(key, value string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: value}}}
}

// number is the attribute of a number. A number that exceeds an int64, as an id may, becomes a text.
func number[T int | int64 | uint64](key string, value T) *commonpb.KeyValue {
	if value > 0 && int64(value) < 0 {
		return text(key, fmt.Sprint(value))
	}
	return &commonpb.KeyValue{Key: key, Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: int64(value)}}}
}
