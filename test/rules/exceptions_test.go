package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exceptions bounds how far the tree is from its rules, one line each, sorted:
// "rule: subject ≤ bound". The bound is the rule's count for the subject, mostly a
// package: its lines, its files, or the places that break the rule.
//
// A line here is a debt. Add one only to introduce a new rule before the tree holds it;
// lower its bound with each repair, and remove it once the rule holds: the test then
// demands it.
const exceptions = ``

// readExceptions parses the table: the bound by rule and subject.
func readExceptions(t *testing.T, table string) map[string]map[string]int {
	t.Helper()
	allowed := map[string]map[string]int{}
	last := ""
	for line := range strings.Lines(strings.TrimSpace(table)) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, rest, _ := strings.Cut(line, ": ")
		subject, number, _ := strings.Cut(rest, " ≤ ")
		bound, err := strconv.Atoi(number)
		if err != nil || bound < 1 || ruleNamed(t, name).name == "" || line <= last {
			t.Fatalf("the exception %q is not of the form \"rule: subject ≤ bound\", or not sorted", line)
		}
		if allowed[name] == nil {
			allowed[name] = map[string]int{}
		}
		allowed[name][subject], last = bound, line
	}
	return allowed
}

// beyond returns what the exceptions of a rule don't cover, and which of them are
// no longer needed.
func beyond(found []finding, allowed map[string]int) (broken []string) {
	sums := map[string]int{}
	for _, f := range found {
		sums[f.subject] += f.weight
	}
	for _, f := range found {
		if bound := allowed[f.subject]; f.subject == "" || sums[f.subject] > bound {
			if bound > 0 {
				f.text += fmt.Sprintf(" (%d in %s, with an exception for %d)", sums[f.subject], f.subject, bound)
			}
			broken = append(broken, f.text)
		}
	}
	for subject, bound := range allowed {
		if sums[subject] == 0 {
			broken = append(broken, fmt.Sprintf("the exception for %s ≤ %d is no longer needed: remove it", subject, bound))
		}
	}
	return broken
}

func TestReadExceptions(t *testing.T) {
	if got := readExceptions(t, ""); len(got) > 0 {
		t.Errorf("an empty table has exceptions: %v", got)
	}
	got := readExceptions(t, "\ncomments are plain: answers ≤ 60\ncomments are plain: tell ≤ 9\n")
	if want := map[string]int{"answers": 60, "tell": 9}; len(got) != 1 || !maps.Equal(got["comments are plain"], want) {
		t.Errorf("read %v, wanted %v", got, want)
	}
}

func TestExceptions(t *testing.T) {
	found := []finding{{"cluster", 2, "a"}, {"cluster", 1, "b"}, {"store", 1, "c"}, {"", 1, "d"}}
	for _, c := range []struct {
		name    string
		allowed map[string]int
		want    []string
	}{
		{"no exception", nil, []string{"a", "b", "c", "d"}},
		{"within the bounds", map[string]int{"cluster": 3, "store": 5}, []string{"d"}},
		{"beyond a bound", map[string]int{"cluster": 2, "store": 1}, []string{
			"a (3 in cluster, with an exception for 2)", "b (3 in cluster, with an exception for 2)", "d"}},
		{"no longer needed", map[string]int{"cluster": 3, "store": 1, "fsm": 1}, []string{
			"d", "the exception for fsm ≤ 1 is no longer needed: remove it"}},
	} {
		if got := beyond(found, c.allowed); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, wanted %q", c.name, got, c.want)
		}
	}
}
