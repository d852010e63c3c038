//go:build browser

package ui_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/test/apitest"
)

// withMetrics serves the metrics of the node, as the program does.
func withMetrics(cfg *apitest.Config) {
	cfg.HTTP.Collectors = append(cfg.HTTP.Collectors, cfg.Exchange.Node.(interface{ Collector() prometheus.Collector }).Collector())
}

// later has the page take the time for so many milliseconds later.
func (b *tab) later(ms int) {
	b.Helper()
	eval[bool](b, fmt.Sprintf(`(() => { const now = performance.now.bind(performance); performance.now = () => now() + %d; return true; })()`, ms))
}

// TestPlots: pages draw the values that they have read, and have them as tables; a line breaks where no page was open, and goes on
// when its user comes back.
func TestPlots(t *testing.T) {
	s := newSite(t, withMetrics)
	session := s.scene()
	b := s.open("n2", "/semaphore/db")
	b.row("now|3|2|")
	path := func(figure int, want string) {
		t.Helper()
		b.await(fmt.Sprintf(`/%s/.test(document.querySelectorAll("figure path")[%d]?.getAttribute("d"))`, want, figure))
	}
	path(0, `^M8\d 10.5h1`) // 3 of 4
	path(1, `^M8\d 1.0h1`)  // all of 2
	b.shows("3 now, at most 3")
	b.rules("plots")
	b.later(120_000)
	b.row("now|3|2|")
	b.row("2 minutes ago|3|2|")
	s.api("n1").Must(204, "DELETE /v1/semaphores/db/holders/"+session, "")
	b.row("now|4|2|") // the most of the minute
	path(0, `^M7\d 10.5h1.*M8\d .*1.0h1$`)
	b.shows("4 now, at most 4")
	b.keep("plots")

	eval[bool](b, `(location.hash = "/", true)`)
	b.await(`[...document.querySelectorAll("tbody tr")].some((row) => row.cells[0].textContent === "db" && row.querySelector("svg").getAttribute("aria-label") === "Held or returning: at most 4 in the last 15 minutes")`)
	b.row("now|0.0") // without a grant
	s.batch(append([]string{`{"op":"create","semaphore":"busy","permits":999}`}, slices.Repeat([]string{`{"op":"acquire-once","semaphore":"busy","ttl":"10m"}`}, 999)...))
	b.await(`[...document.querySelectorAll("tbody tr")].some((row) => /^now[1-9]\d*$/.test(row.textContent))`) // 999 in some seconds
	b.rules("overview with plots")
	b.keep("overview-plots")
	b.later(16 * 60_000)
	eval[bool](b, `(location.hash = "/semaphore/db", true)`)
	b.await(`document.querySelector("h1.mono") && document.querySelectorAll("figure").length === 3 && ![...document.querySelectorAll("tbody td")].some((cell) => cell.textContent.endsWith("minutes ago"))`)
}

// TestNamesStayWhole: the name of a client's host is in one line in a wide window, and its id behind it.
func TestNamesStayWhole(t *testing.T) {
	s := newSite(t)
	api := s.api("n1")
	api.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	const who = "deploy@build-worker-17.eu-central.example.internal pid 48213"
	for range 3 {
		session := api.Must(201, "POST /v1/sessions", `{"ttl":"10m","metadata":{"user":"deploy","host":"build-worker-17.eu-central.example.internal","pid":"48213"}}`).Member("session")
		api.Do("PUT /v1/sessions/"+session+"/leases/db", "")
	}
	b := s.open("n2", "/semaphore/db")
	b.row("2|" + who)
	b.do(chromedp.EmulateViewport(1280, 900))
	b.keep("names")
	b.do(chromedp.EmulateViewport(1280, 900))
	if split := eval[int](b, `[...document.querySelectorAll('td .who span')].filter((e) => e.getClientRects().length > 1).length`); split > 0 {
		t.Errorf("%d names are in two lines", split)
	}
	if wide := eval[bool](b, `document.documentElement.scrollWidth > 1280`); wide {
		t.Error("the page is too wide")
	}
	b.isNarrow("names")
}
