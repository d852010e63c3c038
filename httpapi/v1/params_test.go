package v1

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// FuzzNameInPath: a name that is encoded, routed and decoded stays the same, in whichever way it is encoded. Invalid
// names are refused.
func FuzzNameInPath(f *testing.F) {
	for _, name := range []string{"a", "a/b", "..", "%41", "a b", "\x00", "\xff", "é", "/", "value", "a/leases", strings.Repeat("n", 512), strings.Repeat("n", 513), "+", "?", "#"} {
		f.Add(name, uint64(0))
		f.Add(name, ^uint64(0))
	}
	var got params
	e := echo.New()
	h := func(c echo.Context) error {
		got = params{}
		return got.readPath(c, fieldSemaphore)
	}
	e.Use(exchange.SlashesCount)
	e.PUT("/v1/semaphores/:name", h)
	e.PUT("/v1/semaphores/:name/value", h)
	e.PUT("/v1/sessions/:id/leases/:name", h)
	f.Fuzz(func(t *testing.T, name string, more uint64) {
		segment := percentEncode(name, more)
		for _, path := range []string{"/v1/semaphores/" + segment, "/v1/semaphores/" + segment + "/value", "/v1/sessions/7/leases/" + segment} {
			u, err := url.ParseRequestURI(path)
			if err != nil {
				t.Fatalf("%q: %v", path, err)
			}
			got = params{}
			failed := false
			e.HTTPErrorHandler = func(error, echo.Context) { failed = true }
			r := httptest.NewRequest("PUT", "/", nil)
			r.URL = u
			exchange.CanonicalPath(r)
			e.ServeHTTP(httptest.NewRecorder(), r)
			if failed == fsm.ValidName(name) {
				t.Fatalf("%q (%q): refused %v", name, path, failed)
			}
			if !failed && got.semaphore != name {
				t.Fatalf("%q by %q is read as %q", name, path, got.semaphore)
			}
		}
	})
}

// percentEncode encodes the bytes that must be encoded. It also encodes each other byte whose bit in more is set.
func percentEncode(name string, more uint64) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0
		if plain && more>>(i%64)&1 == 0 {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + string("0123456789abcdef"[c>>4]) + string("0123456789ABCDEF"[c&15]))
		}
	}
	return b.String()
}
