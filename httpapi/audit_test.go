package httpapi_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/audit"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/nodered"
	"github.com/signalbox/signalbox/test/apitest"
)

// lines is an audit log in memory.
type lines struct {
	log *audit.Log

	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

// audited is an API of two teams with an audit log.
func audited(t *testing.T, change ...func(*apitest.Config)) (*apitest.API, *lines) {
	l := &lines{}
	var err error
	if l.log, err = audit.Open(audit.Config{Path: audit.Stderr, Stderr: l, Node: "n1", Logger: hclog.NewNullLogger()}); err != nil {
		t.Fatal(err)
	}
	withAudit := func(cfg *apitest.Config) {
		cfg.Exchange.Audit = l.log
		cfg.Dialects["nodered"] = func(x *exchange.Exchange) (exchange.Dialect, error) {
			return nodered.New(x, nodered.Config{CheckCallback: func(string) error { return nil }}), nil
		}
	}
	return apitest.New(t, append(change, withTokens(t, twoTeams...), withAudit)...), l
}

// end closes the log and returns its lines, without time and node.
func (l *lines) end(t *testing.T) (text []string) {
	t.Helper()
	l.log.Close()
	for line := range strings.Lines(l.text.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
		text = append(text, strings.TrimSpace(regexp.MustCompile(`"time":"[^"]*","node":"n1",`).ReplaceAllString(line, "")))
	}
	return text
}

// TestAudit: each change and each attempt of one has its line, from every API, alone and
// in a batch; reads, renewals without a ttl and empty deliveries have none.
func TestAudit(t *testing.T) {
	a, l := audited(t)
	id := "X-Request-Id: q"
	do := func(line, body, client string, more ...string) apitest.Reply {
		t.Helper()
		return a.Do(line, body, append(more, as(client), id)...)
	}
	do("POST /v1/semaphores", `{"name":"ci/a","permits":1}`, "root")
	if got := do("POST /v1/semaphores", `{"name":"db/a","permits":1}`, "ci").Header.Get("X-Request-Id"); got != "q" {
		t.Errorf("request id %q", got)
	}
	session := do("POST /v1/sessions", `{"ttl":"1h"}`, "ci").Member("session")
	do("PUT /v1/sessions/"+session+"/leases/ci%2Fa", "", "ci")
	do("PUT /v1/sessions/"+session, "", "ci")
	do("GET /v1/sessions/"+session, "", "ci")
	do("POST /v1/sessions/"+session+"/waitlist/wait", "", "ci")
	do("POST /v1/semaphores/ci%2Fa/leases", "", "ci")
	do("POST /v1/batch", `{"operations":[{"op":"up","semaphore":"ci/a"},{"op":"up","semaphore":"db/a"},{"op":"nothing"}]}`, "ci")
	do("POST /v1/sessions/"+session+"/acquire", `{"mode":"all","semaphores":[{"name":"ci/a","count":1},{"name":"ci/b","count":1}]}`, "ci")
	do("POST /semaphore/up", `{"name":"ci/a"}`, "ci", "Content-Type: application/json")
	do("POST /v1/semaphores/ci%2Fa/up", "", "ci", "Idempotency-Key: 0123456789abcdef")
	do("POST /v1/semaphores/ci%2Fa/up", "", "ci", "Idempotency-Key: 0123456789abcdef")
	do("DELETE /v1/semaphores/ci%2Fa/holders/"+session+"?reason=why", "", "root")
	do("PUT /v1/cluster/members/n9", `{"peer":"n9:1"}`, "root")
	do("DELETE /v1/cluster/members/n2", "", "ci")
	do("POST /v1/sessions/"+session+"/revoke", `{"reason":"late"}`, "root")
	do("PUT /v1/cluster/level", `{"level":3}`, "root")
	for _, sessions := range []string{"keep", "end"} {
		do("PUT /v1/snapshot?cluster="+apitest.ClusterID+"&sessions="+sessions, "no backup", "root", "Content-Type: application/octet-stream")
	}
	who := func(client, index string) string {
		if index != "" {
			index = `"index":` + index + `,`
		}
		return `{` + index + `"identity":"` + client + `","remote":"192.0.2.1","request":"q",`
	}
	prefix := `"outcome":"forbidden","reason":"No prefix of this identity covers the name. An operator adds prefixes to its token."}`
	want := []string{
		who("root", "1") + `"operation":"create","semaphore":"ci/a","outcome":"ok"}`,
		who("ci", "") + `"operation":"create","semaphore":"db/a",` + prefix,
		who("ci", "2") + `"operation":"open","session":"` + session + `","outcome":"ok"}`,
		who("ci", "3") + `"operation":"acquire","semaphore":"ci/a","session":"` + session + `","outcome":"ok"}`,
		who("ci", "6") + `"operation":"acquire-once","semaphore":"ci/a","outcome":"unavailable"}`,
		who("ci", "7") + `"operation":"up","semaphore":"ci/a","outcome":"ok"}`,
		who("ci", "") + `"operation":"up","semaphore":"db/a",` + prefix,
		who("ci", "8") + `"operation":"acquire-many","semaphores":["ci/a","ci/b"],"session":"` + session + `","outcome":"unknown-semaphore"}`,
		who("ci", "9") + `"operation":"up","semaphore":"ci/a","outcome":"ok"}`,
		who("ci", "10") + `"operation":"up","semaphore":"ci/a","outcome":"ok"}`,
		who("ci", "11") + `"operation":"up","semaphore":"ci/a","outcome":"ok","replayed":true}`,
		who("root", "12") + `"operation":"revoke","semaphore":"ci/a","session":"` + session + `","outcome":"ok","reason":"why"}`,
		who("root", "") + `"operation":"add-member","member":"n9","address":"n9:1","outcome":"ok"}`,
		who("ci", "") + `"operation":"remove-member","member":"n2","outcome":"forbidden","reason":"This needs the scope admin, and the identity has use. An operator changes the scopes of its token."}`,
		who("root", "13") + `"operation":"end","session":"` + session + `","outcome":"ok","reason":"late"}`,
		who("root", "") + `"operation":"raise-level","level":3,"outcome":"ok"}`,
		who("root", "") + `"operation":"restore-backup","sessions":"keep","outcome":"backup-refused"}`,
		who("root", "") + `"operation":"restore-backup","sessions":"end","outcome":"backup-refused"}`,
	}
	got := l.end(t)
	for i := range max(len(got), len(want)) {
		line := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return "none"
		}
		if line(got) != line(want) {
			t.Errorf("line %d: %s\nwant: %s", i+1, line(got), line(want))
		}
	}
}

// TestAuditOfRenewalsAndEnds: a renewal or heartbeat has a line if it is refused or gives another
// ttl, which may end the session; the end of a session that the identity does not have is no success.
func TestAuditOfRenewalsAndEnds(t *testing.T) {
	a, l := audited(t)
	open := func() string {
		return a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`, as("ci")).Member("session")
	}
	ended, kept := open(), open()
	renew := func(status int, session, body, client string) {
		t.Helper()
		a.Must(status, "PUT /v1/sessions/"+session, body, as(client))
	}
	renew(200, ended, "", "ci")
	renew(200, ended, `{"ttl":"30s"}`, "ci")
	renew(404, ended, "", "db")
	renew(200, ended, `{"ttl":0}`, "ci")
	renew(200, kept, `{"ttl":"1h"}`, "ci") // as it was
	for _, expires := range []string{"2h", "2h", "2h", "1h"} {
		a.Must(200, "PUT /peers/"+kept, `{"expires_in":"`+expires+`"}`, as("ci"), "Content-Type: application/json")
	}
	a.Must(200, "POST /v1/batch", `{"operations":[{"op":"renew","session":"`+ended+`"},{"op":"renew","session":"`+kept+`"},{"op":"renew","session":"`+kept+`","ttl":1}]}`, as("ci"))
	end := func(session, client string) {
		t.Helper()
		a.Must(204, "DELETE /v1/sessions/"+session, "", as(client))
	}
	another := open()
	end(another, "db")
	end("4711", "ci")
	end(another, "ci")
	end(another, "ci")

	sessions := strings.NewReplacer(ended, "ENDED", kept, "KEPT", another, "ANOTHER")
	var got []string
	for _, line := range l.end(t) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Operation != "open" {
			got = append(got, strings.Join([]string{r.Identity, r.Operation, sessions.Replace(r.Session), r.Outcome}, " "))
		}
	}
	want := []string{
		"ci renew ENDED ok",
		"db renew ENDED unknown-session",
		"ci renew ENDED ok",
		"ci renew KEPT ok",
		"ci renew KEPT ok",
		"ci renew ENDED expired-session",
		"ci renew KEPT ok",
		"db end ANOTHER unknown-session",
		"ci end 4711 unknown-session",
		"ci end ANOTHER ok",
		"ci end ANOTHER unknown-session",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAuditOfTakingOver: the command by which an identity becomes the owner of a session from
// before the tokens has a line that says so, also a renewal without a ttl; later ones do not.
func TestAuditOfTakingOver(t *testing.T) {
	a, l := audited(t)
	a.Begin(fsm.CreateSemaphore{Name: "ci/a", Permits: 1}, fsm.OpenSession{Session: 5, TTLMS: 3_600_000}, fsm.OpenSession{Session: 6, TTLMS: 3_600_000})
	for range 2 {
		a.Must(200, "PUT /v1/sessions/5", "", as("ci"), "X-Request-Id: q")
		a.Must(200, "PUT /v1/sessions/6/leases/ci%2Fa", "", as("ci"), "X-Request-Id: q")
	}
	who := `"identity":"ci","remote":"192.0.2.1","request":"q",`
	want := []string{
		`"operation":"renew","session":"5","outcome":"ok","took_over":true}`,
		`"operation":"acquire","semaphore":"ci/a","session":"6","outcome":"ok","took_over":true}`,
		`"operation":"acquire","semaphore":"ci/a","session":"6","outcome":"ok"}`,
	}
	got := l.end(t)
	for i := range got {
		_, got[i], _ = strings.Cut(got[i], who)
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAuditHoldsNoSecret: texts that clients keep for themselves are in no line.
func TestAuditHoldsNoSecret(t *testing.T) {
	a, l := audited(t)
	metadata := `"metadata":{"k":"s3cret"}`
	a.Must(201, "POST /v1/semaphores", `{"name":"x","permits":1,`+metadata+`}`, as("root"), "Idempotency-Key: s3cret-0123456789")
	a.Must(201, "POST /v1/sessions", `{"ttl":"1h",`+metadata+`}`, as("root"))
	a.Must(201, "POST /v1/semaphores/x/leases", `{`+metadata+`}`, as("root"))
	a.Must(409, "POST /semaphore/down", `{"name":"x","callback":"http://n1/?key=s3cret"}`, as("root"), "Content-Type: application/json")
	got := l.end(t)
	if len(got) != 4 || strings.Contains(strings.Join(got, "\n"), "s3cret") || strings.Contains(strings.Join(got, "\n"), "secret-root") {
		t.Errorf("%q", got)
	}
}
