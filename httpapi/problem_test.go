package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// allCodes answers every code of the state machine, known by its name.
func allCodes() (codes []fsm.Code) {
	for c := fsm.Code(0); c.String() != "unknown"; c++ {
		codes = append(codes, c)
	}
	return codes
}

func TestEveryCodeIsTold(t *testing.T) {
	codes := allCodes()
	for _, c := range codes {
		row, ok := refusals[c]
		if !ok {
			t.Errorf("no row for the code %v", c)
			continue
		}
		if answers := c == fsm.OK || c == fsm.Waiting || c == fsm.NothingReady; answers != (row.code == "") {
			t.Errorf("the row of %v tells %q", c, row.code)
		}
		if row.code != "" && kinds[row.code].status == 0 {
			t.Errorf("%v is told as %q, which is no kind of problem", c, row.code)
		}
	}
	if len(refusals) != len(codes) || len(codes) < 20 {
		t.Errorf("%d rows for %d codes", len(refusals), len(codes))
	}
}

func TestEveryErrorIsTold(t *testing.T) {
	told := map[string]bool{}
	for name := range selectors(t, "problem.go", "cluster") {
		told[name] = true
	}
	// What only stops a whole node, through Config.OnFatal, reaches no request.
	fatal := map[string]bool{"ErrRemoved": true, "ErrStateDiffers": true}
	found := 0
	for _, name := range exportedErrors(t, "../cluster") {
		found++
		if !told[name] && !fatal[name] {
			t.Errorf("no row for cluster.%s", name)
		}
	}
	if found == 0 {
		t.Error("no error variables seen in package cluster's source")
	}
	for _, f := range failures {
		if kinds[f.code].status == 0 || f.detail == "" {
			t.Errorf("%v is told as %q with the detail %q", f.err, f.code, f.detail)
		}
		if got := problemOf(fmt.Errorf("wrapped: %w", f.err)); got.Code != f.code {
			t.Errorf("%v, wrapped, is told as %q, want %q", f.err, got.Code, f.code)
		}
	}
}

// exportedErrors answers the names of a package's variables named Err….
func exportedErrors(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			vars, ok := decl.(*ast.GenDecl)
			if !ok || vars.Tok != token.VAR {
				continue
			}
			for _, spec := range vars.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Err") {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// selectors answers what a file names of a package.
func selectors(t *testing.T, file, pkg string) map[string]bool {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == pkg {
				found[s.Sel.Name] = true
			}
		}
		return true
	})
	return found
}

func TestEveryKindIsUsedAndExplained(t *testing.T) {
	used := map[string]bool{"invalid-request": true, "too-large": true, "method-not-allowed": true, "unknown-member": true,
		"wrong-host": true, "over": true, "request-timeout": true}
	for _, r := range refusals {
		used[r.code] = true
	}
	for _, f := range failures {
		used[f.code] = true
	}
	docs, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for code, k := range kinds {
		if !used[code] {
			t.Errorf("nothing is told as %q", code)
		}
		if row := fmt.Sprintf("| %d | `%s` |", k.status, code); !strings.Contains(string(docs), row) {
			t.Errorf("docs/api.md has no row %s", row)
		}
		wants := k.status == 429 || k.status == 503 || code == "unavailable"
		if wants != (k.retryAfter != "") {
			t.Errorf("%q: Retry-After %q", code, k.retryAfter)
		}
		if http.StatusText(k.status) == "" || k.title == "" {
			t.Errorf("%q: %+v", code, k)
		}
	}
}

func TestUnlistedErrorsSayNothing(t *testing.T) {
	for _, err := range []error{errors.New("raft: secret"), echo.NewHTTPError(418, "secret"), context.Canceled, &json.SyntaxError{}} {
		got, _ := json.Marshal(problemOf(err))
		if !bytes.Contains(got, []byte(`"code":"internal"`)) || bytes.Contains(got, []byte("secret")) {
			t.Errorf("%v is told as %s", err, got)
		}
	}
}

// Every refusal's whole body, so that a change of it is a decision.
func TestGoldenProblems(t *testing.T) {
	level, lowest := int32(5), int32(2)
	var out bytes.Buffer
	tell := func(what string, p *problem) {
		text, err := json.MarshalIndent(p, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "# %s\n%s\n\n", what, text)
	}
	for _, c := range allCodes() {
		if refusals[c].code == "" {
			continue
		}
		r := fsm.Result{Code: c, Session: 7, Subject: "db", Epoch: 12, Asked: 4, Holding: 1, Permits: 3, Full: 5, Available: -1,
			QueueLength: 2, Level: &level, LowestLevel: &lowest}
		switch c {
		case fsm.Revoked:
			r.Reason = "maintenance"
		case fsm.LimitReached:
			r.Rule = fsm.RuleQueue
		case fsm.Hierarchy:
			r.Rule = fsm.RuleHolds
		}
		tell(c.String(), refused(&r))
	}
	waits := fsm.Result{Code: fsm.Hierarchy, Rule: fsm.RuleWaits, Session: 7, Subject: "db", Level: &level, LowestLevel: &lowest}
	tell("hierarchy, by what it waits for", refused(&waits))
	for _, f := range failures {
		tell("error: "+f.err.Error(), problemOf(f.err))
	}
	tell("error: 404", problemOf(echo.ErrNotFound))
	tell("error: 405", problemOf(echo.ErrMethodNotAllowed))
	tell("error: another", problemOf(errors.New("another")))
	tell("error: body too large", problemOf(tooLarge(65536)))
	compareGolden(t, "problems.golden", out.Bytes())
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (rewrite it with -update):\n%s", path, got)
	}
}

func TestEveryNodeErrorOnARoute(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  bool
	}{
		{cluster.ErrNoLeader, 503, "no-leader", true}, {cluster.ErrNotApplied, 503, "not-applied", true},
		{cluster.ErrBehind, 503, "behind", true},
		{cluster.ErrDraining, 503, "draining", true}, {cluster.ErrStorageFull, 503, "storage-full", true},
		{cluster.ErrSplitState, 503, "states-differ", true},
		{cluster.ErrOverloaded, 503, "overloaded", true}, {cluster.ErrOutcomeUnknown, 504, "outcome-unknown", false},
		{errors.New("secret of the inside"), 500, "internal", false},
	} {
		a := newTestAPI(t)
		a.node.fail = c.err
		got := a.do("PUT /v1/semaphores/db", `{"permits":1}`).refusedWith(c.status, c.code)
		if (got.header.Get("Retry-After") != "") != c.retry {
			t.Errorf("%v: Retry-After %q", c.err, got.header.Get("Retry-After"))
		}
		if strings.Contains(got.text, "secret") {
			t.Errorf("an inner error leaks: %s", got.text)
		}
	}
}
