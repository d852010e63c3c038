package main

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

const sample = `package sample

type number[T any] struct{ v T }

func (n *number[T]) set(v T) { n.v = v }

func sum(first int, more ...int) (total int, err error) {
	for _, value := range more {
		total += value
	}
	return first + total, nil
}

func (*number[T]) nameless() int { return 1 }

const most = 3
`

// TestCombine puts faults into functions with results and without, and leaves over those
// that no clone can hold.
func TestCombine(t *testing.T) {
	var changes []change
	for i, replaced := range [][2]string{
		{"n.v = v", "_ = v"}, {"first + total", "first - total"}, {"total += value", "total = value"}, {"return 1", "return 2"}, {"most = 3", "most = 4"},
	} {
		changes = append(changes, change{i + 1, strings.Replace(sample, replaced[0], replaced[1], 1)})
	}
	combined, clones, left, err := combine("sample.go", sample, changes)
	if err != nil || len(clones) != 3 || len(left) != 2 || left[0].number != 4 || left[1].number != 5 {
		t.Fatalf("%d clones, left over %v, %v", len(clones), left, err)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "sample.go", combined, 0); err != nil {
		t.Fatalf("%v:\n%s", err, combined)
	}
	for _, want := range []string{
		`func (n *number[T]) set(v T) { if faultInForce == "1" { n.set_fault1(v); return }; n.v = v }`,
		`{ return sum_fault2(first, more...) }; if faultInForce == "3" { return sum_fault3(first, more...) };`,
		"func sum_fault2(first int, more ...int) (total int, err error) {\n\tfor _, value := range more {\n\t\ttotal += value\n\t}\n\treturn first - total, nil\n}",
		"func (*number[T]) nameless() int { return 1 }\n",
	} {
		if !strings.Contains(combined, want) {
			t.Errorf("it lacks %q:\n%s", want, combined)
		}
	}
	lines := strings.Split(combined, "\n")
	for _, c := range clones {
		if inside := strings.Join(lines[c.first-1:c.last], "\n"); !strings.Contains(inside, "_fault"+string(rune('0'+c.number))) {
			t.Errorf("clone %d is not in lines %d to %d", c.number, c.first, c.last)
		}
	}
}

// TestRandomFaults checks which faults there are of each kind of code, and that each builds
// as far as the parser sees.
func TestRandomFaults(t *testing.T) {
	const content = `package sample

import "fmt"

var limit = 7

func f(a, b int) int {
	if a < b && b != 0 {
		a++
	}
	switch {
	case a == b:
		fmt.Println(a)
		a = b
	}
	c := a
	if c < 0 {
		panic(fmt.Sprint(c, 5))
	}
	return c
}
`
	edits, err := editsOf("sample.go", content)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range edits {
		faulty := content[:e.start] + e.text + content[e.end:]
		if _, err := parser.ParseFile(token.NewFileSet(), "sample.go", faulty, 0); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
		_, name, _ := strings.Cut(e.name, ":")
		got = append(got, name)
	}
	want := []string{
		"5: one more: 7", "5: one less: 7",
		"8: negated: a < b && b != 0", "8: now ||: &&", "8: now <=: <", "8: one more: 0", "8: one less: 0", "9: dropped: a++",
		"12: negated: a == b", "13: dropped: fmt.Println(a)", "14: dropped: a = b",
		"17: negated: c < 0", "17: now <=: <", "17: one more: 0", "17: one less: 0", "18: dropped: panic(fmt.Sprint(c, 5))",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("faults:\n%s\nwanted:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNumbers: which random faults a run takes, when it is made in parts.
func TestNumbers(t *testing.T) {
	for text, want := range map[string][]int{
		"": {1, 2, 3, 4}, "2": {2}, "4,1-2": {4, 1, 2}, "5": nil, "0": nil, "3-2": nil, "2-5": nil, "x": nil, "1,": nil,
	} {
		if got, err := parseNumbers(text, 4); !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestStages: each test of a package runs in one stage, the slow ones last.
func TestStages(t *testing.T) {
	for _, c := range []struct {
		tests tests
		want  []tests
	}{
		{tests{folder: "fsm", run: "^TestX$"}, []tests{{folder: "fsm", run: "^TestX$"}}},
		{tests{folder: "client"}, []tests{{folder: "client"}}},
		{tests{folder: "fsm"}, []tests{
			{folder: "fsm", run: first["fsm"]}, {folder: "fsm", skip: slow["fsm"][0] + "|" + slow["fsm"][1] + "|" + first["fsm"]},
			{folder: "fsm", run: slow["fsm"][0]}, {folder: "fsm", run: slow["fsm"][1]},
		}},
	} {
		if got := c.tests.stages(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %+v", c.tests, got)
		}
	}
}
