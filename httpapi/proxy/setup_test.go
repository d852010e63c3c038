package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/httpapi/consul"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/fleetlock"
	"github.com/signalbox/signalbox/httpapi/nodered"
	"github.com/signalbox/signalbox/httpapi/terraform"
	"github.com/signalbox/signalbox/httpapi/throttle"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/memnet"
)

// site is a proxy before three cells of one node each: 1 has the prefix "", 2 has eu/ and fleetlock/eu, 3 has the rest
// of the prefixes.
type site struct {
	*testing.T
	proxy *httptest.Server
	p     *Proxy
	cells map[int]*cellOfTest
	list  []cells.Cell
	log   strings.Builder
}

// cellOfTest is a cell that records the requests that it gets.
type cellOfTest struct {
	*httptest.Server
	mu    sync.Mutex
	asked []string
	last  http.Header // of the last request
}

func (c *cellOfTest) note(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.last = append(c.asked, r.Method+" "+r.URL.RequestURI()), r.Header
}

// take returns the requests since the last call.
func (c *cellOfTest) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.asked
	c.asked = nil
	return taken
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, cells: map[int]*cellOfTest{}}
	for number, prefixes := range map[int][]string{1: {""}, 2: {"eu/", "fleetlock/eu", "terraform/eu/"}, 3: {"eu/paris/", "us/"}} {
		c := newCell(t, number)
		s.cells[number] = c
		s.list = append(s.list, cells.Cell{Number: number, Prefixes: prefixes, Nodes: []string{c.URL}})
	}
	s.start()
	return s
}

// start starts a proxy before the cells in the list.
func (s *site) start() {
	s.Helper()
	m, err := cells.New(s.list)
	if err == nil {
		s.p, err = New(Config{Cells: m, Transport: &http.Transport{DisableCompression: true}, Logger: hclog.New(&hclog.LoggerOptions{Output: &s.log})})
	}
	if err != nil {
		s.Fatal(err)
	}
	s.proxy = httptest.NewServer(s.p)
	s.Cleanup(s.proxy.Close)
}

// newCell starts a node with all dialects.
func newCell(t *testing.T, number int) *cellOfTest {
	t.Helper()
	folder, err := store.OpenEphemeral("n1")
	if err != nil {
		t.Fatal(err)
	}
	node, err := cluster.Start(t.Context(), cluster.Config{NodeID: "n1", Bind: "n1:8711", Network: memnet.New().Host("n1"), Store: folder, Cell: number})
	if err != nil {
		t.Fatal(err)
	}
	h := apitest.NewHandler(t, node, func(c *apitest.Config) {
		c.HTTP.Cell = number
		c.HTTP.CORS = []string{"https://app.example", fmt.Sprintf("https://%d.example", number)}
		c.Dialects["consul"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return consul.New(x, consul.Config{}) }
		c.Dialects["throttle"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return throttle.New(x, throttle.Config{}) }
		c.Dialects["nodered"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return nodered.New(x, nodered.Config{}), nil }
		c.Dialects["fleetlock"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return fleetlock.New(x), nil }
		c.Dialects["terraform"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return terraform.New(x), nil }
	})
	c := &cellOfTest{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.note(r)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		node.Drain()
		h.EndWaits()
		c.CloseClientConnections()
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// answer is a whole reply.
type answer struct {
	*site
	asked  string
	status int
	header http.Header
	body   string
}

// ask sends "METHOD /path" to the proxy, with a body and "Header: value" lines.
func (s *site) ask(line, body string, headers ...string) *answer {
	s.Helper()
	return s.askAt(s.proxy.URL, line, body, headers...)
}

func (s *site) askAt(base, line, body string, headers ...string) *answer {
	s.Helper()
	response, err := (&http.Client{Timeout: 20 * time.Second}).Do(s.request(base, line, body, headers...))
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return &answer{s, line, response.StatusCode, response.Header, string(text)}
}

func (s *site) request(base, line, body string, headers ...string) *http.Request {
	s.Helper()
	method, path, _ := strings.Cut(line, " ")
	r, err := http.NewRequestWithContext(s.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	return r
}

// is checks the status and parts of the body.
func (a *answer) is(status int, parts ...string) *answer {
	a.Helper()
	ok := a.status == status
	for _, part := range parts {
		ok = ok && strings.Contains(a.body, part)
	}
	if !ok {
		a.Errorf("%s: %d %s, want %d with %q", a.asked, a.status, a.body, status, parts)
	}
	return a
}

// member returns a member of a JSON body as text.
func (a *answer) member(name string) string {
	a.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(a.body), &members); err != nil {
		a.Fatalf("%s: %d %s: %v", a.asked, a.status, a.body, err)
	}
	if members[name] == nil {
		return ""
	}
	return fmt.Sprint(members[name])
}

// cameTo checks which cells got a request since the last check.
func (a *answer) cameTo(numbers ...int) *answer {
	a.Helper()
	var got []int
	for number, c := range a.cells {
		if len(c.take()) > 0 {
			got = append(got, number)
		}
	}
	if slices.Sort(got); !slices.Equal(got, numbers) {
		a.Errorf("%s: came to the cells %v, want %v: %d %s", a.asked, got, numbers, a.status, a.body)
	}
	return a
}
