package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/test/apitest"
)

// endingTokens is an API of two teams. end takes the token of one of them out of the file,
// and returns when its requests have noticed. It needs a bubble of synctest.
func endingTokens(t *testing.T) (a *apitest.API, end func(client string)) {
	path := accessFile(t, twoTeams...)
	tokens, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	a = apitest.New(t, withTokens(t, twoTeams...), func(cfg *apitest.Config) { cfg.Exchange.Tokens = tokens })
	return a, func(gone string) {
		var rest []client
		for _, c := range twoTeams {
			if c.name != gone {
				rest = append(rest, c)
			}
		}
		content, err := os.ReadFile(accessFile(t, rest...))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := tokens.Reload(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
}

// TestEndOfATokenEndsItsRequests: waits and streams of a token end when the file no longer
// has it, and the requests of others go on.
func TestEndOfATokenEndsItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, end := endingTokens(t)
		a.Must(201, "POST /v1/semaphores", `{"name":"ci/a","permits":0}`, as("root"))
		a.Must(201, "POST /v1/semaphores", `{"name":"ci/c","permits":1}`, as("root"))
		a.Must(201, "POST /v1/semaphores/ci%2Fc/leases", `{"ttl":"1h"}`, as("root"))
		peer := a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`, as("ci")).Member("session")
		index := a.Must(201, "POST /v1/semaphores", `{"name":"ci/b","permits":0}`, as("root")).Header.Get("X-Signalbox-Index")
		ask := func(client string) (down, query, events <-chan apitest.Reply) {
			return a.GoDo("POST /v1/semaphores/ci%2Fa/down", `{"wait":"1m"}`, as(client)),
				a.GoDo("GET /v1/semaphores/ci%2Fb?wait=1m&index="+index, "", as(client)), a.GoDo("GET /v1/events", "", as(client))
		}
		down, query, events := ask("ci")
		lock := a.GoDo("PUT /peers/"+peer+"/ci%2Fc?block_for=1m", "1", as("ci"), "Content-Type: application/json")
		otherDown, otherQuery, otherEvents := ask("root")
		synctest.Wait()
		for i, waits := range []<-chan apitest.Reply{down, query, events, lock, otherDown, otherQuery, otherEvents} {
			if len(waits) > 0 {
				t.Fatalf("request %d does not wait: %v", i, <-waits)
			}
		}
		end("ci")
		for i, ended := range []<-chan apitest.Reply{down, query, events, lock} {
			switch {
			case len(ended) == 0:
				t.Errorf("request %d goes on", i)
			case i == 2:
				(<-ended).Is(200)
			default:
				if got := <-ended; got.Status != 401 || len(got.Header["Www-Authenticate"]) != 2 {
					t.Errorf("request %d: %d %s %v", i, got.Status, got.Text, got.Header)
				}
			}
		}
		if len(otherDown)+len(otherQuery)+len(otherEvents) > 0 {
			t.Error("a request of another token has ended")
		}
		a.Must(200, "POST /v1/semaphores/ci%2Fa/up", `{"count":2}`, as("all"))
		a.Must(200, "POST /v1/semaphores/ci%2Fb/up", "", as("all"))
		(<-otherDown).Is(200)
		(<-otherQuery).Is(200)
		end("root")
		(<-otherEvents).Is(200)
	})
}

// arriving is a body whose next part does not come in time.
type arriving func()

// Read implements io.Reader.
func (stops arriving) Read([]byte) (int, error) {
	stops()
	return 0, os.ErrDeadlineExceeded
}

// TestEndOfATokenWithHalfABody: what the reply says is that the token has ended, and not that its body did not come.
func TestEndOfATokenWithHalfABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, end := endingTokens(t)
		for who, status := range map[string]int{"root": 408, "ci": 401} {
			r := httptest.NewRequest("POST", "/v1/sessions", arriving(func() {
				if status == 401 {
					end(who)
				}
			}))
			r.Header.Set("Authorization", strings.TrimPrefix(as(who), "Authorization: "))
			w := httptest.NewRecorder()
			if a.Handler.ServeHTTP(w, r); w.Code != status {
				t.Errorf("%d instead of %d: %s", w.Code, status, w.Body)
			}
		}
	})
}

// partial is a client that something happens to once it has a part of a reply.
type partial struct {
	*httptest.ResponseRecorder
	then  func()
	parts int
	cut   bool // its connection is broken off
}

// Write implements http.ResponseWriter.
func (w *partial) Write(part []byte) (int, error) {
	if w.parts++; w.parts == 1 {
		w.then()
	}
	return w.ResponseRecorder.Write(part)
}

// SetWriteDeadline serves http.ResponseController.
func (w *partial) SetWriteDeadline(at time.Time) error {
	w.cut = w.cut || at.Before(time.Now())
	return nil
}

// TestEndOfATokenCutsItsReplies: a backup and a list of peers that are sent in parts end
// after the part under way, and do not look whole.
func TestEndOfATokenCutsItsReplies(t *testing.T) {
	for _, path := range []string{"/v1/snapshot", "/peers/"} {
		synctest.Test(t, func(t *testing.T) {
			a, end := endingTokens(t)
			var sessions []fsm.Command
			for i := range 5000 {
				sessions = append(sessions, fsm.OpenSession{Session: 1<<63 + uint64(i), TTLMS: 3_600_000})
			}
			a.Begin(sessions...)
			ask := func(then func()) *partial {
				w := &partial{ResponseRecorder: httptest.NewRecorder(), then: then}
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set("Authorization", "Bearer secret-root")
				a.Handler.ServeHTTP(w, r)
				return w
			}
			if whole := ask(func() {}); whole.Code != 200 || whole.parts < 3 || whole.cut {
				t.Errorf("%s: %d in %d parts, cut %v", path, whole.Code, whole.parts, whole.cut)
			}
			if got := ask(func() { end("root") }); got.Code != 200 || got.parts != 1 || !got.cut {
				t.Errorf("%s after the end of its token: %d in %d parts, cut %v", path, got.Code, got.parts, got.cut)
			}
		})
	}
}
