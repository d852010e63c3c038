package httpapi

import (
	"testing"
)

// TestWaitersTellWhyTheyWait: each rule of waiting has its code, its sentence and
// its numbers.
func TestWaitersTellWhyTheyWait(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/a", `{"permits":3}`)
	a.must(201, "PUT /v1/semaphores/b", `{"permits":1}`)
	a.must(201, "PUT /v1/semaphores/c", `{"permits":1}`)
	holder := a.open("1h")
	a.must(200, "PUT /v1/sessions/"+holder+"/leases/a", `{"count":2}`)
	a.must(200, "PUT /v1/sessions/"+holder+"/leases/b", "")
	a.must(200, "PUT /v1/sessions/"+holder+"/leases/c", "")

	two, all, last := a.open("10s"), a.open("1h"), a.open("1h")
	a.must(202, "PUT /v1/sessions/"+two+"/leases/a", `{"count":2}`)
	a.must(202, "PUT /v1/sessions/"+last+"/leases/a", "")
	a.must(202, "PUT /v1/sessions/"+a.open("1h")+"/leases/a", "")
	a.node.advance(1500)
	a.do("GET /v1/semaphores/a", "").is(200, "waiters.length=3",
		"waiters.0.session="+two, "waiters.0.count=2", "waiters.0.position=1", "waiters.0.waiting_ms=1500", "waiters.0.expires_in_ms=8500",
		"waiters.0.blocked_by=not-enough-available", "waiters.0.reason=It needs 2, 1 available.",
		`waiters.0.obstacles=[{"available":1,"blocked_by":"not-enough-available","needs":2,"semaphore":"a"}]`,
		"waiters.1.blocked_by=behind-others", "waiters.1.reason=The one before it in the line comes first.",
		`waiters.1.obstacles=[{"available":1,"blocked_by":"behind-others","needs":1,"semaphore":"a"}]`,
		"waiters.2.reason=2 before it in the line come first.")
	a.must(204, "DELETE /v1/sessions/"+two, "")
	a.do("GET /v1/sessions/"+last+"/leases/a", "").is(200)

	a.must(204, "DELETE /v1/sessions/"+holder+"/leases/a", "")
	a.must(202, "POST /v1/sessions/"+all+"/acquire", `{"semaphores":[{"name":"a"},{"name":"b"},{"name":"c"}],"mode":"all"}`)
	a.do("GET /v1/semaphores/a", "").is(200, "available=1", "waiters.0.session="+all, "waiters.0.blocked_by=other-semaphore",
		"waiters.0.reason=It waits for the other semaphores of its list, see obstacles.",
		`waiters.0.obstacles=[{"available":0,"blocked_by":"not-enough-available","needs":1,"semaphore":"b"},`+
			`{"available":0,"blocked_by":"not-enough-available","needs":1,"semaphore":"c"}]`)
	a.must(204, "DELETE /v1/sessions/"+holder+"/leases/c", "")
	a.do("GET /v1/sessions/"+all, "").is(200, "waiting.0.blocked_by=other-semaphore",
		`waiting.0.reason=It waits for "b", another semaphore of its list.`, "waiting.0.obstacles.length=1")
	a.must(200, "PUT /v1/semaphores/b", `{"permits":0}`) // ends who could never be served
	a.do("GET /v1/semaphores/a", "").is(200, "waiter_count=0")

	drained := a.goDo("POST /v1/semaphores/b/down", `{"wait":"5s"}`)
	a.node.awaitWaits(1)
	a.do("GET /v1/semaphores/b", "").is(200, "available=-1", "waiters.0.unowned=true",
		"waiters.0.reason=It needs 1, and 1 more are held than there are permits.")
	a.must(204, "DELETE /v1/sessions/"+holder+"/leases/b", "")
	partly := a.goDo("POST /v1/semaphores/b/down", `{"wait":"5s","count":9,"partial":true}`)
	a.node.awaitWaits(2)
	a.do("GET /v1/semaphores/b", "").is(200, "waiters.0.reason=It needs 1, 0 available.", "waiters.0.obstacles.0.needs=1")
	a.must(200, "POST /v1/semaphores/b/up", "")
	(<-drained).is(200, "granted=1")
	a.do("GET /v1/semaphores/b", "").is(200, "waiters.0.reason=Nothing is available.", "waiters.0.obstacles.0.needs=9")
	a.must(200, "POST /v1/semaphores/b/up", "")
	(<-partly).is(200, "granted=1")
}

// TestRevokedLeaseTellsItsVictim: every call on it, until it is let go.
func TestRevokedLeaseTellsItsVictim(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":2}`)
	a.must(201, "PUT /v1/semaphores/other", `{"permits":1}`)
	s := a.open("1h")
	a.must(200, "PUT /v1/sessions/"+s+"/leases/db", `{"count":2}`)
	watching := a.goDo("GET /v1/semaphores/db?index=4&wait=60s", "")
	a.node.awaitWatcher("db")
	a.must(204, "DELETE /v1/semaphores/db/holders/"+s+"?reason=too%20slow", "")
	(<-watching).is(200, "held=0", "holders.0.revoked=true", "holders.0.reason=too slow")
	a.must(204, "DELETE /v1/semaphores/db/holders/"+s+"?reason=another", "") // the first reason stays

	lease := "/v1/sessions/" + s + "/leases/db"
	for line, body := range map[string]string{
		"GET " + lease: "", "PUT " + lease: `{"count":2,"wait":"5s"}`, "PUT " + lease + "?try=true": "", "PATCH " + lease: `{"count":1}`,
		"POST /v1/sessions/" + s + "/acquire": `{"semaphores":[{"name":"other"},{"name":"db"}],"mode":"any"}`,
	} {
		a.do(line, body).refusedWith(410, "revoked", "reason=too slow", "semaphore=db")
	}
	a.do("PUT /v1/sessions/"+s, "").is(200) // the session lives
	a.do("GET /v1/sessions/"+s, "").is(200, "leases.0.revoked=true", "leases.0.reason=too slow")
	a.do("GET /v1/semaphores/other", "").is(200, "held=0")
	a.do("DELETE "+lease, "").is(204) // it is let go
	a.do("GET "+lease, "").refusedWith(404, "not-held")
	a.do("PUT "+lease, "").is(200, "token=2")
}

// TestRevokedOneShotTellsItsVictim: its session ends with its lease.
func TestRevokedOneShotTellsItsVictim(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	s := a.must(201, "POST /v1/semaphores/db/leases", "").member("session")
	a.must(204, "DELETE /v1/semaphores/db/holders/"+s+"?reason=maintenance", "")
	for _, line := range []string{"GET /v1/sessions/" + s, "PUT /v1/sessions/" + s, "GET /v1/sessions/" + s + "/leases/db",
		"PUT /v1/sessions/" + s + "/leases/db", "DELETE /v1/sessions/" + s + "/leases/db"} {
		a.do(line, "").refusedWith(410, "revoked", "reason=maintenance")
	}
	a.do("DELETE /v1/sessions/"+s, "").is(204)
}

// TestRevokedSessionEndsItsWaits: who waits is told at once, of whatever kind the
// wait is.
func TestRevokedSessionEndsItsWaits(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.must(201, "PUT /v1/semaphores/other", `{"permits":1}`)
	a.must(201, "POST /v1/semaphores/db/leases", "")
	single, list := a.open("1h"), a.open("1h")
	waits := []<-chan reply{
		a.goDo("PUT /v1/sessions/"+single+"/leases/db?wait=60s", ""),
		a.goDo("POST /v1/sessions/"+list+"/acquire?wait=60s", `{"semaphores":[{"name":"other"},{"name":"db"}],"mode":"all"}`),
		a.goDo("POST /v1/semaphores/db/leases", `{"wait":"60s"}`),
		a.goDo("POST /v1/semaphores/db/down", `{"wait":"60s"}`),
	}
	a.node.awaitWaits(len(waits))
	found := a.must(200, "GET /v1/semaphores/db", "").is(200, "waiters.length=4")
	for i := range waits {
		a.must(204, "POST /v1/sessions/"+found.member("waiters."+string(rune('0'+i))+".session")+"/revoke", `{"reason":"drill"}`)
	}
	for _, wait := range waits {
		(<-wait).refusedWith(410, "revoked", "reason=drill")
	}
	a.do("GET /v1/semaphores/db", "").is(200, "waiter_count=0")
}
