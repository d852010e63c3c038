package v1_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// A one-call acquire opens a session for its lease, and the end of the session frees it.
func TestAcquireOnce(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":2}`)
	got := a.Do("POST /v1/semaphores/db/leases", `{"ttl":"1m30s","metadata":{"k":"v"}}`)
	got.Is(201, "semaphore=db", "count=1", "token=1", "expires_in_ms=90000", "waited_ms=0")
	session := got.Member("session")
	if got.Header.Get("Location") != "/v1/sessions/"+session {
		t.Errorf("Location %q", got.Header.Get("Location"))
	}
	a.Do("GET /v1/sessions/"+session, "").Is(200, "one_shot=true", "metadata.k=v", "leases.0.token=1", "ttl_ms=90000")
	a.Do("POST /v1/semaphores/db/leases", "").Is(201, "expires_in_ms=30000", "token=2")
	a.Do("POST /v1/semaphores/db/leases", "").RefusedWith(409, "unavailable", "available=0", "queue_length=0", "permits=2")
	a.Do("POST /v1/semaphores/db/leases", `{"count":3}`).RefusedWith(409, "never", "most=2", "count=3")
	a.Do("POST /v1/semaphores/none/leases", "").RefusedWith(404, "unknown-semaphore")
	a.Do("DELETE /v1/sessions/"+session, "").Is(204)
	a.Do("GET /v1/semaphores/db", "").Is(200, "held=1")
}

func TestAcquireOnceWaits(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	first := a.Must(201, "POST /v1/semaphores/db/leases", "").Member("session")
	waiting := a.GoDo("POST /v1/semaphores/db/leases", `{"wait":"10s","ttl":5000}`)
	a.Node.AwaitWaits(1)
	a.Node.Advance(700)
	a.Must(204, "DELETE /v1/sessions/"+first, "")
	(<-waiting).Is(201, "token=2", "waited_ms=700", "expires_in_ms=5000")

	waiting = a.GoDo("POST /v1/semaphores/db/leases?wait=2s", "")
	a.Node.AwaitWaits(1)
	a.Node.Advance(2000)
	(<-waiting).RefusedWith(409, "unavailable", "available=0")
	a.Do("POST /v1/semaphores/db/leases?wait=2s", `{"wait":"2s"}`).RefusedWith(400, "invalid-request", "field=wait")
	a.Do("POST /v1/semaphores/db/leases?wait=601s", "").RefusedWith(400, "invalid-request", "field=wait")

	waiting = a.GoDo("POST /v1/semaphores/db/leases?wait=2s", `{"count":1}`)
	a.Node.AwaitWaits(1)
	a.Must(200, "PUT /v1/semaphores/db", `{"permits":0}`)
	(<-waiting).RefusedWith(409, "never")
}

func TestHangUpEndsTheCall(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	a.Must(200, "POST /v1/semaphores/db/up", "")
	a.Must(201, "POST /v1/semaphores/db/leases", "")
	ctx, hangUp := context.WithCancel(context.Background())
	done := make(chan apitest.Reply, 1)
	r := httptest.NewRequest("POST", "/v1/semaphores/db/leases", strings.NewReader(`{"wait":"60s"}`)).WithContext(ctx)
	go func() { done <- a.Send(r) }()
	a.Node.AwaitWaits(1)
	hangUp()
	if got := <-done; got.Status != exchange.StatusGone {
		t.Errorf("status %d after a hang-up", got.Status)
	}
}

func TestAcquireInSession(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":2}`)
	s1, s2 := a.Open("30s"), a.Open("30s")
	a.Do("PUT /v1/sessions/"+s1+"/leases/db", `{"count":2,"ttl":"1m"}`).Is(200, "token=1", "count=2", "expires_in_ms=60000", "session="+s1)
	a.Do("PUT /v1/sessions/"+s1+"/leases/db", `{"count":2}`).Is(200, "token=1", "expires_in_ms=60000")
	a.Do("PUT /v1/sessions/"+s1+"/leases/db", `{"count":1}`).RefusedWith(409, "lease-exists", "holding=2", "count=1")
	a.Do("PUT /v1/sessions/"+s2+"/leases/db?try=true", "").RefusedWith(409, "unavailable")
	a.Do("PUT /v1/sessions/"+s2+"/leases/db?try=true&wait=1s", "").RefusedWith(400, "invalid-request", "field=try")
	a.Do("PUT /v1/sessions/"+s2+"/leases/db", "").Is(202, "session="+s2, "semaphore=db", "count=1", "position=1", "waiting_ms=0", "mode=absent")
	waiting := a.GoDo("PUT /v1/sessions/"+s2+"/leases/db", `{"wait":"5s"}`)
	a.Node.AwaitWaits(1)
	a.Node.Advance(5000)
	(<-waiting).Is(202, "position=1", "waiting_ms=5000")
	a.Do("GET /v1/sessions/"+s2+"/leases/db", "").Is(202, "position=1", "waiting_ms=5000", "semaphore=db", "count=1")
	a.Do("PATCH /v1/sessions/"+s1+"/leases/db", `{"count":1}`).Is(200, "count=1", "token=1")
	a.Do("GET /v1/sessions/"+s2+"/leases/db", "").Is(200, "token=2", "expires_in_ms=25000", "waited_ms=0")
	a.Do("PATCH /v1/sessions/"+s1+"/leases/db", "").RefusedWith(400, "invalid-request", "field=count")
	a.Do("PATCH /v1/sessions/"+s1+"/leases/db", `{"count":2}`).RefusedWith(409, "lease-exists", "holding=1")
	a.Do("DELETE /v1/sessions/"+s1+"/leases/db", "").Is(204)
	a.Do("DELETE /v1/sessions/"+s1+"/leases/db", "").Is(204)
	a.Do("GET /v1/sessions/"+s1+"/leases/db", "").RefusedWith(404, "not-held")
	a.Do("PATCH /v1/sessions/"+s1+"/leases/db", `{"count":1}`).RefusedWith(404, "not-held")
	a.Do("PUT /v1/sessions/77/leases/db", "").RefusedWith(404, "unknown-session", "session=77")
	a.Do("PUT /v1/sessions/"+s1+"/leases/none", "").RefusedWith(404, "unknown-semaphore")
	a.Do("GET /v1/sessions/"+s1+"/leases/none", "").RefusedWith(404, "unknown-semaphore")
	a.Do("GET /v1/sessions/"+s1+"/leases/db?epoch=9", "").RefusedWith(412, "precondition-failed", "epoch=1")
}

func TestWithdrawnByAnotherCall(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.Must(201, "POST /v1/semaphores/db/leases", "")
	s := a.Open("30s")
	waiting := a.GoDo("PUT /v1/sessions/"+s+"/leases/db?wait=10s", "")
	a.Node.AwaitWaits(1)
	a.Must(204, "DELETE /v1/sessions/"+s+"/leases/db", "")
	(<-waiting).RefusedWith(409, "unavailable", "reason=withdrawn")
}

func TestHierarchy(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/low", `{"permits":1,"level":1}`)
	a.Must(201, "PUT /v1/semaphores/high", `{"permits":1,"level":2}`)
	s := a.Open("30s")
	a.Must(200, "PUT /v1/sessions/"+s+"/leases/low", "")
	a.Do("PUT /v1/sessions/"+s+"/leases/high", "").RefusedWith(409, "hierarchy", "rule=holds", "level=2", "lowest_level=1")
	a.Do("POST /v1/sessions/"+a.Open("1s")+"/acquire", `{"semaphores":[{"name":"low"},{"name":"high"}],"mode":"all"}`).
		RefusedWith(400, "invalid-request", "field=semaphores")
}

func TestAcquireMany(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/a", `{"permits":1}`)
	a.Must(201, "PUT /v1/semaphores/b", `{"permits":2}`)
	s1, s2 := a.Open("30s"), a.Open("30s")
	list := `{"semaphores":[{"name":"b","count":2},{"name":"a"}],"mode":"all"}`
	a.Do("POST /v1/sessions/"+s1+"/acquire", list).Is(200, "session="+s1, "leases.length=2", "leases.0.semaphore=b",
		"leases.0.count=2", "leases.0.token=1", "leases.1.token=2", "leases.1.expires_in_ms=30000")
	a.Do("POST /v1/sessions/"+s2+"/acquire?try=true", list).RefusedWith(409, "unavailable")
	a.Do("POST /v1/sessions/"+s2+"/acquire", list).Is(202, "session="+s2, "semaphores.b=2", "semaphores.a=1", "mode=all",
		"position=1", "semaphore=absent", "waiting_ms=0")
	a.Do("GET /v1/sessions/"+s2+"/leases/a", "").Is(202, "semaphores.b=2", "mode=all")
	waiting := a.GoDo("POST /v1/sessions/"+s2+"/acquire?wait=9s", list)
	a.Node.AwaitWaits(1)
	a.Node.Advance(1000)
	a.Must(204, "DELETE /v1/sessions/"+s1, "")
	(<-waiting).Is(200, "leases.length=2", "leases.0.waited_ms=1000")
	a.Do("POST /v1/sessions/"+a.Open("1s")+"/acquire", `{"semaphores":[{"name":"a"},{"name":"b","count":3}],"mode":"all"}`).
		RefusedWith(409, "never", "semaphore=b")
}

func TestRevoke(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	s := a.Open("30s")
	a.Must(200, "PUT /v1/sessions/"+s+"/leases/db", "")
	a.Do("DELETE /v1/semaphores/db/holders/"+s+"?reason=too%20slow", "").Is(204)
	a.Do("GET /v1/sessions/"+s+"/leases/db", "").RefusedWith(410, "revoked", "reason=too slow", "semaphore=db", "session="+s)
	a.Do("PUT /v1/sessions/"+s+"/leases/db", "").RefusedWith(410, "revoked", "reason=too slow")
	a.Do("GET /v1/sessions/"+s, "").Is(200, "leases.0.revoked=true", "leases.0.reason=too slow", "leases.0.expires_in_ms=0")
	a.Do("GET /v1/semaphores/db", "").Is(200, "held=0")
	a.Do("DELETE /v1/semaphores/db/holders/77", "").RefusedWith(404, "unknown-session")
	a.Do("DELETE /v1/semaphores/db/holders/"+a.Open("1s"), "").RefusedWith(404, "not-held")
	a.Do("DELETE /v1/sessions/"+s+"/leases/db", "").Is(204)
	a.Do("GET /v1/sessions/"+s+"/leases/db", "").RefusedWith(404, "not-held")
}

func TestIdempotencyKey(t *testing.T) {
	a := apitest.New(t)
	const key = "Idempotency-Key: 0123456789abcdef"
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":9}`)
	first := a.Do("POST /v1/semaphores/db/leases", "", key).Is(201, "token=1")
	if first.Header.Get("Idempotency-Replayed") != "" {
		t.Error("the first call is marked as replayed")
	}
	a.Node.Advance(1000)
	again := a.Do("POST /v1/semaphores/db/leases", "", key).Is(201, "token=1", "session="+first.Member("session"), "expires_in_ms=29000")
	if again.Header.Get("Idempotency-Replayed") != "true" {
		t.Error("the repeat is not marked as replayed")
	}
	a.Do("POST /v1/semaphores/db/leases", `{"count":2}`, key).RefusedWith(422, "key-reused")
	const refusedKey = "Idempotency-Key: fedcba9876543210"
	a.Do("POST /v1/semaphores/db/leases", `{"count":20}`, refusedKey).RefusedWith(409, "never")
	if a.Do("POST /v1/semaphores/db/leases", `{"count":20}`, refusedKey).RefusedWith(409, "never", "most=9").Header.Get("Idempotency-Replayed") != "true" {
		t.Error("a repeated refusal is not marked as replayed")
	}
	const putKey = "Idempotency-Key: put-0123456789abcdef"
	a.Do("PUT /v1/semaphores/new", `{"permits":2}`, putKey).Is(201, "permits=2")
	a.Do("PUT /v1/semaphores/new", `{"permits":2}`, putKey).Is(201, "permits=2", "name=new")
	const renewKey = "Idempotency-Key: renew-0123456789abcdef"
	s := a.Open("30s")
	a.Do("PUT /v1/sessions/"+s, "", renewKey).Is(200, "ttl_ms=30000")
	a.Do("PUT /v1/sessions/"+s, "", renewKey).Is(200, "ttl_ms=30000", "session="+s)
}

func TestJoinedCallRepliesThatItWaits(t *testing.T) {
	a := apitest.New(t)
	const key = "Idempotency-Key: 0123456789abcdef"
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	holder := a.Must(201, "POST /v1/semaphores/db/leases", "").Member("session")
	first := a.GoDo("POST /v1/semaphores/db/leases?wait=10s", "", key)
	a.Node.AwaitWaits(1)
	a.Do("POST /v1/semaphores/db/leases", "", key).Is(202, "semaphore=db", "position=1")
	second := a.GoDo("POST /v1/semaphores/db/leases?wait=10s", "", key)
	a.Node.AwaitWaits(2)
	a.Must(204, "DELETE /v1/sessions/"+holder, "")
	(<-first).Is(201, "token=2")
	(<-second).Is(201, "token=2")
}
