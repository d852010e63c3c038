package httpapi_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/logtest"
)

func TestPanicIsOneProblemAndOneLogLine(t *testing.T) {
	var log bytes.Buffer
	a := apitest.New(t, func(cfg *apitest.Config) {
		cfg.Exchange.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})
	})
	a.Node.Panics = true
	got := a.Do("PUT /v1/semaphores/db", `{"permits":1}`).RefusedWith(500, "internal")
	if strings.Contains(got.Text, "secret") || strings.Contains(got.Text, "goroutine") {
		t.Errorf("the inside leaks: %s", got.Text)
	}
	if n := strings.Count(log.String(), "[ERROR]"); n != 1 || !strings.Contains(log.String(), "secret") || !strings.Contains(log.String(), "operation.go") {
		t.Errorf("%d log lines: %s", n, log.String())
	}
	a.Node.Panics = false
	a.Do("PUT /v1/semaphores/db", `{"permits":1}`).Is(201)
}

// TestCORSOfAllOrigins: see also testdata/browsers.
func TestCORSOfAllOrigins(t *testing.T) {
	a := apitest.New(t, func(cfg *apitest.Config) { cfg.HTTP.CORS = []string{"*"} })
	a.Do("PUT /v1/semaphores/db", `{"permits":1}`, "Origin: https://any.example").Is(201)
	a.Do("OPTIONS /", "", "Origin: https://any.example", "Access-Control-Request-Method: PUT").RefusedWith(404, "unknown-route")
	a.Do("OPTIONS /", "").RefusedWith(404, "unknown-route")
}

func TestConfig(t *testing.T) {
	for _, origin := range []string{"", "console.example", "https://*.example", "https://a.example/", "https://a.example/path", "://"} {
		if err := httpapi.CheckOrigins([]string{origin}); err == nil {
			t.Errorf("the origin %q is taken", origin)
		}
	}
	if _, err := exchange.New(exchange.Config{}); err == nil {
		t.Error("an Exchange without a node is made")
	}
	if _, err := httpapi.New(httpapi.Config{}); err == nil {
		t.Error("a Handler without an Exchange is made")
	}
	x, err := exchange.New(exchange.Config{Node: apitest.NewNode()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := httpapi.New(httpapi.Config{Exchange: x, CORS: []string{"no origin"}}); err == nil {
		t.Error("a wrong origin is taken")
	}
	same := prometheus.NewGauge(prometheus.GaugeOpts{Name: "a", Help: "a"})
	if _, err := httpapi.New(httpapi.Config{Exchange: x, Collectors: []prometheus.Collector{same, same}}); err == nil {
		t.Error("a collector is registered twice")
	}
}

func TestMetrics(t *testing.T) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "signalbox_from_the_node", Help: "h"})
	gauge.Set(7)
	a := apitest.New(t, func(cfg *apitest.Config) { cfg.HTTP.Collectors = []prometheus.Collector{gauge} })
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.Do("GET /v1/semaphores/db", "")
	a.Do("GET /v1/semaphores/other", "")
	a.Do("GET /v1/sessions/7/leases/a/b", "")
	a.Do("GET /made-up", "")
	a.Do("BREW /v1/batch", "")
	page := a.Do("GET /metrics", "").Is(200).Text
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

// The type of a problem leads to its page, on a node with tokens too.
func TestProblemPages(t *testing.T) {
	a := apitest.New(t, withTokens(t, accessClients...))
	refused := a.Do("GET /v1/semaphores/db", "").RefusedWith(401, "unauthenticated")
	page := a.Do("GET "+refused.Member("type"), "").Is(200)
	if !strings.HasPrefix(page.Text, "unauthenticated (status 401)\nNo valid token.\n\nMeaning: ") || page.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v %s", page.Header, page.Text)
	}
	a.Do("GET /problems/nothing", "").RefusedWith(404, "unknown-route")
	a.Do("GET /problems/unavailable", "").Is(200)
}

// Every reply has the id of its request: the client's if it is plain and short, else one
// drawn. Problems and the log have it too.
func TestRequestIDs(t *testing.T) {
	var log bytes.Buffer
	a := apitest.New(t, func(cfg *apitest.Config) {
		cfg.Exchange.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug})
	})
	got := a.Do("GET /v1/semaphores/db", "", "X-Request-Id: a/b?7").RefusedWith(404, "unknown-semaphore", "instance=/requests/a%2Fb%3F7")
	if got.Header.Get("X-Request-Id") != "a/b?7" || !strings.Contains(log.String(), "request=a/b?7") {
		t.Errorf("%v\n%s", got.Header, &log)
	}
	drawn := map[string]bool{}
	for _, bad := range []string{"", "two words", "ü", strings.Repeat("x", 129)} {
		id := a.Do("GET /v1/cluster", "", "X-Request-Id: "+bad).Is(200).Header.Get("X-Request-Id")
		if len(id) != 16 || drawn[id] {
			t.Errorf("%q: drawn %q", bad, id)
		}
		drawn[id] = true
	}
	if long := strings.Repeat("x", 128); a.Do("GET /livez", "", "X-Request-Id: "+long).Header.Get("X-Request-Id") != long {
		t.Error("an id of 128 characters is not taken")
	}
	a.Node.Fail = errors.New("broken")
	log.Reset()
	a.Do("PUT /v1/semaphores/db", `{"permits":1}`, "X-Request-Id: faulty").RefusedWith(500, "internal")
	if !strings.Contains(log.String(), `error=broken request=faulty`) {
		t.Error(&log)
	}
}

// TestLinesNameTheirRequest: each line of the log about a request has its id and, if a
// middleware has set one, its trace. Probes do not pass that middleware.
func TestLinesNameTheirRequest(t *testing.T) {
	log := logtest.New()
	passed := 0
	a := apitest.New(t, func(cfg *apitest.Config) {
		cfg.Exchange.Logger = log
		cfg.HTTP.CORS = []string{"https://console.example"}
		cfg.HTTP.Trace = func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				passed++
				exchange.SetTrace(c, "0af7651916cd43dd")
				return next(c)
			}
		}
	})
	for _, path := range []string{"/livez", "/readyz", "/health", "/version", "/metrics"} {
		a.Do("GET "+path, "").Is(200)
	}
	if passed != 0 {
		t.Errorf("%d probes have passed the middleware", passed)
	}
	a.Do("GET /v1/semaphores/db", "", "X-Request-Id: one").RefusedWith(404, "unknown-semaphore")
	a.Node.Fail = errors.New("broken")
	a.Do("PUT /v1/semaphores/db", `{"permits":1}`, "X-Request-Id: one").RefusedWith(500, "internal")
	a.Node.Panics = true
	a.Do("PUT /v1/semaphores/db", `{"permits":1}`, "X-Request-Id: one").RefusedWith(500, "internal")
	a.Node.Fail, a.Node.Panics = nil, false
	r := httptest.NewRequest(http.MethodGet, "/v1/semaphores", nil)
	r.Header.Set("X-Request-Id", "one")
	a.Handler.ServeHTTP(brokenWriter{httptest.NewRecorder()}, r)
	for part, want := range map[string]int{"http: request: method=GET path=/v1": 2, "request failed": 1, "handler panicked": 1, "reply not delivered": 1} {
		lines := log.Lines(part)
		if len(lines) != want {
			t.Errorf("%d lines with %q: %q", len(lines), part, lines)
		}
		for _, line := range lines {
			if !strings.Contains(line, " request=one ") || !strings.Contains(line, " trace=0af7651916cd43dd") {
				t.Errorf("not named: %s", line)
			}
		}
	}
	got := a.Do("OPTIONS /v1/semaphores/db", "", "Origin: https://console.example", "Access-Control-Request-Method: PUT").Is(204)
	if !strings.Contains(got.Header.Get("Access-Control-Allow-Headers"), "traceparent") {
		t.Errorf("a page may not send its trace: %v", got.Header)
	}
}

// brokenWriter is the reply to a client that is gone.
type brokenWriter struct{ *httptest.ResponseRecorder }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
