package otlptest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span as it came. Ids are hexadecimal.
type Span struct {
	Name              string
	Trace, ID, Parent string   // Parent is "" without one
	Links             []string // ids of spans
	Service, Instance string
	Attributes        map[string]any // strings, int64s, bools and []any
	Failed            bool
	Start, End        time.Time
}

// Collector is a collector that serves HTTP. Safe for concurrent use.
type Collector struct {
	URL     string
	Posts   atomic.Int64 // that have come
	t       testing.TB
	release chan struct{} // while it hangs: closed at its end

	mu      sync.Mutex
	refuse  []int // the statuses of the next replies
	spans   []Span
	headers []http.Header
}

// Start returns a collector that lives as long as the test.
func Start(t testing.TB) *Collector { return start(t, nil) }

// StartHanging returns a collector that replies to no request before the test ends.
func StartHanging(t testing.TB) *Collector { return start(t, make(chan struct{})) }

func start(t testing.TB, release chan struct{}) *Collector {
	c := &Collector{t: t, release: release}
	server := httptest.NewServer(c)
	c.URL = server.URL
	t.Cleanup(func() {
		if release != nil {
			close(release)
		}
		server.Close()
	})
	return c
}

// ServeHTTP takes an export.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.Posts.Add(1)
	if c.release != nil {
		<-c.release
		return
	}
	var got wire.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &got)
	}
	if err != nil || r.Method != http.MethodPost || r.URL.Path != path.Join("/", "v1", "traces") || r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.t.Errorf("not an export: %s %s, %s: %v", r.Method, r.URL, r.Header.Get("Content-Type"), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.refuse) > 0 {
		w.WriteHeader(c.refuse[0])
		c.refuse = c.refuse[1:]
		return
	}
	c.headers = append(c.headers, r.Header)
	for _, resource := range got.ResourceSpans {
		attributes := valuesOf(resource.Resource.Attributes)
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, spanOf(s, attributes))
			}
		}
	}
}

func spanOf(s *wire.Span, resource map[string]any) Span {
	span := Span{Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Attributes: valuesOf(s.Attributes), Failed: s.Status.GetCode() == wire.Status_STATUS_CODE_ERROR,
		Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano))}
	span.Service, _ = resource["service.name"].(string)
	span.Instance, _ = resource["service.instance.id"].(string)
	for _, l := range s.Links {
		span.Links = append(span.Links, hex.EncodeToString(l.SpanId))
	}
	return span
}

func valuesOf(list []*common.KeyValue) map[string]any {
	values := map[string]any{}
	for _, a := range list {
		values[a.Key] = valueOf(a.Value)
	}
	return values
}

func valueOf(v *common.AnyValue) any {
	switch v := v.Value.(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return v.IntValue
	case *common.AnyValue_BoolValue:
		return v.BoolValue
	case *common.AnyValue_ArrayValue:
		var list []any
		for _, member := range v.ArrayValue.Values {
			list = append(list, valueOf(member))
		}
		return list
	}
	return nil
}

// Refuse makes the next replies refusals with these statuses, one each.
func (c *Collector) Refuse(statuses ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = statuses
}

// Spans returns the spans that have come.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Header returns a header of the first export, "" before there is one.
func (c *Collector) Header(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.headers) == 0 {
		return ""
	}
	return c.headers[0].Get(name)
}
