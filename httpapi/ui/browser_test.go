//go:build browser

// Tests of the console in a real browser, on three real nodes. They need Chromium.

package ui_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/apitest"
)

// patience is how long a condition in the browser may take.
const patience = 15 * time.Second

var chromium context.Context // of the one browser

// TestMain starts the browser that all tests share, each in its own context.
func TestMain(m *testing.M) {
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		fmt.Println("NOT CHECKED: there is no Chromium here")
		os.Exit(0)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(60*time.Second))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	var stop context.CancelFunc
	chromium, stop = chromedp.NewContext(allocator)
	if err := chromedp.Do(chromium); err != nil {
		fmt.Println("the browser does not start:", err)
		os.Exit(1)
	}
	status := m.Run()
	stop()
	end()
	os.Exit(status)
}

// site is three nodes on loopback.
type site struct {
	*testing.T
	cluster   *apitest.Cluster
	addresses map[string]string // of nodes
	servers   map[string]*httpapi.Server
	served    map[string]chan error
}

// newSite starts three nodes, with the console. The loopback addresses stay the nodes'.
func newSite(t *testing.T, change ...func(*apitest.Config)) *site {
	t.Helper()
	s := &site{t, apitest.NewCluster(t, append(change, withConsole)...), map[string]string{}, map[string]*httpapi.Server{}, map[string]chan error{}}
	for _, id := range s.cluster.IDs {
		s.serve(id, "127.0.0.1:0")
	}
	t.Cleanup(func() {
		for id := range s.servers {
			s.unserve(id)
		}
	})
	return s
}

func (s *site) serve(id, address string) {
	s.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		s.Fatal(err)
	}
	server, served := httpapi.NewServer(s.cluster.APIs[id]), make(chan error, 1)
	s.addresses[id], s.servers[id], s.served[id] = listener.Addr().String(), server, served
	go func() { served <- server.Serve(listener) }()
}

func (s *site) unserve(id string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.servers[id].Shutdown(ctx); err != nil {
		s.Logf("%s: %v", id, err)
	}
	if err := <-s.served[id]; err != nil {
		s.Error(err)
	}
	delete(s.servers, id)
}

// kill ends a node and its port; restart starts it again at the same address.
func (s *site) kill(id string) {
	s.unserve(id)
	s.cluster.Kill(id)
}

func (s *site) restart(id string) {
	s.cluster.Net.Rejoin(id)
	s.cluster.Start(id)
	s.serve(id, s.addresses[id])
}

// api asks a node, as its clients do.
func (s *site) api(id string) *apitest.API { return &apitest.API{T: s.T, Handler: s.cluster.APIs[id]} }

// other returns a running node that is not this one.
func (s *site) other(than string) string {
	for _, id := range s.cluster.IDs {
		if id != than && s.cluster.Nodes[id] != nil {
			return id
		}
	}
	s.Fatal("there is no other node")
	return ""
}

// tab is a page of the browser.
type tab struct {
	*testing.T
	ctx    context.Context
	wrong  chan string // exceptions, refusals of the policy, requests elsewhere
	origin string
}

// open opens a page of a node's console, and fails the test at its end if the page had an error.
func (s *site) open(id, hash string) *tab {
	s.Helper()
	return openTab(s.T, "http://"+s.addresses[id], hash)
}

func openTab(t *testing.T, origin, hash string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	b := &tab{t, ctx, make(chan string, 1000), origin}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.wrong <- fmt.Sprintf("exception: %+v", e.ExceptionDetails)
		case *cdplog.EventEntryAdded:
			if e.Entry.Source != cdplog.EntrySourceNetwork { // refusals are a matter of the tests
				b.wrong <- fmt.Sprintf("%s: %s", e.Entry.Source, e.Entry.Text)
			}
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, origin+"/") && !strings.HasPrefix(e.Request.URL, "blob:"+origin) {
				b.wrong <- "a request to " + e.Request.URL
			}
			if strings.Contains(e.Request.URL, "secret") {
				b.wrong <- "a token in " + e.Request.URL
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end()
		close(b.wrong)
		for text := range b.wrong {
			t.Errorf("%s/ui/#%s: %s", origin, hash, text)
		}
	})
	b.do(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(origin+"/ui/#"+hash))
	return b
}

// do acts in the browser.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("%v\n%s", err, b.text())
	}
}

// await blocks until an expression of JavaScript is true.
func (b *tab) await(expression string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	promise := fmt.Sprintf(`new Promise((done) => {
		const late = performance.now() + %d, check = () => { const is = Boolean(%s); is || performance.now() > late ? done(is) : setTimeout(check, 4); };
		check();
	})`, patience.Milliseconds(), expression)
	if ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](promise, chromedp.EvalAwaitPromise)); err != nil || !ok {
		b.Fatalf("%s: %v\n%s", expression, err, b.text())
	}
}

// shows blocks until the page has a text.
func (b *tab) shows(text string) {
	b.Helper()
	b.await(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

func (b *tab) text() (text string) {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, _ = chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText")) // for a message
	return text
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*patience)
	defer cancel()
	result, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v\n%s", expression, err, b.text())
	}
	return result
}

// click clicks the button or link with a text.
func (b *tab) click(text string) {
	b.Helper()
	b.await(fmt.Sprintf(`(() => { const found = [...document.querySelectorAll("dialog[open] button, button, a")].find((e) => (e.getAttribute("aria-label") ?? e.textContent) === %q && !e.disabled); found?.click(); return Boolean(found); })()`, text))
}

// fill types into a field.
func (b *tab) fill(id, text string) {
	b.Helper()
	b.await(fmt.Sprintf("document.getElementById(%q)", id))
	eval[bool](b, fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.focus(); e.select?.(); return true; })()`, id))
	if text == "" {
		return
	}
	b.do(chromedp.Func(func(ctx context.Context, page *chromedp.Target) error {
		_, err := cdp.Call(ctx, page, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}))
}
