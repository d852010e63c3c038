package v1_test

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
)

func TestPutReturns(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/rig", `{"permits":2,"cooldown":"5s","on_lost":"quarantine","max_hold":"2h","slots":true}`).
		Is(201, "cooldown_ms=5000", "on_lost=quarantine", "max_hold_ms=7200000", "slots=true", "settings=1")
	a.Must(200, "PATCH /v1/semaphores/rig", `{"on_lost":30000}`).Is(200, "on_lost=30s", "settings=2")
	cleared := a.Must(200, "PUT /v1/semaphores/rig", `{"cooldown":null,"on_lost":"release","max_hold":null,"slots":null,"window":"1m"}`).Is(200, "window_ms=60000", "settings=3")
	for _, member := range []string{"cooldown", "on_lost", "max_hold", "slots", "returning", "lost"} {
		if strings.Contains(cleared.Text, member) {
			t.Errorf("cleared, and it shows %s: %s", member, cleared.Text)
		}
	}
	a.Do("PUT /v1/semaphores/rig", `{"slots":true}`).RefusedWith(400, "invalid-request", "field=window")
	a.Do("PUT /v1/semaphores/many", `{"permits":null,"groups":"request","per_group":1,"slots":true}`).RefusedWith(400, "invalid-request", "field=slots")
	a.Do("PUT /v1/semaphores/many", `{"permits":1048577,"slots":true}`).RefusedWith(409, "overflow")
}

func TestWindow(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/rpm", `{"permits":5,"window":"10s"}`)
	s := a.Open("1h")
	a.Must(200, "PUT /v1/sessions/"+s+"/leases/rpm", `{"count":3}`).Is(200, "count=3", "spent=true", "returns_in_ms=10000")
	a.Must(200, "POST /v1/semaphores/rpm/down", `{"count":1}`).Is(200, "granted=1", "value=1")
	a.Do("GET /v1/semaphores/rpm", "").Is(200, "held=0", "available=1", "returning=4", "next_return_in_ms=10000", "holders.0.spent=true", "holders.0.returns_in_ms=10000")
	a.Node.Advance(2500)
	refused := a.Do("POST /v1/semaphores/rpm/leases", `{"count":2}`).RefusedWith(409, "unavailable", "available_in_ms=7500")
	if got := refused.Header.Get("Retry-After"); got != "8" {
		t.Errorf("Retry-After is %q", got)
	}
	a.Must(200, "PATCH /v1/sessions/"+s+"/leases/rpm", `{"count":1}`).Is(200, "count=1", "settled=true", "returns_in_ms=7500")
	a.Must(201, "POST /v1/semaphores/rpm/leases", `{"count":2}`).Is(201, "returns_in_ms=10000")
	a.Must(200, "PATCH /v1/sessions/"+s+"/leases/rpm", `{"count":9}`).Is(200, "count=9", "settled=true")
	a.Do("GET /v1/semaphores/rpm", "").Is(200, "available=-7")
	a.Do("PATCH /v1/sessions/"+s+"/leases/rpm", `{"count":-1}`).RefusedWith(400, "invalid-request", "field=count")
	a.Do("GET /v1/sessions/"+s+"/leases/rpm", "").Is(200, "count=9", "spent=true")
	other := a.Open("1h")
	a.Do("PUT /v1/sessions/"+other+"/leases/rpm", `{"count":5}`).Is(202, "position=1")
	a.Do("GET /v1/semaphores/rpm/waiters", "").Is(200, "waiters.0.blocked_by=returning", "waiters.0.reason=It needs 5, and 7 more are held than there are permits. 12 come back later.")
	a.Node.Advance(7500)
	a.Do("PATCH /v1/sessions/"+s+"/leases/rpm", `{"count":1}`).Is(200, "count=9", "settled=false", "returns_in_ms=0")
	a.Node.Advance(2500)
	a.Do("GET /v1/sessions/"+other+"/leases/rpm", "").Is(200, "count=5")
	a.Must(200, "PUT /v1/semaphores/rpm/value", `{"value":4}`).Is(200, "value=4")
	a.Must(201, "PUT /v1/semaphores/calls", `{"permits":null,"groups":"request","per_group":2,"window":"10s"}`)
	a.Must(200, "POST /v1/semaphores/calls/down", `{"group":"192.0.2.7"}`).Is(200, "granted=1")
	a.Do("POST /v1/semaphores/calls/up", "").RefusedWith(409, "no-total")
}

func TestLost(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/rig", `{"permits":3,"on_lost":"quarantine","slots":true}`)
	a.Must(201, "PUT /v1/semaphores/bench", `{"permits":1,"on_lost":"30s"}`)
	for _, name := range []string{"rig", "rig", "bench"} {
		a.Must(201, "POST /v1/semaphores/"+name+"/leases", `{"ttl":"1s","metadata":{"host":"m1"}}`)
	}
	a.Node.Advance(1500)
	a.Do("GET /v1/semaphores/rig", "").Is(200, "available=1", "held=0", "returning=2", "lost_count=2")
	a.Do("GET /v1/semaphores/rig/lost", "").Is(200, "lost.length=2", "lost.0.token=1", "lost.0.count=1", "lost.0.slots=[0]", "lost.0.back_in_ms=null", "lost.0.metadata.host=m1", "next=null")
	page := a.Do("GET /v1/semaphores/rig/lost?limit=1", "").Is(200, "lost.length=1")
	a.Do("GET /v1/semaphores/rig/lost?limit=1&cursor="+page.Member("next"), "").Is(200, "lost.length=1", "lost.0.token=2", "next=null")
	a.Do("GET /v1/semaphores/bench/lost", "").Is(200, "lost.0.token=3")
	a.Must(204, "DELETE /v1/semaphores/rig/lost/1?reason=bench+checked", "")
	a.Do("DELETE /v1/semaphores/rig/lost/1", "").RefusedWith(404, "not-lost", "semaphore=rig")
	a.Do("DELETE /v1/semaphores/rig/lost/x", "").RefusedWith(400, "invalid-request", "field=token")
	a.Must(200, "POST /v1/batch", `{"operations":[{"op":"free-lost","semaphore":"rig","token":2,"reason":"looked"}]}`).Is(200, "results.0.status=204")
	a.Do("GET /v1/semaphores/rig", "").Is(200, "available=3")
	a.Node.Advance(31_000)
	a.Do("GET /v1/semaphores/bench", "").Is(200, "available=1")
}

func TestMaxHold(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1,"max_hold":"10s"}`)
	s := a.Open("1h")
	lease := "/v1/sessions/" + s + "/leases/db"
	a.Must(200, "PUT "+lease, "").Is(200, "expires_in_ms=10000", "ends_in_ms=10000")
	a.Do("GET "+lease, "").Is(200, "expires_in_ms=10000")
	a.Node.Advance(10_500)
	a.Do("GET "+lease, "").RefusedWith(410, "revoked", "reason=max-hold")
	a.Do("GET /v1/semaphores/db", "").Is(200, "available=1")
}

func TestSlots(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/gpus", `{"permits":4,"slots":true}`)
	s := a.Open("1h")
	a.Must(201, "POST /v1/semaphores/gpus/leases", `{"count":2,"ttl":"1h"}`).Is(201, "slots=[0,1]")
	a.Must(200, "PUT /v1/sessions/"+s+"/leases/gpus", `{"count":2}`).Is(200, "slots=[2,3]")
	a.Must(200, "PATCH /v1/sessions/"+s+"/leases/gpus", `{"count":1}`).Is(200, "slots=[2]")
	a.Do("GET /v1/semaphores/gpus/holders", "").Is(200, "holders.0.slots=[0,1]", "holders.1.slots=[2]")
	a.Do("GET /v1/sessions/"+s, "").Is(200, "leases.0.slots=[2]")
	a.Do("POST /v1/sessions/77/restore", `{"ttl":"1m","leases":[{"name":"gpus"}]}`).RefusedWith(409, "slots-needed", "count=1")
	a.Do("POST /v1/sessions/77/restore", `{"ttl":"1m","leases":[{"name":"gpus","slots":[2]}]}`).RefusedWith(409, "slot-taken")
	a.Do("POST /v1/sessions/77/restore", `{"ttl":"1m","leases":[{"name":"gpus","slots":[-1]}]}`).RefusedWith(400, "invalid-request", "field=slots")
	a.Must(200, "POST /v1/sessions/77/restore", `{"ttl":"1m","leases":[{"name":"gpus","slots":[3]}]}`).Is(200, "leases.0.slots=[3]")
}
