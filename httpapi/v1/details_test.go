package v1_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
)

// A refusal by a limit names the limit, its value and the flag that sets it.
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

// noLeader is a node that has lost its leader.
type noLeader struct{ *apitest.Node }

func (n noLeader) Read(ctx context.Context, c calls.Consistency) (calls.Reading, error) {
	if c.Stale || c.MinIndex > 0 && !c.Linearizable {
		return n.Node.Read(ctx, c)
	}
	return calls.Reading{}, outcome.ErrNoLeader
}

// A stream that resumes at an event which this node has applied begins without a leader. A stream that begins now, or
// after a later event, needs a leader.
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
