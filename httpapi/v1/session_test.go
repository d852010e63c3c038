package v1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestSession(t *testing.T) {
	a := apitest.New(t)
	got := a.Do("POST /v1/sessions", `{"ttl":"30s","metadata":{"a":"b"},"on_end":"keep"}`)
	got.Is(201, "ttl_ms=30000", "expires_in_ms=30000", "one_shot=false", "metadata.a=b", "leases=[]", "waiting=[]")
	s := got.Member("session")
	if got.Header.Get("Location") != "/v1/sessions/"+s {
		t.Errorf("Location %q", got.Header.Get("Location"))
	}
	a.Node.Advance(20)
	a.Do("GET /v1/sessions/"+s, "").Is(200, "session="+s, "expires_in_ms=29980", "metadata.a=b", "leases=[]", "waiting=[]")
	a.Do("PUT /v1/sessions/"+s, "").Is(200, "session="+s, "expires_in_ms=30000", "ttl_ms=30000")
	a.Do("PUT /v1/sessions/"+s, `{"ttl":500}`).Is(200, "expires_in_ms=500", "ttl_ms=500")
	a.Node.Advance(500)
	a.Do("PUT /v1/sessions/"+s, "").RefusedWith(410, "expired-session", "session="+s)
	a.Do("GET /v1/sessions/"+s, "").RefusedWith(410, "expired-session")
	a.Do("DELETE /v1/sessions/"+s, "").Is(204)
	a.Do("PUT /v1/sessions/9", "").RefusedWith(404, "unknown-session")
	a.Do("GET /v1/sessions/18446744073709551615", "").RefusedWith(404, "unknown-session", "session=18446744073709551615")
	a.Do("POST /v1/sessions", "").RefusedWith(400, "invalid-request", "field=ttl")
}

func TestEndByOperator(t *testing.T) {
	a := apitest.New(t)
	s := a.Open("30s")
	a.Do("DELETE /v1/sessions/"+s+"?reason=maintenance", "").RefusedWith(400, "invalid-request", "field=reason") // no end hides in a query
	a.Do("POST /v1/sessions/"+s+"/revoke?reason=maintenance", "").RefusedWith(400, "invalid-request", "field=reason")
	a.Do("POST /v1/sessions/"+s+"/revoke", `{"reason":"maintenance"}`).Is(204)
	a.Do("GET /v1/sessions/"+s, "").RefusedWith(410, "revoked", "reason=maintenance")
	a.Do("PUT /v1/sessions/"+s, "").RefusedWith(410, "revoked", "reason=maintenance")
	a.Do("POST /v1/sessions/"+s+"/restore", `{"ttl":"1s","leases":[]}`).RefusedWith(410, "revoked")
	s = a.Open("30s")
	a.Do("DELETE /v1/sessions/"+s, "").Is(204)
	a.Do("GET /v1/sessions/"+s, "").RefusedWith(404, "unknown-session")
}

func TestRestore(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	const body = `{"ttl":"30s","leases":[{"name":"db","count":3}],"metadata":{"a":"b"}}`
	a.Do("POST /v1/sessions/18446744073709551615/restore", body).
		Is(200, "session=18446744073709551615", "created=true", "leases.0.count=3", "leases.0.token=1", "expires_in_ms=30000")
	a.Do("POST /v1/sessions/18446744073709551615/restore", body).Is(200, "created=false", "leases.0.token=1")
	a.Do("POST /v1/sessions/18446744073709551615/restore", `{"ttl":1,"leases":[]}`).RefusedWith(409, "session-exists")
	a.Do("GET /v1/semaphores/db", "").Is(200, "available=-2")
	a.Do("POST /v1/sessions/5/restore", `{"ttl":1}`).RefusedWith(400, "invalid-request", "field=leases")
}

func TestListSessions(t *testing.T) {
	a := apitest.New(t)
	a.Do("GET /v1/sessions", "").Is(200, "sessions=[]", "next=null")
	var ids []string
	for range 5 {
		ids = append(ids, a.Open("30s"))
	}
	seen, cursor := []string{}, ""
	for pages := 1; ; pages++ {
		got := a.Must(200, "GET /v1/sessions?limit=2"+cursor, "")
		for i := range 2 {
			if id := got.Member(fmt.Sprintf("sessions.%d.session", i)); id != "absent" {
				seen = append(seen, id)
			}
		}
		if got.Member("next") == "null" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		cursor = "&cursor=" + got.Member("next")
	}
	if fmt.Sprint(seen) != fmt.Sprint(ids) {
		t.Errorf("listed %v, want %v", seen, ids)
	}
	a.Do("GET /v1/sessions?cursor="+"bmRi", "").RefusedWith(400, "invalid-request", "field=cursor")
}

func TestSessionsPageIsBoundedInRecords(t *testing.T) {
	a := apitest.New(t)
	const each = 3000
	for i := range each {
		a.Must(201, "POST /v1/semaphores", fmt.Sprintf(`{"name":"s%d","permits":100}`, i))
	}
	for range 6 {
		s := a.Open("1h")
		for i := 0; i < each; i += 1000 {
			operations := ""
			for j := range 1000 {
				operations += fmt.Sprintf(`,{"op":"acquire","session":"%s","semaphore":"s%d"}`, s, i+j)
			}
			a.Must(200, "POST /v1/batch", `{"operations":[`+operations[1:]+`]}`)
		}
	}
	got := a.Must(200, "GET /v1/sessions", "")
	got.Is(200, "sessions.length=4", "sessions.3.leases.length=3000")
	a.Do("GET /v1/sessions?cursor="+got.Member("next"), "").Is(200, "sessions.length=2", "next=null")
}

func TestSessionShowsWhatItWaitsFor(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/a", `{"permits":0}`)
	a.Must(200, "POST /v1/semaphores/a/up", "")
	a.Must(201, "PUT /v1/semaphores/b", `{"permits":1}`)
	a.Must(200, "PUT /v1/sessions/"+a.Open("1h")+"/leases/a", "")
	s := a.Open("1h")
	a.Must(202, "POST /v1/sessions/"+s+"/acquire", `{"semaphores":[{"name":"b"},{"name":"a"}],"mode":"all"}`)
	a.Node.Advance(812)
	a.Do("GET /v1/sessions/"+s, "").Is(200, `waiting.0.semaphores={"a":1,"b":1}`, "waiting.0.mode=all", "waiting.0.position=1",
		"waiting.0.waiting_ms=812", "waiting.0.blocked_by=other-semaphore")
	a.Do("GET /v1/sessions", "").Is(200, "sessions.1.waiting.0.position=1")
}

// TestSessionsPageIsBoundedInBytes: a request of many semaphores with long names
// counts for what it shows, twice: as asked for and as what it waits for.
func TestSessionsPageIsBoundedInBytes(t *testing.T) {
	const sessions, requests, each = 20, 16, 64
	a := apitest.New(t)
	name := func(r, i int) string { return strings.Repeat("<", 470) + fmt.Sprintf("%d-%d", r, i) }
	bodies := make([]string, requests)
	for r := range bodies {
		var list []string
		for i := range each {
			a.Must(201, "PUT "+exchange.SemaphorePath(name(r, i)), `{"permits":1}`)
			a.Must(200, "POST "+exchange.SemaphorePath(name(r, i))+"/down", "")
			list = append(list, fmt.Sprintf(`{"name":%q}`, name(r, i)))
		}
		bodies[r] = `{"mode":"all","semaphores":[` + strings.Join(list, ",") + `]}`
	}
	for s := range sessions {
		a.Must(200, fmt.Sprintf("POST /v1/sessions/%d/restore", 100+s), `{"ttl":"1h","leases":[]}`)
		for r := range bodies {
			a.Must(202, fmt.Sprintf("POST /v1/sessions/%d/acquire", 100+s), bodies[r])
		}
	}
	seen, cursor := 0, ""
	for pages := 0; ; pages++ {
		page := a.Do("GET /v1/sessions?limit=1000"+cursor, "").Is(200)
		if len(page.Text) > 2*4<<20 {
			t.Fatalf("page %d has %d bytes", pages, len(page.Text))
		}
		var n int
		fmt.Sscan(page.Member("sessions.length"), &n)
		seen += n
		if page.Member("next") == "null" {
			break
		}
		cursor = "&cursor=" + page.Member("next")
	}
	if seen != sessions {
		t.Errorf("%d sessions on all pages, of %d", seen, sessions)
	}
}
