package httpapi

import (
	"context"
	"testing"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// TestReleaseOfOneLease: a release that names a token leaves a newer lease alone,
// and so does a resize.
func TestReleaseOfOneLease(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":3}`)
	s := a.open("1h")
	lease := "/v1/sessions/" + s + "/leases/db"
	a.do("PUT "+lease, `{"count":3}`).is(200, "token=1")
	a.do("DELETE "+lease+"?token=1", "").is(204)
	a.do("PUT "+lease, `{"count":3}`).is(200, "token=2")
	a.do("DELETE "+lease+"?token=1", "").is(204)
	a.do("PATCH "+lease+"?token=1", `{"count":1}`).refusedWith(404, "not-held")
	a.do("GET "+lease, "").is(200, "token=2", "count=3")
	a.do("PATCH "+lease+"?token=2", `{"count":2}`).is(200, "token=2", "count=2")
	a.do("POST /v1/batch", `{"operations":[
		{"op":"release","session":"`+s+`","semaphore":"db","token":1},
		{"op":"resize","session":"`+s+`","semaphore":"db","count":1,"token":2},
		{"op":"release","session":"`+s+`","semaphore":"db","token":2},
		{"op":"release","session":"`+s+`","semaphore":"db","token":0}]}`).
		is(200, "results.0.status=204", "results.1.body.count=1", "results.2.status=204", "results.3.status=400")
	a.do("GET /v1/semaphores/db", "").is(200, "held=0")
	for _, bad := range []string{"0", "-1", "x", "9223372036854775808"} {
		a.do("DELETE "+lease+"?token="+bad, "").refusedWith(400, "invalid-request", "field=token")
	}

	other := a.open("1h")
	a.must(200, "PUT "+lease, `{"count":3}`)
	a.do("PUT /v1/sessions/"+other+"/leases/db", "").is(202)
	a.do("DELETE /v1/sessions/"+other+"/leases/db?token=3", "").is(204)
	a.do("GET /v1/sessions/"+other+"/leases/db", "").is(202)
}

// slowRelease is a node on which something happens between the moment when a release
// arrives and its being carried out.
type slowRelease struct {
	*machineNode
	meanwhile func()
}

func (n *slowRelease) Do(ctx context.Context, call cluster.Call) (cluster.Reply, error) {
	if _, is := call.Command.(fsm.Release); is && n.meanwhile != nil {
		meanwhile := n.meanwhile
		n.meanwhile = nil
		meanwhile()
	}
	return n.machineNode.Do(ctx, call)
}

// TestThrottleLateRelease: throttle's clients name no token, but a release that is
// carried out late leaves alone what its peer has acquired since.
func TestThrottleLateRelease(t *testing.T) {
	node := &slowRelease{machineNode: newMachineNode()}
	handler, err := New(Config{Node: node, Throttle: &Throttle{}})
	if err != nil {
		t.Fatal(err)
	}
	s := &throttleSite{T: t, handler: handler, node: node}
	s.semaphore("A", "1", "0")
	s.peer("1", "1h")
	again := func() { // its client has given up, released elsewhere and acquired anew
		s.is(s.ask("DELETE /peers/1/A", ""), "200 text Ok")
		s.is(s.ask("PUT /peers/1/A", "1"), "200 json 1")
	}
	s.is(s.ask("PUT /peers/1/A", "1"), "200 json 1")
	node.meanwhile = again
	s.is(s.ask("DELETE /peers/1/A", ""), "200 text Ok")
	s.is(s.ask("GET /remainder?semaphore=A", ""), "200 json 0")

	s.is(s.ask("DELETE /peers/1/A", ""), "200 text Ok")
	s.is(s.ask("GET /remainder?semaphore=A", ""), "200 json 1")
	node.meanwhile = again // a release of nothing ends nothing either
	s.is(s.ask("DELETE /peers/1/A", ""), "200 text Ok")
	s.is(s.ask("GET /remainder?semaphore=A", ""), "200 json 0")

	s.peer("2", "1h")
	s.is(s.ask("PUT /peers/2/A", "1"), "202 json 2")
	node.meanwhile = func() { s.is(s.ask("DELETE /peers/1/A", ""), "200 text Ok") }
	s.is(s.ask("DELETE /peers/2/A", ""), "200 text Ok") // granted meanwhile: it is released
	s.is(s.ask("GET /remainder?semaphore=A", ""), "200 json 1")
}
