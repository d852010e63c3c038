//go:build browser

package ui_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// scene makes semaphores as a small shop has them, and returns the session that holds most.
func (s *site) scene() (session string) {
	a := s.api("n1")
	for name, body := range map[string]string{
		"db": `{"permits":4,"metadata":{"owner":"platform"}}`, "deploy%2Fproduction": `{"permits":1,"level":10}`, "deploy%2Fstaging": `{"permits":2}`,
		"licences%2Fmatlab": `{"permits":25}`, "reports%2Fdaily": `{"permits":1}`, "gpu": `{"permits":8}`, "jobs": `{"permits":0}`,
	} {
		a.Must(201, "PUT /v1/semaphores/"+name, body)
	}
	open := func(metadata string) string {
		return a.Must(201, "POST /v1/sessions", `{"ttl":"10m","metadata":`+metadata+`}`).Member("session")
	}
	session = open(`{"host":"worker-1","command":"import"}`)
	second, third := open(`{"host":"worker-2","command":"import"}`), open(`{"host":"worker-3","command":"nightly report"}`)
	lease := func(status int, session, name, body string) {
		a.Must(status, "PUT /v1/sessions/"+session+"/leases/"+name, body)
	}
	lease(200, session, "db", `{"count":2}`)
	lease(200, second, "db", `{"count":1}`)
	lease(202, third, "db", `{"count":2}`)
	lease(202, open(`{"host":"worker-4","command":"reindex"}`), "db", `{"count":1}`)
	lease(200, second, "deploy%2Fproduction", "")
	lease(200, third, "gpu", `{"count":3}`)
	lease(200, session, "licences%2Fmatlab", `{"count":17}`)
	return session
}

// picture writes what the window shows as a PNG.
func (b *tab) picture(file string, width, height int64) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(file, png, 0o644); err != nil {
		b.Fatal(err)
	}
}

func (b *tab) dark() {
	b.do(chromedp.Func(func(ctx context.Context, page *chromedp.Target) error {
		_, err := cdp.Call(ctx, page, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: "dark"}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	}))
}

// TestPictures writes pictures of the pages into SIGNALBOX_PICTURES, for people to look at.
func TestPictures(t *testing.T) {
	folder := os.Getenv("SIGNALBOX_PICTURES")
	if folder == "" {
		t.Skip("SIGNALBOX_PICTURES names no folder")
	}
	s := newSite(t)
	session := s.scene()
	for name, hash := range map[string]string{"overview": "/", "semaphore": "/semaphore/db", "session": "/session/" + session, "events": "/events"} {
		b := s.open("n2", hash)
		b.await(`document.querySelector("#main h2, #main .events")`)
		b.picture(filepath.Join(folder, name+".png"), 1000, 900)
		b.picture(filepath.Join(folder, name+"-360.png"), 360, 1400)
		b.dark()
		b.picture(filepath.Join(folder, name+"-dark.png"), 1000, 900)
		if name == "semaphore" {
			b.click("Change permits…")
			b.await(`document.getElementById("dialog").open`)
			b.picture(filepath.Join(folder, "dialog-dark.png"), 1000, 900)
		}
	}
}
