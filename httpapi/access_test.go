package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/internal/certs"
	"github.com/signalbox/signalbox/test/apitest"
)

// as is the header of a client's token.
func as(client string) string { return "Authorization: Bearer secret-" + client }

// twoTeams are clients of two prefixes, one that reads all, and an admin.
var twoTeams = []client{{"ci", access.Use, "ci/"}, {"db", access.Use, "db/"}, {"all", access.Use, ""}, {"sees", access.Read, ""}, {"root", access.Admin, ""}, {"scrapes", access.Metrics, ""}}

func teams(t *testing.T) *apitest.API {
	a := apitest.New(t, withTokens(t, twoTeams...))
	for _, name := range []string{"ci/a", "ci/b", "db/a", "db/b", "x"} {
		a.Must(201, "POST /v1/semaphores", `{"name":"`+name+`","permits":2}`, as("root"))
	}
	return a
}

// TestRefusedOperationsLeaveTheRepliesOfABatchInPlace: each reply is that of its own operation,
// whichever of the others were refused.
func TestRefusedOperationsLeaveTheRepliesOfABatchInPlace(t *testing.T) {
	a := teams(t)
	a.Do("POST /v1/batch", `{"operations":[{"op":"up","semaphore":"db/a","count":1},{"op":"up","semaphore":"ci/a","count":3},`+
		`{"op":"up","semaphore":"x","count":1},{"op":"up","semaphore":"ci/b","count":4}]}`, as("ci")).
		Is(200, "results.0.status=403", "results.1.body.value=5", "results.2.status=403", "results.3.body.value=6")
}

// TestSessionsBelongToTheirIdentity: with another client's session every request has the
// reply of an unknown one, but for its end, which has no effect. An admin ends it.
func TestSessionsBelongToTheirIdentity(t *testing.T) {
	a := teams(t)
	id := a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`, as("ci")).Member("session")
	a.Must(200, "PUT /v1/sessions/"+id+"/leases/ci%2Fa", "", as("ci"))
	for _, line := range []string{"GET /v1/sessions/ID", "PUT /v1/sessions/ID", "GET /v1/sessions/ID/leases/ci%2Fa", "PUT /v1/sessions/ID/leases/ci%2Fa",
		"PATCH /v1/sessions/ID/leases/ci%2Fa", "PUT /v1/sessions/ID/leases/ci%2Fb", "PUT /v1/sessions/ID/waitlist/ci%2Fb", "POST /v1/sessions/ID/waitlist/wait"} {
		body := ""
		if strings.HasPrefix(line, "PATCH") {
			body = `{"count":1}`
		}
		others := a.Do(strings.Replace(line, "ID", id, 1), body, as("all"), "X-Request-Id: same").RefusedWith(404, "unknown-session")
		unknown := a.Do(strings.Replace(line, "ID", "4242", 1), body, as("all"), "X-Request-Id: same")
		if strings.ReplaceAll(others.Text, id, "4242") != unknown.Text {
			t.Errorf("%s: %s\nof an unknown session: %s", line, others.Text, unknown.Text)
		}
	}
	a.Do("DELETE /v1/sessions/"+id, "", as("all")).Is(204)
	a.Do("DELETE /v1/sessions/"+id+"/leases/ci%2Fa", "", as("all"))
	for _, path := range []string{"/peers/" + id + "/is_acquired", "/peers/" + id} {
		method := "GET "
		if path == "/peers/"+id {
			method = "PUT "
		}
		if got := a.Do(method+path, `{"expires_in":"1h"}`, as("all"), "Content-Type: application/json"); got.Status != 400 || got.Text != "Unknown peer" {
			t.Errorf("%s: %d %s", path, got.Status, got.Text)
		}
	}
	a.Do("GET /v1/sessions/"+id, "", as("ci")).Is(200, "leases.0.semaphore=ci/a")
	a.Do("GET /v1/sessions/"+id, "", as("root")).Is(200)
	for client, count := range map[string]string{"ci": "1", "all": "0", "sees": "0", "root": "1"} {
		a.Do("GET /v1/sessions", "", as(client)).Is(200, "sessions.length="+count)
	}
	for client, want := range map[string]string{"ci": `[{"id":` + id + `}]`, "all": "[]", "root": `[{"id":` + id + `}]`} {
		if got := peers(a, client); got != want {
			t.Errorf("peers of %s: %s", client, got)
		}
	}
	a.Do("DELETE /v1/sessions/"+id, "", as("root")).Is(204)
	a.Do("GET /v1/sessions/"+id, "", as("ci")).RefusedWith(404, "unknown-session")
	revoked := a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`, as("ci")).Member("session")
	a.Do("POST /v1/sessions/"+revoked+"/revoke", `{"reason":"why"}`, as("root")).Is(204)
	a.Do("GET /v1/sessions/"+revoked, "", as("ci")).RefusedWith(410, "revoked", "reason=why")
	a.Do("GET /v1/sessions/"+revoked, "", as("all")).RefusedWith(404, "unknown-session")
}

// peers returns throttle's list of sessions, as a client gets it.
func peers(a *apitest.API, client string) string {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/peers/", nil)
	r.Header.Set("Authorization", "Bearer secret-"+client)
	a.Handler.ServeHTTP(w, r)
	return w.Body.String()
}

// TestSessionsFromBeforeTokens: a session without an owner shows every client that knows its
// id the semaphores that its prefixes cover, and lists show the id to admins alone. It becomes
// the first client's that goes on with it.
func TestSessionsFromBeforeTokens(t *testing.T) {
	a := teams(t)
	a.Begin(fsm.OpenSession{Session: 5, TTLMS: 3_600_000}, fsm.Acquire{Session: 5, Name: "ci/a", Count: 1, TTLMS: fsm.KeepTTL},
		fsm.Acquire{Session: 5, Name: "db/a", Count: 1, TTLMS: fsm.KeepTTL}, fsm.ListAdd{Session: 5, Name: "db/b", Count: 1},
		fsm.AcquireOnce{Session: 6, Name: "ci/a", Count: 2, TTLMS: 3_600_000, WaitMS: 3_600_000})
	a.Do("GET /v1/sessions/5", "", as("ci")).Is(200, "leases.length=1", "leases.0.semaphore=ci/a", "waitlist.length=0")
	a.Do("GET /v1/sessions/5", "", as("root")).Is(200, "leases.length=2", "waitlist.length=1")
	for client, count := range map[string]string{"ci": "0", "sees": "0", "root": "2"} {
		a.Do("GET /v1/sessions", "", as(client)).Is(200, "sessions.length="+count)
		if got, want := peers(a, client), map[string]string{"0": "[]", "2": `[{"id":5},{"id":6}]`}[count]; got != want {
			t.Errorf("peers of %s: %s", client, got)
		}
	}
	for client, ids := range map[string][2]string{"ci": {}, "all": {}, "sees": {}, "root": {"5", "6"}} {
		a.Do("GET /v1/semaphores/ci%2Fa", "", as(client)).Is(200, "holders.0.session="+ids[0], "waiters.0.session="+ids[1])
	}
	a.Do("POST /v1/sessions/5/waitlist/wait", "", as("ci")).RefusedWith(403, "forbidden")
	a.Do("POST /v1/sessions/4242/waitlist/wait", "", as("ci")).RefusedWith(404, "unknown-session")
	a.Do("PUT /v1/sessions/5", "", as("ci")).Is(200)
	a.Do("PUT /v1/sessions/5?leases=true", "", as("ci")).Is(200, "leases.length=1", "leases.0.semaphore=ci/a")
	a.Do("GET /v1/sessions/5", "", as("ci")).Is(200, "leases.length=1", "leases.0.semaphore=ci/a", "waitlist.length=0")
	a.Do("POST /v1/sessions/5/waitlist/wait", "", as("ci")).RefusedWith(403, "forbidden")
	a.Do("GET /v1/sessions/5", "", as("root")).Is(200, "leases.length=2", "waitlist.length=1", "waitlist.0.granted=1")
	a.Do("GET /v1/sessions", "", as("ci")).Is(200, "sessions.length=1", "sessions.0.leases.length=1")
	a.Do("GET /v1/semaphores/ci%2Fa", "", as("sees")).Is(200, "holders.0.session=5")
	a.Do("PUT /v1/sessions/5", "", as("db")).RefusedWith(404, "unknown-session")
	a.Do("DELETE /v1/sessions/5/leases/db%2Fa", "", as("db")).RefusedWith(404, "unknown-session")
}

// TestRefusalsAndAdminsTakeNothingOver: a refused request for a session without an owner, and
// one that only gives back, leave it to its client; so does an admin, who withdraws and
// releases in the sessions of all.
func TestRefusalsAndAdminsTakeNothingOver(t *testing.T) {
	a := teams(t)
	a.Begin(fsm.OpenSession{Session: 5, TTLMS: 3_600_000}, fsm.Acquire{Session: 5, Name: "ci/a", Count: 2, TTLMS: fsm.KeepTTL},
		fsm.OpenSession{Session: 6, TTLMS: 3_600_000}, fsm.Acquire{Session: 6, Name: "ci/a", Count: 1, TTLMS: fsm.KeepTTL})
	a.Do("PUT /v1/sessions/5/leases/ci%2Fnone", "", as("all")).RefusedWith(404, "unknown-semaphore")
	a.Do("PUT /v1/sessions/5/leases/ci%2Fa", `{"count":1}`, as("all")).RefusedWith(409, "lease-exists")
	a.Do("POST /v1/sessions/5/restore", `{"ttl":"1h","leases":[{"name":"none","count":1}]}`, as("all")).RefusedWith(404, "unknown-semaphore")
	a.Do("POST /v1/sessions/5/restore", `{"ttl":"1h","leases":[{"name":"ci/a","count":1}]}`, as("all")).RefusedWith(409, "session-exists")
	a.Do("PATCH /v1/sessions/5/leases/ci%2Fa", `{"count":1}`, as("all")).Is(200)
	a.Do("DELETE /v1/sessions/6/leases/ci%2Fa", "", as("root")).Is(204)
	for _, id := range []string{"5", "6"} {
		a.Do("PUT /v1/sessions/"+id, "", as("ci")).Is(200)
		a.Do("PUT /v1/sessions/"+id, "", as("all")).RefusedWith(404, "unknown-session")
	}
	a.Do("DELETE /v1/sessions/5/leases/ci%2Fa", "", as("all")).RefusedWith(404, "unknown-session")
	a.Do("DELETE /v1/sessions/5/leases/ci%2Fa", "", as("root")).Is(204)
	a.Do("PUT /v1/sessions/5", "", as("ci")).Is(200)
	a.Do("GET /v1/semaphores/ci%2Fa", "", as("ci")).Is(200, "held=0", "waiters.length=0")
}

// TestRequestsFromBeforeTokens: a waiting request of a session without an owner shows a
// client the semaphores that its prefixes cover.
func TestRequestsFromBeforeTokens(t *testing.T) {
	a := teams(t)
	wants := []fsm.Want{{Semaphore: "ci/a", Count: 1}, {Semaphore: "db/a", Count: 1}}
	a.Begin(fsm.OpenSession{Session: 4, TTLMS: 3_600_000}, fsm.Acquire{Session: 4, Name: "db/a", Count: 2, TTLMS: fsm.KeepTTL},
		fsm.OpenSession{Session: 5, TTLMS: 3_600_000}, fsm.AcquireMany{Session: 5, Wants: wants, Mode: fsm.All})
	for client, want := range map[string]string{"ci": `"semaphores":{"ci/a":1},"mode":"all"`, "root": `"semaphores":{"ci/a":1,"db/a":1},"mode":"all"`} {
		if got := a.Do("GET /v1/sessions/5/leases/ci%2Fa", "", as(client)).Is(202); !strings.Contains(got.Text, want) {
			t.Errorf("%s: %s", client, got.Text)
		}
	}
}

// TestKeysBelongToTheirIdentity: two clients with the same key don't meet, nor do two
// admins that end sessions.
func TestKeysBelongToTheirIdentity(t *testing.T) {
	a := apitest.New(t, withTokens(t, append(twoTeams, client{"boss", access.Admin, ""})...))
	a.Must(201, "POST /v1/semaphores", `{"name":"x","permits":9}`, as("root"))
	key := "Idempotency-Key: 0123456789abcdef"
	mine := a.Must(201, "POST /v1/semaphores/x/leases", "", as("all"), key)
	other := a.Must(201, "POST /v1/semaphores/x/leases", "", as("root"), key)
	again := a.Must(201, "POST /v1/semaphores/x/leases", "", as("all"), key)
	if mine.Member("token") == other.Member("token") || mine.Member("token") != again.Member("token") {
		t.Errorf("%s\n%s\n%s", mine.Text, other.Text, again.Text)
	}
	a.Do("DELETE /v1/sessions/"+mine.Member("session"), "", as("root"), key+"ends").Is(204)
	a.Do("DELETE /v1/sessions/"+other.Member("session"), "", as("boss"), key+"ends").Is(204)
}

// TestListsAreNarrowed: a list has the names that the client's prefixes cover, page by page.
func TestListsAreNarrowed(t *testing.T) {
	a := apitest.New(t, withTokens(t, client{"root", access.Admin, ""}, client{"ci", access.Read, "ci/"}))
	for _, name := range []string{"a", "ci", "ci/a", "ci/b", "ci/c", "d"} {
		a.Must(201, "POST /v1/semaphores", `{"name":"`+name+`","permits":1}`, as("root"))
	}
	for query, want := range map[string]string{"": "ci/a ci/b ci/c", "?prefix=c": "ci/a ci/b ci/c", "?prefix=ci/b": "ci/b", "?prefix=d": "", "?limit=1": "ci/a ci/b ci/c", "?limit=2": "ci/a ci/b ci/c"} {
		found, cursor := []string{}, ""
		for {
			target := "GET /v1/semaphores" + query
			if cursor != "" {
				target += "&cursor=" + cursor
			}
			page := a.Do(target, "", as("ci")).Is(200)
			for _, s := range page.Body["semaphores"].([]any) {
				found = append(found, s.(map[string]any)["name"].(string))
			}
			if cursor = page.Member("next"); cursor == "null" {
				break
			}
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%q: %s", query, got)
		}
	}
}

// TestWaitersNameNoOtherSemaphores: a waiter of several semaphores shows a client those
// obstacles alone that its prefixes cover.
func TestWaitersNameNoOtherSemaphores(t *testing.T) {
	a := teams(t)
	id := a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`, as("all")).Member("session")
	for _, name := range []string{"ci%2Fa", "db%2Fa"} {
		a.Must(201, "POST /v1/semaphores/"+name+"/leases", `{"count":2}`, as("root"))
	}
	a.Must(202, "POST /v1/sessions/"+id+"/acquire", `{"mode":"all","semaphores":[{"name":"ci/a","count":1},{"name":"db/a","count":1}]}`, as("all"))
	a.Do("GET /v1/semaphores/ci%2Fa", "", as("root")).Is(200, "waiters.0.obstacles.length=2")
	got := a.Do("GET /v1/semaphores/ci%2Fa", "", as("ci")).Is(200, "waiters.length=1", "waiters.0.obstacles.length=1")
	if strings.Contains(got.Text, "db/a") {
		t.Error(got.Text)
	}
}

// TestEventsAreNarrowed: a stream has the events of the names that the client's prefixes
// cover, and of its own sessions; those of sessions without an owner, and their ids, go to
// admins.
func TestEventsAreNarrowed(t *testing.T) {
	a, _, address := apitest.Serve(t, withTokens(t, twoTeams...))
	since := a.Must(201, "POST /v1/semaphores", `{"name":"ci/a","permits":9}`, as("root")).Header.Get("X-Signalbox-Index")
	a.Must(201, "POST /v1/semaphores", `{"name":"db/a","permits":9}`, as("root"))
	a.Begin(fsm.OpenSession{Session: 5, TTLMS: 3_600_000}, fsm.Acquire{Session: 5, Name: "ci/a", Count: 1, TTLMS: fsm.KeepTTL}) // from before tokens
	ended := map[string]string{}
	for _, c := range []string{"db", "ci"} {
		id := a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`, as(c)).Member("session")
		a.Must(200, "PUT /v1/sessions/"+id+"/leases/"+c+"%2Fa", "", as(c))
		a.Must(204, "DELETE /v1/sessions/"+id, "", as(c))
		ended[c] = id
	}
	a.Must(201, "POST /v1/semaphores", `{"name":"ci/end","permits":9}`, as("root"))
	a.Must(201, "POST /v1/semaphores", `{"name":"db/end","permits":9}`, as("root"))
	for client, want := range map[string]string{
		"ci":   "granted session-opened granted released session-ended created",
		"sees": "created granted granted released granted released created created",
		"root": "created session-opened granted session-opened granted released session-ended session-opened granted released session-ended created created",
	} {
		end := "db/end"
		if client == "ci" {
			end = "ci/end"
		}
		names, text := follow(t, address, since, end, as(client))
		if got := strings.Join(names, " "); got != want || strings.Contains(text, `"session":"5"`) != (client == "root") {
			t.Errorf("%s: %s\nwant: %s\n%s", client, got, want, text)
		}
	}
	living := a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`, as("db")).Member("session")
	for client, want := range map[string][4]int{"ci": {200, 200, 404, 200}, "root": {200, 404, 404, 404}} { // to ci the sessions of db look alike
		for i, id := range []string{living, ended["db"], ended["ci"], "77"} {
			a.Do("HEAD /v1/events?session="+id, "", as(client)).Is(want[i])
		}
	}
}

// follow reads events up to one of a semaphore, and returns their names and the whole text.
func follow(t *testing.T, address, since, end string, header string) (names []string, text string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+address+"/v1/events?since="+since, nil)
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(header, ": ")
	r.Header.Set(name, value)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		text += lines.Text() + "\n"
		if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			names = append(names, kind)
		}
		if strings.Contains(lines.Text(), `"`+end+`"`) {
			return names, text
		}
	}
	t.Fatal("the stream ended")
	return nil, ""
}

// limitedTokens are those of clients, the first of which has a limit.
func limitedTokens(t *testing.T, limit string, clients ...client) *access.Tokens {
	t.Helper()
	path := accessFile(t, clients...)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), "[[token]]", "[[token]]\n"+limit, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// TestRateOfAnIdentity: requests beyond the rate have no effect, for each identity by
// itself and in the form of each API.
func TestRateOfAnIdentity(t *testing.T) {
	tokens := limitedTokens(t, "requests_per_second = 3", twoTeams...)
	a := apitest.New(t, func(cfg *apitest.Config) {
		cfg.Exchange.Tokens = tokens
		withThrottle(cfg)
	})
	refused := 0
	for range 20 {
		got := a.Do("GET /v1/cluster", "", as("ci"))
		if got.Status == 429 {
			refused++
			got.RefusedWith(429, "limit-reached", "rule=requests-per-second", "limit=3")
			if got.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
		a.Do("GET /v1/cluster", "", as("all")).Is(200)
		a.Do("GET /livez", "").Is(200)
	}
	if refused == 0 {
		t.Error("20 requests at once are taken")
	}
	if got := a.Do("GET /remainder?semaphore=ci%2Fa", "", as("ci")); got.Status != 503 || got.Header.Get("Retry-After") == "" {
		t.Errorf("throttle: %d %s", got.Status, got.Text)
	}
}

// TestRefusalsInTheFormOfDialects: 401 and 403 are one sentence of text there.
func TestRefusalsInTheFormOfDialects(t *testing.T) {
	a := teams(t)
	for _, path := range []string{"/remainder?semaphore=db%2Fa", "/semaphore/value/db%2Fa"} {
		for want, headers := range map[int][]string{401: nil, 403: {as("ci")}} {
			got := a.Do("GET "+path, "", headers...)
			if got.Status != want || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain") || strings.Contains(got.Text, "{") {
				t.Errorf("%s: %d %s", path, got.Status, got.Text)
			}
		}
	}
}

// TestProbesShowStrangersNoDetails: the checks without a token have names alone.
func TestProbesShowStrangersNoDetails(t *testing.T) {
	a := teams(t)
	a.Node.Set(func() {
		a.Node.ChecksNow = []cluster.Check{{Name: "leader", OK: true, Detail: "n1"}, {Name: "address", Moved: &cluster.Peer{ID: "n3", Address: "n3:8711"}}}
	})
	if got := a.Do("GET /readyz?verbose", "").Is(503); got.Text != "[+] leader\n[-] address\nnot ready\n" {
		t.Errorf("a stranger reads %q", got.Text)
	}
	if got := a.Do("GET /readyz?verbose", "", as("sees")).Is(503); !strings.Contains(got.Text, "leader n1") || !strings.Contains(got.Text, "n3:8711") {
		t.Errorf("with a token: %q", got.Text)
	}
	if got := a.Do("GET /readyz?verbose", "", as("scrapes")).Is(503); strings.Contains(got.Text, "n3:8711") {
		t.Errorf("with a token for the metrics: %q", got.Text)
	}
}

// TestClientCertificate: over TLS a verified certificate's name is an identity; one of
// another authority is none.
func TestClientCertificate(t *testing.T) {
	a := teams(t)
	own, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{own, other} {
		if _, err := certs.MakeAuthority(dir, false); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := certs.MakeNode(own, "n1", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	source, err := certs.Open(certs.Config{Pair: pair, CA: filepath.Join(own, "ca.pem"), Server: true})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(a.Handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = source.ServerTLS()
	server.StartTLS()
	defer server.Close()
	status := func(dir, name string) int {
		transport := server.Client().Transport.(*http.Transport).Clone()
		defer transport.CloseIdleConnections()
		transport.TLSClientConfig.InsecureSkipVerify = true // the server's side is what is tested
		if name != "" {
			files, err := certs.MakeClient(dir, name, true)
			if err != nil {
				t.Fatal(err)
			}
			pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
			if err != nil {
				t.Fatal(err)
			}
			transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		response, err := (&http.Client{Transport: transport}).Get(server.URL + "/v1/semaphores/ci%2Fa")
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	for _, c := range []struct {
		dir, name string
		want      int
	}{{own, "ci", 200}, {own, "db", 403}, {own, "stranger", 401}, {own, "", 401}, {other, "ci", 0}} {
		if got := status(c.dir, c.name); got != c.want {
			t.Errorf("certificate %q: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestLeasesAreNarrowed: the leases of a session are those that the client's prefixes cover, page
// by page, and of a session that it may not read there are none.
func TestLeasesAreNarrowed(t *testing.T) {
	a := apitest.New(t, withTokens(t, client{"root", access.Admin, ""}, client{"ci", access.Use, "ci/"}, client{"all", access.Use, ""}))
	commands := []fsm.Command{fsm.OpenSession{Session: 500, TTLMS: 3_600_000}} // from before the tokens: clients of all prefixes find it
	for _, name := range []string{"a", "ci/a", "b", "c", "ci/b", "d", "ci/c", "e"} {
		commands = append(commands, fsm.CreateSemaphore{Name: name, Permits: 1}, fsm.Acquire{Session: 500, Name: name, Count: 1, TTLMS: fsm.KeepTTL})
	}
	a.Begin(commands...)
	for _, c := range []struct {
		by    string
		limit int
		want  string
	}{{"ci", 1, "[ci/a] [ci/b] [ci/c]"}, {"ci", 2, "[ci/a ci/b] [ci/c]"}, {"ci", 3, "[ci/a ci/b ci/c]"}, {"all", 8, "[a ci/a b c ci/b d ci/c e]"}} {
		var pages []string
		for next := ""; next != "null"; {
			cursor := ""
			if next != "" {
				cursor = "&cursor=" + next
			}
			got := a.Do(fmt.Sprintf("GET /v1/sessions/500/leases?limit=%d%s", c.limit, cursor), "", as(c.by)).Is(200)
			var page []string
			for _, l := range got.Body["leases"].([]any) {
				page = append(page, l.(map[string]any)["semaphore"].(string))
			}
			pages, next = append(pages, fmt.Sprint(page)), got.Member("next")
		}
		if got := strings.Join(pages, " "); got != c.want {
			t.Errorf("by %s, %d a page: %s, want %s", c.by, c.limit, got, c.want)
		}
	}
	theirs := a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`, as("all")).Member("session")
	a.Must(202, "PUT /v1/sessions/"+theirs+"/leases/ci%2Fa", "", as("all"))
	a.Do("GET /v1/sessions/"+theirs+"/leases", "", as("ci")).RefusedWith(404, "unknown-session")
	a.Do("GET /v1/sessions/"+theirs+"/leases", "", as("root")).Is(200, "leases=[]")
	// The id of a session that every client may use is for admins alone, as in the semaphore itself.
	a.Do("GET /v1/semaphores/ci%2Fa/waiters", "", as("ci")).Is(200, "waiters.length=1", "waiters.0.session="+theirs)
	for by, id := range map[string]string{"ci": "", "all": "", "root": "500"} {
		a.Do("GET /v1/semaphores/ci%2Fa/holders", "", as(by)).Is(200, "holders.length=1", "holders.0.session="+id)
	}
	a.Begin(fsm.Acquire{Session: 500, Name: "ci/b", Count: 1, TTLMS: fsm.KeepTTL}, fsm.Release{Session: 500, Name: "ci/a"}, fsm.Acquire{Session: 500, Name: "ci/a", Count: 1, TTLMS: fsm.KeepTTL})
	for by, id := range map[string]string{"ci": "", "all": "", "root": "500"} {
		a.Do("GET /v1/semaphores/ci%2Fa/waiters", "", as(by)).Is(200, "waiters.length=1", "waiters.0.session="+id)
	}
	for _, list := range []string{"holders", "waiters"} {
		a.Do("GET /v1/semaphores/d/"+list, "", as("ci")).RefusedWith(403, "forbidden")
	}
}
