package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
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

// TestSessionsOfOthersAreUnknown: with another client's session every request has the reply of an
// unknown one.
func TestSessionsOfOthersAreUnknown(t *testing.T) {
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
}

// TestEventsAreNarrowed: a stream has the events of the names that the client's prefixes
// cover, and of the sessions that it owns; events of sessions without an owner, and their ids, go to
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

// limitedTokens are clients' tokens, the first of which has a limit.
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
	authority, other := t.TempDir(), t.TempDir()
	for _, dir := range []string{authority, other} {
		if _, err := certs.MakeAuthority(dir, false); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := certs.MakeNode(authority, "n1", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	source, err := certs.Open(certs.Config{Pair: pair, CA: filepath.Join(authority, "ca.pem"), Server: true})
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
	}{{authority, "ci", 200}, {authority, "db", 403}, {authority, "stranger", 401}, {authority, "", 401}, {other, "ci", 0}} {
		if got := status(c.dir, c.name); got != c.want {
			t.Errorf("certificate %q: %d, want %d", c.name, got, c.want)
		}
	}
}
