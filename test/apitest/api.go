package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/openapitest"
)

// Config configures a Handler for a test.
type Config struct {
	Exchange exchange.Config
	HTTP     httpapi.Config
	Dialects map[string]func(x *exchange.Exchange) (exchange.Dialect, error) // by name
}

// NewHandler returns a Handler over a node.
func NewHandler(t testing.TB, node exchange.Node, change ...func(*Config)) *httpapi.Handler {
	t.Helper()
	h, _ := newExchange(t, node, change...)
	return h
}

// newExchange returns a Handler over a node, and its Exchange.
func newExchange(t testing.TB, node exchange.Node, change ...func(*Config)) (*httpapi.Handler, *exchange.Exchange) {
	t.Helper()
	cfg := Config{Exchange: exchange.Config{Node: node}, HTTP: httpapi.Config{Version: "1.2.3"}, Dialects: map[string]func(*exchange.Exchange) (exchange.Dialect, error){}}
	for _, c := range change {
		c(&cfg)
	}
	x, err := exchange.New(cfg.Exchange)
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTP.Exchange = x
	for _, open := range cfg.Dialects {
		d, err := open(x)
		if err != nil {
			t.Fatal(err)
		}
		cfg.HTTP.Dialects = append(cfg.HTTP.Dialects, d)
	}
	h, err := httpapi.New(cfg.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	return h, x
}

// API is the real router over a Node.
type API struct {
	*testing.T
	Node    *Node
	Handler *httpapi.Handler
	X       *exchange.Exchange
}

// New returns an API over a new Node.
func New(t *testing.T, change ...func(*Config)) *API {
	t.Helper()
	node := NewNode()
	h, x := newExchange(t, node, change...)
	return &API{t, node, h, x}
}

// Reply is the reply to a request.
type Reply struct {
	t      *testing.T
	asked  string
	Status int
	Header http.Header
	Text   string
	Body   map[string]any
}

// Do sends "METHOD /path" with a body and "Header: value" lines.
func (a *API) Do(line, body string, headers ...string) Reply {
	a.Helper()
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return a.Send(r)
}

// Send sends a request, compares it and its reply with the description of the API, and
// checks the headers that each reply has.
func (a *API) Send(r *http.Request) Reply {
	a.Helper()
	w, sent := httptest.NewRecorder(), openapitest.Record(r)
	a.Handler.ServeHTTP(w, r)
	return a.judge(r, sent, w)
}

// judge makes the checks of Send.
func (a *API) judge(r *http.Request, sent *openapitest.Sent, w *httptest.ResponseRecorder) Reply {
	a.Helper()
	got := Reply{t: a.T, asked: r.Method + " " + r.RequestURI, Status: w.Code, Header: w.Header(), Text: w.Body.String()}
	openapitest.Check(a.T, r, sent, w)
	if strings.Contains(w.Header().Get("Content-Type"), "json") {
		decoder := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
		decoder.UseNumber()
		if err := decoder.Decode(&got.Body); err != nil {
			a.Errorf("%s: body %q: %v", got.asked, got.Text, err)
		}
	}
	for _, needed := range []string{"X-Signalbox-Index", "Cache-Control", "X-Request-Id"} {
		if got.Header.Get(needed) == "" {
			a.Errorf("%s: no %s", got.asked, needed)
		}
	}
	return got
}

// Gauge returns a metric without labels.
func (a *API) Gauge(name string) int {
	a.Helper()
	for line := range strings.Lines(a.Do("GET /metrics", "").Text) {
		if text, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				a.Fatal(err)
			}
			return int(n)
		}
	}
	a.Fatalf("no metric %s", name)
	return 0
}

// GoDo sends a request that waits; its reply comes through the channel.
func (a *API) GoDo(line, body string, headers ...string) <-chan Reply {
	done := make(chan Reply, 1)
	go func() { done <- a.Do(line, body, headers...) }()
	return done
}

// Must sends a request that prepares a test, and needs this status.
func (a *API) Must(status int, line, body string, headers ...string) Reply {
	a.Helper()
	got := a.Do(line, body, headers...)
	if got.Status != status {
		a.Fatalf("%s: status %d, want %d: %s", line, got.Status, status, got.Text)
	}
	return got
}

// Is checks the status and members, "path=value" each, of which a path is
// member.member or member.0.
func (r Reply) Is(status int, members ...string) Reply {
	r.t.Helper()
	if r.Status != status {
		r.t.Errorf("%s: status %d, want %d: %s", r.asked, r.Status, status, r.Text)
		return r
	}
	for _, m := range members {
		path, want, _ := strings.Cut(m, "=")
		if got := r.Member(path); got != want {
			r.t.Errorf("%s: %s is %s, want %s: %s", r.asked, path, got, want, r.Text)
		}
	}
	return r
}

// RefusedWith checks a problem's status and code.
func (r Reply) RefusedWith(status int, code string, members ...string) Reply {
	r.t.Helper()
	r.Is(status, append(members, "code="+code, "status="+fmt.Sprint(status), "type=/problems/"+code,
		"instance=/requests/"+url.PathEscape(r.Header.Get("X-Request-Id")))...)
	if got := r.Header.Get("Content-Type"); got != "application/problem+json" {
		r.t.Errorf("%s: Content-Type %q", r.asked, got)
	}
	return r
}

// Member returns the JSON of a member by its path, or "absent"; a text without
// quotes.
func (r Reply) Member(path string) string {
	var at any = r.Body
	for _, step := range strings.Split(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			found, ok := v[step]
			if !ok {
				return "absent"
			}
			at = found
		case []any:
			var i int
			if step == "length" {
				at = json.Number(fmt.Sprint(len(v)))
				continue
			}
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(v) {
				return "absent"
			}
			at = v[i]
		default:
			return "absent"
		}
	}
	if text, ok := at.(string); ok {
		return text
	}
	encoded, _ := json.Marshal(at)
	return string(encoded)
}
