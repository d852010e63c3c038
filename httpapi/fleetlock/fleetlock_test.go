package fleetlock_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/fleetlock"
	"github.com/signalbox/signalbox/test/apitest"
)

func withFleetLock(cfg *apitest.Config) {
	cfg.Dialects["fleetlock"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return fleetlock.New(x), nil }
}

const protocol = "fleet-lock-protocol: true"

// withToken serves FleetLock to the identities fleet, other and ci. Only ci has a prefix.
func withToken(t *testing.T) func(*apitest.Config) {
	text := ""
	for _, name := range []string{"fleet", "other", "ci"} {
		sum := sha256.Sum256([]byte("secret-" + name))
		text += fmt.Sprintf("[[token]]\nname = %q\nhash = \"sha256:%s\"\nscopes = [\"use\"]\n", name, hex.EncodeToString(sum[:]))
	}
	path := filepath.Join(t.TempDir(), "tokens.toml")
	if err := os.WriteFile(path, []byte(text+"prefixes = [\"ci/\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *apitest.Config) { cfg.Exchange.Tokens = tokens }
}

// TestScripts are tables of the contract.
func TestScripts(t *testing.T) { apitest.RunScripts(t, "testdata", withFleetLock) }

// TestTokenScripts are tables of the contract at a node with tokens.
func TestTokenScripts(t *testing.T) {
	apitest.RunScripts(t, "testdata/tokens", withFleetLock, func(cfg *apitest.Config) { withToken(t)(cfg) }) // in the bubble
}

// TestSlotOfAnotherBehind: a node whose state is behind can't tell to whom a slot belongs, and does not say that it is
// free.
func TestSlotOfAnotherBehind(t *testing.T) {
	s, node := apitest.OnAPI(t, withFleetLock)
	s.Semaphore("fleetlock/default", "1", "")
	node.Lagging = true
	if got := s.Ask("POST /v1/steady-state", `{"client_params":{"id":"a","group":"default"}}`, protocol).String(); !strings.HasPrefix(got, "503 ") {
		t.Errorf("%s, want 503", got)
	}
}

// TestOff: without the dialect its paths are no routes.
func TestOff(t *testing.T) {
	apitest.New(t).Do("POST /v1/pre-reboot", "{}").RefusedWith(404, "unknown-route")
}
