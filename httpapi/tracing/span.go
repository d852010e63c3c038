package tracing

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	origin "go.opentelemetry.io/proto/otlp/resource/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
)

// place names a span: its trace, and itself.
type place struct {
	trace   [16]byte
	span    [8]byte
	sampled bool
}

// header is the header with the place of a span, in the form of W3C's Trace Context.
const header = "traceparent"

// format returns the place of a sampled span as headers and commands carry it: 55 bytes.
func (p place) format() string {
	return "00-" + hex.EncodeToString(p.trace[:]) + "-" + hex.EncodeToString(p.span[:]) + "-01"
}

// parse reads a traceparent of any version, as far as this one knows it.
func parse(text string) (p place, valid bool) {
	part := strings.Split(text, "-")
	if len(part) < 4 || len(part[0]) != 2 || len(part[1]) != 32 || len(part[2]) != 16 || len(part[3]) != 2 ||
		part[0] == "ff" || part[0] == "00" && len(part) > 4 || text != strings.ToLower(text) {
		return place{}, false
	}
	var version, flags [1]byte
	for i, to := range [][]byte{version[:], p.trace[:], p.span[:], flags[:]} {
		if _, err := hex.Decode(to, []byte(part[i])); err != nil {
			return place{}, false
		}
	}
	p.sampled = flags[0]&1 != 0
	return p, p.trace != [16]byte{} && p.span != [8]byte{}
}

// sampler reports whether a trace is sampled. The parent is nil in a trace that begins here.
type sampler func(trace [16]byte, parent *place) bool

// newSampler returns the sampler of OTEL_TRACES_SAMPLER.
func newSampler(variable func(string) string) (sampler, error) {
	name, of := strings.CutPrefix(variable("OTEL_TRACES_SAMPLER"), "parentbased_")
	ratio := 1.0
	switch name {
	case "":
		of = true
	case "always_on":
	case "always_off":
		ratio = 0
	case "traceidratio":
		given, err := strconv.ParseFloat(cmp.Or(variable("OTEL_TRACES_SAMPLER_ARG"), "1"), 64)
		if err != nil || !(given >= 0 && given <= 1) {
			return nil, malformed("OTEL_TRACES_SAMPLER_ARG", "a number from 0 to 1")
		}
		ratio = given
	default:
		return nil, malformed("OTEL_TRACES_SAMPLER", "[parentbased_]always_on, always_off or traceidratio")
	}
	below := uint64(ratio * (1 << 63))
	return func(trace [16]byte, parent *place) bool {
		if of && parent != nil {
			return parent.sampled
		}
		return binary.BigEndian.Uint64(trace[8:])>>1 < below // as the SDKs do, so that nodes agree
	}, nil
}

// malformed reports a variable that can't be used. It does not show the value.
func malformed(name, form string) error { return fmt.Errorf("%s: it is not %s", name, form) }

// milliseconds reads a variable of a time.
func milliseconds(variable func(string) string, name string, otherwise time.Duration) (time.Duration, error) {
	given := variable(name)
	if given == "" {
		return otherwise, nil
	}
	ms, err := strconv.ParseUint(given, 10, 31)
	if err != nil || ms == 0 {
		return 0, malformed(name, "a number of milliseconds")
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// span is a sampled span. It is used by one goroutine at a time, and not after end.
type span struct {
	*wire.Span
	place
	t *Tracing
}

// start starts a span under a parent, or one without if the parent's own id is 0.
func (t *Tracing) start(parent place, name string, attributes ...*common.KeyValue) *span {
	s := &span{place: place{trace: parent.trace, sampled: true}, t: t}
	binary.BigEndian.PutUint64(s.span[:], rand.Uint64()|1) // not 0
	s.Span = &wire.Span{Name: name, Kind: wire.Span_SPAN_KIND_INTERNAL, TraceId: s.trace[:], SpanId: s.span[:],
		StartTimeUnixNano: uint64(time.Now().UnixNano()), Attributes: attributes}
	if parent.span != [8]byte{} {
		s.ParentSpanId = parent.span[:]
	}
	return s
}

// newTrace returns the place before the first span of a trace.
func newTrace() (p place) {
	binary.BigEndian.PutUint64(p.trace[:], rand.Uint64())
	binary.BigEndian.PutUint64(p.trace[8:], rand.Uint64()|1) // not 0
	return p
}

// set sets attributes.
func (s *span) set(more ...*common.KeyValue) {
	for _, a := range more {
		s.Attributes = slices.DeleteFunc(s.Attributes, func(before *common.KeyValue) bool { return before.Key == a.Key })
	}
	s.Attributes = append(s.Attributes, more...)
}

// link links the span to the one of a trace context, if there is a context.
func (s *span) link(of string) {
	if to, valid := parse(of); valid {
		s.Links = append(s.Links, &wire.Span_Link{TraceId: to.trace[:], SpanId: to.span[:]})
	}
}

// fail marks the span as failed, unless err is nil.
func (s *span) fail(err error) {
	if err != nil {
		s.Status = &wire.Status{Code: wire.Status_STATUS_CODE_ERROR, Message: err.Error()} // state: the outcome
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

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

// number is an attribute of a number; as a text where it exceeds an int64, as ids may.
func number[T int | int64 | uint64](key string, value T) *common.KeyValue {
	if value > 0 && int64(value) < 0 {
		return text(key, fmt.Sprint(value))
	}
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: int64(value)}}}
}

// newResource returns what all spans of a node have in common.
func newResource(values map[string]string, version string) *wire.ResourceSpans {
	of := &origin.Resource{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		of.Attributes = append(of.Attributes, text(key, values[key]))
	}
	return &wire.ResourceSpans{Resource: of, ScopeSpans: []*wire.ScopeSpans{{
		Scope: &common.InstrumentationScope{Name: "github.com/signalbox/signalbox", Version: version}}}}
}
