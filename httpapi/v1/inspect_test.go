package v1_test

import (
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
)

// TestWaitersTellWhyTheyWait: each rule of waiting has its code, its sentence and
// its numbers.
func TestWaitersTellWhyTheyWait(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/a", `{"permits":3}`)
	a.Must(201, "PUT /v1/semaphores/b", `{"permits":1}`)
	a.Must(201, "PUT /v1/semaphores/c", `{"permits":1}`)
	holder := a.Open("1h")
	a.Must(200, "PUT /v1/sessions/"+holder+"/leases/a", `{"count":2}`)
	a.Must(200, "PUT /v1/sessions/"+holder+"/leases/b", "")
	a.Must(200, "PUT /v1/sessions/"+holder+"/leases/c", "")

	two, all, last := a.Open("10s"), a.Open("1h"), a.Open("1h")
	a.Must(202, "PUT /v1/sessions/"+two+"/leases/a", `{"count":2}`)
	a.Must(202, "PUT /v1/sessions/"+last+"/leases/a", "")
	a.Must(202, "PUT /v1/sessions/"+a.Open("1h")+"/leases/a", "")
	a.Node.Advance(1500)
	a.Do("GET /v1/semaphores/a", "").Is(200, "waiters.length=3",
		"waiters.0.session="+two, "waiters.0.count=2", "waiters.0.position=1", "waiters.0.waiting_ms=1500", "waiters.0.expires_in_ms=8500",
		"waiters.0.blocked_by=not-enough-available", "waiters.0.reason=It needs 2, 1 available.",
		`waiters.0.obstacles=[{"available":1,"blocked_by":"not-enough-available","needs":2,"semaphore":"a"}]`,
		"waiters.1.blocked_by=behind-others", "waiters.1.reason=The one before it in the line comes first.",
		`waiters.1.obstacles=[{"available":1,"blocked_by":"behind-others","needs":1,"semaphore":"a"}]`,
		"waiters.2.reason=2 before it in the line come first.")
	a.Must(204, "DELETE /v1/sessions/"+two, "")
	a.Do("GET /v1/sessions/"+last+"/leases/a", "").Is(200)

	a.Must(204, "DELETE /v1/sessions/"+holder+"/leases/a", "")
	a.Must(202, "POST /v1/sessions/"+all+"/acquire", `{"semaphores":[{"name":"a"},{"name":"b"},{"name":"c"}],"mode":"all"}`)
	a.Do("GET /v1/semaphores/a", "").Is(200, "available=1", "waiters.0.session="+all, "waiters.0.blocked_by=other-semaphore",
		"waiters.0.reason=It waits for the other semaphores of its list, see obstacles.",
		`waiters.0.obstacles=[{"available":0,"blocked_by":"not-enough-available","needs":1,"semaphore":"b"},`+
			`{"available":0,"blocked_by":"not-enough-available","needs":1,"semaphore":"c"}]`)
	a.Must(204, "DELETE /v1/sessions/"+holder+"/leases/c", "")
	a.Do("GET /v1/sessions/"+all, "").Is(200, "waiting.0.blocked_by=other-semaphore",
		`waiting.0.reason=It waits for "b", another semaphore of its list.`, "waiting.0.obstacles.length=1")
	a.Must(200, "PUT /v1/semaphores/b", `{"permits":0}`) // ends who could never be served
	a.Do("GET /v1/semaphores/a", "").Is(200, "waiter_count=0")

	drained := a.GoDo("POST /v1/semaphores/b/down", `{"wait":"5s"}`)
	a.Node.AwaitWaits(1)
	a.Do("GET /v1/semaphores/b", "").Is(200, "available=-1", "waiters.0.unowned=true",
		"waiters.0.reason=It needs 1, and 1 more are held than there are permits.")
	a.Must(204, "DELETE /v1/sessions/"+holder+"/leases/b", "")
	partly := a.GoDo("POST /v1/semaphores/b/down", `{"wait":"5s","count":9,"partial":true}`)
	a.Node.AwaitWaits(2)
	a.Do("GET /v1/semaphores/b", "").Is(200, "waiters.0.reason=It needs 1, 0 available.", "waiters.0.obstacles.0.needs=1")
	a.Must(200, "POST /v1/semaphores/b/up", "")
	(<-drained).Is(200, "granted=1")
	a.Do("GET /v1/semaphores/b", "").Is(200, "waiters.0.reason=Nothing is available.", "waiters.0.obstacles.0.needs=9")
	a.Must(200, "POST /v1/semaphores/b/up", "")
	(<-partly).Is(200, "granted=1")
}

// TestRevokedLeaseTellsItsVictim: every call on it, until it is let go.
func TestRevokedLeaseTellsItsVictim(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":2}`)
	a.Must(201, "PUT /v1/semaphores/other", `{"permits":1}`)
	s := a.Open("1h")
	a.Must(200, "PUT /v1/sessions/"+s+"/leases/db", `{"count":2}`)
	watching := a.GoDo("GET /v1/semaphores/db?index=4&wait=60s", "")
	a.Node.AwaitWatcher("db")
	a.Must(204, "DELETE /v1/semaphores/db/holders/"+s+"?reason=too%20slow", "")
	(<-watching).Is(200, "held=0", "holders.0.revoked=true", "holders.0.reason=too slow")
	a.Must(204, "DELETE /v1/semaphores/db/holders/"+s+"?reason=another", "") // the first reason stays

	lease := "/v1/sessions/" + s + "/leases/db"
	for line, body := range map[string]string{
		"GET " + lease: "", "PUT " + lease: `{"count":2,"wait":"5s"}`, "PUT " + lease + "?try=true": "", "PATCH " + lease: `{"count":1}`,
		"POST /v1/sessions/" + s + "/acquire": `{"semaphores":[{"name":"other"},{"name":"db"}],"mode":"any"}`,
	} {
		a.Do(line, body).RefusedWith(410, "revoked", "reason=too slow", "semaphore=db")
	}
	a.Do("PUT /v1/sessions/"+s, "").Is(200) // the session lives
	a.Do("GET /v1/sessions/"+s, "").Is(200, "leases.0.revoked=true", "leases.0.reason=too slow")
	a.Do("GET /v1/semaphores/other", "").Is(200, "held=0")
	a.Do("DELETE "+lease, "").Is(204) // it is let go
	a.Do("GET "+lease, "").RefusedWith(404, "not-held")
	a.Do("PUT "+lease, "").Is(200, "token=2")
}

// TestRevokedOneShotTellsItsVictim: its session ends with its lease.
func TestRevokedOneShotTellsItsVictim(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	s := a.Must(201, "POST /v1/semaphores/db/leases", "").Member("session")
	a.Must(204, "DELETE /v1/semaphores/db/holders/"+s+"?reason=maintenance", "")
	for _, line := range []string{"GET /v1/sessions/" + s, "PUT /v1/sessions/" + s, "GET /v1/sessions/" + s + "/leases/db",
		"PUT /v1/sessions/" + s + "/leases/db", "DELETE /v1/sessions/" + s + "/leases/db"} {
		a.Do(line, "").RefusedWith(410, "revoked", "reason=maintenance")
	}
	a.Do("DELETE /v1/sessions/"+s, "").Is(204)
}

// TestRevokedSessionEndsItsWaits: waiting calls of every kind get their replies at once.
func TestRevokedSessionEndsItsWaits(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.Must(201, "PUT /v1/semaphores/other", `{"permits":1}`)
	a.Must(201, "POST /v1/semaphores/db/leases", "")
	single, list := a.Open("1h"), a.Open("1h")
	waits := []<-chan apitest.Reply{
		a.GoDo("PUT /v1/sessions/"+single+"/leases/db?wait=60s", ""),
		a.GoDo("POST /v1/sessions/"+list+"/acquire?wait=60s", `{"semaphores":[{"name":"other"},{"name":"db"}],"mode":"all"}`),
		a.GoDo("POST /v1/semaphores/db/leases", `{"wait":"60s"}`),
		a.GoDo("POST /v1/semaphores/db/down", `{"wait":"60s"}`),
	}
	a.Node.AwaitWaits(len(waits))
	found := a.Must(200, "GET /v1/semaphores/db", "").Is(200, "waiters.length=4")
	for i := range waits {
		a.Must(204, "POST /v1/sessions/"+found.Member("waiters."+string(rune('0'+i))+".session")+"/revoke", `{"reason":"drill"}`)
	}
	for _, wait := range waits {
		(<-wait).RefusedWith(410, "revoked", "reason=drill")
	}
	a.Do("GET /v1/semaphores/db", "").Is(200, "waiter_count=0")
}
