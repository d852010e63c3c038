package consul_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/apitest"
)

// serve serves the dialect on loopback, and returns its address.
func serve(t *testing.T, change ...func(*apitest.Config)) string {
	t.Helper()
	s, _ := onConsul(t, change...)
	server := httpapi.NewServer(s.Handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
	return "http://" + listener.Addr().String()
}

// TestBodiesOverTheWire sends chunked bodies, bodies after 100-continue, and a body that is sent again after a redirect.
func TestBodiesOverTheWire(t *testing.T) {
	base := serve(t, func(cfg *apitest.Config) { cfg.Exchange.BodyBytes = 100 })
	send := func(method, target, body string, change func(r *http.Request)) (status int, text string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, base+target, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		data, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(data)
	}
	as := func(*http.Request) {}
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	expecting := func(r *http.Request) { r.Header.Set("Expect", "100-continue") }
	large, over := strings.Repeat("x", 512<<10), strings.Repeat("x", 512<<10+1000)
	for name, c := range map[string]struct {
		target, body string
		change       func(*http.Request)
		status       int
		text         string
	}{
		"small":          {"/v1/kv/a", "x", as, 200, "true"},
		"chunked":        {"/v1/kv/a", "x", chunked, 200, "true"},
		"large":          {"/v1/kv/a", large, as, 200, "true"},
		"large, chunked": {"/v1/kv/a", large, chunked, 200, "true"},
		"expecting":      {"/v1/kv/a", large, expecting, 200, "true"},
		"over":           {"/v1/kv/a", over, as, 413, "Request body(525288 bytes) too large, max size: 524288 bytes."},
		"over, chunked":  {"/v1/kv/a", over, chunked, 413, "Request body(524289 bytes) too large, max size: 524288 bytes."},
		"redirected":     {"/v1/kv//b", large, as, 200, "true"},
	} {
		if status, text := send("PUT", c.target, c.body, c.change); status != c.status || text != c.text {
			t.Errorf("%s: %d %.200s", name, status, text)
		}
	}
	if status, text := send("GET", "/v1/kv/b?raw", "", as); status != 200 || text != large {
		t.Errorf("after a redirect: %d, %d bytes", status, len(text))
	}
}
