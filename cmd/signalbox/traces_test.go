package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/otlptest"
)

// traceOf is the traceparent of a client, a new trace with one span.
func traceOf(number int) (header, trace, span string) {
	trace, span = fmt.Sprintf("%032x", 0xa0+number), fmt.Sprintf("%016x", 0xb0+number)
	return "00-" + trace + "-" + span + "-01", trace, span
}

// TestTraces: on three nodes, the span of a waiter links to the span of the release that led to its grant, whichever
// node leads and whichever node received the release. The spans of each request are in the trace of its client and have
// the right parents. A node that stops sends the remaining spans.
func TestTraces(t *testing.T) {
	collector := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL+"/")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20secret")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=boxes")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "600000") // so that no span is sent before the end
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dev, c, _ := startDev(ctx, t, 3)
	leader := c.leader(ctx)
	if leader < 0 {
		t.Fatal("no leader")
	}
	other, third := (leader+1)%3, (leader+2)%3
	ways := []struct{ waiter, release int }{{other, third}, {leader, other}, {third, leader}}
	for i, at := range ways {
		handOver(t, c, i, at.waiter, at.release)
	}
	if got := collector.Posts.Load(); got != 0 {
		t.Errorf("%d batches were sent before the end", got)
	}
	cancel()
	dev.ended(t, 6*time.Second)
	if key := collector.Header("Api-Key"); key != "a secret" {
		t.Errorf("the collector got the key %q", key)
	}
	spans := tree{t, collector.Spans()}
	for i, at := range ways {
		_, waits, client := traceOf(2 * i)
		_, releases, releaser := traceOf(2*i + 1)
		waiter := spans.under(client, waits, "POST /v1/semaphores/:name/leases", at.waiter)
		acquire := spans.under(waiter.ID, waits, "forward", at.waiter)
		spans.under(acquire.ID, waits, "commit", leader)
		grant := spans.under(acquire.ID, waits, "grant", at.waiter)
		release := spans.under(spans.under(releaser, releases, "DELETE /v1/sessions/:id", at.release).ID, releases, "forward", at.release)
		spans.under(release.ID, releases, "commit", leader)
		if len(grant.Links) != 1 || grant.Links[0] != release.ID {
			t.Errorf("case %d: the waiter links to %v, and not to the release %s", i, grant.Links, release.ID)
		}
		for key, want := range map[string]any{"signalbox.operation": "acquire-once", "signalbox.semaphore": "db", "signalbox.count": int64(1), "signalbox.wait_ms": int64(60_000),
			"signalbox.code": "ok", "signalbox.token": int64(2*i + 2), "signalbox.node": fmt.Sprint("n", at.waiter+1)} {
			if grant.Attributes[key] != want {
				t.Errorf("case %d: the grant has %s %v, want %v", i, key, grant.Attributes[key], want)
			}
		}
		if acquire.Attributes["signalbox.leader"] != fmt.Sprint("n", leader+1) || waiter.Attributes["http.response.status_code"] != int64(201) ||
			waiter.Attributes["signalbox.request"] != fmt.Sprint("waits-", i) {
			t.Errorf("case %d: the attributes are %v and %v", i, acquire.Attributes, waiter.Attributes)
		}
		if grant.Start.Before(acquire.Start) || grant.End.Before(release.Start) {
			t.Errorf("case %d: the grant takes from %v to %v, the acquire begins at %v, the release at %v", i, grant.Start, grant.End, acquire.Start, release.Start)
		}
	}
	for _, s := range spans.all {
		if s.Service != "boxes" || strings.Contains(fmt.Sprint(s), "secret") {
			t.Errorf("%+v", s)
		}
	}
}

// handOver passes a lease from a holder on to a waiter at another node.
func handOver(t *testing.T, c *client, number, waiterAt, releaseAt int) {
	t.Helper()
	c.must(t, releaseAt, http.MethodPut, semaphorePath("db"), `{"permits":1}`, http.StatusOK, http.StatusCreated)
	held := c.must(t, releaseAt, http.MethodPost, semaphorePath("db")+"/leases", `{"ttl":"10m"}`, http.StatusCreated)
	type outcome struct {
		reply
		err error
	}
	waiting := make(chan outcome, 1)
	go func() {
		header, _, _ := traceOf(2 * number)
		r, err := c.ask(t.Context(), waiterAt, http.MethodPost, semaphorePath("db")+"/leases", `{"ttl":"10m","wait":"1m","metadata":{"password":"secret"}}`,
			"traceparent", header, "X-Request-Id", fmt.Sprint("waits-", number))
		waiting <- outcome{r, err}
	}()
	eventually(t, 20*time.Second, func() error {
		if s := c.must(t, waiterAt, http.MethodGet, semaphorePath("db"), "", http.StatusOK); len(s.Waiters) != 1 {
			return fmt.Errorf("%d wait", len(s.Waiters))
		}
		return nil
	})
	header, trace, _ := traceOf(2*number + 1)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, c.bases[releaseAt]+"/v1/sessions/"+held.Session, nil)
	must(t, err)
	request.Header.Set("traceparent", header)
	response, err := c.http.Do(request)
	must(t, err)
	response.Body.Close()
	if got := response.Header.Get("traceparent"); !strings.HasPrefix(got, "00-"+trace+"-") || got == header || !strings.HasSuffix(got, "-01") {
		t.Errorf("the reply to %s has the traceparent %q", header, got)
	}
	got := <-waiting
	if must(t, got.err); got.status != http.StatusCreated {
		t.Fatalf("the waiter got %+v", got)
	}
	c.must(t, releaseAt, http.MethodDelete, "/v1/sessions/"+got.Session, "", http.StatusOK, http.StatusNoContent)
}

// tree is the spans that a collector has received.
type tree struct {
	t   *testing.T
	all []otlptest.Span
}

// under returns the only span with this name and parent in a trace, of a node.
func (s tree) under(parent, trace, name string, node int) otlptest.Span {
	s.t.Helper()
	var found []otlptest.Span
	for _, span := range s.all {
		if span.Parent == parent && span.Name == name && span.Trace == trace && span.Instance == fmt.Sprint("n", node+1) {
			found = append(found, span)
		}
	}
	if len(found) != 1 {
		var names []string
		for _, span := range s.all {
			if span.Trace == trace {
				names = append(names, fmt.Sprintf("%s %s under %s of %s", span.Name, span.ID, span.Parent, span.Instance))
			}
		}
		slices.Sort(names)
		s.t.Fatalf("%d spans %q under %s of n%d; the trace has:\n%s", len(found), name, parent, node+1, strings.Join(names, "\n"))
	}
	return found[0]
}

// TestNoTraces: without a collector replies have no traceparent. A node does not start if the environment names a
// collector that it can't use.
func TestNoTraces(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	_, c, _ := startDev(t.Context(), t, 1)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, c.bases[0]+semaphorePath("db"), strings.NewReader(`{"permits":1}`))
	must(t, err)
	header, _, _ := traceOf(1)
	request.Header.Set("traceparent", header)
	response, err := c.http.Do(request)
	must(t, err)
	response.Body.Close()
	if got := response.Header.Get("traceparent"); response.StatusCode >= 300 || got != "" {
		t.Errorf("%s with the traceparent %q", response.Status, got)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
	var out written
	if status := run(t.Context(), []string{"serve", "--ephemeral"}, lookup(t), &out, &out); status == 0 || !strings.Contains(out.String(), "OTEL_EXPORTER_OTLP_ENDPOINT") {
		t.Errorf("status %d: %s", status, out.String())
	}
}
