package v1_test

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestPut(t *testing.T) {
	a := apitest.New(t)
	got := a.Do("PUT /v1/semaphores/a%2Fb", `{"permits":3,"level":2,"metadata":{"z":"1","a":"<&>"}}`)
	got.Is(201, "name=a/b", "permits=3", "offset=0", "held=0", "available=3", "level=2", "metadata.z=1", "metadata.a=<&>",
		"epoch=1", "modified_index=1", "holder_count=0", "waiter_count=0", "holders=absent")
	if got.Header.Get("Location") != "/v1/semaphores/a%2Fb" || got.Header.Get("X-Signalbox-Index") != "1" {
		t.Errorf("head %v", got.Header)
	}
	a.Do("PUT /v1/semaphores/a%2Fb", `{"permits":5}`).Is(200, "permits=5", "level=2", "metadata.z=1")
	a.Do("PUT /v1/semaphores/a%2Fb", `{"level":null}`).Is(200, "permits=5", "level=null", "metadata.z=1")
	a.Do("PUT /v1/semaphores/a%2Fb", `{"metadata":null}`).Is(200, "permits=5", "metadata={}")
	a.Do("PUT /v1/semaphores/a%2Fb", ``).Is(200, "permits=5")
	a.Do("PUT /v1/semaphores/a%2Fb", `{"permits":9}`, "If-None-Match: *").RefusedWith(412, "precondition-failed", "epoch=1", "semaphore=a/b")
	a.Do("PUT /v1/semaphores/a%2Fb?epoch=2", `{"permits":9}`).RefusedWith(412, "precondition-failed", "epoch=1")
	a.Do("PUT /v1/semaphores/a%2Fb?epoch=1", `{"permits":9}`).Is(200, "permits=9")
	a.Do("PUT /v1/semaphores/new", `{"permits":1}`, "If-None-Match: *").Is(201)
	a.Do("PUT /v1/semaphores/none", `{}`).RefusedWith(400, "invalid-request", "field=permits")
	a.Do("PUT /v1/semaphores/none?epoch=4", `{"permits":1}`).RefusedWith(404, "unknown-semaphore")
	a.Do("PUT /v1/semaphores/new", `{"permits":9223372036854775807}`).Is(200, "permits=9223372036854775807")
	a.Do("POST /v1/semaphores/new/up", ``).RefusedWith(409, "overflow")
}

func TestCreate(t *testing.T) {
	a := apitest.New(t)
	a.Do("POST /v1/semaphores", `{"name":"db","permits":2}`).Is(201, "created=true", "epoch=1", "permits=2")
	a.Do("POST /v1/semaphores", `{"name":"db","permits":7}`).Is(200, "created=false", "epoch=1", "permits=2")
	a.Do("POST /v1/semaphores", `{"permits":7}`).RefusedWith(400, "invalid-request", "field=name")
	a.Do("POST /v1/semaphores", `{"name":"x"}`).RefusedWith(400, "invalid-request", "field=permits")
	a.Do("POST /v1/semaphores", `{"semaphore":"x","permits":1}`).RefusedWith(400, "invalid-request", "field=semaphore")
}

func TestUnowned(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/jobs", `{"permits":0}`)
	a.Do("POST /v1/semaphores/jobs/up", ``).Is(200, "value=1")
	a.Do("POST /v1/semaphores/jobs/up", `{"count":4}`).Is(200, "value=5")
	a.Do("POST /v1/semaphores/jobs/down", ``).Is(200, "granted=1", "value=4")
	got := a.Do("POST /v1/semaphores/jobs/down", `{"count":9}`)
	got.RefusedWith(409, "unavailable", "available=4", "queue_length=0", "count=9")
	if got.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After with unavailable")
	}
	a.Do("POST /v1/semaphores/jobs/down", `{"count":9,"partial":true}`).Is(200, "granted=4", "value=0")
	a.Do("POST /v1/semaphores/jobs/down", `{"count":9,"partial":true}`).Is(200, "granted=0", "value=0")
	a.Do("PUT /v1/semaphores/jobs/value", `{"value":7}`).Is(200, "value=7")
	a.Do("PUT /v1/semaphores/jobs/value", ``).RefusedWith(400, "invalid-request", "field=value")
	a.Do("POST /v1/semaphores/jobs/up", `{"count":0}`).RefusedWith(400, "invalid-request", "field=count")
	a.Do("POST /v1/semaphores/none/up", `{"count":0}`).RefusedWith(404, "unknown-semaphore", "semaphore=none")
	a.Do("POST /v1/semaphores/jobs/up?epoch=3", ``).RefusedWith(412, "precondition-failed", "epoch=1")
}

func TestDownWaits(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/jobs", `{"permits":0}`)
	waiting := a.GoDo("POST /v1/semaphores/jobs/down?wait=10s", `{"count":2}`)
	a.Node.AwaitWaits(1)
	a.Do("GET /v1/semaphores/jobs", "").Is(200, "waiter_count=1", "waiters.0.unowned=true", "waiters.0.count=2",
		"waiters.0.blocked_by=not-enough-available")
	a.Do("POST /v1/semaphores/jobs/up", `{"count":3}`).Is(200, "value=1")
	(<-waiting).Is(200, "granted=2", "value=1")

	for _, c := range []struct {
		body   string
		status int
		member string
	}{
		{`{"count":2,"wait":"10s"}`, 409, "code=unavailable"},
		{`{"count":2,"wait":10000,"partial":true}`, 200, "granted=0"},
	} {
		a.Do("PUT /v1/semaphores/jobs/value", `{"value":0}`).Is(200)
		waiting = a.GoDo("POST /v1/semaphores/jobs/down", c.body)
		a.Node.AwaitWaits(1)
		a.Node.Advance(9_999)
		a.Node.AwaitWaits(1)
		a.Node.Advance(1)
		(<-waiting).Is(c.status, c.member)
	}
	waiting = a.GoDo("POST /v1/semaphores/jobs/down", `{"wait":"10s"}`)
	a.Node.AwaitWaits(1)
	a.Do("DELETE /v1/semaphores/jobs", "").Is(204)
	(<-waiting).RefusedWith(410, "deleted", "semaphore=jobs")
}

func TestDelete(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.Do("DELETE /v1/semaphores/db?epoch=9", "").RefusedWith(412, "precondition-failed", "epoch=1")
	if got := a.Do("DELETE /v1/semaphores/db?epoch=1", "").Is(204); got.Text != "" {
		t.Errorf("204 with a body %q", got.Text)
	}
	a.Do("DELETE /v1/semaphores/db", "").RefusedWith(404, "unknown-semaphore")
	a.Do("GET /v1/semaphores/db", "").RefusedWith(404, "unknown-semaphore")
}

func TestListSemaphores(t *testing.T) {
	a := apitest.New(t)
	a.Do("GET /v1/semaphores", "").Is(200, "semaphores=[]", "next=null")
	for _, name := range []string{"a", "job/1", "job/2", "job/3", "z"} {
		a.Must(201, "POST /v1/semaphores", `{"name":"`+name+`","permits":1}`)
	}
	a.Do("GET /v1/semaphores", "").Is(200, "semaphores.length=5", "semaphores.4.name=z", "next=null", "semaphores.0.holders=absent")
	got := a.Do("GET /v1/semaphores?prefix=job/&limit=2", "")
	got.Is(200, "semaphores.length=2", "semaphores.0.name=job/1", "semaphores.1.name=job/2")
	a.Do("GET /v1/semaphores?prefix=job/&limit=2&cursor="+got.Member("next"), "").
		Is(200, "semaphores.length=1", "semaphores.0.name=job/3", "next=null")
	a.Do("GET /v1/semaphores?limit=5", "").Is(200, "next=null")
	a.Do("GET /v1/semaphores?limit=1001", "").RefusedWith(400, "invalid-request", "field=limit")
	a.Do("GET /v1/semaphores?cursor=AAAA", "").RefusedWith(400, "invalid-request", "field=cursor")
	a.Do("GET /v1/semaphores?cursor="+"cwAAAAAAAAAH", "").RefusedWith(400, "invalid-request", "field=cursor")
}

func TestGetSemaphoreShowsHoldersAndWaiters(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	holder := a.Must(201, "POST /v1/semaphores/db/leases", `{"ttl":"30s","metadata":{"who":"me"}}`).Member("session")
	for range 3 {
		s := a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`).Member("session")
		a.Must(202, "PUT /v1/sessions/"+s+"/leases/db", "")
	}
	a.Node.Advance(1500)
	a.Do("GET /v1/semaphores/db?waiters=2", "").Is(200, "holder_count=1", "waiter_count=3", "held=1", "available=0",
		"holders.length=1", "holders.0.session="+holder, "holders.0.count=1", "holders.0.token=1", "holders.0.held_ms=1500",
		"holders.0.expires_in_ms=28500", "holders.0.metadata.who=me", "waiters.length=2", "waiters.0.position=1",
		"waiters.0.waiting_ms=1500", "waiters.0.blocked_by=not-enough-available", "waiters.1.blocked_by=behind-others",
		"waiters.1.position=2", "waiters.1.metadata={}")
	a.Do("GET /v1/semaphores/db?holders=0&waiters=0", "").Is(200, "holders=[]", "waiters=[]", "waiter_count=3")
	a.Do("GET /v1/semaphores/db?holders=1001", "").RefusedWith(400, "invalid-request", "field=holders")
	a.Do("GET /v1/semaphores/db?epoch=2", "").RefusedWith(412, "precondition-failed", "epoch=1")
}

func TestNamesInPaths(t *testing.T) {
	a := apitest.New(t)
	for path, name := range map[string]string{
		"A": "A", "%2F%26": "/&", "J(3)": "J(3)", "%5ERem2(%2222%22)": `^Rem2("22")`, "a%20b": "a b", "%2e%2e": "..", ".": ".",
		"__proto__": "__proto__", "a%2541": "a%41", "a+b": "a+b", "%C3%A9": "é", "e%CC%81": "e\u0301", "%2F": "/", "a%2Fvalue": "a/value",
		"%E2%80%A8": "\u2028", "a;b=c": "a;b=c", strings.Repeat("n", 512): strings.Repeat("n", 512),
	} {
		t.Run(path[:min(len(path), 20)], func(t *testing.T) {
			b := &apitest.API{T: t, Node: a.Node, Handler: a.Handler}
			b.Do("PUT /v1/semaphores/"+path, `{"permits":1}`).Is(201, "name="+name)
			b.Do("POST /v1/semaphores", `{"name":`+string(exchange.AppendText(nil, name))+`,"permits":1}`).Is(200, "created=false")
			b.Do("POST /v1/semaphores/"+path+"/leases", "").Is(201, "semaphore="+name)
			location := exchange.SemaphorePath(name)
			b.Do("GET "+location, "").Is(200, "name="+name, "held=1")
			b.Do("DELETE /v1/semaphores/"+path, "").Is(204)
		})
	}
	a.Must(201, "PUT /v1/semaphores/A", `{"permits":1}`)
	for _, same := range []string{"/v1/semaphores/%41", "/v1/%73emaphores/A", "/%76%31/semaphores/%41"} {
		a.Do("GET "+same, "").Is(200, "name=A")
	}
}

// A wait of nothing is taken in every spelling, alike in a body and in a query.
func TestNoWaitInEverySpelling(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	for _, zero := range []string{`0`, `"0"`, `"0s"`, `"0h0m"`} {
		a.Do("POST /v1/semaphores/db/down", `{"wait":`+zero+`}`).RefusedWith(409, "unavailable")
		a.Do("POST /v1/semaphores/db/down?wait="+strings.Trim(zero, `"`), "").RefusedWith(409, "unavailable")
	}
	for _, bad := range []string{"00", "-0", "+0", "0x0", "0.0"} {
		a.Do("POST /v1/semaphores/db/down", `{"wait":"`+bad+`"}`).RefusedWith(400, "invalid-request", "field=wait")
		a.Do("POST /v1/semaphores/db/down?wait="+bad, "").RefusedWith(400, "invalid-request", "field=wait")
	}
	a.Do("GET /v1/semaphores/db", "", "Idempotency-Key: 0123456789abcdef").Is(200) // a read may be repeated anyhow
}

func TestPatch(t *testing.T) {
	a := apitest.New(t)
	a.Do("PATCH /v1/semaphores/db", `{"permits":3}`).RefusedWith(404, "unknown-semaphore", "semaphore=db")
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":3,"level":2}`)
	a.Do("PATCH /v1/semaphores/db", `{"metadata":{"a":"b"}}`).Is(200, "permits=3", "level=2", "metadata.a=b", "settings=2")
	a.Do("PATCH /v1/semaphores/db", `{"level":null}`).Is(200, "permits=3", "level=null", "metadata.a=b", "settings=3")
	a.Do("PATCH /v1/semaphores/db", ``).Is(200, "settings=3")
	a.Do("PATCH /v1/semaphores/db", `{"value":3}`).RefusedWith(400, "invalid-request", "field=value")
	a.Do("PATCH /v1/semaphores/db?epoch=9", `{"permits":4}`).RefusedWith(412, "precondition-failed", "epoch=1")
	a.Do("PATCH /v1/semaphores/db", `{"permits":4}`, "If-None-Match: *").RefusedWith(400, "invalid-request", "field=If-None-Match")
	a.Do("POST /v1/batch", `{"operations":[{"op":"patch","semaphore":"db","permits":5},{"op":"patch","semaphore":"no","permits":5}]}`).
		Is(200, "results.0.body.permits=5", "results.1.status=404")
	a.Do("PATCH /v1/semaphores/db", `{"permits":5}`).Is(200)
	a.Node.Fail = outcome.ErrBelowLevel
	a.Do("PATCH /v1/semaphores/db", `{"permits":4}`).RefusedWith(409, "level-too-low")
}

// The ETag moves with permits, level and metadata alone, and each route of one semaphore
// that changes it heeds If-Match.
func TestIfMatch(t *testing.T) {
	a := apitest.New(t)
	tag := func(want string) {
		t.Helper()
		for _, method := range []string{"GET", "HEAD"} {
			if got := a.Do(method+" /v1/semaphores/db", "").Header.Get("ETag"); got != want {
				t.Errorf("%s: ETag %s, want %s", method, got, want)
			}
		}
	}
	put := func(body string) string { return a.Do("PUT /v1/semaphores/db", body).Header.Get("ETag") }
	if made, moved, same := put(`{"permits":3}`), put(`{"permits":4}`), put(`{"permits":4}`); made != `"1.1"` || moved != `"1.2"` || same != `"1.2"` {
		t.Errorf("ETags %s, %s, %s", made, moved, same)
	}
	a.Do("POST /v1/semaphores/db/up", "").Is(200)
	a.Do("POST /v1/semaphores/db/leases", "").Is(201)
	a.Do("PUT /v1/semaphores/db/value", `{"value":9}`).Is(200)
	tag(`"1.2"`)
	if got := a.Do("POST /v1/semaphores", `{"name":"db","permits":1}`).Is(200).Header.Get("ETag"); got != `"1.2"` {
		t.Errorf("POST: %s", got)
	}

	for _, method := range []string{"PUT", "PATCH", "DELETE"} {
		body := `{"permits":8}`
		if method == "DELETE" {
			body = ""
		}
		line := method + " /v1/semaphores/db"
		a.Do(line, body, `If-Match: "1.1"`).RefusedWith(412, "precondition-failed", "settings=2", "semaphore=db")
		a.Do(line, body, `If-Match: "2.2"`).RefusedWith(412, "precondition-failed", "epoch=1")
		a.Do(line+"?epoch=1", body, `If-Match: "1.2"`).RefusedWith(400, "invalid-request", "field=epoch")
		for _, bad := range []string{`"1.2`, `1.2`, `*`, `""`, `"1"`, `"1.0"`, `"01.2"`, `W/"1.2"`, `"1.2", "1.3"`} {
			a.Do(line, body, "If-Match: "+bad).RefusedWith(400, "invalid-request", "field=If-Match")
		}
		a.Do(line, body, `If-Match: "1.2"`, `If-Match: "1.2"`).RefusedWith(400, "invalid-request", "field=If-Match")
	}
	tag(`"1.2"`)
	a.Do("PUT /v1/semaphores/db", `{"permits":5}`, `If-Match: "1.2"`).Is(200, "settings=3", "permits=5")
	a.Do("PATCH /v1/semaphores/db", `{"level":7}`, `If-Match: "1.3"`).Is(200, "settings=4", "permits=5")
	a.Do("POST /v1/batch", `{"operations":[{"op":"put","semaphore":"db","permits":1,"if_match":"1.3"},{"op":"delete","semaphore":"db","if_match":"\"1.4\""}]}`).
		Is(200, "results.0.status=412", "results.0.body.settings=4", "results.1.status=400", "results.1.body.field=if_match")
	a.Do("DELETE /v1/semaphores/db", "", `If-Match: "1.4"`).Is(204)
	// A PUT alone would have made one, so that its condition decides.
	a.Do("PUT /v1/semaphores/db", `{"permits":8}`, `If-Match: "1.4"`).RefusedWith(412, "precondition-failed", "semaphore=db")
	a.Do("PATCH /v1/semaphores/db", `{"permits":8}`, `If-Match: "1.4"`).RefusedWith(404, "unknown-semaphore")
	a.Do("DELETE /v1/semaphores/db", "", `If-Match: "1.4"`).RefusedWith(404, "unknown-semaphore")
	a.Do("POST /v1/batch", `{"operations":[{"op":"put","semaphore":"db","permits":1,"if_match":"1.4"},{"op":"patch","semaphore":"db","permits":1,"if_match":"1.4"}]}`).
		Is(200, "results.0.status=412", "results.0.body.code=precondition-failed", "results.1.status=404")
	for _, line := range []string{"GET /v1/semaphores/db", "POST /v1/semaphores/db/up", "POST /v1/semaphores"} {
		a.Do(line, "", `If-Match: "1.4"`).RefusedWith(400, "invalid-request", "field=If-Match")
	}
}
