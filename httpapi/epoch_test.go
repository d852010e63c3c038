package httpapi

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

// Every route of one semaphore refuses another epoch, takes the right one, and
// does nothing when it refuses.
func TestEveryRouteOfASemaphoreTakesAnEpoch(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":3}`)
	s := a.open("1h")
	a.must(200, "PUT /v1/sessions/"+s+"/leases/db", `{"count":2}`)
	bodies := map[string]string{"PUT /v1/semaphores/:name": `{"permits":5}`, "PUT /v1/semaphores/:name/value": `{"value":3}`,
		"PUT /v1/sessions/:id/leases/:name": `{"count":2}`, "PATCH /v1/sessions/:id/leases/:name": `{"count":1}`}
	tried := 0
	for _, wrong := range []bool{true, false} {
		before := a.node.state(t)
		for _, r := range a.handler.nativeRoutes() {
			if !strings.Contains(r.path, ":name") {
				continue
			}
			if r.method+" "+r.path == "DELETE /v1/sessions/:id/waitlist/:name" {
				continue // its epoch is the entry's, which may be an earlier one: see TestWaitListOfEarlierEpochs
			}
			line := r.method + " " + strings.NewReplacer(":name", "db", ":id", s, ":session", s).Replace(r.path)
			body := bodies[r.method+" "+r.path]
			if wrong {
				tried++
				a.do(line+"?epoch=9", body).refusedWith(412, "precondition-failed", "epoch=1", "semaphore=db")
			} else if r.method != "DELETE" {
				if got := a.do(line+"?epoch=1", body); got.status == 412 || got.status == 400 {
					t.Errorf("%s: %d %s", line, got.status, got.text)
				}
			}
		}
		if after := a.node.state(t); wrong && after != before {
			t.Errorf("the state changed:\n%s\n%s", before, after)
		}
	}
	if tried < 12 {
		t.Errorf("only %d routes tried", tried)
	}
}

func TestOnEnd(t *testing.T) {
	a := newTestAPI(t)
	for body, keep := range map[string]bool{`{"ttl":"1h"}`: false, `{"ttl":"1h","on_end":"return"}`: false, `{"ttl":"1h","on_end":"keep"}`: true} {
		id, err := sessionID("session", a.must(201, "POST /v1/sessions", body).member("session"))
		if err != nil {
			t.Fatal(err)
		}
		a.node.View(func(m *fsm.Machine) {
			if s, known := m.Session(id); !known || s.Keep != keep {
				t.Errorf("%s: %+v", body, s)
			}
		})
	}
}
