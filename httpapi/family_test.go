package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
)

// Dialects see the empty group of a semaphore without permits in all.
func TestFamilyInDialects(t *testing.T) {
	a := apitest.New(t, withNodeRED, withThrottle)
	a.Must(201, "PUT /v1/semaphores/f", `{"permits":null,"groups":"request","per_group":3}`)
	remainder := func(want string) {
		w := httptest.NewRecorder()
		if a.Handler.ServeHTTP(w, httptest.NewRequest("GET", "/remainder?semaphore=f", nil)); w.Code != 200 || w.Body.String() != want {
			t.Errorf("the remainder is %d %s, want %s", w.Code, w.Body, want)
		}
	}
	remainder("3")
	a.Must(201, "POST /v1/semaphores/f/leases", `{"count":2,"ttl":"1h"}`)
	a.Must(201, "POST /v1/semaphores/f/leases", `{"count":3,"ttl":"1h","group":"acme"}`)
	remainder("1")
	for _, line := range []string{"/semaphore/down", "/semaphore/up"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", line, strings.NewReader(`{"name":"f"}`))
		r.Header.Set("Content-Type", "application/json")
		if a.Handler.ServeHTTP(w, r); w.Code != 409 {
			t.Errorf("%s: %d %s", line, w.Code, w.Body)
		}
	}
}
