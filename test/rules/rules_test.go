// Package rules holds the rules of the project's architecture as tests: which package
// may import which, what keeps the state machine deterministic, and how far the sums of
// the tree may grow. Growth is then a decision, made here, and not an accident. Its tests
// run in the repository's root.
package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// module is the project's import path.
const module = "github.com/signalbox/signalbox"

// rule checks one thing; check returns a line for each place that breaks it.
type rule struct {
	name  string
	check func(tree) []string
}

var rules = []rule{
	{"imports point down", importsPointDown},
	{"permitted imports are used", permittedImportsAreUsed},
	{"test machinery stays below test", testMachineryStaysHome},
	{"dependencies stay at home", dependenciesStayHome},
	{"Raft's errors stay at home", raftErrorsStayHome},
	{"Raft is opened once", raftIsOpenedOnce},
	{"the state machine is pure", stateMachineIsPure},
	{"fields are set once", fieldsAreSetOnce},
	{"packages are documented", packagesAreDocumented},
	{"docs list files", docsListFiles},
	{"exported names are documented", exportedNamesAreDocumented},
	{"docs name what exists", docsNameWhatExists},
	{"errors name no flag", errorsNameNoFlag},
	{"tests don't sleep", testsDontSleep},
	{"names say something", namesSaySomething},
}

// TestMain runs the tests in the repository's root, where the files are that they judge.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestArchitecture(t *testing.T) {
	project := readTree(t, os.DirFS("."))
	if len(project.sources) < 20 {
		t.Fatalf("only %d Go files found: the rules would hold for nothing", len(project.sources))
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, broken := range r.check(project) {
				t.Error(broken)
			}
		})
	}
}

// TestArchitectureRulesCanFail runs each rule over small projects that break it. A
// sample is a text file: "rule:" names the rule, each "want:" a part of a line that
// the rule must report, no "want:" a project that must pass; then the files.
func TestArchitectureRulesCanFail(t *testing.T) {
	samples, err := filepath.Glob("test/rules/testdata/*.txt")
	if err != nil || len(samples) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	broken := map[string]bool{}
	for _, file := range samples {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			sample := readSample(t, file)
			got := sample.rule.check(readTree(t, sample.files))
			if len(got) != len(sample.want) {
				t.Errorf("%d places reported, %d wanted:\n%s", len(got), len(sample.want), strings.Join(got, "\n"))
			}
			for _, want := range sample.want {
				if !strings.Contains(strings.Join(got, "\n"), want) {
					t.Errorf("not reported: %q; reported:\n%s", want, strings.Join(got, "\n"))
				}
				broken[sample.rule.name] = true
			}
		})
	}
	for _, r := range rules {
		if !broken[r.name] {
			t.Errorf("no sample breaks the rule %q", r.name)
		}
	}
}

// sample is a small project that breaks a rule.
type sample struct {
	rule  rule
	want  []string
	files fstest.MapFS
}

// readSample reads a sample, in which "-- path --" starts a file.
func readSample(t *testing.T, name string) sample {
	t.Helper()
	text, err := os.ReadFile(name)
	must(t, err)
	head, body, _ := strings.Cut(string(text), "\n-- ")
	s := sample{files: fstest.MapFS{}}
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "rule":
			s.rule = ruleNamed(t, value)
		case "want":
			s.want = append(s.want, value)
		case "":
		default:
			t.Fatalf("%s: %q is neither rule nor want", name, key)
		}
	}
	for file := range strings.SplitSeq(body, "\n-- ") {
		title, content, _ := strings.Cut(file, " --\n")
		s.files[title] = &fstest.MapFile{Data: []byte(strings.TrimSuffix(content, "\n") + "\n")}
	}
	return s
}

func ruleNamed(t *testing.T, name string) rule {
	t.Helper()
	for _, r := range rules {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("no rule is named %q", name)
	return rule{}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
