package tracing

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/otlptest"
)

// fakeNode replies at once.
type fakeNode struct {
	exchange.Node
	call   calls.Call // the last
	queued bool       // before the reply
	reply  calls.Reply
	err    error
	page   replica.EventPage
}

func (n *fakeNode) Do(_ context.Context, call calls.Call) (*calls.Reply, error) {
	n.call = call
	if n.queued {
		call.Queued(5)
	}
	return &n.reply, n.err
}

func (n *fakeNode) DoMany(_ context.Context, list []calls.Call) ([]calls.Reply, []error) {
	n.call = list[0]
	return make([]calls.Reply, len(list)), make([]error, len(list))
}

func (n *fakeNode) Read(context.Context, calls.Consistency) (calls.Reading, error) {
	return calls.Reading{}, nil
}

func (n *fakeNode) Status() cluster.Status { return cluster.Status{Node: "n2", Leader: "n1"} }

func (n *fakeNode) EventsAfter(after replica.EventID) (replica.EventPage, error) {
	if after.Index < 5 {
		return replica.EventPage{}, errors.New("too far back")
	}
	return n.page, nil
}

// open returns the tracing of a node, and what delivers its spans.
func open(t *testing.T, c *otlptest.Collector, log hclog.Logger) (traces *Tracing, flush func()) {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	traces, err := Open(Config{Node: "n2", Version: "1.2.3", Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	return traces, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		traces.Close(ctx)
	}
}

// TestOff: without a collector, or with SDKs disabled, there is no tracing, and the node
// is not wrapped.
func TestOff(t *testing.T) {
	for _, disabled := range []string{"", "TRUE"} {
		t.Setenv("OTEL_SDK_DISABLED", disabled)
		if disabled != "" {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		}
		traces, err := Open(Config{Node: "n1", Logger: hclog.NewNullLogger()})
		if traces != nil || err != nil {
			t.Fatalf("%v, %v", traces, err)
		}
		node := &fakeNode{}
		if traces.Over(node) != exchange.Node(node) || len(traces.Collectors()) != 3 {
			t.Error("there is something around the node")
		}
		traces.Close(t.Context())
	}
}

// TestNotSampled: even while tracing is on, a request that is not sampled costs no allocation, and its command has no
// context.
func TestNotSampled(t *testing.T) {
	traces, flush := open(t, otlptest.Start(t), hclog.NewNullLogger())
	defer flush()
	node := &fakeNode{}
	over := traces.Over(node)
	call := calls.Call{Command: fsm.Up{Name: "db", Count: 1}}
	bare := testing.AllocsPerRun(100, func() { _, _ = node.Do(t.Context(), call) })
	with := testing.AllocsPerRun(100, func() { _, _ = over.Do(t.Context(), call) })
	if with != bare || node.call.Trace != "" {
		t.Errorf("%v allocations instead of %v, context %q", with, bare, node.call.Trace)
	}
}

// request runs a request through the middleware.
func request(traces *Tracing, parent string, handle func(ctx context.Context) error) http.Header {
	r := httptest.NewRequest(http.MethodPost, "/v1/semaphores/db/up", nil)
	r.Header.Set("traceparent", parent)
	w := httptest.NewRecorder()
	c := echo.New().NewContext(r, w)
	c.SetPath("/v1/semaphores/:name/up")
	_ = traces.Request(func(c echo.Context) error { return handle(c.Request().Context()) })(c)
	return w.Header()
}

// spanIn returns the id of the span in a traceparent.
func spanIn(header string) string {
	p, _ := parse(header)
	return hex.EncodeToString(p.span[:])
}

const (
	clientParent  = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled     = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	releaseParent = "00-1af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
)

// TestSpans: the members of the spans of one node, and which commands carry a context.
func TestSpans(t *testing.T) {
	collector := otlptest.Start(t)
	traces, flush := open(t, collector, hclog.NewNullLogger())
	node := &fakeNode{}
	over := traces.Over(node)
	do := func(call calls.Call) func(context.Context) error {
		return func(ctx context.Context) error { _, err := over.Do(ctx, call); return err }
	}
	if header := request(traces, unsampled, do(calls.Call{Command: fsm.Up{Name: "db", Count: 1}})); header.Get("traceparent") != "" || node.call.Trace != "" {
		t.Errorf("a request that its client does not sample has %q, and its command %q", header.Get("traceparent"), node.call.Trace)
	}
	request(traces, clientParent, do(calls.Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: 7}}}}))
	if node.call.Trace != "" {
		t.Error("a renewal has a context, and can't share its command")
	}
	header := request(traces, clientParent, do(calls.Call{Command: fsm.Up{Name: "db", Count: 3}}))
	if trace := node.call.Trace; len(trace) > fsm.MaxTraceBytes || trace[:36] != clientParent[:36] || !strings.HasSuffix(trace, "-01") {
		t.Errorf("the command has %q", trace)
	}
	up, sent := spanIn(node.call.Trace), spanIn(header.Get("traceparent"))
	request(traces, clientParent, func(ctx context.Context) error {
		_, _ = over.DoMany(ctx, []calls.Call{{Command: fsm.Up{Name: "list", Count: 3}}, {Command: fsm.Up{Name: "list", Count: 4}}})
		return nil
	})
	list := spanIn(node.call.Trace)
	node.queued, node.reply.Completed = true, []fsm.Completion{{Token: 9}}
	node.page = replica.EventPage{News: make(chan struct{}), Entries: []replica.EventEntry{{Effects: []fsm.Effect{
		{Kind: fsm.EffectGranted, Token: 8, Trace: clientParent}, {Kind: fsm.EffectGranted, Token: 9, Trace: releaseParent}}}}}
	request(traces, clientParent, do(calls.Call{Command: fsm.ListDeliver{Session: 7}, Wait: time.Minute}))
	request(traces, clientParent, func(ctx context.Context) error {
		_, _ = over.Read(ctx, calls.Consistency{})
		_, _ = over.Read(ctx, calls.Consistency{Stale: true}) // does not wait: no span
		return nil
	})
	traces.Committed(releaseParent, time.Now(), 3, 44)
	traces.Committed("no context", time.Now(), 3, 45)
	flush()
	spans := map[string]otlptest.Span{}
	for _, s := range collector.Spans() {
		spans[s.ID] = s
		spans[s.Name] = s
	}
	if s := spans[up]; s.Parent != sent || s.Attributes["signalbox.semaphore"] != "db" || s.Attributes["signalbox.count"] != int64(3) || s.Attributes["signalbox.leader"] != "n1" {
		t.Errorf("of up: %+v", s)
	}
	if s := spans[sent]; s.Parent != "b7ad6b7169203331" || s.Name != "POST /v1/semaphores/:name/up" || s.Instance != "n2" || s.Service != "signalbox" {
		t.Errorf("of its request: %+v", s)
	}
	if s := spans[list]; s.Name != "forward" || s.Attributes["signalbox.commands"] != int64(2) {
		t.Errorf("of the list: %+v", s)
	}
	if s := spans["grant"]; len(s.Links) != 1 || s.Links[0] != "00f067aa0ba902b7" {
		t.Errorf("of the delivery: %+v", s)
	}
	if s := spans["commit"]; s.Parent != "00f067aa0ba902b7" || s.Attributes["signalbox.index"] != int64(44) {
		t.Errorf("of the commit: %+v", s)
	}
	if len(collector.Spans()) != 12 { // five requests, each with a forward or a read, one grant, one commit
		t.Errorf("%d spans: %+v", len(collector.Spans()), collector.Spans())
	}
}

// TestFailures: an error, and a status of 5xx, make a failed span.
func TestFailures(t *testing.T) {
	collector := otlptest.Start(t)
	traces, flush := open(t, collector, hclog.NewNullLogger())
	over := traces.Over(&fakeNode{queued: true, err: errors.New("no leader")})
	request(traces, clientParent, func(ctx context.Context) error {
		_, err := over.Do(ctx, calls.Call{Command: fsm.AcquireOnce{Name: "db", Count: 1}, Wait: time.Second})
		return err
	})
	flush()
	failed := ""
	for _, s := range collector.Spans() {
		if s.Failed {
			failed += s.Name + " "
		}
	}
	if failed != "grant forward " {
		t.Errorf("failed: %s", failed)
	}
}

// TestVariables: the error of an unusable variable names the variable.
func TestVariables(t *testing.T) {
	for variable, bad := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":    "collector:4318",
		"OTEL_EXPORTER_OTLP_PROTOCOL":    "grpc",
		"OTEL_EXPORTER_OTLP_TIMEOUT":     "10s",
		"OTEL_EXPORTER_OTLP_HEADERS":     "a-secret-without-a-key",
		"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem",
	} {
		values := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318/base", variable: bad}
		_, err := newExporter(func(name string) string { return values[name] })
		if err == nil || !strings.HasPrefix(err.Error(), variable+": ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%s: %v", variable, bad, err)
		}
	}
	for variable, bad := range map[string]string{"OTEL_TRACES_SAMPLER": "sometimes", "OTEL_TRACES_SAMPLER_ARG": "NaN"} {
		values := map[string]string{"OTEL_TRACES_SAMPLER": "traceidratio", variable: bad}
		if _, err := newSampler(func(name string) string { return values[name] }); err == nil || !strings.HasPrefix(err.Error(), variable+": ") {
			t.Errorf("%s=%s: %v", variable, bad, err)
		}
	}
	u, err := newExporter(func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318/base/", "OTEL_EXPORTER_OTLP_HEADERS": "a=b=c, d=%2C"}[name]
	})
	if err != nil || u.url != "https://collector:4318/base/v1/traces" || u.headers["a"] != "b=c" || u.headers["d"] != "," || len(u.headers) != 2 {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestResource: the variables give the node's name.
func TestResource(t *testing.T) {
	values := map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "zone=a%2Cb,service.name=one", "OTEL_SERVICE_NAME": "two"}
	r, err := resourceOf(Config{Node: "n3"}, func(name string) string { return values[name] })
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, a := range r.Resource.Attributes {
		got[a.Key] = a.Value.GetStringValue()
	}
	if got["zone"] != "a,b" || got["service.name"] != "two" || got["service.instance.id"] != "n3" {
		t.Errorf("%v", got)
	}
}

// TestSampler: which traces are sampled, whether they begin here or at clients.
func TestSampler(t *testing.T) {
	low, high := [16]byte{15: 1}, [16]byte{8: 0xff}
	yes, no := &spanContext{sampled: true}, &spanContext{}
	for name, want := range map[string]string{ // low and high without a parent; high with a sampled one, low with one that is not
		"": "yyyn", "parentbased_always_on": "yyyn", "parentbased_always_off": "nnyn", "parentbased_traceidratio": "ynyn",
		"always_on": "yyyy", "always_off": "nnnn", "traceidratio": "ynny",
	} {
		samples, err := newSampler(func(variable string) string {
			return map[string]string{"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": "0.5"}[variable]
		})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, sampled := range []bool{samples(low, nil), samples(high, nil), samples(high, yes), samples(low, no)} {
			got += map[bool]string{true: "y", false: "n"}[sampled]
		}
		if got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// TestTraceparent: what is a span context, and what is not.
func TestTraceparent(t *testing.T) {
	if p, valid := parse(clientParent); !valid || p.format() != clientParent {
		t.Errorf("%v became %q", valid, p.format())
	}
	for text, want := range map[string]bool{
		unsampled: true, "cc" + clientParent[2:] + "-more": true,
		"": false, clientParent[1:]: false, clientParent + "-more": false, "ff" + clientParent[2:]: false, strings.ToUpper(clientParent): false,
		"00-00000000000000000000000000000000-b7ad6b7169203331-01": false, "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"00-0af7651916cd43dd8448eb211c80319x-b7ad6b7169203331-01": false, "0-00af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": false,
	} {
		if _, valid := parse(text); valid != want {
			t.Errorf("%q is valid: %v", text, valid)
		}
	}
}
