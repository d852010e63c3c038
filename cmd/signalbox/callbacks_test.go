package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestCallbacks: a client's down is refused at one node and leaves a callback. After an up at another node the leader
// calls the client back, whichever node leads.
func TestCallbacks(t *testing.T) {
	called := make(chan string, 16)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		called <- r.Method + " " + r.URL.Path + " " + string(body)
	}))
	defer hook.Close()
	_, c, _ := startDev(t.Context(), t, 3, "--callback-allow", hook.Listener.Addr().String())
	ask := func(node int, path, body string, want int) {
		t.Helper()
		r, err := c.ask(t.Context(), node, http.MethodPost, path, body)
		if err != nil || r.status != want {
			t.Fatalf("%s: status %d, want %d, %v", path, r.status, want, err)
		}
	}
	ask(0, "/semaphore", `{"name":"n","value":0}`, 200)
	ask(0, "/semaphore/down", `{"name":"n","callback":"http://127.0.0.1:1/"}`, 400)
	for node := range 3 {
		ask(node, "/semaphore/down", fmt.Sprintf(`{"name":"n","callback":"%s/from%d"}`, hook.URL, node), 409)
		ask(node+1, "/semaphore/up", `{"name":"n"}`, 200)
		var id int
		var rest string
		select {
		case got := <-called:
			if n, err := fmt.Sscanf(got, fmt.Sprintf(`POST /from%d {"id":%%d,%%s`, node), &id, &rest); n != 2 ||
				rest != `"name":"n","value":1,"reason":"available"}` {
				t.Errorf("called with %s: %v", got, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("nobody was called back")
		}
		ask(node+2, "/semaphore/down", `{"name":"n"}`, 200)
	}
	if len(called) != 0 {
		t.Errorf("called once more: %s", <-called)
	}
}
