package access_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
)

func TestIdentitySeesNames(t *testing.T) {
	found, err := access.ParseText("[[token]]\nname = \"ci\"\nscopes = [\"use\"]\nprefixes = [\"ci/b\", \"db\", \"ci/\", \"ci/a\", \"db\", \"e/\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	ci := found[0]
	for name, want := range map[string]bool{"ci/": true, "ci/x": true, "ci": false, "Ci/x": false, "db": true, "dbx": true, "d": false, "": false, "x/ci/": false} {
		if got := ci.Sees(name); got != want {
			t.Errorf("sees %q: %v", name, got)
		}
		if got := ci.MayName(name) == nil; got != want {
			t.Errorf("may name %q: %v", name, got)
		}
	}
	for prefix, want := range map[string]string{"": "ci/ db e/", "c": "ci/", "ci/": "ci/", "ci/d": "ci/d", "x": "", "d": "db", "db/7": "db/7"} {
		if got := strings.Join(ci.Narrow(prefix), " "); got != want {
			t.Errorf("%q is narrowed to %q, want %q", prefix, got, want)
		}
	}
	if got := access.Everyone.Narrow("x"); !slices.Equal(got, []string{"x"}) || !access.Everyone.Sees("") || access.Everyone.SeesAll() != nil {
		t.Errorf("everyone sees %q", got)
	}
	if access.Anonymous.Sees("x") || access.Anonymous.SeesSession("") || len(access.Anonymous.Narrow("")) > 0 || access.Anonymous.SeesAll() == nil ||
		access.Of(t.Context()) != access.Anonymous {
		t.Error("nobody sees something")
	}
}

func TestIdentitySeesSessions(t *testing.T) {
	for _, c := range []struct {
		scope access.Scope
		owner string
		sees  bool
		finds bool
	}{{access.Read, "ci", true, true}, {access.Use, "other", false, false}, {access.Use, "", true, false}, {access.Admin, "other", true, true}, {access.Admin, "", true, true}} {
		id := &access.Identity{Name: "ci", Scope: c.scope}
		if sees, finds := id.SeesSession(c.owner), id.FindsSession(c.owner); sees != c.sees || finds != c.finds {
			t.Errorf("%v with a session of %q: sees it %v, finds it %v", c.scope, c.owner, sees, finds)
		}
	}
	for owner, want := range map[string]bool{"ci": true, "other": true, "": false} {
		if got := (&access.Identity{Name: "ci", Scope: access.Use}).SeesID(owner); got != want {
			t.Errorf("sees the id of a session of %q: %v", owner, got)
		}
	}
	if admin := (&access.Identity{Name: "root", Scope: access.Admin}); !admin.SeesID("") || !access.Everyone.SeesID("") {
		t.Error("an admin sees no id of a session without an owner")
	}
}

// commandCases has a command of every operation, the scope that it needs (0: no client may
// give it), and the names that prefixes must cover.
var commandCases = []struct {
	command func(a, b string) fsm.Command
	scope   access.Scope
	names   int
}{
	{func(_, _ string) fsm.Command { return fsm.StartTerm{} }, 0, 0},
	{func(a, _ string) fsm.Command { return fsm.PutSemaphore{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.CreateSemaphore{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.DeleteSemaphore{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.Up{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.Down{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.SetValue{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.GroupPut{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.FreeLost{Name: a} }, access.Use, 1},
	{func(_, _ string) fsm.Command { return fsm.OpenSession{} }, access.Use, 0},
	{func(_, _ string) fsm.Command { return fsm.Renew{} }, access.Use, 0},
	{func(_, _ string) fsm.Command { return fsm.EndSession{} }, access.Use, 0},
	{func(_, _ string) fsm.Command { return fsm.EndSession{Operator: true} }, access.Admin, 0},
	{func(a, _ string) fsm.Command { return fsm.Acquire{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.AcquireOnce{Name: a} }, access.Use, 1},
	{func(a, b string) fsm.Command {
		return fsm.AcquireMany{Wants: []fsm.Want{{Semaphore: a}, {Semaphore: b}}}
	}, access.Use, 2},
	{func(a, _ string) fsm.Command { return fsm.Release{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.ResizeLease{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.RevokeLease{Name: a} }, access.Admin, 1},
	{func(a, b string) fsm.Command {
		return fsm.RestoreSession{Leases: []fsm.Want{{Semaphore: a}, {Semaphore: b}}}
	}, access.Use, 2},
	{func(a, _ string) fsm.Command { return fsm.ListAdd{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.ListRemove{Name: a} }, access.Use, 1},
	{func(_, _ string) fsm.Command { return fsm.ListDeliver{} }, access.Use, 0},
	{func(_, _ string) fsm.Command { return fsm.NoticeDone{} }, 0, 0},
	{func(_, _ string) fsm.Command { return fsm.RaiseLevel{} }, 0, 0},
	{func(_, _ string) fsm.Command { return fsm.RaiseTokens{} }, access.Admin, 0},
	{func(_, _ string) fsm.Command { return fsm.OpenHolder{} }, access.Use, 0},
	{func(a, _ string) fsm.Command { return fsm.ItemPut{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.ItemAcquire{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.ItemRelease{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.ItemDelete{Name: a} }, access.Use, 1},
	{func(a, _ string) fsm.Command { return fsm.ItemDeleteAll{Prefix: a} }, access.Use, 1},
}

// TestEveryOperationHasARule: each operation of the state machine has a row in
// commandCases, and each row holds for every scope, inside and outside of the prefixes.
func TestEveryOperationHasARule(t *testing.T) {
	covered := map[fsm.Op]bool{}
	for _, c := range commandCases {
		command := c.command("ci/a", "ci/b")
		covered[command.Op()] = true
		for _, scope := range []access.Scope{0, access.Read, access.Use, access.Admin} {
			id := &access.Identity{Name: "ci", Scope: scope, Prefixes: []string{"ci/"}}
			if got, want := id.May(command) == nil, c.scope > 0 && scope >= c.scope; got != want {
				t.Errorf("%v with scope %v: %v", command.Op(), scope, got)
			}
		}
		id := &access.Identity{Name: "ci", Scope: access.Admin, Prefixes: []string{"ci/"}}
		for i, outside := range []fsm.Command{c.command("db", "ci/b"), c.command("ci/a", "db")} {
			want := c.scope > 0 && c.names <= i
			if got := id.May(outside) == nil; got != want {
				t.Errorf("%v with name %d outside: %v", command.Op(), i+1, got)
			}
		}
	}
	for op := fsm.Op(1); !strings.HasPrefix(op.String(), "operation "); op++ {
		if !covered[op] {
			t.Errorf("%v has no row: decide which scope it needs, and which names", op)
		}
	}
}

// TestSessionsHaveNoWall: a command that names a session alone reaches those whose ids nodes drew.
func TestSessionsHaveNoWall(t *testing.T) {
	const drawn, derived = fsm.DerivedSessions - 1, fsm.DerivedSessions
	lease := []fsm.Want{{Semaphore: "ci/a", Count: 1}}
	for i, c := range []struct {
		command fsm.Command
		may     string // of a use and b admin, and w use with the prefix ci/
		derived bool   // w may, through the dialect that derived the id
	}{
		{fsm.EndSession{Session: drawn}, "abw", true},
		{fsm.EndSession{Session: derived}, "ab", true},
		{fsm.Renew{Renewals: []fsm.Renewal{{Session: drawn}}}, "abw", true},
		{fsm.Renew{Renewals: []fsm.Renewal{{Session: drawn}, {Session: derived}}}, "ab", true},
		{fsm.ListDeliver{Session: derived}, "ab", true},
		{fsm.Acquire{Session: derived, Name: "ci/a"}, "ab", true},
		{fsm.Acquire{Session: derived, Name: "db"}, "ab", false},
		{fsm.ItemAcquire{Session: derived, Name: "ci/a"}, "ab", true},
		{fsm.RestoreSession{Session: drawn, Leases: lease}, "abw", true},
		{fsm.RestoreSession{Session: drawn}, "ab", true},
		{fsm.RestoreSession{Session: derived, Leases: lease}, "", true},
		{fsm.RestoreSession{Session: derived}, "", true},
	} {
		got := ""
		for _, id := range []*access.Identity{{Name: "a", Scope: access.Use}, {Name: "b", Scope: access.Admin}, {Name: "w", Scope: access.Use, Prefixes: []string{"ci/"}}} {
			if id.May(c.command) == nil {
				got += id.Name
			}
			if id.Name == "w" && (id.MayDerived(c.command) == nil) != c.derived {
				t.Errorf("%d: through the dialect: %v", i, !c.derived)
			}
		}
		if got != c.may {
			t.Errorf("%d, %+v: %q may, want %q", i, c.command, got, c.may)
		}
	}
}

// TestOwner: an admin ends, revokes, releases and withdraws in the sessions of all, and
// otherwise acts as itself.
func TestOwner(t *testing.T) {
	use, admin := &access.Identity{Name: "ci", Scope: access.Use}, &access.Identity{Name: "root", Scope: access.Admin}
	for _, c := range commandCases {
		command := c.command("a", "b")
		if got := use.Owner(command); got != "ci" {
			t.Errorf("%v acts as %q", command.Op(), got)
		}
		want := "root"
		if op := command.Op(); op == fsm.OpEndSession || op == fsm.OpRevokeLease || op == fsm.OpRelease || op == fsm.OpFreeLost {
			want = ""
		}
		if got := admin.Owner(command); got != want {
			t.Errorf("an admin's %v acts as %q", command.Op(), got)
		}
	}
}

const someHash = `hash = "sha256:0000000000000000000000000000000000000000000000000000000000000001"`

func TestFile(t *testing.T) {
	found, err := access.ParseText("[[token]]\nname = \"ci\"\n" + someHash + "\nscopes = [\"read\", \"use\"]\nprefixes = [\"db\", \"ci/\"]\n" +
		"sessions = 1\nleases = 2\nwaiting = 3\nrequests_per_second = 4\nwatchers = 5\n[[token]]\nname = \"root@x\"\nscopes = [\"admin\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "{ci use [ci/ db] {1 2 3} 4 5}{root@x admin [] {0 0 0} 0 0}"
	got := ""
	for _, id := range found {
		got += fmt.Sprint("{", id.Name, " ", id.Scope, " ", id.Prefixes, " ", id.Limits, " ", id.PerSecond, " ", id.Watchers, "}")
	}
	if got != want || found[1].Prefixes != nil {
		t.Errorf("read %s, want %s", got, want)
	}
}

// TestFileIsStrict: what a file can't say is an error that names the line or the token.
func TestFileIsStrict(t *testing.T) {
	block := func(lines ...string) string { return "[[token]]\nname = \"ci\"\n" + strings.Join(lines, "\n") + "\n" }
	use := `scopes = ["use"]`
	for _, c := range []struct{ text, want string }{
		{"", "0 [[token]]"},
		{"[[token]]\nname = 7\nx = ]", "line 3"},
		{block(use, "sessions = many"), "line 4"},
		{block(use, "session = 1"), "token.session is not a key"},
		{"[tokens]\n", "tokens is not a key"},
		{block(use, "sessions = \"1\""), "line 4"},
		{block(use, "sessions = 0"), `[[token]] 1 ("ci"): sessions: it is 1 to`},
		{block(use, "requests_per_second = -1"), "requests_per_second: it is 1 to"},
		{block(), `"read", "use" or "admin"`},
		{block(`scopes = ["use", "root"]`), `"root" is not metrics, read, use or admin`},
		{block(use, "prefixes = []"), "the list is empty"},
		{block(use, `prefixes = [""]`), `"" is not the beginning of a name`},
		{block(use, `prefixes = ["a\u0001"]`), "not the beginning of a name"},
		{block(`scopes = ["admin"]`, `prefixes = ["ci/"]`), "an admin may use every name"},
		{block(`scopes = ["metrics", "use"]`, `prefixes = ["ci/"]`), "the metrics have the names of all"},
		{block(use, `hash = "0001"`), `it is "sha256:" and 64`},
		{block(use, `hash = "sha256:00"`), `it is "sha256:" and 64`},
		{block(use, `hash = "`+hashOf("")+`"`), "the hash of the empty text"},
		{strings.Replace(block(use), `"ci"`, `"c i"`, 1), "name: it is 1 to 64"},
		{strings.Replace(block(use), `"ci"`, `""`, 1), "name: it is 1 to 64"},
		{block(use, someHash) + strings.Replace(block(use, someHash), `"ci"`, `"db"`, 1), `[[token]] 2 ("db"): "ci" has the same hash`},
		{block(use) + block(`scopes = ["read"]`), "both are one identity"},
		{strings.Repeat(block(use), 4097), "4097 [[token]]"},
	} {
		if _, err := access.ParseText(c.text); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80q: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := access.ParseText(block(use, someHash) + block(use)); err != nil {
		t.Errorf("a second block of the same identity: %v", err)
	}
}

// TestNewToken: a drawn token is valid with the block that comes with it, whatever the
// prefixes are.
func TestNewToken(t *testing.T) {
	prefixes, leases := []string{`a "quoted" \ b`, "ü/"}, int64(7)
	token, block, err := access.NewToken(access.Block{Name: "ci", Scopes: []string{"use"}, Prefixes: &prefixes, Leases: &leases})
	if err != nil {
		t.Fatal(err)
	}
	if len(token) < 43 || strings.Contains(block, token) {
		t.Errorf("token %q, block %q", token, block)
	}
	other, _, _ := access.NewToken(access.Block{Name: "ci", Scopes: []string{"use"}})
	if other == token {
		t.Error("two tokens are equal")
	}
	tokens := open(t, block)
	found, err := tokens.Authenticate(withHeader("Bearer " + token))
	if err != nil || !slices.Equal(found.Identity.Prefixes, prefixes) || found.Identity.Limits.Leases != 7 {
		t.Errorf("%+v, %v", found, err)
	}
	if _, _, err := access.NewToken(access.Block{Name: "ci", Scopes: []string{"some"}}); err == nil {
		t.Error("an unknown scope is taken")
	}
}
