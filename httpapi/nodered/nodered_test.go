package nodered

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestNodeREDIsOptional(t *testing.T) {
	a := apitest.New(t)
	for _, line := range []string{"POST /semaphore", "POST /semaphore/up", "POST /semaphore/down", "GET /semaphore/value/n", "DELETE /semaphore/n"} {
		a.Do(line, `{"name":"n"}`).RefusedWith(404, "unknown-route")
	}
}

const formType = "Content-Type: application/x-www-form-urlencoded"

// These bodies have bytes that scripts can't have. testdata/repeats.txt has further bodies.
func TestNodeREDBodies(t *testing.T) {
	const nameless = "400 text The name of a semaphore is 1 to 512 bytes of UTF-8 without control characters."
	for name, c := range map[string]struct{ body, want string }{
		"a byte order mark": {"\uFEFF{\"name\":\"n\",\"value\":3}", `200 utf8json {"name":"n","value":3}`},
		"space around":      {" {\"name\":\"n\",\n\"value\" : 3}\r\n", `200 utf8json {"name":"n","value":3}`},
		"invalid UTF-8":     {"{\"name\":\"\xff\",\"value\":3}", "400 text The body is not one JSON document in UTF-8: text that is not UTF-8 at byte 0."},
		"space only":        {"  \n", nameless},
	} {
		t.Run(name, func(t *testing.T) {
			inEachNodeRED(t, func(s *apitest.Site) { s.Is(s.Ask("POST /semaphore", c.body), c.want) })
		})
	}
}

// A name that is far too long is refused by this API or, if the headers exceed 16 KiB, by net/http. The request always
// gets a reply.
func TestNodeREDLongPath(t *testing.T) {
	s, _ := onNodeRED(t)
	server := httpapi.NewServer(s.Handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Shutdown(context.Background())
	for letters, want := range map[int]int{512: 404, 513: 400, 16_000: 400, 17_000: 431} {
		response, err := http.Get("http://" + listener.Addr().String() + "/semaphore/value/" + strings.Repeat("a", letters))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%d letters: status %d, want %d", letters, response.StatusCode, want)
		}
	}
	inEachNodeRED(t, func(s *apitest.Site) {
		for letters, want := range map[int]int{512: 404, 513: 400, 16_000: 400} {
			if got := s.Ask("GET /semaphore/value/"+strings.Repeat("a", letters), ""); got.Status != want {
				s.Errorf("%d letters: %s, want %d", letters, got, want)
			}
		}
	})
}

// nodeREDRequests has one request for each route.
var nodeREDRequests = map[string]string{
	"POST /semaphore": `{"name":"n","value":1}`, "POST /semaphore/up": `{"name":"n"}`, "POST /semaphore/down": `{"name":"n"}`,
	"GET /semaphore/value/n": ``, "DELETE /semaphore/n": ``,
}

// A failure of the service has its native status, and a sentence.
func TestNodeREDFailures(t *testing.T) {
	s, node := onNodeRED(t)
	for _, c := range []struct {
		err    error
		status int
		again  string
	}{
		{outcome.ErrNoLeader, 503, "1"}, {outcome.ErrNotApplied, 503, "1"}, {outcome.ErrDraining, 503, "1"}, {outcome.ErrStorageFull, 503, "10"},
		{outcome.ErrOverloaded, 503, "1"}, {outcome.ErrOutcomeUnknown, 504, ""}, {errors.New("secret of the inside"), 500, ""},
	} {
		node.Set(func() { node.Fail = c.err })
		for line, body := range nodeREDRequests {
			got := s.Ask(line, body)
			if got.Status != c.status || got.ContentType != "text/plain; charset=utf-8" || got.Header("Retry-After") != c.again ||
				strings.Contains(got.Body, "secret") || !strings.HasSuffix(got.Body, ".") {
				t.Errorf("%v: %s: %s, Retry-After %q", c.err, line, got, got.Header("Retry-After"))
			}
		}
	}
	node.Set(func() { node.Fail, node.Panics = nil, true })
	s.Is(s.Ask("POST /semaphore/up", `{"name":"n"}`), "500 text This node could not handle the request. Its log says more.")
	s.Is(s.Ask("POST /semaphore/up", `{"name":"n"}`, "Origin: http://evil.example"),
		"403 text The request comes from a web page of another origin, which this node does not allow. An operator lists origins with --cors-allow.")
}

// Every node reports the limits of the state machine as limits.
func TestNodeREDLimits(t *testing.T) {
	limits := fsm.DefaultLimits()
	limits.Semaphores = 1
	for _, leads := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := apitest.NewLimitedCluster(t, limits, asNodeRED).Site(leads)
			s.Is(s.Ask("POST /semaphore", `{"name":"a","value":1}`), `200 utf8json {"name":"a","value":1}`)
			got := s.Ask("POST /semaphore", `{"name":"b","value":1}`)
			s.Is(got, "429 text A configured limit is reached: semaphores. The request had no effect.")
			if got.Header("Retry-After") != "1" {
				t.Errorf("Retry-After %q", got.Header("Retry-After"))
			}
		})
	}
}

// 100 downs at the same time on 50 permits: exactly 50 succeed, and each reply has a different value.
func TestNodeREDParallelDowns(t *testing.T) {
	inEachNodeRED(t, func(s *apitest.Site) {
		s.Is(s.Ask("POST /semaphore", `{"name":"n","value":50,"x":"y"}`), `200 utf8json {"name":"n","value":50,"x":"y"}`)
		parallel(s, 100, "POST /semaphore/down", func(i int) string {
			return fmt.Sprintf(`200 utf8json {"name":"n","value":%d,"x":"y"}`, i)
		}, 50, "409 text Semaphore locked")
		parallel(s, 100, "POST /semaphore/up", func(i int) string {
			return fmt.Sprintf(`200 utf8json {"name":"n","value":%d,"x":"y"}`, i+1)
		}, 100, "")
	})
}

// Of 30 creates at the same time one succeeds, and so does one of 20 deletes.
func TestNodeREDParallelCreates(t *testing.T) {
	inEachNodeRED(t, func(s *apitest.Site) {
		once := func(want string) func(int) string { return func(int) string { return want } }
		parallelBody(s, 30, "POST /semaphore", `{"name":"n","value":1}`, once(`200 utf8json {"name":"n","value":1}`), 1, `303 utf8json {"name":"n","value":1}`)
		parallelBody(s, 20, "DELETE /semaphore/n", ``, once("200 text Deletion Successful"), 1, "404 text Semaphore not found")
	})
}

func parallel(s *apitest.Site, times int, line string, want func(i int) string, winners int, others string) {
	s.Helper()
	parallelBody(s, times, line, `{"name":"n"}`, want, winners, others)
}

// parallelBody sends a request many times at once. It expects each of want(0 … winners-1) as one reply, and others as
// each of the remaining replies.
func parallelBody(s *apitest.Site, times int, line, body string, want func(i int) string, winners int, others string) {
	s.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for range times {
		running.Go(func() {
			answer := s.Ask(line, body).String()
			mu.Lock()
			defer mu.Unlock()
			got[answer]++
		})
	}
	running.Wait()
	for i := range winners {
		got[want(i)]--
	}
	if times > winners {
		got[others] -= times - winners
	}
	for answer, count := range got {
		if count != 0 {
			s.Errorf("%s: %d too many of %s", line, count, answer)
		}
	}
}

// A callback is checked before the down has any effect. It leaves a notice only if the down is refused.
func TestNodeREDCallbacks(t *testing.T) {
	allow := asNodeREDWith(Config{CheckCallback: func(address string) error {
		if address != "http://hooks.example/free" {
			return errors.New("This is not allowed.")
		}
		return nil
	}})
	inEachNodeRED(t, func(s *apitest.Site) {
		s.Is(s.Ask("POST /semaphore", `{"name":"n","value":1}`), `200 utf8json {"name":"n","value":1}`)
		for body, want := range map[string]string{
			`{"name":"n","callback":"http://10.0.0.1/"}`:                        "callback: This is not allowed.",
			`{"name":"n","callback":""}`:                                        "A callback is an address, http://host/path or https://host/path.",
			`{"name":"n","callback":null}`:                                      "A callback is an address, http://host/path or https://host/path.",
			`{"name":"n","callback":["http://hooks.example/free"]}`:             "A callback is an address, http://host/path or https://host/path.",
			`{"name":"n","callback":"http://hooks.example/free","wait":"1s"}`:   "Give wait or callback, not both: only a down that is refused at once can be called back.",
			`{"name":"n","callback":"http://hooks.example/free","amount":"1x"}`: "An amount is a whole number from 1 to 9223372036854775807.",
		} {
			s.Is(s.Ask("POST /semaphore/down", body), "400 text "+want)
		}
		const asked = `{"name":"n","callback":"http://hooks.example/free"}`
		got := s.Ask("POST /semaphore/down", asked)
		s.Is(got, `200 utf8json {"name":"n","value":0}`)
		if got.Header("X-Signalbox-Notice") != "" {
			s.Error("a down that was granted left a notice")
		}
		got = s.Ask("POST /semaphore/down", asked)
		s.Is(got, "409 text Semaphore locked")
		id, err := strconv.ParseUint(got.Header("X-Signalbox-Notice"), 10, 64)
		if err != nil {
			s.Fatal(err)
		}
		s.CaughtUp(s.Do(fsm.Up{Name: "n", Count: 1}))
		s.Node.View(func(m *fsm.Machine) {
			if n, due := m.DueNotice(id); !due || n.URL != "http://hooks.example/free" || n.Semaphore != "n" {
				s.Errorf("notice %d: %+v, %v", id, n, due)
			}
		})
	}, allow)
}

// A node that trails the leader waits for the members before it replies. If it can't catch up, it replies without them,
// since the down has succeeded.
func TestNodeREDTrailing(t *testing.T) {
	node := &trailing{Node: apitest.NewNode()}
	handler := apitest.NewHandler(t, node, asNodeRED)
	s := &apitest.Site{T: t, Handler: handler, Node: node}
	s.Is(s.Ask("POST /semaphore", `{"name":"n","value":2,"x":1}`), `200 utf8json {"name":"n","value":2,"x":1}`)
	s.Is(s.Ask("POST /semaphore/down", `{"name":"n"}`), `200 utf8json {"name":"n","value":1,"x":1}`)
	if node.asked.MinIndex != node.Index {
		t.Errorf("waited for index %d, the down has %d", node.asked.MinIndex, node.Index)
	}
	node.err = outcome.ErrNoLeader
	s.Is(s.Ask("POST /semaphore/down", `{"name":"n"}`), `200 utf8json {"name":"n","value":0}`)
}

// trailing is a node that counts reads, and may fail them.
type trailing struct {
	*apitest.Node
	asked calls.Consistency
	err   error
}

func (n *trailing) Read(ctx context.Context, c calls.Consistency) (calls.Reading, error) {
	n.asked = c
	if n.err != nil {
		return calls.Reading{}, n.err
	}
	return n.Node.Read(ctx, c)
}

// A request without a body at all, as net/http makes it.
func TestNodeREDNoBody(t *testing.T) {
	inEachNodeRED(t, func(s *apitest.Site) {
		r := httptest.NewRequest("POST", "/semaphore/up", nil)
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		text, _ := io.ReadAll(w.Body)
		if w.Code != 400 || !strings.HasPrefix(string(text), "The name of a semaphore") {
			s.Errorf("%d %s", w.Code, text)
		}
	})
}

// The examples of docs/dialect-nodered.md get 200, in their order.
func TestNodeREDDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/dialect-nodered.md")
	if err != nil {
		t.Fatal(err)
	}
	s, _ := onNodeRED(t)
	examples := regexp.MustCompile(`(?m)^    curl localhost:870\d(\S+)(?: -H '([^']+)')?(?: -d '([^']+)')?$`).FindAllStringSubmatch(string(text), -1)
	for _, m := range examples {
		line, headers := "GET "+m[1], []string(nil)
		if m[3] != "" {
			line, headers = "POST "+m[1], []string{m[2]}
		}
		if got := s.Ask(line, m[3], headers...); got.Status != 200 {
			t.Errorf("%s: %s", m[0], got)
		}
	}
	if len(examples) != strings.Count(string(text), "curl ") || len(examples) < 3 {
		t.Errorf("%d examples run", len(examples))
	}
}
