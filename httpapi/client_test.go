package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// testAPI is the real router over a machineNode.
type testAPI struct {
	*testing.T
	node    *machineNode
	handler *Handler
}

func newTestAPI(t *testing.T, change ...func(*Config)) *testAPI {
	t.Helper()
	node := newMachineNode()
	cfg := Config{Node: node, Version: "1.2.3"}
	for _, c := range change {
		c(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &testAPI{t, node, h}
}

// reply is what a request got.
type reply struct {
	t      *testing.T
	asked  string
	status int
	header http.Header
	text   string
	body   map[string]any
}

// do sends "METHOD /path" with a body and "Header: value" lines.
func (a *testAPI) do(line, body string, headers ...string) reply {
	a.Helper()
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, h := range headers {
		name, of, _ := strings.Cut(h, ": ")
		r.Header.Add(name, of)
	}
	return a.send(r)
}

func (a *testAPI) send(r *http.Request) reply {
	a.Helper()
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, r)
	got := reply{t: a.T, asked: r.Method + " " + r.RequestURI, status: w.Code, header: w.Header(), text: w.Body.String()}
	if strings.Contains(w.Header().Get("Content-Type"), "json") {
		decoder := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
		decoder.UseNumber()
		if err := decoder.Decode(&got.body); err != nil {
			a.Errorf("%s: body %q: %v", got.asked, got.text, err)
		}
	}
	for _, needed := range []string{"X-Signalbox-Index", "Cache-Control"} {
		if got.header.Get(needed) == "" {
			a.Errorf("%s: no %s", got.asked, needed)
		}
	}
	return got
}

// goDo sends a request that waits; its reply comes through the channel.
func (a *testAPI) goDo(line, body string, headers ...string) <-chan reply {
	done := make(chan reply, 1)
	go func() { done <- a.do(line, body, headers...) }()
	return done
}

// must sends a request that prepares a test, and needs this status.
func (a *testAPI) must(status int, line, body string, headers ...string) reply {
	a.Helper()
	got := a.do(line, body, headers...)
	if got.status != status {
		a.Fatalf("%s: status %d, want %d: %s", line, got.status, status, got.text)
	}
	return got
}

// is checks the status and members, "path=value" each, of which a path is
// member.member or member.0.
func (r reply) is(status int, members ...string) reply {
	r.t.Helper()
	if r.status != status {
		r.t.Errorf("%s: status %d, want %d: %s", r.asked, r.status, status, r.text)
		return r
	}
	for _, m := range members {
		path, want, _ := strings.Cut(m, "=")
		if got := r.member(path); got != want {
			r.t.Errorf("%s: %s is %s, want %s: %s", r.asked, path, got, want, r.text)
		}
	}
	return r
}

// refusedWith checks a problem's status and code.
func (r reply) refusedWith(status int, code string, members ...string) reply {
	r.t.Helper()
	r.is(status, append(members, "code="+code, "status="+fmt.Sprint(status), "type=/problems/"+code)...)
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		r.t.Errorf("%s: Content-Type %q", r.asked, got)
	}
	return r
}

func (r reply) member(path string) string {
	var at any = r.body
	for _, step := range strings.Split(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			found, ok := v[step]
			if !ok {
				return "absent"
			}
			at = found
		case []any:
			var i int
			if step == "length" {
				at = json.Number(fmt.Sprint(len(v)))
				continue
			}
			if _, err := fmt.Sscan(step, &i); err != nil || i >= len(v) {
				return "absent"
			}
			at = v[i]
		default:
			return "absent"
		}
	}
	if text, ok := at.(string); ok {
		return text
	}
	encoded, _ := json.Marshal(at)
	return string(encoded)
}
