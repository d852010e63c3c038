//go:build browser

package ui_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// rules holds a page to the rules for all pages.
func (b *tab) rules(page string) {
	b.Helper()
	b.isAccessible(page)
	b.isNarrow(page)
	b.isReadable(page)
	b.dark()
	b.isReadable(page + " in the dark")
	b.light()
}

// TestItems: the list has pages and a prefix, and is live; a session's page and an item's lead to
// each other; a change and a delete at another node arrive; a delete says what it does.
func TestItems(t *testing.T) {
	s := newSite(t)
	b := s.open("n1", "/events")
	b.shows("Pause")
	eval[bool](b, `(window.setInterval = () => 0, location.hash = "/items", true)`) // from here on nothing but events has a page read
	b.shows("There are no items yet.")
	b.rules("no items")
	b.await(`document.getElementById("live").textContent === "Live"`)
	api := s.api("n2")
	session := api.Must(201, "POST /v1/sessions", `{"ttl":"10m","about":"w1"}`).Member("session")
	version := api.Must(201, "PUT /v1/items/svc%2Fleader", `{"value":"n1:8080 €","flags":18446744073709551615,"session":"`+session+`"}`).Member("version")
	row := func(text string) {
		t.Helper()
		b.await(fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].some((row) => [...row.cells].map((cell) => cell.textContent).join("|").startsWith(%q))`, text))
	}
	row("svc/leader|11|" + version + "|" + session)
	puts := make([]string, 150)
	for i := range puts {
		puts[i] = fmt.Sprintf(`{"op":"item-put","item":"many-%03d","value_base64":"//4="}`, i)
	}
	s.batch(puts)
	row("many-099|2|")
	b.click("Next items")
	row("many-149|2|")
	b.shows("Page 2")
	b.rules("items")
	b.fill("items-prefix", "svc")
	b.do(chromedp.KeyEvent("\r"))
	b.await(`document.querySelectorAll("tbody tr").length === 1`)
	b.click("svc/leader")
	b.shows("n1:8080 €")
	b.shows("above 2^53")
	b.rules("item")

	b.await(`document.getElementById("live").textContent === "Live"`)
	s.api("n3").Must(200, "PUT /v1/items/svc%2Fleader", `{"value":"`+strings.Repeat("x", 4096)+`yz"}`)
	b.shows("Only the first 4,096 characters are shown.")
	b.await(`document.querySelector("pre.shape").textContent === "x".repeat(4096)`)
	s.api("n3").Must(200, "PUT /v1/items/svc%2Fleader", `{"value":"a\u202eb\u0000"}`)
	b.shows(`a\u{202e}b\u{0}`)
	s.api("n3").Must(200, "PUT /v1/items/svc%2Fleader", `{"value_base64":"//4="}`)
	b.shows("ff fe")
	b.shows("2 bytes, no text")

	b.click(session)
	b.shows("Holds items")
	b.click("End session…")
	b.shows("1 item that it holds is released.")
	b.click("Cancel")
	b.click("svc/leader")
	b.shows("Held by session " + session)
	b.click("Delete…")
	b.confirm("svc/leader", "Delete", "Session "+session+" holds it, and lives on.", "it may still be running")
	b.done()
	b.shows("This item was deleted.")
	api.Must(404, "GET /v1/items/svc%2Fleader", "").RefusedWith(404, "unknown-item")

	b = s.open("n1", "/item/many-000")
	b.click("Delete…")
	b.await(`document.getElementById("dialog").open`)
	api.Must(200, "PUT /v1/items/many-000", `{"value":"other"}`)
	b.confirm("many-000", "Delete", "No session holds it.")
	b.await(`document.querySelector("dialog .error").textContent !== ""`) // it is another one by now
	b.click("Cancel")
	api.Must(200, "GET /v1/items/many-000", "").Is(200, "value=other")
	s.api("n3").Must(204, "DELETE /v1/items/many-000", "")
	b.shows("This item was deleted.")
}

// TestHostileItems: the name and the value of an item are texts, whatever they look like, and a
// semaphore of the same name has another history.
func TestHostileItems(t *testing.T) {
	s := newSite(t)
	api := s.api("n1")
	names := []string{`<img src=x onerror=window.hit=1>`, `"><script>window.hit=1</script>`, `a/b?c#d%41'`, `__proto__`, strings.Repeat("w", 512)}
	session := api.Must(201, "POST /v1/sessions", `{"ttl":"10m"}`).Member("session")
	for _, name := range names {
		api.Must(201, "PUT /v1/items/"+url.PathEscape(name), `{"value":"</pre><svg onload=window.hit=1>","session":"`+session+`"}`)
		api.Must(201, "PUT /v1/semaphores/"+url.PathEscape(name), `{"permits":1}`)
	}
	isText := func(b *tab, page string) {
		t.Helper()
		if eval[bool](b, `"hit" in window || document.images.length !== 1 || document.scripts.length !== 1 || document.querySelectorAll("b, i, svg, iframe").length > 0 || document.title.includes("undefined")`) {
			t.Errorf("%s: a text became markup", page)
		}
		b.isNarrow(page)
	}
	b := s.open("n2", "/items")
	for _, page := range []string{"/items", "/session/" + session, "/events"} {
		eval[bool](b, fmt.Sprintf(`(location.hash = %q, true)`, page))
		for _, name := range names {
			b.shows(name)
		}
		isText(b, page)
	}
	for _, name := range names {
		for page, event := range map[string]string{"item": "changed, version ", "semaphore": "created with 1 permit"} {
			eval[bool](b, fmt.Sprintf(`(location.hash = %q, true)`, "/"+page+"/"+url.PathEscape(name)))
			b.await(fmt.Sprintf(`document.querySelector("h1.mono")?.textContent === %q && document.querySelectorAll("ol.events li").length === 1`, name))
			b.shows(event)
			isText(b, page+" "+name)
		}
		eval[bool](b, fmt.Sprintf(`(location.hash = %q, true)`, "/item/"+url.PathEscape(name)))
		b.shows("</pre><svg onload=window.hit=1>")
		b.click("Delete…")
		b.await(`document.getElementById("dialog").open`)
		b.shows("Delete item " + name)
		isText(b, "dialog")
		b.click("Cancel")
	}
}
