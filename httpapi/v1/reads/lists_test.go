package reads_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// cursor makes a cursor of a kind, with a number.
func cursor(kind byte, number uint64) string {
	if kind == 'w' { // the rank before the place
		return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{kind}, number), number))
	}
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64([]byte{kind}, number))
}

// pagesOf reads a list to its end, and returns one member of each element, by page: for example, the name. between runs
// after each page but the last.
func pagesOf(a *apitest.API, path, list, member string, limit int, between func()) (pages [][]string) {
	a.Helper()
	next := ""
	for {
		got := a.Do(fmt.Sprintf("GET %s?limit=%d%s", path, limit, next), "").Is(200)
		var page []string
		for _, item := range got.Body[list].([]any) {
			page = append(page, fmt.Sprint(item.(map[string]any)[member]))
		}
		pages = append(pages, page)
		if got.Member("next") == "null" {
			return pages
		}
		if len(pages) > 1000 {
			a.Fatalf("%s has no end", path)
		}
		next = "&cursor=" + got.Member("next")
		if between != nil {
			between()
		}
	}
}

// crowd makes a semaphore with 3 holders and 4 waiters, and returns their sessions.
func crowd(a *apitest.API) (holders, waiters []string) {
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":3}`)
	for i := range 7 {
		s := a.Open("1h")
		if i < 3 {
			a.Must(200, "PUT /v1/sessions/"+s+"/leases/db", "")
			holders = append(holders, s)
		} else {
			a.Must(202, "PUT /v1/sessions/"+s+"/leases/db", "")
			waiters = append(waiters, s)
		}
	}
	return holders, waiters
}

// TestListsOfASemaphore: pages of any size have each holder and each waiter once, in order, with the same members as in
// the semaphore itself.
func TestListsOfASemaphore(t *testing.T) {
	a := apitest.New(t)
	holders, waiters := crowd(a)
	for limit, pages := range map[int]int{1: 3, 2: 2, 3: 1, 4: 1, 1000: 1} {
		if got := pagesOf(a, "/v1/semaphores/db/holders", "holders", "session", limit, nil); len(got) != pages || flat(got) != strings.Join(holders, " ") {
			t.Errorf("holders by %d: %v, want %v", limit, got, holders)
		}
	}
	for limit, pages := range map[int]int{1: 4, 2: 2, 3: 2, 4: 1, 1000: 1} {
		if got := pagesOf(a, "/v1/semaphores/db/waiters", "waiters", "session", limit, nil); len(got) != pages || flat(got) != strings.Join(waiters, " ") {
			t.Errorf("waiters by %d: %v, want %v", limit, got, waiters)
		}
		if got := flat(pagesOf(a, "/v1/semaphores/db/waiters", "waiters", "position", limit, nil)); got != "1 2 3 4" {
			t.Errorf("positions by %d: %s", limit, got)
		}
	}
	whole := a.Do("GET /v1/semaphores/db", "")
	for _, list := range []string{"holders", "waiters"} {
		got := a.Do("GET /v1/semaphores/db/"+list, "").Is(200, "next=null")
		if shown := whole.Member(list); got.Member(list) != shown || shown == "[]" {
			t.Errorf("%s: %s, of the semaphore itself %s", list, got.Member(list), shown)
		}
	}
	a.Must(201, "PUT /v1/semaphores/idle", `{"permits":1}`)
	a.Do("GET /v1/semaphores/idle/holders", "").Is(200, "holders=[]", "next=null")
	a.Do("GET /v1/semaphores/idle/waiters", "").Is(200, "waiters=[]", "next=null")
}

func flat(pages [][]string) string {
	var all []string
	for _, page := range pages {
		all = append(all, page...)
	}
	return strings.Join(all, " ")
}

// TestListsRefuse: each list accepts only its own cursors and its own parameters.
func TestListsRefuse(t *testing.T) {
	a := apitest.New(t)
	holders, _ := crowd(a)
	epoch := a.Do("GET /v1/semaphores/db", "").Member("epoch")
	lists := map[string]byte{"/v1/semaphores/db/holders": 'h', "/v1/semaphores/db/waiters": 'w', "/v1/sessions/" + holders[0] + "/leases": 'l'}
	for path, listKind := range lists {
		for _, kind := range []byte{'h', 'w', 'l', 's', 'n'} {
			got := a.Do("GET "+path+"?cursor="+cursor(kind, 1), "")
			if kind == listKind {
				got.Is(200)
			} else {
				got.RefusedWith(400, "invalid-request", "field=cursor")
			}
		}
		for _, bad := range []string{"cursor=", "cursor=!", "cursor=" + cursor(listKind, 0), "cursor=" + cursor(listKind, 1)[:8], "cursor=" + cursor(listKind, 1) + "AAAA",
			"limit=0", "limit=1001", "limit=x", "limit=", "consistency=strong", "min_index=-1"} {
			field, _, _ := strings.Cut(bad, "=")
			a.Do("GET "+path+"?"+bad, "").RefusedWith(400, "invalid-request", "field="+field)
		}
		for _, unknown := range []string{"index=1", "wait=1s", "holders=1", "prefix=d"} {
			field, _, _ := strings.Cut(unknown, "=")
			a.Do("GET "+path+"?"+unknown, "").RefusedWith(400, "invalid-request", "field="+field)
		}
		if a.Do("GET "+path+"?consistency=stale", "").Is(200); !a.Node.LastRead.Stale {
			t.Errorf("%s: a stale read was %+v", path, a.Node.LastRead)
		}
		if a.Do("GET "+path+"?min_index=1", "").Is(200); a.Node.LastRead.MinIndex != 1 {
			t.Errorf("%s: read %+v", path, a.Node.LastRead)
		}
		a.Do("GET "+path+"/", "").RefusedWith(404, "unknown-route")
		a.Do("POST "+path, "").RefusedWith(405, "method-not-allowed")
		if listKind == 'l' {
			continue
		}
		a.Do("GET "+path+"?epoch="+epoch, "").Is(200)
		a.Do("GET "+path+"?epoch=999", "").RefusedWith(412, "precondition-failed", "epoch="+epoch)
		a.Do("GET "+strings.Replace(path, "db", "none", 1), "").RefusedWith(404, "unknown-semaphore")
	}
}

// TestListsAreBoundedInBytes: a page of waiters with long obstacles ends early, and the next pages have the rest.
func TestListsAreBoundedInBytes(t *testing.T) {
	a := apitest.New(t)
	a.Crowd(1000)
	path := exchange.SemaphorePath(apitest.LongName(0))
	pages := pagesOf(a, path+"/waiters", "waiters", "position", 1000, nil)
	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprint(i+1))
	}
	if got := flat(pages); got != strings.Join(want, " ") || len(pages) < 2 || len(pages[0]) == 1000 {
		t.Errorf("%d pages, of %d waiters first: %s", len(pages), len(pages[0]), got)
	}
}

// TestPagesOfSlotsAreBoundedInBytes: pages of leases with many slots end early, and the next pages have the rest.
func TestPagesOfSlotsAreBoundedInBytes(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/gpus", `{"permits":560000,"groups":"request","slots":true,"on_lost":"quarantine"}`)
	s := a.Open("1m")
	var want []string
	for i := range 560 {
		a.Must(200, "PUT /v1/sessions/"+s+"/leases/gpus", fmt.Sprintf(`{"count":1000,"group":"%d"}`, i))
		want = append(want, fmt.Sprint(i+1))
	}
	whole := func(path, list string) {
		t.Helper()
		if pages := pagesOf(a, path, list, "token", 1000, nil); flat(pages) != strings.Join(want, " ") || len(pages) != 2 {
			t.Errorf("%s: %d pages, of %d first", path, len(pages), len(pages[0]))
		}
	}
	whole("/v1/semaphores/gpus/holders", "holders")
	whole("/v1/sessions/"+s+"/leases", "leases")
	a.Node.Advance(61_000)
	whole("/v1/semaphores/gpus/lost", "lost")
}
