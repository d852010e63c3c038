//go:build browser

package ui_test

import (
	"fmt"
	"testing"
)

// TestSettings: a page says what the settings of a semaphore mean, and shows its groups as they come.
func TestSettings(t *testing.T) {
	s := newSite(t)
	api := s.api("n1")
	open := func(host string) string {
		return api.Must(201, "POST /v1/sessions", `{"ttl":"10m","metadata":{"host":"`+host+`"}}`).Member("session")
	}
	api.Must(201, "PUT /v1/semaphores/pool", `{"permits":5,"groups":"request","per_group":2,"max_waiting":7,"when_full":"drop-oldest","head_start":"15m"}`)
	api.Must(200, "PUT /v1/semaphores/pool/groups/calm", `{"limit":4}`)
	holder, waiter := open("w1"), open("w2")
	api.Must(200, "PUT /v1/sessions/"+holder+"/leases/pool", `{"group":"tenant","count":2}`)
	api.Must(202, "PUT /v1/sessions/"+waiter+"/leases/pool", `{"group":"tenant"}`)
	b := s.open("n2", "/semaphore/pool")
	for _, text := range []string{"each request names its group", "2 permits, where a group has no other limit",
		"7 requests in the line of each group; another one ends the oldest of them", "up to 15 min earlier", "Group tenant uses 2 of its 2."} {
		b.shows(text)
	}
	b.row("tenant|2|2|2|1|")
	b.row("calm|0|4own|0|0|")
	b.row("w1 " + holder + "|tenant|2|")
	b.row("1|w2 " + waiter + "|tenant|1|")
	api.Must(200, "PUT /v1/sessions/"+holder+"/leases/pool", `{"group":"new"}`)
	b.row("new|1|2|1|0|")
	api.Must(202, "PUT /v1/sessions/"+waiter+"/leases/pool", `{"group":"new","count":2}`)
	b.row("new|1|2|1|1|")
	if order := eval[string](b, `[...document.querySelectorAll('[data-key="groups"] tbody tr')].map((row) => row.cells[0].textContent).join()`); order != "tenant,new,calm" {
		t.Errorf("the groups are %s", order)
	}
	b.rules("pool")
	b.keep("pool")
	b.click("Withdraw the request of w2 (session " + waiter + ") in group tenant")
	b.confirm("withdraw", "Withdraw")
	b.done()
	b.row("tenant|2|2|2|0|")
	b.row("new|1|2|1|1|")
	b.click("Revoke the lease of w1 (session " + holder + ") in group tenant")
	b.confirm("revoke", "Revoke")
	b.done()
	b.shows("revoked")
	api.Do("GET /v1/sessions/"+holder+"/leases/pool?group=tenant", "").RefusedWith(410, "revoked")

	api.Must(201, "PUT /v1/semaphores/branches", `{"permits":null,"groups":"owner","per_group":1}`)
	api.Must(200, "PUT /v1/sessions/"+holder+"/leases/branches", "")
	b = s.open("n3", "/")
	b.row("branches|1|no limit in all, 1 group||0||in use")
	b.click("branches")
	b.shows("no limit in all, only one for each group")
	b.await(`/^no total/.test(document.querySelector(".figures dd").textContent) && !document.querySelector(".meter") && !document.body.innerText.includes("Pause…")`)
	b.row("no name|1|1|1|0|")
	b.rules("family")
	b.keep("family")

	b = s.open("n3", "/session/"+waiter)
	b.shows("pool group new × 2")
	b.shows("Group new uses 1 of its 2.")
	b.rules("a session in a group")
}

// TestLostAndPaused: what was lost is freed by the page, what is spent or away is shown; the page pauses a semaphore, and resumes it.
func TestLostAndPaused(t *testing.T) {
	s := newSite(t)
	api := s.api("n1")
	for name, body := range map[string]string{"calls": `{"permits":600,"window":"1h"}`, "rig": `{"permits":5,"on_lost":"quarantine","max_hold":"1s","cooldown":"90m","slots":true}`} {
		api.Must(201, "PUT /v1/semaphores/"+name, body)
	}
	session := api.Must(201, "POST /v1/sessions", `{"ttl":"10m","metadata":{"host":"bench"}}`).Member("session")
	token := api.Must(200, "PUT /v1/sessions/"+session+"/leases/rig", `{"count":3}`).Is(200, "slots.length=3").Member("token")
	api.Must(200, "PUT /v1/sessions/"+session+"/leases/calls", `{"count":40}`)
	b := s.open("n2", "/semaphore/rig")
	for _, text := range []string{"what a lost lease held stays away until somebody frees it", "a lease ends 1 s after its grant", "rests for 1 h 30 min", "leases say which permits they have"} {
		b.shows(text)
	}
	b.row("bench " + session + "|3|0–2|" + token + "|")
	b.shows("lost: 3 permits, token " + token + ", until freed")
	b.await(`document.querySelector('[role="img"]').getAttribute("aria-label") === "0 of 5 permits held, 3 returning"`)
	b.rules("rig")
	b.keep("rig")
	b.click("Free what token " + token + " held")
	b.fill("reason", "bench checked")
	b.confirm("free", "Free", "3 permits of rig come back at once", "look first")
	b.done()
	b.shows("freed: 3 permits, token " + token + ", “bench checked”")
	b.await(`!document.querySelector('[data-key="lost"]')`)
	api.Must(200, "GET /v1/semaphores/rig", "").Is(200, "available=5")

	b.click("Pause…")
	b.fill("reason", "disk swap")
	b.confirm("rig", "Pause", "Requests keep their places")
	b.done()
	b.shows("Paused. disk swap")
	b.rules("paused")
	b.keep("paused")
	api.Must(200, "GET /v1/semaphores/rig", "").Is(200, "paused=disk swap")
	waiting := api.Must(201, "POST /v1/sessions", `{"ttl":"10m"}`).Member("session")
	api.Must(202, "PUT /v1/sessions/"+waiting+"/leases/rig", "")
	b.shows("The semaphore is paused: disk swap.")
	overview := s.open("n3", "/")
	overview.row("rig|0 / 5|||1|")
	overview.await(`[...document.querySelectorAll("tbody td:last-child")].some((cell) => cell.textContent === "paused")`)
	b.click("Resume…")
	b.confirm("rig", "Resume", "It is paused: disk swap", "1 request waits")
	b.done()
	b.shows("granted: 1 permit")
	api.Must(200, "GET /v1/sessions/"+waiting+"/leases/rig", "").Is(200, "count=1")

	overview.click("calls")
	overview.shows("what is granted is spent, and comes back 1 h after the grant")
	overview.row("bench " + session + "|40|")
	overview.shows("spent returns in ")
	overview.shows("returning\n40")
	overview.rules("window")
	overview.keep("window")
}

// row blocks until a row of a table begins with a text, its cells parted by bars.
func (b *tab) row(text string) {
	b.Helper()
	b.await(fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].some((row) => [...row.cells].map((cell) => cell.textContent).join("|").startsWith(%q))`, text))
}
