//go:build browser

package ui_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// confirm types the word that a dialog asks for and presses its button, which can't be
// pressed before.
func (b *tab) confirm(word, button string, says ...string) {
	b.Helper()
	b.await(`document.getElementById("dialog").open`)
	for _, text := range says {
		b.shows(text)
	}
	if !eval[bool](b, `document.getElementById("sure").disabled`) {
		b.Error("the button works without the word")
	}
	b.fill("typed", word)
	b.click(button)
}

// done waits until the dialog is closed.
func (b *tab) done() {
	b.Helper()
	b.await(`!document.getElementById("dialog").open`)
}

// TestCreate makes a semaphore by the page, and leaves one that is there as it is.
func TestCreate(t *testing.T) {
	s := newSite(t)
	b := s.open("n1", "/")
	create := func(permits string) {
		b.click("Create…")
		b.fill("name", "new/one")
		b.fill("permits", permits)
		b.click("Create")
	}
	create("3")
	b.done()
	create("4")
	b.shows("Try again")
	s.api("n2").Must(200, "GET /v1/semaphores/new%2Fone", "").Is(200, "permits=3")
}

// TestActions carries out each action by the page, and looks at what it did.
func TestActions(t *testing.T) {
	s := newSite(t)
	session := s.scene()
	api := s.api("n2")
	db := func() *tab { return s.open("n1", "/semaphore/db") }

	b := db()
	b.click("Revoke the lease of worker-1 (session " + session + ")")
	b.fill("reason", "maintenance")
	b.confirm("revoke", "Revoke", "2 permits of db go back at once", "it may still be running. Token 1 fences it")
	b.done()
	b.shows("revoked maintenance")
	api.Must(410, "GET /v1/sessions/"+session+"/leases/db", "").RefusedWith(410, "revoked", "reason=maintenance")

	waiting := api.Must(201, "POST /v1/sessions", `{"ttl":"10m"}`).Member("session")
	api.Must(202, "PUT /v1/sessions/"+waiting+"/leases/db", `{"count":4}`)
	b.click("Withdraw the request of session " + waiting)
	b.confirm("withdraw", "Withdraw", "The session no longer waits for db", "Its place is lost")
	b.done()
	b.shows("No request waits.")
	api.Must(404, "GET /v1/sessions/"+waiting+"/leases/db", "").RefusedWith(404, "not-held")

	b.click("Change permits…")
	b.fill("permits", "1")
	b.confirm("db", "Change permits", "no lease is taken away")
	b.done()
	b.shows("nothing is granted until as many are released")
	api.Must(200, "GET /v1/semaphores/db", "").Is(200, "permits=1")

	b = s.open("n3", "/session/"+session)
	b.click("End session…")
	b.fill("reason", "gone")
	b.confirm("end", "End session", "All its leases (1) end at once", "Token 5 fences it")
	b.done()
	b.shows("This session is over.")
	api.Must(410, "GET /v1/sessions/"+session, "").RefusedWith(410, "revoked", "reason=gone")

	b = db()
	b.click("Delete…")
	b.confirm("db", "Delete", "3 leases are gone at once")
	b.done()
	b.shows("This semaphore was deleted.")
	api.Must(404, "GET /v1/semaphores/db", "")

	leader := s.cluster.Leader()
	next := s.other(leader)
	b = s.open("n1", "/")
	b.click("Hand over leadership…")
	eval[bool](b, fmt.Sprintf(`(document.getElementById("successor").value = %q, true)`, next))
	b.confirm(leader, "Hand over", leader+" leads now", "No lease is lost")
	b.done()
	b.await(fmt.Sprintf(`document.querySelector(".nodes .leads strong")?.textContent === %q`, next))

	eval[bool](b, `(() => { // a download: the file, and the link to it that is clicked
		const [make, click] = [URL.createObjectURL, HTMLAnchorElement.prototype.click];
		URL.createObjectURL = (blob) => (window.saved = blob, make.call(URL, blob));
		HTMLAnchorElement.prototype.click = function () { if (this.download) window.file = this.download; click.call(this); };
		return true;
	})()`)
	b.click("Download backup…")
	b.confirm("backup", "Download", "Keep it where only operators can read it")
	b.done()
	want := api.Must(200, "GET /v1/snapshot", "").Text
	b.await(`/^signalbox-\d+\.backup$/.test(window.file ?? "") && saved.size > 500`)
	b.await(fmt.Sprintf(`(window.head ?? (saved.slice(0, 4).text().then((text) => { window.head = text; }), "")) === %q`, want[:4]))
}

// TestHostileNames: a name or a piece of metadata is a text, whatever it looks like.
func TestHostileNames(t *testing.T) {
	s := newSite(t)
	api := s.api("n1")
	names := []string{`<img src=x onerror=window.hit=1>`, `"><script>window.hit=1</script>`, `javascript:window.hit=1`, `a/b?c#d%41'`, `__proto__`, strings.Repeat("w", 512), `…'"; $(reboot)`}
	for _, name := range names {
		path := "/v1/semaphores/" + url.PathEscape(name)
		api.Must(201, "PUT "+path, `{"permits":1,"metadata":{"<b onclick=window.hit=1>":"<svg onload=window.hit=1>"}}`)
		held := api.Must(201, "POST "+path+"/leases", `{"ttl":"10m","metadata":{"<i>":"</script><script>window.hit=1</script>"}}`)
		api.Must(204, "DELETE "+path+"/holders/"+held.Member("session")+"?reason="+url.QueryEscape("<img src=x onerror=window.hit=1>"), "")
	}
	isText := func(b *tab, page string) {
		t.Helper()
		if eval[bool](b, `"hit" in window || document.images.length !== 1 || document.scripts.length !== 1 || document.querySelectorAll("b, i, svg:not(.plot), iframe").length > 0 || document.title.includes("undefined")`) {
			t.Errorf("%s: a text became markup", page)
		}
	}
	b := s.open("n2", "/")
	for _, name := range names {
		b.shows(name)
	}
	isText(b, "overview")
	b.isNarrow("overview")
	for _, name := range names {
		b.click(name)
		b.await(fmt.Sprintf(`document.querySelector("h1.mono")?.textContent === %q && document.querySelector(".figures") && document.querySelectorAll("ol.events li").length >= 3`, name))
		b.shows("<svg onload=window.hit=1>")
		isText(b, name)
		b.isNarrow(name)
		eval[bool](b, `(location.hash = "#/", true)`)
		b.shows("Hand over leadership…")
	}
	b = s.open("n3", "/events")
	b.shows("“<img src=x onerror=window.hit=1>”")
	isText(b, "events")
	b.isNarrow("events")
}

// TestTokens: the page asks for a token, keeps it in its tab, and can do what the token can.
func TestTokens(t *testing.T) {
	s := newSite(t, withTokens(t))
	api := s.api("n1")
	api.Do("PUT /v1/semaphores/db", `{"permits":2}`, "Authorization: Bearer secret-admin").Is(201)
	b := s.open("n1", "/semaphore/db")
	b.shows("This cluster asks for a token.")
	b.isAccessible("sign in")
	b.isNarrow("sign in")
	b.fill("token", "secret-wrong")
	b.do(chromedp.KeyEvent("\r"))
	b.shows("The node does not know this token.")
	b.fill("token", "secret-read")
	b.do(chromedp.KeyEvent("\r"))
	b.shows("permits\n2")
	b.shows(`-H "Authorization: Bearer $SIGNALBOX_API_TOKEN"`)
	b.click("Change permits…")
	b.fill("permits", "9")
	b.confirm("db", "Change permits")
	b.shows("Your token does not allow this.")
	b.click("Cancel")
	b.await(`!document.getElementById("dialog").open`)
	api.Do("GET /v1/semaphores/db", "", "Authorization: Bearer secret-admin").Is(200, "permits=2")
	if eval[bool](b, `localStorage.length + document.cookie.length > 0 || sessionStorage.length !== 1 || location.href.includes("secret") || document.documentElement.outerHTML.includes("secret")`) {
		t.Error("the token is somewhere else than in the tab's storage")
	}
	other := s.open("n1", "/")
	other.shows("This cluster asks for a token.")
	b.click("Sign out")
	b.shows("This cluster asks for a token.")
	if eval[bool](b, `sessionStorage.length > 0`) {
		t.Error("the token stays")
	}
	b.fill("token", "secret-admin")
	b.click("Sign in")
	b.shows("permits\n2")
	b.click("Change permits…")
	b.fill("permits", "9")
	b.confirm("db", "Change permits")
	b.done()
	b.shows("permits\n9")
}

// TestManyNames: the list begins empty, and comes in pages; a search looks through the rest.
func TestManyNames(t *testing.T) {
	s := newSite(t)
	b := s.open("n1", "/")
	b.shows("There are no semaphores yet.")
	b.isAccessible("empty")
	b.isReadable("empty")
	api := s.api("n2")
	const names = 3000
	for from := 0; from < names; from += 1000 {
		operations := make([]string, 1000)
		for i := range operations {
			operations[i] = fmt.Sprintf(`{"op":"create","semaphore":"name-%05d","permits":2}`, from+i)
		}
		api.Must(200, "POST /v1/batch", `{"operations":[`+strings.Join(operations, ",")+`]}`)
	}
	api.Must(201, "POST /v1/semaphores/name-02500/leases", `{"count":2,"ttl":"10m"}`)
	b.shows("name-00049")
	b.click("Next")
	b.shows("name-00099")
	b.click("Previous")
	b.shows("name-00000")
	b.click("Full")
	b.shows("1 semaphore of the 3,000 names looked through")
	b.shows("name-02500")
	b.click("Contended")
	b.shows("None of the 3,000 names looked through matches.")
	b.click("All")
	b.fill("prefix", "name-029")
	b.await(`document.querySelector("tbody a")?.textContent === "name-02900"`)
	if rows := eval[int](b, `document.querySelectorAll("[data-key=list] tbody tr").length`); rows != 50 {
		t.Errorf("%d rows", rows)
	}
}
