//go:build browser

package ui_test

import (
	"bytes"
	"context"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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

// picture returns what the window shows.
func (b *tab) picture(width, height int64) image.Image {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, height))
	data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	shown, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		b.Fatal(err)
	}
	return shown
}

// small encodes a picture with the 256 colours that it has most of.
func small(t *testing.T, shown image.Image) []byte {
	t.Helper()
	pixels := map[color.Color]int{}
	bounds := shown.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			pixels[shown.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(pixels), func(a, b color.Color) int { return pixels[b] - pixels[a] })
	paletted := image.NewPaletted(bounds, color.Palette(colours[:min(256, len(colours))]))
	nearest := map[color.Color]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			colour := shown.At(x, y)
			if _, known := nearest[colour]; !known {
				nearest[colour] = uint8(paletted.Palette.Index(colour))
			}
			paletted.SetColorIndex(x, y, nearest[colour])
		}
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, paletted); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (b *tab) dark() { b.prefers("dark", "reduce") }

func (b *tab) light() { b.prefers("light", "no-preference") }

// prefers sets the colours and the motion that the page's user prefers.
func (b *tab) prefers(colours, motion string) {
	b.Helper()
	b.do(chromedp.Func(func(ctx context.Context, page *chromedp.Target) error {
		_, err := cdp.Call(ctx, page, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: colours}, {Name: "prefers-reduced-motion", Value: motion}}})
		return err
	}))
}

var update = flag.Bool("update", false, "write the pictures of docs anew")

// TestPictures writes the pictures of docs/console.md with -update, of the cluster at SIGNALBOX_PICTURES_OF, whose semaphore db
// is at work, after 15 minutes; and others into SIGNALBOX_PICTURES, for people to look at. It checks the size of those in docs.
func TestPictures(t *testing.T) {
	docs := map[string]string{"overview": "/", "semaphore": "/semaphore/db"}
	if *update {
		tabs := map[string]*tab{}
		for name, hash := range docs {
			tabs[name] = openTab(t, os.Getenv("SIGNALBOX_PICTURES_OF"), hash)
		}
		<-time.After(15 * time.Minute)
		for name, b := range tabs {
			write(t, filepath.Join("../../docs", "console-"+name+".png"), small(t, b.picture(1040, 860)))
		}
	}
	if folder := os.Getenv("SIGNALBOX_PICTURES"); folder != "" {
		s := newSite(t)
		session := s.scene()
		for name, hash := range map[string]string{"overview": "/", "semaphore": "/semaphore/db", "session": "/session/" + session, "events": "/events"} {
			b := s.open("n2", hash)
			b.await(`document.querySelector("#main h2, #main .events") && document.getElementById("live").textContent === "Live"`)
			b.keep(name)
			if name == "semaphore" {
				b.dark()
				b.click("Change permits…")
				b.await(`document.getElementById("dialog").open`)
				write(t, filepath.Join(folder, "dialog-dark.png"), small(t, b.picture(1000, 900)))
			}
		}
	}
	for name := range docs {
		if info, err := os.Stat("../../docs/console-" + name + ".png"); err != nil || info.Size() > 80<<10 {
			t.Errorf("the picture of %s: %v, %v", name, info, err)
		}
	}
}

// keep takes pictures of the page for SIGNALBOX_PICTURES, if that is set.
func (b *tab) keep(name string) {
	b.Helper()
	folder := os.Getenv("SIGNALBOX_PICTURES")
	if folder == "" {
		return
	}
	for look, prefer := range map[string]func(){"": b.light, "-dark": b.dark} {
		prefer()
		write(b.T, filepath.Join(folder, name+look+".png"), small(b.T, b.picture(1280, 1000)))
		write(b.T, filepath.Join(folder, name+look+"-360.png"), small(b.T, b.picture(360, 1400)))
	}
	b.light()
	b.do(chromedp.EmulateViewport(1200, 900))
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
}
