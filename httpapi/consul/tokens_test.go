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

// TestHolderFromBeforeTheTokens: a client that knows the id of a session without an owner can take the session over. So
// only admins see such an id; other clients see a useless placeholder.
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

// TestTokensAreNotLogged, neither by the log of requests nor by the log of changes.
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
