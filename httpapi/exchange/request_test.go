package exchange

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// The cluster's node implements Node.
var _ Node = (*cluster.Node)(nil)

// TestRequestID: a client's id is used if it can be shown. Otherwise the id is drawn at random.
func TestRequestID(t *testing.T) {
	name := func(sent string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(HeaderRequest, sent)
		reply := httptest.NewRecorder()
		c := echo.New().NewContext(r, reply)
		id := NameRequest(c)
		if RequestID(c) != id || reply.Header().Get("X-Request-Id") != id {
			t.Errorf("named %q, known as %q", id, RequestID(c))
		}
		return id
	}
	if first, second := name(""), name(""); len(first) != 16 || first == second {
		t.Errorf("drawn %q, %q", first, second)
	}
	for id, kept := range map[string]bool{"abc-7": true, "a b": false, "é": false, strings.Repeat("x", 129): false} {
		if got := name(id); (got == id) != kept {
			t.Errorf("%q: %q", id, got)
		}
	}
}

// FuzzDuration: an accepted duration is within its limit and never shorter than
// the text says.
func FuzzDuration(f *testing.F) {
	for _, text := range []string{"30s", "1m30s", "250ms", "1ns", "0", "0s", "-1s", "876000h", "876001h", "1.5h", "", "9999999999h", "1µs"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ms, ok := ParseDuration(text, fsm.MaxTTLMS)
		if !ok {
			return
		}
		d, err := time.ParseDuration(text)
		if err != nil || ms < 0 || ms > fsm.MaxTTLMS || strings.HasPrefix(text, "-") {
			t.Fatalf("%q gives %d ms (%v)", text, ms, err)
		}
		if got := time.Duration(ms) * time.Millisecond; got < d || got-d >= time.Millisecond {
			t.Fatalf("%q gives %v", text, got)
		}
	})
}
