package httpapi

import (
	"strings"
	"testing"
)

func TestPut(t *testing.T) {
	a := newTestAPI(t)
	got := a.do("PUT /v1/semaphores/a%2Fb", `{"permits":3,"level":2,"metadata":{"z":"1","a":"<&>"}}`)
	got.is(201, "name=a/b", "permits=3", "offset=0", "held=0", "available=3", "level=2", "metadata.z=1", "metadata.a=<&>",
		"epoch=1", "modified_index=1", "holder_count=0", "waiter_count=0", "holders=absent")
	if got.header.Get("Location") != "/v1/semaphores/a%2Fb" || got.header.Get("X-Signalbox-Index") != "1" {
		t.Errorf("head %v", got.header)
	}
	a.do("PUT /v1/semaphores/a%2Fb", `{"permits":5}`).is(200, "permits=5", "level=2", "metadata.z=1")
	a.do("PUT /v1/semaphores/a%2Fb", `{"level":null}`).is(200, "permits=5", "level=null", "metadata.z=1")
	a.do("PUT /v1/semaphores/a%2Fb", `{"metadata":null}`).is(200, "permits=5", "metadata={}")
	a.do("PUT /v1/semaphores/a%2Fb", ``).is(200, "permits=5")
	a.do("PUT /v1/semaphores/a%2Fb", `{"permits":9}`, "If-None-Match: *").refusedWith(412, "precondition-failed", "epoch=1", "semaphore=a/b")
	a.do("PUT /v1/semaphores/a%2Fb?epoch=2", `{"permits":9}`).refusedWith(412, "precondition-failed", "epoch=1")
	a.do("PUT /v1/semaphores/a%2Fb?epoch=1", `{"permits":9}`).is(200, "permits=9")
	a.do("PUT /v1/semaphores/new", `{"permits":1}`, "If-None-Match: *").is(201)
	a.do("PUT /v1/semaphores/none", `{}`).refusedWith(400, "invalid-request", "field=permits")
	a.do("PUT /v1/semaphores/none?epoch=4", `{"permits":1}`).refusedWith(404, "unknown-semaphore")
	a.do("PUT /v1/semaphores/new", `{"permits":9223372036854775807}`).is(200, "permits=9223372036854775807")
	a.do("POST /v1/semaphores/new/up", ``).refusedWith(409, "overflow")
}

func TestCreate(t *testing.T) {
	a := newTestAPI(t)
	a.do("POST /v1/semaphores", `{"name":"db","permits":2}`).is(201, "created=true", "epoch=1", "permits=2")
	a.do("POST /v1/semaphores", `{"name":"db","permits":7}`).is(200, "created=false", "epoch=1", "permits=2")
	a.do("POST /v1/semaphores", `{"permits":7}`).refusedWith(400, "invalid-request", "field=name")
	a.do("POST /v1/semaphores", `{"name":"x"}`).refusedWith(400, "invalid-request", "field=permits")
	a.do("POST /v1/semaphores", `{"semaphore":"x","permits":1}`).refusedWith(400, "invalid-request", "field=semaphore")
}

func TestUnowned(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/jobs", `{"permits":0}`)
	a.do("POST /v1/semaphores/jobs/up", ``).is(200, "value=1")
	a.do("POST /v1/semaphores/jobs/up", `{"count":4}`).is(200, "value=5")
	a.do("POST /v1/semaphores/jobs/down", ``).is(200, "granted=1", "value=4")
	got := a.do("POST /v1/semaphores/jobs/down", `{"count":9}`)
	got.refusedWith(409, "unavailable", "available=4", "queue_length=0", "count=9")
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After with unavailable")
	}
	a.do("POST /v1/semaphores/jobs/down", `{"count":9,"partial":true}`).is(200, "granted=4", "value=0")
	a.do("POST /v1/semaphores/jobs/down", `{"count":9,"partial":true}`).is(200, "granted=0", "value=0")
	a.do("PUT /v1/semaphores/jobs/value", `{"value":7}`).is(200, "value=7")
	a.do("PUT /v1/semaphores/jobs/value", ``).refusedWith(400, "invalid-request", "field=value")
	a.do("POST /v1/semaphores/jobs/up", `{"count":0}`).refusedWith(400, "invalid-request", "field=count")
	a.do("POST /v1/semaphores/none/up", `{"count":0}`).refusedWith(404, "unknown-semaphore", "semaphore=none")
	a.do("POST /v1/semaphores/jobs/up?epoch=3", ``).refusedWith(412, "precondition-failed", "epoch=1")
}

func TestDownWaits(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/jobs", `{"permits":0}`)
	waiting := a.goDo("POST /v1/semaphores/jobs/down?wait=10s", `{"count":2}`)
	a.node.awaitWaits(1)
	a.do("GET /v1/semaphores/jobs", "").is(200, "waiter_count=1", "waiters.0.unowned=true", "waiters.0.count=2",
		"waiters.0.blocked_by=not-enough-available")
	a.do("POST /v1/semaphores/jobs/up", `{"count":3}`).is(200, "value=1")
	(<-waiting).is(200, "granted=2", "value=1")

	for _, c := range []struct {
		body   string
		status int
		member string
	}{
		{`{"count":2,"wait":"10s"}`, 409, "code=unavailable"},
		{`{"count":2,"wait":10000,"partial":true}`, 200, "granted=0"},
	} {
		a.do("PUT /v1/semaphores/jobs/value", `{"value":0}`).is(200)
		waiting = a.goDo("POST /v1/semaphores/jobs/down", c.body)
		a.node.awaitWaits(1)
		a.node.advance(9_999)
		a.node.awaitWaits(1)
		a.node.advance(1)
		(<-waiting).is(c.status, c.member)
	}
	waiting = a.goDo("POST /v1/semaphores/jobs/down", `{"wait":"10s"}`)
	a.node.awaitWaits(1)
	a.do("DELETE /v1/semaphores/jobs", "").is(204)
	(<-waiting).refusedWith(410, "deleted", "semaphore=jobs")
}

func TestDelete(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.do("DELETE /v1/semaphores/db?epoch=9", "").refusedWith(412, "precondition-failed", "epoch=1")
	if got := a.do("DELETE /v1/semaphores/db?epoch=1", "").is(204); got.text != "" {
		t.Errorf("204 with a body %q", got.text)
	}
	a.do("DELETE /v1/semaphores/db", "").refusedWith(404, "unknown-semaphore")
	a.do("GET /v1/semaphores/db", "").refusedWith(404, "unknown-semaphore")
}

func TestListSemaphores(t *testing.T) {
	a := newTestAPI(t)
	a.do("GET /v1/semaphores", "").is(200, "semaphores=[]", "next=null")
	for _, name := range []string{"a", "job/1", "job/2", "job/3", "z"} {
		a.must(201, "POST /v1/semaphores", `{"name":"`+name+`","permits":1}`)
	}
	a.do("GET /v1/semaphores", "").is(200, "semaphores.length=5", "semaphores.4.name=z", "next=null", "semaphores.0.holders=absent")
	got := a.do("GET /v1/semaphores?prefix=job/&limit=2", "")
	got.is(200, "semaphores.length=2", "semaphores.0.name=job/1", "semaphores.1.name=job/2")
	a.do("GET /v1/semaphores?prefix=job/&limit=2&cursor="+got.member("next"), "").
		is(200, "semaphores.length=1", "semaphores.0.name=job/3", "next=null")
	a.do("GET /v1/semaphores?limit=5", "").is(200, "next=null")
	a.do("GET /v1/semaphores?limit=1001", "").refusedWith(400, "invalid-request", "field=limit")
	a.do("GET /v1/semaphores?cursor=AAAA", "").refusedWith(400, "invalid-request", "field=cursor")
	a.do("GET /v1/semaphores?cursor="+sessionCursor(7), "").refusedWith(400, "invalid-request", "field=cursor")
}

func TestGetSemaphoreShowsHoldersAndWaiters(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	holder := a.must(201, "POST /v1/semaphores/db/leases", `{"ttl":"30s","metadata":{"who":"me"}}`).member("session")
	for range 3 {
		s := a.must(201, "POST /v1/sessions", `{"ttl":"1h"}`).member("session")
		a.must(202, "PUT /v1/sessions/"+s+"/leases/db", "")
	}
	a.node.advance(1500)
	a.do("GET /v1/semaphores/db?waiters=2", "").is(200, "holder_count=1", "waiter_count=3", "held=1", "available=0",
		"holders.length=1", "holders.0.session="+holder, "holders.0.count=1", "holders.0.token=1", "holders.0.held_ms=1500",
		"holders.0.expires_in_ms=28500", "holders.0.metadata.who=me", "waiters.length=2", "waiters.0.position=1",
		"waiters.0.waiting_ms=1500", "waiters.0.blocked_by=not-enough-available", "waiters.1.blocked_by=behind-others",
		"waiters.1.position=2", "waiters.1.metadata={}")
	a.do("GET /v1/semaphores/db?holders=0&waiters=0", "").is(200, "holders=[]", "waiters=[]", "waiter_count=3")
	a.do("GET /v1/semaphores/db?holders=1001", "").refusedWith(400, "invalid-request", "field=holders")
	a.do("GET /v1/semaphores/db?epoch=2", "").refusedWith(412, "precondition-failed", "epoch=1")
}

func TestNamesInPaths(t *testing.T) {
	a := newTestAPI(t)
	for path, name := range map[string]string{
		"A": "A", "%2F%26": "/&", "J(3)": "J(3)", "%5ERem2(%2222%22)": `^Rem2("22")`, "a%20b": "a b", "%2e%2e": "..", ".": ".",
		"__proto__": "__proto__", "a%2541": "a%41", "a+b": "a+b", "%C3%A9": "é", "e%CC%81": "e\u0301", "%2F": "/", "a%2Fvalue": "a/value",
		"%E2%80%A8": "\u2028", "a;b=c": "a;b=c", strings.Repeat("n", 512): strings.Repeat("n", 512),
	} {
		t.Run(path[:min(len(path), 20)], func(t *testing.T) {
			b := &testAPI{t, a.node, a.handler}
			b.do("PUT /v1/semaphores/"+path, `{"permits":1}`).is(201, "name="+name)
			b.do("POST /v1/semaphores", `{"name":`+string(appendText(nil, name))+`,"permits":1}`).is(200, "created=false")
			b.do("POST /v1/semaphores/"+path+"/leases", "").is(201, "semaphore="+name)
			location := semaphorePath(name)
			b.do("GET "+location, "").is(200, "name="+name, "held=1")
			b.do("DELETE /v1/semaphores/"+path, "").is(204)
		})
	}
	a.must(201, "PUT /v1/semaphores/A", `{"permits":1}`)
	for _, same := range []string{"/v1/semaphores/%41", "/v1/%73emaphores/A", "/%76%31/semaphores/%41"} {
		a.do("GET "+same, "").is(200, "name=A")
	}
}

// A wait of nothing is taken in every spelling, alike in a body and in a query.
func TestNoWaitInEverySpelling(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	for _, zero := range []string{`0`, `"0"`, `"0s"`, `"0h0m"`} {
		a.do("POST /v1/semaphores/db/down", `{"wait":`+zero+`}`).refusedWith(409, "unavailable")
		a.do("POST /v1/semaphores/db/down?wait="+strings.Trim(zero, `"`), "").refusedWith(409, "unavailable")
	}
	for _, bad := range []string{"00", "-0", "+0", "0x0", "0.0"} {
		a.do("POST /v1/semaphores/db/down", `{"wait":"`+bad+`"}`).refusedWith(400, "invalid-request", "field=wait")
		a.do("POST /v1/semaphores/db/down?wait="+bad, "").refusedWith(400, "invalid-request", "field=wait")
	}
	a.do("GET /v1/semaphores/db", "", "Idempotency-Key: 0123456789abcdef").is(200) // a read may be repeated anyhow
}
