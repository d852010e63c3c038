package httpapi

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
)

// open opens a session and answers its id.
func (a *testAPI) open(ttl string) string {
	a.Helper()
	return a.must(201, "POST /v1/sessions", `{"ttl":"`+ttl+`"}`).member("session")
}

func TestAcquireOnce(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":2}`)
	got := a.do("POST /v1/semaphores/db/leases", `{"ttl":"1m30s","metadata":{"k":"v"}}`)
	got.is(201, "semaphore=db", "count=1", "token=1", "expires_in_ms=90000", "waited_ms=0")
	session := got.member("session")
	if got.header.Get("Location") != "/v1/sessions/"+session {
		t.Errorf("Location %q", got.header.Get("Location"))
	}
	a.do("GET /v1/sessions/"+session, "").is(200, "one_shot=true", "metadata.k=v", "leases.0.token=1", "ttl_ms=90000")
	a.do("POST /v1/semaphores/db/leases", "").is(201, "expires_in_ms=30000", "token=2")
	a.do("POST /v1/semaphores/db/leases", "").refusedWith(409, "unavailable", "available=0", "queue_length=0", "permits=2")
	a.do("POST /v1/semaphores/db/leases", `{"count":3}`).refusedWith(409, "never", "most=2", "count=3")
	a.do("POST /v1/semaphores/none/leases", "").refusedWith(404, "unknown-semaphore")
	a.do("DELETE /v1/sessions/"+session, "").is(204)
	a.do("GET /v1/semaphores/db", "").is(200, "held=1")
}

func TestAcquireOnceWaits(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	first := a.must(201, "POST /v1/semaphores/db/leases", "").member("session")
	waiting := a.goDo("POST /v1/semaphores/db/leases", `{"wait":"10s","ttl":5000}`)
	a.node.awaitWaits(1)
	a.node.advance(700)
	a.must(204, "DELETE /v1/sessions/"+first, "")
	(<-waiting).is(201, "token=2", "waited_ms=700", "expires_in_ms=5000")

	waiting = a.goDo("POST /v1/semaphores/db/leases?wait=2s", "")
	a.node.awaitWaits(1)
	a.node.advance(2000)
	(<-waiting).refusedWith(409, "unavailable", "available=0")
	a.do("POST /v1/semaphores/db/leases?wait=2s", `{"wait":"2s"}`).refusedWith(400, "invalid-request", "field=wait")
	a.do("POST /v1/semaphores/db/leases?wait=601s", "").refusedWith(400, "invalid-request", "field=wait")

	waiting = a.goDo("POST /v1/semaphores/db/leases?wait=2s", `{"count":1}`)
	a.node.awaitWaits(1)
	a.must(200, "PUT /v1/semaphores/db", `{"permits":0}`)
	(<-waiting).refusedWith(409, "never")
}

func TestHangUpEndsTheCall(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	a.must(200, "POST /v1/semaphores/db/up", "")
	a.must(201, "POST /v1/semaphores/db/leases", "")
	ctx, hangUp := context.WithCancel(context.Background())
	done := make(chan reply, 1)
	r := httptest.NewRequest("POST", "/v1/semaphores/db/leases", strings.NewReader(`{"wait":"60s"}`)).WithContext(ctx)
	go func() { done <- a.send(r) }()
	a.node.awaitWaits(1)
	hangUp()
	if got := <-done; got.status != statusGone {
		t.Errorf("status %d after a hang-up", got.status)
	}
}

func TestAcquireInSession(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":2}`)
	s1, s2 := a.open("30s"), a.open("30s")
	a.do("PUT /v1/sessions/"+s1+"/leases/db", `{"count":2,"ttl":"1m"}`).is(200, "token=1", "count=2", "expires_in_ms=60000", "session="+s1)
	a.do("PUT /v1/sessions/"+s1+"/leases/db", `{"count":2}`).is(200, "token=1", "expires_in_ms=60000")
	a.do("PUT /v1/sessions/"+s1+"/leases/db", `{"count":1}`).refusedWith(409, "lease-exists", "holding=2", "count=1")
	a.do("PUT /v1/sessions/"+s2+"/leases/db?try=true", "").refusedWith(409, "unavailable")
	a.do("PUT /v1/sessions/"+s2+"/leases/db?try=true&wait=1s", "").refusedWith(400, "invalid-request", "field=try")
	a.do("PUT /v1/sessions/"+s2+"/leases/db", "").is(202, "session="+s2, "semaphore=db", "count=1", "position=1", "waiting_ms=0", "mode=absent")
	waiting := a.goDo("PUT /v1/sessions/"+s2+"/leases/db", `{"wait":"5s"}`)
	a.node.awaitWaits(1)
	a.node.advance(5000)
	(<-waiting).is(202, "position=1", "waiting_ms=5000")
	a.do("GET /v1/sessions/"+s2+"/leases/db", "").is(202, "position=1", "waiting_ms=5000", "semaphore=db", "count=1")
	a.do("PATCH /v1/sessions/"+s1+"/leases/db", `{"count":1}`).is(200, "count=1", "token=1")
	a.do("GET /v1/sessions/"+s2+"/leases/db", "").is(200, "token=2", "expires_in_ms=25000", "waited_ms=0")
	a.do("PATCH /v1/sessions/"+s1+"/leases/db", "").refusedWith(400, "invalid-request", "field=count")
	a.do("PATCH /v1/sessions/"+s1+"/leases/db", `{"count":2}`).refusedWith(409, "lease-exists", "holding=1")
	a.do("DELETE /v1/sessions/"+s1+"/leases/db", "").is(204)
	a.do("DELETE /v1/sessions/"+s1+"/leases/db", "").is(204)
	a.do("GET /v1/sessions/"+s1+"/leases/db", "").refusedWith(404, "not-held")
	a.do("PATCH /v1/sessions/"+s1+"/leases/db", `{"count":1}`).refusedWith(404, "not-held")
	a.do("PUT /v1/sessions/77/leases/db", "").refusedWith(404, "unknown-session", "session=77")
	a.do("PUT /v1/sessions/"+s1+"/leases/none", "").refusedWith(404, "unknown-semaphore")
	a.do("GET /v1/sessions/"+s1+"/leases/none", "").refusedWith(404, "unknown-semaphore")
	a.do("GET /v1/sessions/"+s1+"/leases/db?epoch=9", "").refusedWith(412, "precondition-failed", "epoch=1")
}

func TestWithdrawnByAnotherCall(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.must(201, "POST /v1/semaphores/db/leases", "")
	s := a.open("30s")
	waiting := a.goDo("PUT /v1/sessions/"+s+"/leases/db?wait=10s", "")
	a.node.awaitWaits(1)
	a.must(204, "DELETE /v1/sessions/"+s+"/leases/db", "")
	(<-waiting).refusedWith(409, "unavailable", "reason=withdrawn")
}

func TestHierarchy(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/low", `{"permits":1,"level":1}`)
	a.must(201, "PUT /v1/semaphores/high", `{"permits":1,"level":2}`)
	s := a.open("30s")
	a.must(200, "PUT /v1/sessions/"+s+"/leases/low", "")
	a.do("PUT /v1/sessions/"+s+"/leases/high", "").refusedWith(409, "hierarchy", "rule=holds", "level=2", "lowest_level=1")
	a.do("POST /v1/sessions/"+a.open("1s")+"/acquire", `{"semaphores":[{"name":"low"},{"name":"high"}],"mode":"all"}`).
		refusedWith(400, "invalid-request", "field=semaphores")
}

func TestAcquireMany(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/a", `{"permits":1}`)
	a.must(201, "PUT /v1/semaphores/b", `{"permits":2}`)
	s1, s2 := a.open("30s"), a.open("30s")
	list := `{"semaphores":[{"name":"b","count":2},{"name":"a"}],"mode":"all"}`
	a.do("POST /v1/sessions/"+s1+"/acquire", list).is(200, "session="+s1, "leases.length=2", "leases.0.semaphore=b",
		"leases.0.count=2", "leases.0.token=1", "leases.1.token=2", "leases.1.expires_in_ms=30000")
	a.do("POST /v1/sessions/"+s2+"/acquire?try=true", list).refusedWith(409, "unavailable")
	a.do("POST /v1/sessions/"+s2+"/acquire", list).is(202, "session="+s2, "semaphores.b=2", "semaphores.a=1", "mode=all",
		"position=1", "semaphore=absent", "waiting_ms=0")
	a.do("GET /v1/sessions/"+s2+"/leases/a", "").is(202, "semaphores.b=2", "mode=all")
	waiting := a.goDo("POST /v1/sessions/"+s2+"/acquire?wait=9s", list)
	a.node.awaitWaits(1)
	a.node.advance(1000)
	a.must(204, "DELETE /v1/sessions/"+s1, "")
	(<-waiting).is(200, "leases.length=2", "leases.0.waited_ms=1000")
	a.do("POST /v1/sessions/"+a.open("1s")+"/acquire", `{"semaphores":[{"name":"a"},{"name":"b","count":3}],"mode":"all"}`).
		refusedWith(409, "never", "semaphore=b")
}

func TestRevoke(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	s := a.open("30s")
	a.must(200, "PUT /v1/sessions/"+s+"/leases/db", "")
	a.do("DELETE /v1/semaphores/db/holders/"+s+"?reason=too%20slow", "").is(204)
	a.do("GET /v1/sessions/"+s+"/leases/db", "").refusedWith(410, "revoked", "reason=too slow", "semaphore=db", "session="+s)
	a.do("PUT /v1/sessions/"+s+"/leases/db", "").refusedWith(410, "revoked", "reason=too slow")
	a.do("GET /v1/sessions/"+s, "").is(200, "leases.0.revoked=true", "leases.0.reason=too slow", "leases.0.expires_in_ms=0")
	a.do("GET /v1/semaphores/db", "").is(200, "held=0")
	a.do("DELETE /v1/semaphores/db/holders/77", "").refusedWith(404, "unknown-session")
	a.do("DELETE /v1/semaphores/db/holders/"+a.open("1s"), "").refusedWith(404, "not-held")
	a.do("DELETE /v1/sessions/"+s+"/leases/db", "").is(204)
	a.do("GET /v1/sessions/"+s+"/leases/db", "").refusedWith(404, "not-held")
}

func TestIdempotencyKey(t *testing.T) {
	a := newTestAPI(t)
	const key = "Idempotency-Key: 0123456789abcdef"
	a.must(201, "PUT /v1/semaphores/db", `{"permits":9}`)
	first := a.do("POST /v1/semaphores/db/leases", "", key).is(201, "token=1")
	if first.header.Get("Idempotency-Replayed") != "" {
		t.Error("the first call is marked as replayed")
	}
	a.node.advance(1000)
	again := a.do("POST /v1/semaphores/db/leases", "", key).is(201, "token=1", "session="+first.member("session"), "expires_in_ms=29000")
	if again.header.Get("Idempotency-Replayed") != "true" {
		t.Error("the repeat is not marked as replayed")
	}
	a.do("POST /v1/semaphores/db/leases", `{"count":2}`, key).refusedWith(422, "key-reused")
	const refusedKey = "Idempotency-Key: fedcba9876543210"
	a.do("POST /v1/semaphores/db/leases", `{"count":20}`, refusedKey).refusedWith(409, "never")
	if a.do("POST /v1/semaphores/db/leases", `{"count":20}`, refusedKey).refusedWith(409, "never", "most=9").header.Get("Idempotency-Replayed") != "true" {
		t.Error("a repeated refusal is not marked as replayed")
	}
	const putKey = "Idempotency-Key: put-0123456789abcdef"
	a.do("PUT /v1/semaphores/new", `{"permits":2}`, putKey).is(201, "permits=2")
	a.do("PUT /v1/semaphores/new", `{"permits":2}`, putKey).is(201, "permits=2", "name=new")
	const renewKey = "Idempotency-Key: renew-0123456789abcdef"
	s := a.open("30s")
	a.do("PUT /v1/sessions/"+s, "", renewKey).is(200, "ttl_ms=30000")
	a.do("PUT /v1/sessions/"+s, "", renewKey).is(200, "ttl_ms=30000", "session="+s)
}

func TestJoinedCallAnswersThatItWaits(t *testing.T) {
	a := newTestAPI(t)
	const key = "Idempotency-Key: 0123456789abcdef"
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	holder := a.must(201, "POST /v1/semaphores/db/leases", "").member("session")
	first := a.goDo("POST /v1/semaphores/db/leases?wait=10s", "", key)
	a.node.awaitWaits(1)
	a.do("POST /v1/semaphores/db/leases", "", key).is(202, "semaphore=db", "position=1")
	second := a.goDo("POST /v1/semaphores/db/leases?wait=10s", "", key)
	a.node.awaitWaits(2)
	a.must(204, "DELETE /v1/sessions/"+holder, "")
	(<-first).is(201, "token=2")
	(<-second).is(201, "token=2")
}
