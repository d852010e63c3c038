package httpapi

import (
	"fmt"
	"strings"
	"testing"
)

func TestSession(t *testing.T) {
	a := newTestAPI(t)
	got := a.do("POST /v1/sessions", `{"ttl":"30s","metadata":{"a":"b"},"on_end":"keep"}`)
	got.is(201, "ttl_ms=30000", "expires_in_ms=30000", "one_shot=false", "metadata.a=b", "leases=[]", "waiting=[]")
	s := got.member("session")
	if got.header.Get("Location") != "/v1/sessions/"+s {
		t.Errorf("Location %q", got.header.Get("Location"))
	}
	a.node.advance(20)
	a.do("GET /v1/sessions/"+s, "").is(200, "session="+s, "expires_in_ms=29980", "metadata.a=b", "leases=[]", "waiting=[]")
	a.do("PUT /v1/sessions/"+s, "").is(200, "session="+s, "expires_in_ms=30000", "ttl_ms=30000")
	a.do("PUT /v1/sessions/"+s, `{"ttl":500}`).is(200, "expires_in_ms=500", "ttl_ms=500")
	a.node.advance(500)
	a.do("PUT /v1/sessions/"+s, "").refusedWith(410, "expired-session", "session="+s)
	a.do("GET /v1/sessions/"+s, "").refusedWith(410, "expired-session")
	a.do("DELETE /v1/sessions/"+s, "").is(204)
	a.do("PUT /v1/sessions/9", "").refusedWith(404, "unknown-session")
	a.do("GET /v1/sessions/18446744073709551615", "").refusedWith(404, "unknown-session", "session=18446744073709551615")
	a.do("POST /v1/sessions", "").refusedWith(400, "invalid-request", "field=ttl")
}

func TestEndByOperator(t *testing.T) {
	a := newTestAPI(t)
	s := a.open("30s")
	a.do("DELETE /v1/sessions/"+s+"?reason=maintenance", "").refusedWith(400, "invalid-request", "field=reason") // no end hides in a query
	a.do("POST /v1/sessions/"+s+"/revoke?reason=maintenance", "").refusedWith(400, "invalid-request", "field=reason")
	a.do("POST /v1/sessions/"+s+"/revoke", `{"reason":"maintenance"}`).is(204)
	a.do("GET /v1/sessions/"+s, "").refusedWith(410, "revoked", "reason=maintenance")
	a.do("PUT /v1/sessions/"+s, "").refusedWith(410, "revoked", "reason=maintenance")
	a.do("POST /v1/sessions/"+s+"/restore", `{"ttl":"1s","leases":[]}`).refusedWith(410, "revoked")
	s = a.open("30s")
	a.do("DELETE /v1/sessions/"+s, "").is(204)
	a.do("GET /v1/sessions/"+s, "").refusedWith(404, "unknown-session")
}

func TestRestore(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	const body = `{"ttl":"30s","leases":[{"name":"db","count":3}],"metadata":{"a":"b"}}`
	a.do("POST /v1/sessions/18446744073709551615/restore", body).
		is(200, "session=18446744073709551615", "created=true", "leases.0.count=3", "leases.0.token=1", "expires_in_ms=30000")
	a.do("POST /v1/sessions/18446744073709551615/restore", body).is(200, "created=false", "leases.0.token=1")
	a.do("POST /v1/sessions/18446744073709551615/restore", `{"ttl":1,"leases":[]}`).refusedWith(409, "session-exists")
	a.do("GET /v1/semaphores/db", "").is(200, "available=-2")
	a.do("POST /v1/sessions/5/restore", `{"ttl":1}`).refusedWith(400, "invalid-request", "field=leases")
}

func TestListSessions(t *testing.T) {
	a := newTestAPI(t)
	a.do("GET /v1/sessions", "").is(200, "sessions=[]", "next=null")
	var ids []string
	for range 5 {
		ids = append(ids, a.open("30s"))
	}
	seen, cursor := []string{}, ""
	for pages := 1; ; pages++ {
		got := a.must(200, "GET /v1/sessions?limit=2"+cursor, "")
		for i := range 2 {
			if id := got.member(fmt.Sprintf("sessions.%d.session", i)); id != "absent" {
				seen = append(seen, id)
			}
		}
		if got.member("next") == "null" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		cursor = "&cursor=" + got.member("next")
	}
	if fmt.Sprint(seen) != fmt.Sprint(ids) {
		t.Errorf("listed %v, want %v", seen, ids)
	}
	a.do("GET /v1/sessions?cursor="+nameCursor("db"), "").refusedWith(400, "invalid-request", "field=cursor")
}

func TestSessionsPageIsBoundedInRecords(t *testing.T) {
	a := newTestAPI(t)
	const each = 3000
	for i := range each {
		a.must(201, "POST /v1/semaphores", fmt.Sprintf(`{"name":"s%d","permits":100}`, i))
	}
	for range 6 {
		s := a.open("1h")
		for i := 0; i < each; i += 1000 {
			operations := ""
			for j := range 1000 {
				operations += fmt.Sprintf(`,{"op":"acquire","session":"%s","semaphore":"s%d"}`, s, i+j)
			}
			a.must(200, "POST /v1/batch", `{"operations":[`+operations[1:]+`]}`)
		}
	}
	got := a.must(200, "GET /v1/sessions", "")
	got.is(200, "sessions.length=4", "sessions.3.leases.length=3000")
	a.do("GET /v1/sessions?cursor="+got.member("next"), "").is(200, "sessions.length=2", "next=null")
}

func TestSessionShowsWhatItWaitsFor(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/a", `{"permits":0}`)
	a.must(200, "POST /v1/semaphores/a/up", "")
	a.must(201, "PUT /v1/semaphores/b", `{"permits":1}`)
	a.must(200, "PUT /v1/sessions/"+a.open("1h")+"/leases/a", "")
	s := a.open("1h")
	a.must(202, "POST /v1/sessions/"+s+"/acquire", `{"semaphores":[{"name":"b"},{"name":"a"}],"mode":"all"}`)
	a.node.advance(812)
	a.do("GET /v1/sessions/"+s, "").is(200, `waiting.0.semaphores={"a":1,"b":1}`, "waiting.0.mode=all", "waiting.0.position=1",
		"waiting.0.waiting_ms=812", "waiting.0.blocked_by=other-semaphore")
	a.do("GET /v1/sessions", "").is(200, "sessions.1.waiting.0.position=1")
}

// TestSessionsPageIsBoundedInBytes: a request of many semaphores with long names
// counts for what it shows, twice: as asked for and as what it waits for.
func TestSessionsPageIsBoundedInBytes(t *testing.T) {
	const sessions, requests, each = 20, 16, 64
	a := newTestAPI(t)
	name := func(r, i int) string { return strings.Repeat("<", 470) + fmt.Sprintf("%d-%d", r, i) }
	bodies := make([]string, requests)
	for r := range bodies {
		var list []string
		for i := range each {
			a.must(201, "PUT "+semaphorePath(name(r, i)), `{"permits":1}`)
			a.must(200, "POST "+semaphorePath(name(r, i))+"/down", "")
			list = append(list, fmt.Sprintf(`{"name":%q}`, name(r, i)))
		}
		bodies[r] = `{"mode":"all","semaphores":[` + strings.Join(list, ",") + `]}`
	}
	for s := range sessions {
		a.must(200, fmt.Sprintf("POST /v1/sessions/%d/restore", 100+s), `{"ttl":"1h","leases":[]}`)
		for r := range bodies {
			a.must(202, fmt.Sprintf("POST /v1/sessions/%d/acquire", 100+s), bodies[r])
		}
	}
	seen, cursor := 0, ""
	for pages := 0; ; pages++ {
		page := a.do("GET /v1/sessions?limit=1000"+cursor, "").is(200)
		if len(page.text) > 2*pageBytes {
			t.Fatalf("page %d has %d bytes", pages, len(page.text))
		}
		var n int
		fmt.Sscan(page.member("sessions.length"), &n)
		seen += n
		if page.member("next") == "null" {
			break
		}
		cursor = "&cursor=" + page.member("next")
	}
	if seen != sessions {
		t.Errorf("%d sessions on all pages, of %d", seen, sessions)
	}
}
