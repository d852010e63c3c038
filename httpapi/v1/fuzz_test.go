package v1_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/apitest"
)

// FuzzRequest: no method, path, query or body makes a 5xx, a panic, or a reply
// that is neither empty, text nor JSON.
func FuzzRequest(f *testing.F) {
	f.Add("PUT", "/v1/semaphores/db", "epoch=1", []byte(`{"permits":1}`))
	f.Add("POST", "/v1/batch", "", []byte(`{"operations":[{"op":"up","semaphore":"db"}]}`))
	f.Add("POST", "/v1/sessions/7/acquire", "try=true", []byte(`{"mode":"any","semaphores":[{"name":"db"}]}`))
	f.Add("GET", "/v1/semaphores", "limit=5&cursor=bg", []byte(nil))
	node := apitest.NewNode()
	h := apitest.NewHandler(f, node, func(cfg *apitest.Config) { cfg.Exchange.MaxWait = time.Millisecond })
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
