package httpapi

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

func TestPanicIsOneProblemAndOneLogLine(t *testing.T) {
	var log bytes.Buffer
	a := newTestAPI(t, func(cfg *Config) { cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info}) })
	a.node.panics = true
	got := a.do("PUT /v1/semaphores/db", `{"permits":1}`).refusedWith(500, "internal")
	if strings.Contains(got.text, "secret") || strings.Contains(got.text, "goroutine") {
		t.Errorf("the inside leaks: %s", got.text)
	}
	if n := strings.Count(log.String(), "[ERROR]"); n != 1 || !strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "perform.go") {
		t.Errorf("%d log lines: %s", n, log.String())
	}
	a.node.panics = false
	a.do("PUT /v1/semaphores/db", `{"permits":1}`).is(201)
}

func TestUnknownRoutes(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.must(201, "PUT /v1/semaphores/value%2Fx", `{"permits":1}`)
	before := a.node.state(t)
	for _, line := range []string{
		"GET /", "GET /v1", "GET /v1/", "GET /v2/semaphores", "GET /v1/semaphores/", "GET /v1/semaphores/db/", "DELETE /v1/semaphores/db/",
		"DELETE /v1/semaphores/value/x", "GET /v1/semaphores/db/nothing", "GET /v1/sessions/7/leases/a/b", "DELETE /v1/sessions/7/leases/a/b",
		"DELETE /v1/sessions/7/", "PUT /v1/cluster/members/a/b", "DELETE /v1/semaphores/db/holders/7/8", "GET //v1/semaphores",
		"GET /v1//semaphores", "GET /V1/semaphores", "GET /v1/events/", "GET /v1/snapshot", "PATCH /v1/semaphores/db/x/y/z", "GET /v1/semaphores%2Fdb",
		"OPTIONS /v1/semaphores/a/b/c/d", "GET /metrics/", "POST /v1/batch/",
	} {
		a.do(line, "").refusedWith(404, "unknown-route")
	}
	for line, allow := range map[string]string{
		"PATCH /v1/semaphores/db":       "OPTIONS, DELETE, GET, HEAD, PUT",
		"POST /v1/semaphores/db":        "OPTIONS, DELETE, GET, HEAD, PUT",
		"GET /v1/semaphores/db/up":      "OPTIONS, POST",
		"DELETE /v1/semaphores":         "OPTIONS, GET, HEAD, POST",
		"GET /v1/batch":                 "OPTIONS, POST",
		"POST /livez":                   "OPTIONS, GET, HEAD",
		"TRACE /v1/sessions/7":          "OPTIONS, DELETE, GET, HEAD, PUT",
		"BREW /v1/sessions/7/leases/db": "OPTIONS, DELETE, GET, HEAD, PATCH, PUT",
	} {
		got := a.do(line, "").refusedWith(405, "method-not-allowed").header.Get("Allow")
		if got != allow {
			t.Errorf("%s: Allow %q, want %q", line, got, allow)
		}
	}
	if got := a.do("OPTIONS /v1/semaphores/db", "").is(204).header.Get("Allow"); got != "OPTIONS, DELETE, GET, HEAD, PUT" {
		t.Errorf("Allow %q", got)
	}
	if after := a.node.state(t); after != before {
		t.Errorf("the state changed:\n%s\n%s", before, after)
	}
}

func TestForeignOrigin(t *testing.T) {
	a := newTestAPI(t)
	for origin, status := range map[string]int{
		"http://example.com": 201, "https://example.com": 201, "http://EXAMPLE.com": 201, "http://example.com:8080": 403,
		"ftp://example.com": 403, "file://example.com": 403, "http://evil.example": 403, "null": 403, "": 403, "example.com": 403, "http://example.com.evil.example": 403, "%": 403,
	} {
		got := a.do("PUT /v1/semaphores/"+semaphorePath(origin + "x")[len("/v1/semaphores/"):], `{"permits":1}`, "Origin: "+origin)
		if got.status != status {
			t.Errorf("origin %q: status %d, want %d", origin, got.status, status)
		}
		if status == 403 {
			got.refusedWith(403, "forbidden")
		}
	}
	got := a.do("GET /v1/semaphores", "", "Origin: http://evil.example").is(200)
	if got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("CORS is on by default")
	}
	a.do("POST /v1/semaphores", `{"name":"y","permits":1}`, "Origin: http://example.com", "Origin: http://evil.example").refusedWith(403, "forbidden")
}

func TestCORS(t *testing.T) {
	a := newTestAPI(t, func(cfg *Config) { cfg.CORS = []string{"https://console.example:8443"} })
	got := a.do("PUT /v1/semaphores/db", `{"permits":1}`, "Origin: https://console.example:8443").is(201)
	if got.header.Get("Access-Control-Allow-Origin") != "https://console.example:8443" || !strings.Contains(got.header.Get("Access-Control-Expose-Headers"), headerIndex) {
		t.Errorf("head %v", got.header)
	}
	got = a.do("OPTIONS /v1/semaphores/db", "", "Origin: https://console.example:8443", "Access-Control-Request-Method: PUT").is(204)
	if !strings.Contains(got.header.Get("Access-Control-Allow-Methods"), "PUT") || !strings.Contains(got.header.Get("Access-Control-Allow-Headers"), "Idempotency-Key") {
		t.Errorf("head %v", got.header)
	}
	a.do("PUT /v1/semaphores/db", `{"permits":1}`, "Origin: https://console.example").refusedWith(403, "forbidden")
	for _, path := range []string{"/nope", "/", "/v1/semaphores/a/b/c", "/v1/semaphores/", "*"} {
		a.do("OPTIONS "+path, "", "Origin: https://console.example:8443", "Access-Control-Request-Method: PUT").refusedWith(404, "unknown-route")
		a.do("OPTIONS "+path, "").refusedWith(404, "unknown-route")
	}
	got = a.do("GET /nope", "", "Origin: https://console.example:8443").refusedWith(404, "unknown-route")
	if got.header.Get("Access-Control-Allow-Origin") == "" {
		t.Error("the page can't read that there is no such route")
	}
	a = newTestAPI(t, func(cfg *Config) { cfg.CORS = []string{"*"} })
	a.do("PUT /v1/semaphores/db", `{"permits":1}`, "Origin: https://any.example").is(201)
}

func TestConfig(t *testing.T) {
	for _, origin := range []string{"", "console.example", "https://*.example", "https://a.example/", "https://a.example/path", "://"} {
		if _, err := New(Config{Node: newMachineNode(), CORS: []string{origin}}); err == nil {
			t.Errorf("the origin %q is taken", origin)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a Handler without a node is made")
	}
	same := prometheus.NewGauge(prometheus.GaugeOpts{Name: "a", Help: "a"})
	if _, err := New(Config{Node: newMachineNode(), Collectors: []prometheus.Collector{same, same}}); err == nil {
		t.Error("a collector is registered twice")
	}
}

func TestMetrics(t *testing.T) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "signalbox_from_the_node", Help: "h"})
	gauge.Set(7)
	a := newTestAPI(t, func(cfg *Config) { cfg.Collectors = []prometheus.Collector{gauge} })
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.do("GET /v1/semaphores/db", "")
	a.do("GET /v1/semaphores/other", "")
	a.do("GET /v1/sessions/7/leases/a/b", "")
	a.do("GET /made-up", "")
	a.do("BREW /v1/batch", "")
	page := a.do("GET /metrics", "").is(200).text
	for _, line := range []string{
		`signalbox_http_requests_total{method="PUT",route="/v1/semaphores/:name",status="201"} 1`,
		`signalbox_http_requests_total{method="GET",route="/v1/semaphores/:name",status="200"} 1`,
		`signalbox_http_requests_total{method="GET",route="/v1/semaphores/:name",status="404"} 1`,
		`signalbox_http_requests_total{method="GET",route="unknown",status="404"} 2`,
		`signalbox_http_requests_total{method="other",route="/v1/batch",status="405"} 1`,
		"signalbox_http_requests_open 1", "signalbox_from_the_node 7", "go_goroutines ", "process_cpu_seconds_total ",
		`signalbox_http_request_seconds_count{route="/v1/semaphores/:name"} 3`,
	} {
		if !strings.Contains(page, line) {
			t.Errorf("no %s in\n%s", line, page)
		}
	}
	if strings.Contains(page, "made-up") || strings.Contains(page, "BREW") {
		t.Error("a client can make up time series")
	}
}
