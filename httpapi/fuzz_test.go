package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/fsm"
)

// FuzzNameInPath: encode → route → decode gives the same name, however the name
// is encoded; and names that may not be are refused.
func FuzzNameInPath(f *testing.F) {
	for _, name := range []string{"a", "a/b", "..", "%41", "a b", "\x00", "\xff", "é", "/", "value", "a/leases", strings.Repeat("n", 512), strings.Repeat("n", 513), "+", "?", "#"} {
		f.Add(name, uint64(0))
		f.Add(name, ^uint64(0))
	}
	var got params
	e := echo.New()
	h := func(c echo.Context) error {
		got = params{}
		return got.readPath(c)
	}
	e.Use(slashesCount)
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
			canonicalPath(r)
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

// percentEncode encodes what must be, and of the rest the bytes that more says.
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

// FuzzStrictJSON: whatever checkJSON passes, encoding/json reads to the same
// values; it never passes what encoding/json refuses; reading never panics.
func FuzzStrictJSON(f *testing.F) {
	for _, body := range []string{`{}`, `{"a":1}`, `{"a":[1,{"b":"\u00e9\ud83d\ude00"}],"c":null}`, `[]`, `"x"`, `-0`, `1e5`, `{"a":1,"a":2}`, `{"a":{"b":{"c":[[]]}}}`, " { \"a\" : [ ] } ", `"\ud800"`, `{"a":"\"}"}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fault := checkJSON(data)
		if fault != nil {
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatalf("passes %q", data)
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var want any
		if err := decoder.Decode(&want); err != nil {
			t.Fatal(err)
		}
		sameValue(t, document(data), want)
	})
}

func sameValue(t *testing.T, v value, want any) {
	switch w := want.(type) {
	case map[string]any:
		n := 0
		for name, of := range v.members() {
			n++
			below, ok := w[string(name)]
			if !ok {
				t.Fatalf("a member %q that is not there in %q", name, v)
			}
			sameValue(t, of, below)
		}
		if n != len(w) || !v.isObject() {
			t.Fatalf("%d members of %d in %q", n, len(w), v)
		}
	case []any:
		i := 0
		for of := range v.items() {
			sameValue(t, of, w[i])
			i++
		}
		if i != len(w) || !v.isArray() {
			t.Fatalf("%d items of %d in %q", i, len(w), v)
		}
	case string:
		if text, ok := v.text(); !ok || text != w {
			t.Fatalf("%q is read as %q, want %q", v, text, w)
		}
	case json.Number:
		if string(v) != w.String() {
			t.Fatalf("%q is read, want %q", v, w)
		}
		n, ok := v.integer()
		if exact, err := w.Int64(); ok != (err == nil) || ok && n != exact {
			t.Fatalf("%q is read as %d, %v", v, n, ok)
		}
	case bool:
		if b, ok := v.boolean(); !ok || b != w {
			t.Fatalf("%q is read as %v, %v", v, b, ok)
		}
	case nil:
		if !v.isNull() {
			t.Fatalf("%q is not read as null", v)
		}
	}
}

// FuzzDuration: what is accepted is within its limit and never shorter than
// what the text says.
func FuzzDuration(f *testing.F) {
	for _, text := range []string{"30s", "1m30s", "250ms", "1ns", "0", "0s", "-1s", "876000h", "876001h", "1.5h", "", "9999999999h", "1µs"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ms, ok := parseDuration(text, fsm.MaxTTLMS)
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

// FuzzCursor: any text is refused or is exactly what one name or id gives.
func FuzzCursor(f *testing.F) {
	for _, cursor := range []string{"", "bg", nameCursor("db"), nameCursor("é/ "), sessionCursor(1), sessionCursor(1<<64 - 1), "!!", "bmE="} {
		f.Add(cursor)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		if after, err := parseNameCursor(cursor); err == nil && cursor != "" {
			if !fsm.ValidName(after) || nameCursor(after) != cursor {
				t.Fatalf("%q gives %q", cursor, after)
			}
		}
		if after, err := parseSessionCursor(cursor); err == nil && cursor != "" {
			if after == 0 || sessionCursor(after) != cursor {
				t.Fatalf("%q gives %d", cursor, after)
			}
		}
	})
}

// FuzzRequest: no method, path, query or body makes a 5xx, a panic, or a reply
// that is neither empty, text nor JSON.
func FuzzRequest(f *testing.F) {
	f.Add("PUT", "/v1/semaphores/db", "epoch=1", []byte(`{"permits":1}`))
	f.Add("POST", "/v1/batch", "", []byte(`{"operations":[{"op":"up","semaphore":"db"}]}`))
	f.Add("POST", "/v1/sessions/7/acquire", "try=true", []byte(`{"mode":"any","semaphores":[{"name":"db"}]}`))
	f.Add("GET", "/v1/semaphores", "limit=5&cursor=bg", []byte(nil))
	node := newMachineNode()
	h, err := New(Config{Node: node, MaxWait: time.Millisecond})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, path, query string, body []byte) {
		u, err := url.ParseRequestURI(path)
		if err != nil || strings.Contains(query, "#") || strings.Contains(string(body), "wait") || strings.Contains(query, "wait") {
			return // net/http refuses it, or it would wait for a clock that stands still
		}
		u.RawQuery = query
		r, err := http.NewRequest(method, "http://n1/", bytes.NewReader(body))
		if err != nil {
			return
		}
		r.URL, r.RequestURI = u, path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 && path != "/readyz" && path != "/health" {
			t.Fatalf("%s %s?%s %q: %d %s", method, path, query, body, w.Code, w.Body)
		}
		if strings.Contains(w.Header().Get("Content-Type"), "json") && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("no JSON: %s", w.Body)
		}
	})
}
