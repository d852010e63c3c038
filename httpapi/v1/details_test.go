package v1_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
)

// A repeat whose lease or session is over is no success: its client would believe
// that it holds something.
func TestRepeatOfWhatIsOver(t *testing.T) {
	key := func(n int) string { return fmt.Sprintf("Idempotency-Key: over-%016d", n) }
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":9}`)
	a.Must(201, "PUT /v1/semaphores/web", `{"permits":9}`)
	open := func() string { return a.Must(201, "POST /v1/sessions", `{"ttl":"10m"}`).Member("session") }
	s := open()
	leases := "/v1/sessions/" + s + "/leases/"
	for i, c := range []struct {
		line, body string
		status     int
		end        string // what ends it; SESSION is the reply's
	}{
		{"POST /v1/semaphores/db/leases", `{"ttl":"10m"}`, 201, "DELETE /v1/sessions/SESSION"},
		{"POST /v1/semaphores/db/leases", `{"ttl":"10m"}`, 201, "DELETE /v1/semaphores/db/holders/SESSION"},
		{"POST /v1/sessions", `{"ttl":"10m"}`, 201, "DELETE /v1/sessions/SESSION"},
		{"PUT " + leases + "db", ``, 200, "DELETE " + leases + "db"},
		{"POST /v1/sessions/" + s + "/acquire", `{"semaphores":[{"name":"db"},{"name":"web"}],"mode":"all"}`, 200, "DELETE " + leases + "db"},
		{"PATCH " + leases + "web", `{"count":1}`, 200, "DELETE " + leases + "web"},
		{"POST /v1/sessions/4711/restore", `{"ttl":"10m","leases":[{"name":"db"}]}`, 200, "DELETE /v1/sessions/4711"},
	} {
		got := a.Do(c.line, c.body, key(i)).Is(c.status)
		session := got.Member("session")
		a.Do(c.line, c.body, key(i)).Is(c.status, "session="+session)
		a.Must(204, strings.ReplaceAll(c.end, "SESSION", session), "")
		named := session
		if c.status == 201 && strings.HasSuffix(c.line, "/leases") {
			named = "absent" // what is kept of a one-call acquire is that it is over
		}
		again := a.Do(c.line, c.body, key(i)).RefusedWith(410, "over", "session="+named)
		if again.Header.Get("Idempotency-Replayed") != "true" || again.Header.Get("Location") != "" {
			t.Errorf("%s: %v", c.line, again.Header)
		}
	}
	operation := `{"operations":[{"op":"acquire-once","semaphore":"db","ttl":"10m","key":"over-in-a-batch-1"}]}`
	session := a.Do("POST /v1/batch", operation).Is(200, "results.0.status=201").Member("results.0.body.session")
	a.Must(204, "DELETE /v1/sessions/"+session, "")
	a.Do("POST /v1/batch", operation).Is(200, "results.0.status=410", "results.0.body.code=over", "results.0.replayed=true")
}

// A session with a ttl of 0 would end at once. A renewal may ask for it, and ends its
// session.
func TestNoTTLOfZero(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":9}`)
	s := a.Must(201, "POST /v1/sessions", `{"ttl":"10m"}`).Member("session")
	before := a.Node.State(t)
	for _, zero := range []string{`0`, `"0s"`, `"0ms"`} {
		for _, line := range []string{
			"POST /v1/sessions {}", "POST /v1/semaphores/db/leases {}", "PUT /v1/sessions/" + s + "/leases/db {}",
			`POST /v1/sessions/77/restore {"leases":[]}`,
		} {
			at, body, _ := strings.Cut(line, " {")
			body = strings.ReplaceAll(`{"ttl":`+zero+`,`+body, ",}", "}")
			a.Do(at, body).RefusedWith(400, "invalid-request", "field=ttl")
		}
		a.Do("POST /v1/batch", `{"operations":[{"op":"acquire-once","semaphore":"db","ttl":`+zero+`},{"op":"open","ttl":`+zero+`}]}`).
			Is(200, "results.0.status=400", "results.0.body.field=ttl", "results.1.status=400")
	}
	if after := a.Node.State(t); after != before {
		t.Errorf("the state changed:\n%s\n%s", before, after)
	}
	a.Do("PUT /v1/sessions/"+s, `{"ttl":0}`).Is(200)
	a.Do("GET /v1/sessions/"+s, "").RefusedWith(410, "expired-session")
}

// A refusal says which member or parameter is wrong, and what it takes.
func TestDetailsNameFieldAndRange(t *testing.T) {
	a := apitest.New(t, func(cfg *apitest.Config) { cfg.HTTP.Native.BatchSize, cfg.Exchange.MaxWatchers = 2, 1 })
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":9}`)
	for line, words := range map[string]string{
		"GET /v1/semaphores?limit=0":                                  "limit 1 1000",
		"GET /v1/semaphores?limit=1001":                               "limit 1 1000",
		"GET /v1/semaphores/db?holders=1001":                          "holders 0 1000",
		"GET /v1/semaphores/db?epoch=0":                               "epoch 1 9223372036854775807",
		"GET /v1/semaphores/db?index=0&wait=11m":                      "wait 10m0s",
		"GET /v1/semaphores/db?min_index=-1":                          "min_index 0",
		"GET /v1/sessions/0":                                          "session 1",
		`PUT /v1/semaphores/db {"permits":-1}`:                        "permits 0 9223372036854775807",
		`PUT /v1/semaphores/db {"level":2147483648}`:                  "level -2147483648 2147483647",
		`PUT /v1/semaphores/db {"permitz":1}`:                         "permitz",
		`POST /v1/sessions {"ttl":"101y"}`:                            "ttl 100 years",
		`POST /v1/sessions {}`:                                        "ttl needed",
		`POST /v1/semaphores/db/down {"wait":"11m"}`:                  "wait 10m0s",
		`POST /v1/semaphores/db/up {"count":1.5}`:                     "count 1 9223372036854775807",
		`POST /v1/semaphores/db/down {"partial":1}`:                   "partial true false",
		`POST /v1/batch {"operations":[{},{},{}]}`:                    "operations 2",
		`POST /v1/sessions/7/acquire {"semaphores":[],"mode":"some"}`: "semaphores",
	} {
		at, body, _ := strings.Cut(line, " {")
		if body != "" {
			body = "{" + body
		}
		detail := a.Do(at, body).RefusedWith(400, "invalid-request").Member("detail")
		for _, word := range strings.Fields(words) {
			if !strings.Contains(detail, word) {
				t.Errorf("%s: %q doesn't say %q", line, detail, word)
			}
		}
	}
	if detail := a.Do("PUT /v1/semaphores/x", strings.Repeat(" ", 70_000)).RefusedWith(413, "too-large", "limit=65536").Member("detail"); !strings.Contains(detail, "65536") {
		t.Errorf("%q", detail)
	}
}

// A refusal by a limit says which one, how much it is, and what sets it.
func TestDetailsNameTheLimit(t *testing.T) {
	a := apitest.New(t)
	small := fsm.DefaultLimits()
	small.Semaphores, small.Sessions, small.SessionLeases, small.WaitList = 2, 3, 1, 1
	a.Node.Set(func() {
		a.Node.Apply(fsm.Envelope{}.Encode(fsm.StartTerm{Term: 1, Leader: "n1", Limits: small}))
	})
	a.Must(201, "PUT /v1/semaphores/a", `{"permits":9}`)
	a.Must(201, "PUT /v1/semaphores/b", `{"permits":9}`)
	refused := func(line, body, rule string, limit int, flag string) {
		t.Helper()
		detail := a.Do(line, body).RefusedWith(429, "limit-reached", "rule="+rule, fmt.Sprintf("limit=%d", limit)).Member("detail")
		if !strings.Contains(detail, fmt.Sprintf(" %d ", limit)) || !strings.Contains(detail, flag) {
			t.Errorf("%s: %q", line, detail)
		}
	}
	refused("PUT /v1/semaphores/c", `{"permits":1}`, "semaphores", 2, "--max-semaphores")
	s := a.Must(201, "POST /v1/sessions", `{"ttl":"10m"}`).Member("session")
	a.Must(200, "PUT /v1/sessions/"+s+"/leases/a", "")
	refused("PUT /v1/sessions/"+s+"/leases/b", "", "session-leases", 1, "--max-session-leases")
	a.Must(201, "POST /v1/sessions", `{"ttl":"10m"}`)
	a.Must(201, "POST /v1/sessions", `{"ttl":"10m"}`)
	refused("POST /v1/sessions", `{"ttl":"10m"}`, "sessions", 3, "--max-sessions")
	a.Do("POST /v1/batch", `{"operations":[{"op":"open","ttl":"1m"}]}`).Is(200, "results.0.status=429", "results.0.body.limit=3")
}

// noLeader is a node whose leader is away.
type noLeader struct{ *apitest.Node }

func (n noLeader) Read(ctx context.Context, c cluster.Consistency) (cluster.Reading, error) {
	if c.Stale || c.MinIndex > 0 && !c.Linearizable {
		return n.Node.Read(ctx, c)
	}
	return cluster.Reading{}, outcome.ErrNoLeader
}

// A stream that goes on from what this node has come to begins without a leader; one
// that begins anew, or beyond it, can't.
func TestResumedStreamNeedsNoLeader(t *testing.T) {
	node := apitest.NewNode()
	a := apitest.New(t, func(cfg *apitest.Config) { cfg.Exchange.Node = noLeader{node} })
	a.Node = node
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	var index uint64
	node.View(func(m *fsm.Machine) { index = m.Index() })
	status := func(line string, headers ...string) int {
		method, target, _ := strings.Cut(line, " ")
		r := httptest.NewRequest(method, target, nil)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		a.Handler.ServeHTTP(w, r)
		return w.Code
	}
	for line, want := range map[string]int{
		"HEAD /v1/events?since=0": 200, fmt.Sprintf("HEAD /v1/events?since=%d", index): 200, "HEAD /v1/events": 503,
		fmt.Sprintf("HEAD /v1/events?since=%d", index+1): 503, "HEAD /v1/events?since=0&consistency=linearizable": 503,
	} {
		if got := status(line); got != want {
			t.Errorf("%s: status %d, want %d", line, got, want)
		}
	}
	if got := status("HEAD /v1/events", "Last-Event-ID: 0"); got != http.StatusOK {
		t.Errorf("Last-Event-ID: status %d", got)
	}
}
