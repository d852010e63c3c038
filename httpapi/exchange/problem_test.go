package exchange

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

	"github.com/signalbox/signalbox/fsm"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// allCodes returns every code of the state machine, known by its name.
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
	told := selectors(t, "problem.go", "outcome")
	inside := map[string]string{
		"ErrNotLeader":            "the cluster asks the leader instead",
		"ErrConfigurationChanged": "the cluster tries again",
		"ErrOtherTerm":            "the command is sent again",
		"ErrHalted":               "the outcome is unknown",
	}
	found := 0
	for _, name := range exportedErrors(t, "../../cluster/outcome") {
		found++
		if !told[name] && inside[name] == "" {
			t.Errorf("no row for outcome.%s", name)
		}
	}
	if found == 0 {
		t.Error("no error variables seen in package outcome's source")
	}
	for _, f := range failures {
		if kinds[f.code].status == 0 || f.detail == "" {
			t.Errorf("%v is told as %q with the detail %q", f.err, f.code, f.detail)
		}
		if got := ProblemOf(fmt.Errorf("wrapped: %w", f.err)); got.Code != f.code {
			t.Errorf("%v, wrapped, is told as %q, want %q", f.err, got.Code, f.code)
		}
	}
}

// exportedErrors returns the names of a package's variables named Err….
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

// selectors returns the names of a package that a file uses.
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
		"wrong-host": true, "over": true, "request-timeout": true, "unknown-item": true, "unknown-group": true, "other-cell": true}
	for _, r := range refusals {
		used[r.code] = true
	}
	for _, f := range failures {
		used[f.code] = true
	}
	docs, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for code, k := range kinds {
		if !used[code] {
			t.Errorf("nothing is told as %q", code)
		}
		if row := fmt.Sprintf("\n* %d `%s`: %s\n", k.status, code, k.meaning); !strings.Contains(string(docs), row) {
			t.Errorf("docs/api.md has no row %s", row)
		}
		wants := k.status == 429 || k.status == 503 || code == "unavailable"
		if wants != (k.retryAfter != "") {
			t.Errorf("%q: Retry-After %q", code, k.retryAfter)
		}
		if http.StatusText(k.status) == "" || k.title == "" || k.meaning == "" {
			t.Errorf("%q: %+v", code, k)
		}
	}
}

func TestUnlistedErrorsSayNothing(t *testing.T) {
	for _, err := range []error{errors.New("raft: secret"), echo.NewHTTPError(418, "secret"), context.Canceled, &json.SyntaxError{}} {
		got, _ := json.Marshal(ProblemOf(err))
		if !bytes.Contains(got, []byte(`"code":"internal"`)) || bytes.Contains(got, []byte("secret")) {
			t.Errorf("%v is told as %s", err, got)
		}
	}
}

// The test has the whole body of every refusal, so that no body changes unnoticed.
func TestGoldenProblems(t *testing.T) {
	level, lowest := int32(5), int32(2)
	var out bytes.Buffer
	tell := func(what string, p *Problem) {
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
		r := fsm.Result{Code: c, Session: 7, Subject: "db", Epoch: 12, Asked: 4, QueueLength: 2,
			Refusal: &fsm.Refusal{Holding: 1, Permits: 3, Full: 5, Available: -1, Level: &level, LowestLevel: &lowest}}
		switch c {
		case fsm.Revoked:
			r.Refusal.Reason = "maintenance"
		case fsm.LimitReached:
			r.Rule = fsm.RuleQueue
		case fsm.Hierarchy:
			r.Rule = fsm.RuleHolds
		}
		tell(c.String(), Refused(&r))
	}
	waits := fsm.Result{Code: fsm.Hierarchy, Rule: fsm.RuleWaits, Session: 7, Subject: "db", Refusal: &fsm.Refusal{Level: &level, LowestLevel: &lowest}}
	tell("revoked, after max_hold", Refused(&fsm.Result{Code: fsm.Revoked, Subject: "db", Session: 7, Refusal: &fsm.Refusal{Reason: "max-hold"}}))
	tell("never, of none", Refused(&fsm.Result{Code: fsm.Never, Subject: "db", Asked: 1}))
	tell("hierarchy, by what it waits for", Refused(&waits))
	for rule := fsm.RuleOwnerSessions; rule.String() != "unknown"; rule++ {
		switch {
		case rule >= fsm.RuleVersion && rule < fsm.RuleOwnerSemaphores:
			tell("item: "+rule.String(), Refused(&fsm.Result{Code: fsm.ItemDiffers, Rule: rule}))
		case rule >= fsm.RuleItems && rule < fsm.RuleOwnerSemaphores:
			tell(rule.String(), Refused(&fsm.Result{Code: fsm.LimitReached, Rule: rule}))
		default:
			tell(rule.String(), Refused(&fsm.Result{Code: fsm.LimitReached, Rule: rule, Refusal: &fsm.Refusal{Limit: 300}}))
		}
	}
	for _, f := range failures {
		tell("error: "+f.err.Error(), ProblemOf(f.err))
	}
	tell("error: 404", ProblemOf(echo.ErrNotFound))
	tell("error: 405", ProblemOf(echo.ErrMethodNotAllowed))
	tell("error: another", ProblemOf(errors.New("another")))
	tell("error: body too large", ProblemOf(tooLarge(65536)))
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
