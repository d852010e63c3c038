//go:build browser

package ui_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"github.com/signalbox/signalbox/test/openapitest"
)

// TestPages opens each page, and holds it to the rules for all: what a screen reader, a
// keyboard, a narrow window and weak eyes need.
func TestPages(t *testing.T) {
	s := newSite(t)
	session := s.scene()
	b := s.open("n2", "/")
	for hash, texts := range map[string][]string{
		"/":                   {"n1", "n3", "leader", "follower", "this node", "has room", "Signalbox ", "Cluster ", "deploy/production", "3 / 4", "contended", "full", "idle"},
		"/semaphore/db":       {"owner platform", session, "worker-2", "It needs 2, 1 available.", "The request before it in the line comes first. Before it:", "waits for 2 permits", "granted: 2 permits, token", "curl '"},
		"/session/" + session: {"host worker-1", "licences/matlab", "17", "granted: 2 permits", "End session…"},
		"/events":             {"session worker-1 " + session + " opened for 10 min", "db created with 4 permits", "granted: 17 permits"},
		"/sessions":           {"worker-1 " + session, "licences/matlab", "Time left"},
		"/semaphore/nosuch":   {"Not there", "No semaphore has this name", "Try again"},
		"/session/12":         {"Not there"},
		"/nosuch":             {"No such page"},
	} {
		b.light()
		eval[bool](b, fmt.Sprintf(`(location.hash = %q, true)`, hash))
		for _, text := range texts {
			b.shows(text)
		}
		if hash == "/" {
			b.await(`[...document.querySelectorAll(".nodes li")].filter((e) => /Disk\s*has room/.test(e.innerText)).length === 3`)
		}
		b.isAccessible(hash)
		b.isNarrow(hash)
		b.isReadable(hash)
		b.dark()
		b.isReadable(hash + " in the dark")
		if hash != "/" {
			continue
		}
		if weight := eval[int](b, `performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation")).filter((e) => e.name.includes("/ui/")).reduce((sum, e) => sum + e.transferSize, 0)`); weight == 0 || weight > 150_000 {
			t.Errorf("%s: %d bytes were loaded", hash, weight)
		} else {
			t.Logf("%d bytes of files in all, with their headers", weight)
		}
	}
}

// TestDeadNodesAreShown as such, and what is not known of them as unknown; without a majority no page is green.
func TestDeadNodesAreShown(t *testing.T) {
	s := newSite(t)
	s.scene()
	b := s.open("n2", "/")
	b.shows("Live")
	noMajority := func() {
		b.Helper()
		b.shows("No majority. This node reaches 1 of 3 voting nodes, itself included, and 2 are needed")
		b.await(`document.getElementById("live").textContent === "No majority" && document.getElementById("live").className === "live off"`)
	}
	dead := func(n int) {
		b.Helper()
		b.await(fmt.Sprintf(`[...document.querySelectorAll(".nodes li.down")].filter((e) => /down[^]*Lag\s*unknown\s*Last contact\s*\d+ s ago\s*Disk\s*unknown/.test(e.innerText)).length === %d`, n))
	}
	s.cluster.Net.Isolate("n2") // the node of the page lives, and is cut off
	dead(2)
	noMajority()
	s.cluster.Net.Rejoin("n2")
	dead(0)
	s.kill("n1")
	dead(1)
	b.await(`document.getElementById("live").textContent === "Live"`)
	b.isReadable("a dead node")
	b.keep("one-dead")
	s.kill("n3")
	dead(2)
	noMajority()
	b.keep("two-dead")
	eval[bool](b, `(location.hash = "/semaphore/db", true)`)
	b.shows("This node last heard from a leader")
	b.await(`document.getElementById("live").textContent === "No leader"`)
}

// TestLastEventsAreReadByName, however many others came since; renewals are shown to those who ask.
func TestLastEventsAreReadByName(t *testing.T) {
	s := newSite(t)
	session := s.scene()
	api := s.api("n2")
	api.Must(201, "PUT /v1/semaphores/busy", `{"permits":0}`)
	for range 300 {
		api.Must(200, "POST /v1/semaphores/busy/up", "")
		api.Must(200, "POST /v1/semaphores/busy/down", "")
	}
	api.Must(200, "PUT /v1/sessions/"+session, `{"ttl":"11m"}`)
	b := s.open("n2", "/semaphore/db")
	b.shows("created with 4 permits")
	b = s.open("n2", "/session/"+session)
	b.shows("granted: 2 permits")
	if eval[bool](b, `document.body.innerText.includes("renewed for 11 min")`) {
		t.Error("renewals are shown, though nobody asked")
	}
	b.click("Show renewals")
	b.shows("renewed for 11 min")
}

// TestReference: the page of the API shows every route of the description that the node
// serves, opens the route that its address names, and obeys the rules for all pages.
func TestReference(t *testing.T) {
	s := newSite(t)
	b := openTab(t, "http://"+s.addresses["n1"], "/")
	b.shows("Semaphores")
	b.await(`[...document.querySelectorAll("nav a")].some((e) => e.textContent === "API" && new URL(e.href).pathname === "/ui/api")`)
	b.do(chromedp.Navigate(b.origin + "/ui/api"))
	b.shows("This node's own description")
	d, err := openapitest.Loaded()
	if err != nil {
		t.Fatal(err)
	}
	routes, replies := 0, map[string]bool{}
	for _, methods := range d.Document["paths"].(map[string]any) {
		routes += len(methods.(map[string]any))
	}
	if shown := eval[int](b, `document.querySelectorAll("details.operation").length`); shown != routes || routes < 30 {
		t.Errorf("%d routes are shown, %d described", shown, routes)
	}
	eval[bool](b, `(location.hash = "put-semaphores-name", true)`)
	b.await(`document.getElementById("put-semaphores-name").open`)
	b.shows("permits?: integer or null (0 or more)")
	for _, reply := range d.Replies() {
		if words := strings.Fields(reply); len(words) == 4 {
			replies["../problems/"+words[3]] = true
		}
	}
	for _, link := range eval[[]string](b, `[...new Set([...document.querySelectorAll("details a")].map((e) => e.getAttribute("href")))]`) {
		delete(replies, link)
	}
	if len(replies) > 0 {
		t.Errorf("no links lead to %v", replies)
	}
	eval[bool](b, `(document.querySelectorAll("h2 + details").forEach((e) => { e.open = true; }), true)`)
	eval[bool](b, `(document.querySelectorAll("details:not([open]) table").forEach((e) => e.remove()), true)`) // the tree has none of what is closed
	b.isAccessible("/ui/api")
	b.isNarrow("/ui/api")
	b.isReadable("/ui/api")
	b.dark()
	b.isReadable("/ui/api in the dark")
}

// isAccessible checks Chromium's accessibility tree: whatever can be operated has a name,
// pages have one heading of the first level, and tables are tables.
func (b *tab) isAccessible(page string) {
	b.Helper()
	tree, err := chromedp.Run(b.ctx, func(ctx context.Context, target *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	if err != nil {
		b.Fatal(err)
	}
	value := func(v *accessibility.Value) string {
		if v == nil {
			return ""
		}
		return strings.Trim(string(v.Value), `"`)
	}
	counts, named := map[string]int{}, 0
	for _, node := range tree.Nodes {
		if node.Ignored {
			continue
		}
		role, name := value(node.Role), value(node.Name)
		counts[role]++
		if slices.Contains([]string{"button", "link", "textbox", "searchbox", "combobox", "spinbutton", "table", "navigation", "dialog", "image"}, role) {
			if named++; name == "" && role != "image" {
				b.Errorf("%s: a %s has no name", page, role)
			}
		}
	}
	if counts["dialog"] > 0 { // the rest can't be reached meanwhile
		return
	}
	tables := eval[int](b, `document.querySelectorAll("main table").length`)
	if counts["main"] != 1 || counts["navigation"] != 1 || named < 4 || counts["table"] != tables || tables > 0 && counts["columnheader"] == 0 {
		b.Errorf("%s: %d named, %v", page, named, counts)
	}
	if headings := eval[int](b, `document.querySelectorAll("h1").length`); headings != 1 {
		b.Errorf("%s: %d headings of the first level", page, headings)
	}
}

// isNarrow checks that a window of 360 pixels has nothing to scroll to the side.
func (b *tab) isNarrow(page string) {
	b.Helper()
	b.do(chromedp.EmulateViewport(360, 740))
	if wide := eval[string](b, `document.documentElement.scrollWidth > 360 ? [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > 360).map((e) => e.tagName + " " + e.textContent.slice(0, 40)).join("; ") || "the page" : ""`); wide != "" {
		b.Errorf("%s: too wide for 360 pixels: %s", page, wide)
	}
	b.do(chromedp.EmulateViewport(1200, 900))
}

// isReadable computes the contrast of every text with what is behind it: at least 4.5 to 1.
func (b *tab) isReadable(page string) {
	b.Helper()
	weak := eval[[]string](b, `(() => {
		const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number); return [r, g, b, a]; };
		const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
		const weak = [];
		let texts = 0;
		for (const e of document.querySelectorAll("body *")) {
			if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest(".hidden, thead") || e.disabled) continue;
			texts++;
			const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))];
			const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			if (contrast < 4.5) weak.push(contrast.toFixed(2) + " " + e.textContent.slice(0, 40));
		}
		if (texts < 4) weak.push("only " + texts + " texts");
		return weak;
	})()`)
	if len(weak) > 0 {
		b.Errorf("%s: too little contrast: %q", page, weak)
	}
}

// TestKeyboard walks through a page by Tab alone: every link and button gets the focus, in
// the order of the page, and shows it; then it opens a dialog, cancels it, and acts.
func TestKeyboard(t *testing.T) {
	s := newSite(t)
	s.scene()
	b := s.open("n1", "/semaphore/db")
	b.shows("The request before it")
	b.shows("created with 4 permits") // the last of what comes late
	eval[bool](b, `(document.activeElement.blur(), document.getElementById("skip").focus(), window.passed = [], true)`)
	count := eval[int](b, `(window.all = [...document.querySelectorAll("a[href], button, input, select, [tabindex='0']")].filter((e) => e.checkVisibility()), all.length)`)
	for range count {
		eval[bool](b, `(passed.push(document.activeElement), true)`)
		if outline := eval[string](b, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
			t.Errorf("%s does not show its focus", eval[string](b, `document.activeElement.outerHTML`))
		}
		b.do(chromedp.KeyEvent("\t"))
	}
	if missed := eval[string](b, `all.filter((e) => e.isConnected && !passed.includes(e)).map((e) => e.textContent).join("; ")`); missed != "" || count < 15 {
		t.Errorf("of %d, Tab misses %s", count, missed)
	}
	focus := func() {
		eval[bool](b, `([...document.querySelectorAll("button")].find((e) => e.textContent === "Change permits…").focus(), true)`)
		b.do(chromedp.KeyEvent("\r"))
		b.await(`document.getElementById("dialog").open && document.activeElement.id === "permits"`)
	}
	focus()
	b.isAccessible("the dialog over it")
	b.do(chromedp.KeyEvent("\u001b"))
	b.await(`!document.getElementById("dialog").open && document.activeElement.textContent === "Change permits…"`)
	focus()
	eval[bool](b, `(document.activeElement.select(), true)`)
	b.do(chromedp.KeyEvent("9\tdb\r"))
	b.shows("permits\n9")
	s.api("n1").Must(200, "GET /v1/semaphores/db", "").Is(200, "permits=9")
}

// TestLive changes a semaphore at one node and sees it on the page of another one, without
// a click; the log has the time from the request to the page.
func TestLive(t *testing.T) {
	s := newSite(t)
	s.api("n3").Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	b := s.open("n1", "/semaphore/db")
	b.await(`document.getElementById("live").textContent === "Live"`)
	var times []time.Duration
	for n := 1001; n <= 1100; n++ {
		shown := fmt.Sprintf(`new Promise((done) => {
			const check = () => document.querySelector(".figures dd")?.textContent === "%d,%03d" ? done(Date.now()) : setTimeout(check, 2);
			check();
		})`, n/1000, n%1000)
		at := make(chan float64, 1)
		go func() {
			moment, err := chromedp.Run(b.ctx, chromedp.Evaluate[float64](shown, chromedp.EvalAwaitPromise))
			if err != nil {
				t.Error(err)
			}
			at <- moment
		}()
		sent := time.Now()
		s.api("n3").Must(200, "PUT /v1/semaphores/db", fmt.Sprintf(`{"permits":%d}`, n))
		select {
		case moment := <-at:
			times = append(times, max(0, time.UnixMilli(int64(moment)).Sub(sent)))
		case <-time.After(patience):
			t.Fatalf("%d does not arrive: %s", n, b.text())
		}
	}
	slices.Sort(times)
	t.Logf("from the request at n3 to the page of n1: of %d the median %v, p90 %v, p99 %v", len(times), times[len(times)/2], times[len(times)*9/10], times[len(times)*99/100-1])
	if median := times[len(times)/2]; median > time.Second {
		t.Errorf("the median is %v: the page reads at intervals, and not by the events", median)
	}
	overview := s.open("n2", "/")
	overview.shows("1,100")
	s.api("n1").Must(201, "PUT /v1/semaphores/another", `{"permits":1}`)
	overview.shows("another")
	s.api("n3").Must(204, "DELETE /v1/semaphores/db", "")
	b.shows("This semaphore was deleted.")
}

// TestRestart takes the page's node away while it leads. The page says that it is stale, and
// is live again when the node is back.
func TestRestart(t *testing.T) {
	s := newSite(t)
	leader := s.cluster.Leader()
	s.api(leader).Must(201, "PUT /v1/semaphores/db", `{"permits":5}`)
	b, follower := s.open(leader, "/semaphore/db"), s.open(s.other(leader), "/semaphore/db")
	for _, page := range []*tab{b, follower} {
		page.shows("permits\n5")
		page.await(`document.getElementById("live").textContent === "Live"`)
	}
	s.kill(leader)
	b.shows("This page does not reach its node")
	b.await(`/^Reconnecting, last update \d+ s ago$/.test(document.getElementById("live").textContent)`)
	s.cluster.AwaitReady()
	s.api(s.other(leader)).Must(200, "PUT /v1/semaphores/db", `{"permits":6}`)
	follower.shows("permits\n6")
	if strings.Contains(b.text(), "permits\n6") {
		t.Error("the page without its node has news")
	}
	s.restart(leader)
	b.shows("permits\n6")
	b.await(`document.getElementById("live").textContent === "Live" && !document.body.innerText.includes("does not reach")`)
	s.cluster.AwaitReady()
	s.api(s.other(leader)).Must(200, "PUT /v1/semaphores/db", `{"permits":7}`)
	b.shows("permits\n7")
	follower.shows("permits\n7")
}

// TestReadsAreFew: however many events there are, the overview reads its list at intervals, also
// when the stream of events breaks. A node that asks for a pause gets one, and the page does not
// take it for lost.
func TestReadsAreFew(t *testing.T) {
	s := newSite(t)
	s.api("n1").Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	b := s.open("n1", "/")
	b.await(`document.getElementById("live").textContent === "Live"`)
	eval[int](b, `(() => {
		const real = window.fetch;
		[window.reads, window.refused, window.refuses, window.off, window.cut, window.cutAt] = [[], 0, false, false, new AbortController(), 0];
		window.fetch = (of, options) => {
			if (String(of).includes("/v1/events")) return real(of, { ...options, signal: AbortSignal.any([options.signal, cut.signal]) });
			if (!String(of).includes("/v1/semaphores?")) return real(of, options);
			reads.push(performance.now());
			if (!cutAt && reads.length > 2 && document.getElementById("live").textContent === "Live") {
				cutAt = reads.length;
				cut.abort(new Error("cut"));
				cut = new AbortController();
			}
			if (!refuses) return real(of, options);
			refused++;
			return Promise.resolve(new Response('{"status":429}', { status: 429, headers: { "Retry-After": "2" } }));
		};
		new MutationObserver(() => { off ||= document.getElementById("live").className.includes("off"); }).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
		return 0;
	})()`)
	for _, hash := range []string{"/events", "/"} { // a new stream
		eval[string](b, fmt.Sprintf(`(location.hash = %q)`, hash))
		b.await(`document.getElementById("live").textContent === "Live"`)
	}
	eval[bool](b, `(window.reads = [], window.cutAt = 0, true)`)
	for n := 2; !eval[bool](b, `cutAt > 0 && reads.length > cutAt + 2`); n++ {
		s.api("n1").Must(200, "PUT /v1/semaphores/db", fmt.Sprintf(`{"permits":%d}`, n))
	}
	if least := eval[float64](b, `Math.min(...reads.slice(1).map((at, i) => at - reads[i]))`); least < 450 {
		t.Errorf("two reads within %v ms", least)
	}
	b.await(`document.getElementById("live").textContent === "Live"`)
	eval[bool](b, `(window.off = false, window.refuses = true)`)
	s.api("n1").Must(201, "PUT /v1/semaphores/another", `{"permits":1}`)
	b.await(`document.getElementById("live").textContent.startsWith("Busy") && refused > 0`)
	eval[bool](b, `(window.refuses = false, true)`)
	b.shows("another")
	b.await(`document.getElementById("live").textContent === "Live"`)
	if eval[bool](b, `off`) || eval[int](b, `refused`) > 2 {
		t.Errorf("off: %v, refused %d times", eval[bool](b, `off`), eval[int](b, `refused`))
	}
}

// TestCommandsAreSafe: a line to copy has the name of a semaphore where it can be no flag.
func TestCommandsAreSafe(t *testing.T) {
	s := newSite(t)
	for name, want := range map[string]string{"-n": "signalbox acquire --addr http://127.0.0.1:", "it's": `-- 'it'\''s'`} {
		path := "/v1/semaphores/" + url.PathEscape(name)
		s.api("n1").Must(201, "PUT "+path, `{"permits":1}`)
		session := s.api("n1").Must(201, "POST "+path+"/leases", `{"ttl":"10m"}`).Member("session")
		for _, page := range []string{"/semaphore/" + url.PathEscape(name), "/session/" + session} {
			b := s.open("n2", page)
			b.shows("The same from a terminal")
			lines := eval[[]string](b, `[...document.querySelectorAll(".copy pre")].map((pre) => pre.textContent).filter((line) => line.startsWith("signalbox "))`)
			all := strings.Join(lines, "\n")
			if len(lines) < 3 || strings.HasPrefix(page, "/semaphore/") && !strings.Contains(all, want) {
				t.Errorf("%s: %q", page, lines)
			}
			for _, line := range lines {
				before, _, _ := strings.Cut(line, " -- ")
				if strings.Contains(strings.Split(before, "--addr")[1], " -") {
					t.Errorf("a name becomes a flag: %s", line)
				}
			}
		}
	}
}

// batch sends operations, and returns their results.
func (s *site) batch(operations []string) (results []any) {
	s.Helper()
	for part := range slices.Chunk(operations, 1000) {
		results = append(results, s.api("n1").Must(200, "POST /v1/batch", `{"operations":[`+strings.Join(part, ",")+`]}`).Body["results"].([]any)...)
	}
	return results
}

// crowd opens 480 sessions: 250 hold a semaphore, the first of them 149 others too, and the rest
// waits. It returns their ids.
func (s *site) crowd() (sessions []string) {
	s.Helper()
	s.api("n1").Must(201, "PUT /v1/semaphores/db", `{"permits":250}`)
	var opens, acquires, names, leases []string
	for range 480 {
		opens = append(opens, `{"op":"open","ttl":"1h"}`)
	}
	for _, result := range s.batch(opens) {
		session := result.(map[string]any)["body"].(map[string]any)["session"].(string)
		sessions = append(sessions, session)
		acquires = append(acquires, fmt.Sprintf(`{"op":"acquire","session":%q,"semaphore":"db"}`, session))
	}
	s.batch(acquires) // 250 hold it, 230 wait
	for i := range 149 {
		names = append(names, fmt.Sprintf(`{"op":"create","semaphore":"many-%03d","permits":1}`, i))
		leases = append(leases, fmt.Sprintf(`{"op":"acquire","session":%q,"semaphore":"many-%03d"}`, sessions[0], i))
	}
	s.batch(append(names, leases...))
	return sessions
}

// TestLongLists: of a semaphore and a session with long lists a page has a hundred rows, and the
// keyboard alone reaches the others; the page stays live, and goes back when its rows are gone.
func TestLongLists(t *testing.T) {
	s := newSite(t)
	sessions := s.crowd()
	b := s.open("n2", "/semaphore/db")
	rows := func(key string, want int, first string) {
		t.Helper()
		selected := fmt.Sprintf(`[...document.querySelectorAll('[data-key=%q] tbody tr')]`, key)
		b.await(fmt.Sprintf(`%s.length === %d && %s[0].textContent.includes(%q)`, selected, want, selected, first))
	}
	at := func(list, text string) {
		t.Helper()
		b.await(fmt.Sprintf(`document.querySelector('[data-key="%s steps"]')?.textContent.includes(%q)`, list, text))
	}
	rows("holders", 100, sessions[0])
	rows("queue", 100, sessions[250])
	at("holders", "100 of 250, page 1")
	at("waiters", "100 of 230, page 1")
	b.keep("long-lists")
	b.isAccessible("long lists")
	b.isNarrow("long lists")
	b.isReadable("long lists")
	b.dark()
	b.isReadable("long lists in the dark")
	b.light()

	eval[bool](b, `(document.querySelector('[aria-label="Next holders"]').focus(), true)`)
	b.do(chromedp.KeyEvent("\r"))
	rows("holders", 100, sessions[100])
	b.do(chromedp.KeyEvent("\r"))
	rows("holders", 50, sessions[200])
	at("holders", "50 of 250, page 3")
	b.await(`document.activeElement.getAttribute("aria-label") === "Next holders" && document.activeElement.getAttribute("aria-disabled") === "true"`)
	b.do(chromedp.KeyEvent("\r")) // leads to no page
	rows("queue", 100, sessions[250])
	eval[bool](b, `(() => { const next = document.querySelector('[aria-label="Next waiters"]'); next.click(); next.click(); return true; })()`) // one page on
	rows("queue", 100, sessions[350])
	at("waiters", "100 of 230, page 2")
	b.click("Next waiters")
	rows("queue", 30, sessions[450])
	b.click("Revoke the lease of session " + sessions[200])
	b.confirm("revoke", "Revoke", "Token ")
	b.done()
	b.shows("revoked")
	var ends []string
	for _, session := range sessions[200:] {
		ends = append(ends, fmt.Sprintf(`{"op":"end","session":%q}`, session))
	}
	s.batch(ends) // the rows of both pages, and of others
	rows("holders", 100, sessions[100])
	at("holders", "100 of 200, page 2")
	b.shows("No request waits.")
	b.click("Previous holders")
	rows("holders", 100, sessions[0])

	b = s.open("n3", "/session/"+sessions[0])
	rows("leases", 100, "db")
	at("leases", "100 of 150, page 1")
	b.keep("long-session")
	b.isAccessible("long session")
	b.isNarrow("long session")
	b.click("Next leases")
	rows("leases", 50, "many-099")
	b.isReadable("long session")
	b.click("Previous leases")
	rows("leases", 100, "db")
	if nodes := eval[int](b, `document.querySelectorAll("*").length`); nodes > 2500 {
		t.Errorf("the page has %d elements", nodes)
	}
}
