package v1_test

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	v1 "github.com/signalbox/signalbox/httpapi/v1"
	"github.com/signalbox/signalbox/test/apitest"
)

// Every route of a semaphore refuses a wrong epoch, without an effect, and accepts the right epoch.
func TestEveryRouteOfASemaphoreTakesAnEpoch(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":3,"groups":"request"}`)
	s := a.Open("1h")
	a.Must(200, "PUT /v1/sessions/"+s+"/leases/db", `{"count":2}`)
	bodies := map[string]string{"PUT /v1/semaphores/:name": `{"permits":5}`, "PUT /v1/semaphores/:name/value": `{"value":3}`,
		"PUT /v1/sessions/:id/leases/:name": `{"count":2}`, "PATCH /v1/sessions/:id/leases/:name": `{"count":1}`,
		"PUT /v1/semaphores/:name/groups/:group": `{"limit":3}`}
	tried := 0
	for _, wrong := range []bool{true, false} {
		before := a.Node.State(t)
		for _, r := range v1.New(a.X, v1.Config{}).Routes() {
			if !strings.Contains(r.Path, ":name") || strings.HasPrefix(r.Path, "/v1/items/") { // an item has no epoch
				continue
			}
			if r.Method+" "+r.Path == "DELETE /v1/sessions/:id/waitlist/:name" {
				continue // its epoch is the entry's, which may be an earlier one: see testdata/wait_lists.txt
			}
			line := r.Method + " " + strings.NewReplacer(":name", "db", ":id", s, ":session", s, ":group", "acme", ":token", "7").Replace(r.Path)
			body := bodies[r.Method+" "+r.Path]
			if wrong {
				tried++
				a.Do(line+"?epoch=9", body).RefusedWith(412, "precondition-failed", "epoch=1", "semaphore=db")
			} else if r.Method != "DELETE" {
				if got := a.Do(line+"?epoch=1", body); got.Status == 412 || got.Status == 400 {
					t.Errorf("%s: %d %s", line, got.Status, got.Text)
				}
			}
		}
		if after := a.Node.State(t); wrong && after != before {
			t.Errorf("the state changed:\n%s\n%s", before, after)
		}
	}
	if tried < 12 {
		t.Errorf("only %d routes tried", tried)
	}
}

func TestOnEnd(t *testing.T) {
	a := apitest.New(t)
	for body, keep := range map[string]bool{`{"ttl":"1h"}`: false, `{"ttl":"1h","on_end":"return"}`: false, `{"ttl":"1h","on_end":"keep"}`: true} {
		id, err := exchange.SessionID("session", a.Must(201, "POST /v1/sessions", body).Member("session"))
		if err != nil {
			t.Fatal(err)
		}
		a.Node.View(func(m *fsm.Machine) {
			if s, known := m.Session(id); !known || s.Keep != keep {
				t.Errorf("%s: %+v", body, s)
			}
		})
	}
}
