package terraform_test

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/terraform"
	"github.com/signalbox/signalbox/test/apitest"
)

func withTerraform(cfg *apitest.Config) {
	cfg.Dialects["terraform"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return terraform.New(x), nil }
}

// lockOf is the JSON of a lock as the backend sends it.
func lockOf(id string) string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":"u@h","Version":"1.9.0","Created":"2026-01-02T03:04:05Z","Path":""}`, id)
}

// stateOf is a state with this many bytes of output.
func stateOf(serial, bytes int) string {
	return fmt.Sprintf(`{"version":4,"serial":%d,"lineage":"l","outputs":{"x":{"value":%q}}}`, serial, strings.Repeat("x", bytes))
}

const (
	done    = "200 text"
	noState = "404 text There is no state."
)

// backend sends requests as the http backend does with one configuration.
type backend struct {
	*apitest.Site
	address                        string // behind the host
	lockMethod, unlockMethod       string
	update                         string // "": POST
	lockAddress, unlockAddress, id string // the addresses "": as address; the ID of the lock that it has
}

func (b *backend) send(method, address, body string, sum bool) string {
	b.Helper()
	if address == "" {
		address = b.address
	}
	headers := []string{}
	if sum { // also of an empty body, with which force-unlock unlocks
		digest := md5.Sum([]byte(body))
		headers = []string{"Content-Type: application/json", "Content-MD5: " + base64.StdEncoding.EncodeToString(digest[:])}
	}
	return b.Ask(method+" "+address, body, headers...).String()
}

func (b *backend) lock(id string) string {
	got := b.send(b.lockMethod, b.lockAddress, lockOf(id), true)
	if got == done {
		b.id = id
	}
	return got
}

func (b *backend) unlock() string {
	body := lockOf(b.id)
	b.id = ""
	return b.send(b.unlockMethod, b.unlockAddress, body, true)
}

func (b *backend) force() string  { return b.send(b.unlockMethod, b.unlockAddress, "", true) }
func (b *backend) get() string    { return b.send("GET", "", "", false) }
func (b *backend) remove() string { return b.send("DELETE", "", "", false) }

func (b *backend) put(state string) string {
	address, _ := url.Parse(b.address)
	if query := address.Query(); b.id != "" {
		query.Set("ID", b.id)
		address.RawQuery = query.Encode()
	}
	method := "POST"
	if b.update != "" {
		method = b.update
	}
	return b.send(method, address.String(), state, true)
}

// configurations are the addresses and methods that a backend may have.
var configurations = []backend{
	{address: "/terraform/prod", lockMethod: "LOCK", unlockMethod: "UNLOCK"},
	{address: "/terraform/prod/", lockMethod: "LOCK", unlockMethod: "UNLOCK", update: "PUT"},
	{address: "/terraform/team/app/prod", lockMethod: "POST", unlockMethod: "DELETE"},
	{address: "/terraform/prod?workspace=b&project=a", lockMethod: "PUT", unlockMethod: "DELETE"},
	{address: "/terraform/prod?workspace=c", lockMethod: "LOCK", unlockMethod: "DELETE", update: "PATCH"},
	{address: "/terraform/p1", lockMethod: "POST", unlockMethod: "PUT"},
	{address: "/terraform/p2", lockMethod: "PUT", unlockMethod: "POST"},
	{address: "/terraform/p3", lockMethod: "PATCH", unlockMethod: "UNLOCK"},
	{address: "/terraform/p4", lockMethod: "POST", unlockMethod: "POST", lockAddress: "/terraform/p4?method=LOCK", unlockAddress: "/terraform/p4?method=UNLOCK"},
	{address: "/terraform/p5", lockMethod: "DELETE", unlockMethod: "DELETE", lockAddress: "/terraform/p5?method=LOCK", unlockAddress: "/terraform/p5?method=UNLOCK"},
}

// TestBackend: with each configuration two clients take turns. Only the client that has the lock writes the state, and a
// lock leaves no item behind.
func TestBackend(t *testing.T) {
	apitest.InEachPlace(t, func(s *apitest.Site) {
		for _, c := range configurations {
			a, b := c, c
			a.Site, b.Site = s, s
			for i, step := range []struct{ got, want string }{
				{a.get(), noState},
				{a.lock("1"), done},
				{a.lock("1"), done},
				{b.lock("2"), "423 json " + lockOf("1")},
				{b.put(stateOf(9, 1)), "423 json " + lockOf("1")},
				{b.remove(), "423 json " + lockOf("1")},
				{a.get(), noState},
				{a.put(stateOf(1, 10)), done},
				{b.get(), "200 json " + stateOf(1, 10)},
				{a.put(stateOf(2, 20)), done},
				{a.unlock(), done},
				{b.lock("2"), done},
				{b.get(), "200 json " + stateOf(2, 20)},
				{a.send(c.unlockMethod, c.unlockAddress, lockOf("1"), true)[:3], map[bool]string{true: "423", false: "409"}[c.unlockMethod == "PUT" || c.unlockMethod == "POST" && c.unlockAddress == ""]},
				{b.force(), done},
				{a.lock("3"), done},
				{a.unlock(), done},
				{a.remove(), done},
				{a.get(), noState},
				{a.put(stateOf(3, 30)), done}, // a backend without a lock
				{a.remove(), done},
			} {
				if step.got != step.want {
					s.Errorf("%+v, step %d: %.300s, want %.300s", c, i, step.got, step.want)
				}
			}
		}
		if got := s.Ask("GET /v1/items?prefix=terraform", ""); !strings.Contains(got.Body, `"items":[]`) {
			s.Errorf("left: %s", got)
		}
	}, withTerraform)
}

// TestSizes: a state of any size up to the bound is read as it was written, and each log entry is within the proposer's
// bound. No part is left of the previous state, of a failed write, or of a deleted state.
func TestSizes(t *testing.T) {
	s, node := apitest.OnAPI(t, withTerraform)
	parts := func() (names []string) {
		node.View(func(m *fsm.Machine) {
			for item := range m.ItemsAfter("terraform/a//state/", "") {
				names = append(names, item.Name)
			}
		})
		return names
	}
	for _, c := range []struct{ bytes, parts int }{{1, 1}, {240 << 10, 1}, {240<<10 + 1, 2}, {1<<20 + 1, 5}, {8 << 20, 35}, {1 << 20, 5}} {
		state := strings.Repeat("\xff{", c.bytes)[:c.bytes]
		s.Is(s.Ask("POST /terraform/a", state), done)
		if got := s.Ask("GET /terraform/a", ""); got.Body != state || got.Header("Content-MD5") == "" || len(parts()) != c.parts {
			t.Errorf("%d bytes: %d came back, in %d parts, want %d", c.bytes, len(got.Body), len(parts()), c.parts)
		}
	}
	node.Set(func() {
		for _, call := range node.Calls {
			if bytes := len(fsm.Envelope{}.Encode(call.Command)); bytes > fsm.EntryBytes {
				t.Errorf("a command of %d bytes", bytes)
			}
		}
	})
	before := node.State(t)
	if got := s.Ask("POST /terraform/a", strings.Repeat("x", 8<<20+1)); got.Status != 413 || node.State(t) != before {
		t.Errorf("beyond the bound: %s", got)
	}
	// Two writes have left parts: the write of a node that died in the middle, and a write that is under way.
	version := uint64(0)
	node.View(func(m *fsm.Machine) {
		item, _ := m.Item("terraform/a")
		version = item.Version
	})
	for _, v := range []uint64{version, version + 10_000} {
		command := fsm.ItemPut{Name: fmt.Sprintf("terraform/a//state/%020d-0123456789abcdef/000", v), Value: "x"}
		if _, err := node.Do(t.Context(), calls.Call{Command: command}); err != nil {
			t.Fatal(err)
		}
	}
	s.Is(s.Ask("LOCK /terraform/a", lockOf("1")), done)
	if left := parts(); len(left) != 6 {
		t.Errorf("left: %q", left)
	}
	s.Is(s.Ask("UNLOCK /terraform/a", lockOf("1")), done)
	s.Is(s.Ask("DELETE /terraform/a", ""), done)
	if left := parts(); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}

// interruptedNode calls between once, before the next put of a part, if between is set.
type interruptedNode struct {
	*apitest.Node
	between func()
}

// Do implements exchange.Node.
func (n *interruptedNode) Do(ctx context.Context, call calls.Call) (*calls.Reply, error) {
	if put, ok := call.Command.(fsm.ItemPut); ok && strings.Contains(put.Name, "//state/") && n.between != nil {
		between := n.between
		n.between = nil
		between()
	}
	return n.Node.Do(ctx, call)
}

// TestWriteThatLost: a write begins again if the document changed after it was read, and then obeys the lock that is
// there now. What it has written before is not part of the state.
func TestWriteThatLost(t *testing.T) {
	node := &interruptedNode{Node: apitest.NewNode()}
	s := &apitest.Site{T: t, Handler: apitest.NewHandler(t, node, withTerraform), Node: node}
	s.Is(s.Ask("POST /terraform/a", stateOf(1, 1)), done)
	interrupt := func(between func()) { node.between = between }
	interrupt(func() { s.Is(s.Ask("POST /terraform/a", stateOf(2, 2)), done) })
	s.Is(s.Ask("POST /terraform/a", stateOf(3, 3)), done)
	s.Is(s.Ask("GET /terraform/a", ""), "200 json "+stateOf(3, 3))
	interrupt(func() { s.Is(s.Ask("LOCK /terraform/a", lockOf("1")), done) })
	s.Is(s.Ask("POST /terraform/a", stateOf(4, 4)), "423 json "+lockOf("1"))
	s.Is(s.Ask("GET /terraform/a", ""), "200 json "+stateOf(3, 3))
	s.Is(s.Ask("UNLOCK /terraform/a", ""), done)
	interrupt(func() { // deleted and written meanwhile
		s.Is(s.Ask("DELETE /terraform/a", ""), done)
		s.Is(s.Ask("POST /terraform/a", stateOf(5, 5)), done)
		s.Is(s.Ask("DELETE /terraform/a", ""), done)
	})
	s.Is(s.Ask("POST /terraform/a", stateOf(6, 6)), done)
	s.Is(s.Ask("GET /terraform/a", ""), "200 json "+stateOf(6, 6))
	interrupt(func() { node.Set(func() { node.Fail = outcome.ErrNotApplied }) })
	if got := s.Ask("POST /terraform/a", stateOf(7, 7)); got.Status < 500 {
		t.Errorf("without a leader: %s", got)
	}
	node.Set(func() { node.Fail = nil })
	s.Is(s.Ask("GET /terraform/a", ""), "200 json "+stateOf(6, 6))
}

// TestForeignItem: if another item has the name of a document, each request fails and leaves this item unchanged. If a
// part of a state is missing, the state is not sent.
func TestForeignItem(t *testing.T) {
	s, node := apitest.OnAPI(t, withTerraform)
	put := func(name string) {
		if _, err := node.Do(t.Context(), calls.Call{Command: fsm.ItemPut{Name: name, Value: "{}"}}); err != nil {
			t.Fatal(err)
		}
	}
	put("terraform/a")
	before := node.State(t)
	for _, c := range []exchanged{{"LOCK", lockOf("1")}, {"UNLOCK", lockOf("1")}, {"UNLOCK", ""}, {"POST", stateOf(1, 1)}, {"DELETE", ""}, {"GET", ""}} {
		if got := s.Ask(c.method+" /terraform/a", c.body); got.Status != 409 || node.State(t) != before {
			t.Errorf("%s %s: %s", c.method, c.body, got)
		}
	}
	s.Is(s.Ask("POST /terraform/b", stateOf(1, 1)), done)
	part := ""
	node.View(func(m *fsm.Machine) {
		for item := range m.ItemsAfter("terraform/b//state/", "") {
			part = item.Name
		}
	})
	put(part)
	if got := s.Ask("GET /terraform/b", ""); got.Status != 409 {
		t.Errorf("without a part: %s", got)
	}
}

// exchanged is a request.
type exchanged struct{ method, body string }

// TestScripts are tables of the contract.
func TestScripts(t *testing.T) { apitest.RunScripts(t, "testdata", withTerraform) }

// TestTokenScripts are tables of the contract at a node with tokens.
func TestTokenScripts(t *testing.T) {
	apitest.RunScripts(t, "testdata/tokens", withTerraform, func(cfg *apitest.Config) { withTokens(t)(cfg) }) // in the bubble
}

// withTokens serves the identities team, reads and other, whose tokens are their names.
func withTokens(t *testing.T) func(cfg *apitest.Config) {
	text := ""
	for name, rest := range map[string]string{"team": `scopes = ["use"]` + "\n" + `prefixes = ["terraform/team/"]`, "reads": `scopes = ["read"]`, "other": `scopes = ["use"]` + "\n" + `prefixes = ["ci/"]`} {
		text += fmt.Sprintf("[[token]]\nname = %q\nhash = \"sha256:%x\"\n%s\n", name, sha256.Sum256([]byte(name)), rest)
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

// TestOff: without the dialect its path is no route.
func TestOff(t *testing.T) {
	apitest.New(t).Do("LOCK /terraform/a", lockOf("1")).RefusedWith(404, "unknown-route")
}
