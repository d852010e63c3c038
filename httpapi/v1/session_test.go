package v1_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

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

// TestSessionsPageIsBoundedInBytes: a request for many semaphores with long names counts twice, because the reply shows
// the names twice: as requested, and as obstacles.
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
