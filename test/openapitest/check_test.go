package openapitest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// heard is a test that keeps its first failure.
type heard struct {
	testing.TB
	failure string
}

func (h *heard) Helper() {}

func (h *heard) Errorf(format string, args ...any) {
	if h.failure == "" {
		h.failure = fmt.Sprintf(format, args...)
	}
}

// TestCheck: requests and replies that differ from the description fail a test, and others
// don't.
func TestCheck(t *testing.T) {
	const (
		lease   = `{"session":"7","semaphore":"db","count":1,"token":3,"expires_in_ms":5,"waited_ms":0}`
		acquire = "PUT /v1/sessions/7/leases/db"
		several = "POST /v1/sessions/7/acquire"
		none    = `{"session":"7","leases":[]}`
		invalid = `{"type":"/problems/invalid-request","title":"t","status":400,"detail":"No.","code":"invalid-request"}`
	)
	in := func(operation string, status int, body string) (string, string) {
		return `{"operations":[` + operation + `]}`, fmt.Sprintf(`{"results":[{"status":%d,"body":%s}]}`, status, body)
	}
	badOp, _ := in(`{"op":"up","semaphore":"db","count":0}`, 200, `{"value":1}`)
	goodOp, goodResult := in(`{"op":"up","semaphore":"db","count":1}`, 200, `{"value":1}`)
	_, strangeResult := in("", 200, `{"worth":1}`)
	for _, c := range []struct {
		line, header, body string
		status             int
		reply              string
		want               string // "": no error
	}{
		{acquire, "", `{"count":1}`, 200, lease, ""},
		{acquire + "?try=true", "Idempotency-Key: 0123456789abcdef", "", 200, lease, ""},
		{"GET /v1/sessions/7/leases/db", "Idempotency-Key: x", "", 200, lease, ""},
		{several, "", `{"semaphores":[{"name":"db"}],"mode":"any"}`, 200, none, ""},
		{"POST /v1/batch", "", goodOp, 200, goodResult, ""},
		{acquire, "", `{"count":0}`, 400, invalid, ""},
		{"GET /other", "", "", 200, "x", ""},

		{acquire + "?epoch=0", "", "", 200, lease, "minimum"},
		{acquire + "?try=yes", "", "", 200, lease, "boolean"},
		{acquire + "?epoch=1&epoch=2", "", "", 200, lease, "more than once"},
		{acquire + "?wait=1y", "", "", 200, lease, "pattern"},
		{acquire + "?more=1", "", "", 200, lease, "no parameter in query more"},
		{acquire, "Idempotency-Key: short", "", 200, lease, "minLength"},
		{acquire, `If-Match: "1.1"`, "", 200, lease, "no parameter in header If-Match"},
		{"PUT /v1/sessions/07/leases/db", "", "", 200, lease, "path id"},
		{acquire, "", `{"cuont":1}`, 200, lease, "cuont"},
		{acquire, "", `{"count":1.0}`, 200, lease, "integer"},
		{acquire, "", `{"count":9223372036854775808}`, 200, lease, "int64"},
		{acquire, "", `{"ttl":0}`, 200, lease, "oneOf"},
		{several, "", `{"semaphores":[{"name":"db"}],"mode":"some"}`, 200, none, "must be one of 'all', 'any'"},
		{several, "", `{"semaphores":[{"name":"db"}]}`, 200, none, "missing property 'mode'"},
		{several, "", `{"semaphores":[{"name":"` + strings.Repeat("é", 257) + `"}],"mode":"all"}`, 200, none, "512 bytes"},
		{"POST /v1/batch", "", badOp, 200, goodResult, "operation 0"},
		{"POST /v1/batch", "", goodOp, 200, strangeResult, "worth"},
		{"GET /v1/nothing", "", "", 200, "{}", "no such route"},

		{acquire, "", "", 201, lease, "no such status"},
		{acquire, "", "", 200, `{"session":"7"}`, "missing properties"},
		{acquire, "", "", 200, strings.Replace(lease, `"count":1`, `"count":"1"`, 1), "want integer"},
		{acquire, "", "", 200, strings.Replace(lease, "{", `{"more":1,`, 1), "more"},
		{acquire, "", "", 400, strings.Replace(invalid, `"invalid-request"}`, `"deleted"}`, 1), "must be 'invalid-request'"},
		{acquire, "", `{"count":1}`, 400, invalid, "describes a request that is refused as invalid"},
	} {
		method, target, _ := strings.Cut(c.line, " ")
		r := httptest.NewRequest(method, target, strings.NewReader(c.body))
		if name, value, ok := strings.Cut(c.header, ": "); ok {
			r.Header.Set(name, value)
		}
		w, sent := httptest.NewRecorder(), Record(r)
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Fatal(err)
		}
		w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "application/problem+json"}[c.status < 300])
		w.WriteHeader(c.status)
		_, _ = io.WriteString(w, c.reply)
		h := &heard{TB: t}
		Check(h, r, sent, w)
		if (h.failure == "") != (c.want == "") || !strings.Contains(h.failure, c.want) {
			t.Errorf("%s %s %s: %d %s\nfails with %q, want %q", c.line, c.header, c.body, c.status, c.reply, h.failure, c.want)
		}
	}
}

// A body that was not read to its end is not compared.
func TestCheckOfAnUnreadBody(t *testing.T) {
	r := httptest.NewRequest(http.MethodPut, "/v1/semaphores/db", strings.NewReader(`{"permits":"many"}`))
	w, sent := httptest.NewRecorder(), Record(r)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusNotFound)
	h := &heard{TB: t}
	if Check(h, r, sent, w); h.failure != "" {
		t.Error(h.failure)
	}
}
