package rules

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/hostile"
)

// TestClaimsHaveTests: each claim of docs/SECURITY.md and each promise of docs/reliability.md names
// a test. That the tests of all pages exist is a rule of the architecture.
func TestClaimsHaveTests(t *testing.T) {
	text, err := os.ReadFile("docs/SECURITY.md")
	must(t, err)
	if checked := claimsIn(t, string(text), "Claims"); checked < 20 {
		t.Errorf("only %d claims were found", checked)
	}
	text, err = os.ReadFile("docs/reliability.md")
	must(t, err)
	if checked := claimsIn(t, string(text), "Promises"); checked < 10 {
		t.Errorf("only %d promises were found", checked)
	}
}

// testNames are the names of tests, in code spans, each perhaps with the script of its rule.
var testNames = regexp.MustCompile("^(`(Test|Fuzz)[A-Za-z0-9]+`( \\(`[a-z/-]+\\.txt`\\))?(, |$))+$")

// claimsIn checks the rows of the tables in a section, and returns how many there are.
func claimsIn(t *testing.T, text, section string) (checked int) {
	t.Helper()
	_, claims, _ := strings.Cut(text, "\n## "+section+"\n")
	claims, _, _ = strings.Cut(claims, "\n## ")
	for _, row := range regexp.MustCompile(`(?m)^\| (.+) \| (.*) \|$`).FindAllStringSubmatch(claims, -1) {
		if row[2] == "tests" || row[1] == "---" {
			continue
		}
		checked++
		if !testNames.MatchString(row[2]) {
			t.Errorf("the tests of this claim are %q: %s", row[2], row[1])
		}
	}
	return checked
}

// TestStepsHaveTests: each step of docs/model.md, in order, has a claim in bold, its
// assumption and its tests.
func TestStepsHaveTests(t *testing.T) {
	text, err := os.ReadFile("docs/model.md")
	must(t, err)
	steps := regexp.MustCompile(`(?m)^(\d+)\. `).Split(string(text), -1)[1:]
	numbers := regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(string(text), -1)
	for i, step := range steps {
		step, _, _ = strings.Cut(step, "\n\n")
		_, tests, _ := strings.Cut(step, "*Tests:* ")
		if numbers[i][1] != strconv.Itoa(i+1) || !strings.HasPrefix(step, "**") || strings.Count(step, "*Assumption:* ") != 1 || !testNames.MatchString(strings.TrimSpace(tests)) {
			t.Errorf("step %s, number %d, has no claim, no assumption or the tests %q", numbers[i][1], i+1, tests)
		}
	}
	if len(steps) < 12 || strings.Count(string(text), "\n") > 150 {
		t.Errorf("%d steps in %d lines", len(steps), strings.Count(string(text), "\n"))
	}
}

// TestHostileInputs counts the hostile inputs of every port. That those on a list are those
// that run is checked by the test of each list, which this one looks for.
func TestHostileInputs(t *testing.T) {
	lists, err := hostile.Lists()
	must(t, err)
	tests, total := testsOfLists(t), 0
	for name, cases := range lists {
		total += len(cases)
		t.Logf("%-12s %4d", name, len(cases))
		if len(cases) < 5 || len(slices.Compact(slices.Sorted(slices.Values(cases)))) != len(cases) {
			t.Errorf("%s: %d cases, or one twice", name, len(cases))
		}
		if !strings.Contains(tests, `.Begin(t, "`+name+`")`) {
			t.Errorf("no test runs the list %s", name)
		}
	}
	t.Logf("%-12s %4d", "all", total)
	if len(lists) < 12 || total < 300 {
		t.Errorf("%d hostile inputs on %d lists", total, len(lists))
	}
}

// testsOfLists returns the text of all tests that import package hostile.
func testsOfLists(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(text), `signalbox/test/hostile"`) {
			all.Write(text)
		}
		return err
	})
	must(t, err)
	return all.String()
}
