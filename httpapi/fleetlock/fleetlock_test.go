package fleetlock_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/fleetlock"
	"github.com/signalbox/signalbox/test/apitest"
)

func withFleetLock(cfg *apitest.Config) {
	cfg.Dialects["fleetlock"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return fleetlock.New(x), nil }
}

const protocol = "fleet-lock-protocol: true"

// ask sends a request as Zincati does.
func ask(s *apitest.Site, step, id, group string) string {
	s.Helper()
	return s.Ask("POST /v1/"+step, fmt.Sprintf(`{"client_params":{"id":%q,"group":%q}}`, id, group), protocol, "Content-Type: application/json").String()
}

const (
	done    = "200 text"
	refused = `409 json {"kind":"unavailable","value":`
)

// TestMachinesTakeTurns: a group has as many machines in their reboot as its semaphore has
// permits. Each request may be repeated, and a machine gives back its own slot alone.
func TestMachinesTakeTurns(t *testing.T) {
	apitest.InEachPlace(t, func(s *apitest.Site) {
		s.Semaphore("fleetlock/default", "2", "")
		for i, c := range []struct{ step, id, want string }{
			{"steady-state", "a", done}, // Zincati begins with it
			{"pre-reboot", "a", done},
			{"pre-reboot", "a", done},
			{"pre-reboot", "b", done},
			{"pre-reboot", "c", refused},
			{"pre-reboot", "c", refused},
			{"steady-state", "c", done},
			{"pre-reboot", "c", refused},
			{"steady-state", "a", done},
			{"steady-state", "a", done},
			{"pre-reboot", "c", done},
			{"pre-reboot", "a", refused},
		} {
			if got := ask(s, c.step, c.id, "default"); !strings.HasPrefix(got, c.want) {
				s.Errorf("%d: %s of %s: %s, want %s", i, c.step, c.id, got, c.want)
			}
		}
		s.Advance(10 * time.Minute) // a machine that does not come back keeps its slot
		if got := ask(s, "pre-reboot", "a", "default"); !strings.HasPrefix(got, refused) {
			s.Errorf("ten minutes later: %s", got)
		}
	}, withFleetLock)
}

// TestGroupsAreApart: a machine may be in two groups; an operator sees who has a slot, and
// sets how many there are, down to none.
func TestGroupsAreApart(t *testing.T) {
	s, _ := apitest.OnAPI(t, withFleetLock)
	if got := ask(s, "pre-reboot", "a", "workers"); !strings.HasPrefix(got, `404 json {"kind":"unknown-semaphore","value":"The group has no slots. An operator creates them: signalbox create fleetlock/workers`) {
		t.Errorf("without a semaphore: %s", got)
	}
	s.Semaphore("fleetlock/workers", "1", "")
	s.Semaphore("fleetlock/control", "0", "")
	if got := ask(s, "pre-reboot", "a", "workers"); got != done {
		t.Error(got)
	}
	if got := ask(s, "pre-reboot", "a", "control"); !strings.HasPrefix(got, `409 json {"kind":"never"`) {
		t.Errorf("a group of no slots: %s", got)
	}
	if got := ask(s, "steady-state", "a", "control"); got != done {
		t.Error(got)
	}
	got := s.Ask("GET /v1/semaphores/fleetlock%2Fworkers", "")
	if !strings.Contains(got.Body, `"held":1`) || !strings.Contains(got.Body, `"metadata":{"machine":"a"}`) {
		t.Errorf("the holder is not shown: %s", got)
	}
}

// TestRefusalLeavesNothing: of a machine that has no slot, or whose group is deleted, no session stays.
func TestRefusalLeavesNothing(t *testing.T) {
	s, node := apitest.OnAPI(t, withFleetLock)
	s.Semaphore("fleetlock/full", "1", "")
	s.Semaphore("fleetlock/none", "0", "")
	for i, c := range []struct {
		group, want string
		sessions    int
	}{
		{"unknown", "404 ", 0},
		{"none", `409 json {"kind":"never"`, 0},
		{"full", done, 1},
		{"full", refused, 1}, // of the next machine
	} {
		got := ask(s, "pre-reboot", fmt.Sprint("m", i), c.group)
		var sessions int
		node.View(func(m *fsm.Machine) { _, sessions, _, _ = m.Counts() })
		if !strings.HasPrefix(got, c.want) || sessions != c.sessions {
			t.Errorf("%s: %s, and %d sessions", c.group, got, sessions)
		}
	}
	s.Ask("DELETE /v1/semaphores/fleetlock%2Ffull", "")
	node.View(func(m *fsm.Machine) {
		if _, sessions, _, _ := m.Counts(); sessions != 0 {
			t.Error("a session of a deleted group stays")
		}
	})
}

// withToken serves FleetLock to the identities fleet, other and ci, of which the last one has a prefix.
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

// TestSlotOfAnother: a slot belongs to the identity that took it, and the reply to another one
// does not say that it is free.
func TestSlotOfAnother(t *testing.T) {
	s, _ := apitest.OnAPI(t, withFleetLock, withToken(t))
	s.Semaphore("fleetlock/default", "1", "")
	for i, c := range []struct{ step, token, want string }{
		{"pre-reboot", "fleet", done},
		{"steady-state", "other", `403 json {"kind":"forbidden"`},
		{"pre-reboot", "other", refused},
		{"steady-state", "ci", `403 json {"kind":"forbidden"`},
		{"steady-state", "fleet", done},
		{"steady-state", "fleet", done},
		{"pre-reboot", "other", done},
		{"steady-state", "fleet", `403 json {"kind":"forbidden"`},
	} {
		body := `{"client_params":{"id":"a","group":"default"}}`
		if got := s.Ask("POST /v1/"+c.step, body, protocol, "Authorization: Bearer secret-"+c.token).String(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%d: %s of %s: %s, want %s", i, c.step, c.token, got, c.want)
		}
	}
}

// TestSlotOfAnotherBehind: a node that can't tell whose slot it is does not say that it is free.
func TestSlotOfAnotherBehind(t *testing.T) {
	s, node := apitest.OnAPI(t, withFleetLock)
	s.Semaphore("fleetlock/default", "1", "")
	node.Lagging = true
	if got := s.Ask("POST /v1/steady-state", `{"client_params":{"id":"a","group":"default"}}`, protocol).String(); !strings.HasPrefix(got, "503 ") {
		t.Errorf("%s, want 503", got)
	}
}

// TestHostile: what is not a request of the protocol changes nothing.
func TestHostile(t *testing.T) {
	s, node := apitest.OnAPI(t, withFleetLock)
	s.Semaphore("fleetlock/default", "1", "")
	before := node.State(t)
	valid := `{"client_params":{"id":"a","group":"default"}}`
	for name, c := range map[string]struct {
		body    string
		headers []string
		status  int
	}{
		"no header":          {valid, nil, 400},
		"another protocol":   {valid, []string{"fleet-lock-protocol: 1"}, 400},
		"no body":            {"", []string{protocol}, 400},
		"no JSON":            {"a=b", []string{protocol}, 400},
		"a list":             {"[]", []string{protocol}, 400},
		"no id":              {`{"client_params":{"group":"default"}}`, []string{protocol}, 400},
		"an id of a number":  {`{"client_params":{"id":1,"group":"default"}}`, []string{protocol}, 400},
		"a control letter":   {`{"client_params":{"id":"a\n","group":"default"}}`, []string{protocol}, 400},
		"a long id":          {`{"client_params":{"id":"` + strings.Repeat("a", 513) + `","group":"default"}}`, []string{protocol}, 400},
		"no group":           {`{"client_params":{"id":"a"}}`, []string{protocol}, 400},
		"a group with slash": {`{"client_params":{"id":"a","group":"../x"}}`, []string{protocol}, 400},
		"a group of lines":   {`{"client_params":{"id":"a","group":"default\n"}}`, []string{protocol}, 400},
		"a long group":       {`{"client_params":{"id":"a","group":"` + strings.Repeat("a", 257) + `"}}`, []string{protocol}, 400},
		"too large":          {`{"x":"` + strings.Repeat("a", 64<<10) + `"}`, []string{protocol}, 413},
		"compressed":         {valid, []string{protocol, "Content-Encoding: gzip"}, 415},
		"from a page":        {valid, []string{protocol, "Origin: http://other.example"}, 403},
	} {
		for _, step := range []string{"pre-reboot", "steady-state"} {
			got := s.Ask("POST /v1/"+step, c.body, c.headers...)
			if got.Status != c.status || !strings.HasPrefix(got.Body, `{"kind":"`) || node.State(t) != before {
				t.Errorf("%s, %s: %s", step, name, got)
			}
		}
	}
}

// TestOff: without the dialect its paths are no routes.
func TestOff(t *testing.T) {
	apitest.New(t).Do("POST /v1/pre-reboot", "{}").RefusedWith(404, "unknown-route")
}
