package consul_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/audit"
	"github.com/signalbox/signalbox/test/apitest"
)

// withTokens serves clients with the tokens secret-all, secret-ci (prefix ci/), secret-reads and secret-admin.
func withTokens(t *testing.T) func(*apitest.Config) {
	t.Helper()
	text := ""
	for name, rights := range map[string]string{"all": "scopes = [\"use\"]", "ci": "scopes = [\"use\"]\nprefixes = [\"ci/\"]", "reads": "scopes = [\"read\"]", "admin": "scopes = [\"admin\"]"} {
		sum := sha256.Sum256([]byte("secret-" + name))
		text += fmt.Sprintf("[[token]]\nname = %q\nhash = \"sha256:%s\"\n%s\n", name, hex.EncodeToString(sum[:]), rights)
	}
	path := filepath.Join(t.TempDir(), "tokens.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *apitest.Config) { cfg.Exchange.Tokens = tokens }
}

// TestTokens: the query carries one before the header, the header before Authorization.
func TestTokens(t *testing.T) {
	s, _ := onConsul(t, withTokens(t))
	for _, c := range []struct {
		line    string
		headers []string
		status  int
	}{
		{"GET /v1/kv/ci/a", nil, 401},
		{"GET /v1/kv/ci/a?token=secret-ci", nil, 404},
		{"GET /v1/kv/ci/a?token=", nil, 401},
		{"GET /v1/kv/ci/a?token=wrong", []string{"X-Consul-Token: secret-ci", "Authorization: Bearer secret-ci"}, 401},
		{"GET /v1/kv/ci/a", []string{"X-Consul-Token: secret-ci"}, 404},
		{"GET /v1/kv/ci/a?token=secret-ci", []string{"X-Consul-Token: wrong"}, 404},
		{"GET /v1/kv/ci/a", []string{"X-Consul-Token: wrong", "Authorization: Bearer secret-ci"}, 401},
		{"GET /v1/kv/ci/a", []string{"Authorization: Bearer secret-ci"}, 404},
		{"GET /v1/kv/ci/a", []string{"X-Consul-Token: ", "Authorization: Bearer secret-ci"}, 404},
		{"GET /v1/kv/other?token=secret-ci", nil, 403},
		{"GET /v1/kv/?recurse&token=secret-ci", nil, 403},
		{"GET /v1/kv/c?keys&token=secret-ci", nil, 403},
		{"GET /v1/kv/ci/?keys&token=secret-ci", nil, 404},
		{"PUT /v1/kv/ci/a?token=secret-ci", nil, 200},
		{"PUT /v1/kv/other?token=secret-ci", nil, 403},
		{"PUT /v1/kv/other?cas=1&token=secret-ci", nil, 403},
		{"PUT /v1/kv/ci/a?token=secret-reads", nil, 403},
		{"PUT /v1/kv/ci/a?cas=0&token=secret-reads", nil, 403},
		{"DELETE /v1/kv/?recurse&token=secret-ci", nil, 403},
		{"DELETE /v1/kv/c?recurse&token=secret-ci", nil, 403},
		{"PUT /v1/session/create?token=secret-reads", nil, 403},
		{"GET /v1/agent/self?token=secret-reads", nil, 200},
		{"GET /v1/semaphores?token=secret-reads", nil, 401}, // a native route knows no such member
		{"GET /v1/semaphores", []string{"X-Consul-Token: secret-reads"}, 401},
	} {
		got := s.Ask(c.line, "", c.headers...)
		if got.Status != c.status || strings.Contains(got.Body, "secret-") {
			t.Errorf("%s %v: %s, want %d", c.line, c.headers, got, c.status)
		}
		if ofAll := strings.Contains(c.line, "kv/?"); c.status == 403 && strings.Contains(got.Body, "all prefixes") != ofAll {
			t.Errorf("%s: refused with %s", c.line, got.Body)
		}
		if c.status == 403 && got.ContentType != "text/plain; charset=utf-8" {
			t.Errorf("%s: refused as %s", c.line, got.ContentType)
		}
	}
}

// TestPastVersionsNeedTheRight: a reader does not learn by a check-and-set that a version is past.
func TestPastVersionsNeedTheRight(t *testing.T) {
	s, _ := onConsul(t, withTokens(t))
	for _, value := range []string{"1", "2"} {
		s.Is(s.Ask("PUT /v1/kv/other?token=secret-all", value), yes)
	}
	s.Is(s.Ask("PUT /v1/kv/other?cas=1&token=secret-all", "3"), no)
	for _, token := range []string{"secret-ci", "secret-reads"} {
		if got := s.Ask("PUT /v1/kv/other?cas=1&token="+token, "3"); got.Status != 403 {
			t.Errorf("%s: %s", token, got)
		}
	}
}

// TestSessionsOfOthers: with another identity's session each request is as with an unknown one.
func TestSessionsOfOthers(t *testing.T) {
	s, _ := onConsul(t, withTokens(t))
	id := open(s, `{}`, "X-Consul-Token: secret-all")
	const other = "X-Consul-Token: secret-ci"
	s.Is(s.Ask("GET /v1/session/info/"+id, "", other), "200 json []")
	s.Is(s.Ask("GET /v1/session/list", "", other), "200 json []")
	s.Is(s.Ask("PUT /v1/session/renew/"+id, "", other), "404 text Session id '"+id+"' not found")
	s.Is(s.Ask("PUT /v1/kv/ci/a?acquire="+id, "", other), `500 text raft apply failed: invalid session "`+id+`"`)
	s.Is(s.Ask("PUT /v1/session/destroy/"+id, "", other), yes)
	holder := open(s, `{}`, other)
	s.Is(s.Ask("PUT /v1/kv/ci/a?acquire="+holder, "", other), yes)
	for _, token := range []string{other, "X-Consul-Token: secret-admin"} { // a session of theirs would be refused with false
		s.Is(s.Ask("PUT /v1/kv/ci/a?acquire="+id, "", token), `500 text raft apply failed: invalid session "`+id+`"`)
		s.Is(s.Ask("PUT /v1/kv/ci/a?acquire="+open(s, `{}`, token), "", token), no)
	}
	if got := s.Ask("PUT /v1/session/renew/"+id, "", "X-Consul-Token: secret-all"); got.Status != 200 {
		t.Errorf("destroyed by another identity: %s", got)
	}
}

// TestHolderFromBeforeTheTokens: whoever knows the id of a session without an owner can take it over, so
// that others than admins see an id in its place with which nothing can be done.
func TestHolderFromBeforeTheTokens(t *testing.T) {
	s, _ := onConsul(t, withTokens(t))
	const old, placeholder = "5369676e-616c-626f-0000-00000000000b", "5369676e-616c-626f-0000-000000000000"
	const ci, admin = "X-Consul-Token: secret-ci", "X-Consul-Token: secret-admin"
	s.Do(fsm.OpenHolder{Session: 11, TTLMS: 60_000, About: "consul node=n1 ttl=30s delay=0 checks=1 name="})
	s.Do(fsm.ItemAcquire{Name: "ci/l", Session: 11})
	s.Do(fsm.ItemAcquire{Name: "ci/s/" + old, Session: 11}) // a semaphore's; its name has the id
	for _, c := range []struct{ line, token, want string }{
		{"GET /v1/kv/ci/l", ci, placeholder},
		{"GET /v1/kv/ci/l?stale", "X-Consul-Token: secret-all", placeholder},
		{"GET /v1/kv/ci/l?recurse", "X-Consul-Token: secret-reads", placeholder},
		{"GET /v1/kv/ci/l?recurse", admin, old},
		{"GET /v1/kv/ci/l", admin, old},
		{"GET /v1/kv/ci/s/?recurse", ci, old},
	} {
		if got := shownPairs(s, s.Ask(c.line, "", c.token)); len(got) != 1 || got[0].Session != c.want {
			t.Errorf("%s with %s: %+v", c.line, c.token, got)
		}
	}
	s.Is(s.Ask("PUT /v1/session/renew/"+placeholder, "", ci), "404 text Session id '"+placeholder+"' not found")
	s.Is(s.Ask("GET /v1/session/info/"+placeholder, "", ci), "200 json []")
	s.Is(s.Ask("PUT /v1/kv/ci/l?acquire="+placeholder, "", ci), `500 text raft apply failed: invalid session "`+placeholder+`"`)
	s.Is(s.Ask("PUT /v1/kv/ci/l?release="+placeholder, "", ci), no)
	s.Is(s.Ask("PUT /v1/session/destroy/"+placeholder, "", ci), yes)
	if got := s.Ask("PUT /v1/session/renew/"+old, "", ci); got.Status != 200 { // its holder, with a token now
		t.Errorf("%s", got)
	}
	if got := shownPairs(s, s.Ask("GET /v1/kv/ci/l", "", ci)); got[0].Session != old {
		t.Errorf("after it was taken over: %+v", got)
	}
}

// TestTokensAreNotLogged, neither by the log of requests nor by that of changes.
func TestTokensAreNotLogged(t *testing.T) {
	var requests bytes.Buffer
	path := filepath.Join(t.TempDir(), "audit.log")
	changes, err := audit.Open(audit.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := onConsul(t, withTokens(t), func(cfg *apitest.Config) {
		cfg.Exchange.Logger = hclog.New(&hclog.LoggerOptions{Output: &requests, Level: hclog.Trace})
		cfg.Exchange.Audit = changes
	})
	s.Is(s.Ask("PUT /v1/kv/a?token=secret-all", "hidden"), yes)
	s.Is(s.Ask("PUT /v1/kv/a", "hidden", "X-Consul-Token: secret-all"), yes)
	if got := s.Ask("PUT /v1/kv/a?token=secret-none", "hidden"); got.Status != 401 {
		t.Errorf("%s", got)
	}
	id := open(s, `{}`, "X-Consul-Token: secret-all")
	s.Is(s.Ask("PUT /v1/kv/a?acquire="+id+"&token=secret-all", "hidden"), yes)
	if got := s.Ask("GET /v1/kv//a?token=secret-all", ""); got.Status != 307 {
		t.Errorf("%s", got)
	}
	changes.Close()
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, log := range map[string]string{"requests": requests.String(), "changes": string(written)} {
		if !strings.Contains(log, map[string]string{"requests": "/v1/kv/a", "changes": "item-acquire"}[name]) || strings.Contains(log, "secret") || strings.Contains(log, "hidden") {
			t.Errorf("%s: %s", name, log)
		}
	}
}
