// Package signalbox_test holds the rules of the project's architecture as tests:
// which package may import which, what keeps the state machine deterministic, and
// how long a file or function may grow. Growth beyond a limit is then a decision,
// made here with a reason, and not an accident.
package signalbox_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// module is the project's import path.
const module = "github.com/signalbox/signalbox"

// layers says which packages of ours a package may import; a package that isn't
// here may not exist. Arrows point down only. "..." stands for all of them.
var layers = map[string][]string{
	".":                      {},
	"cmd/signalbox":          {"..."},
	"httpapi":                {"cluster", "fsm"},
	"httpapi/callback":       {"cluster"},        // notices over HTTP
	"httpapi/declare":        {"cluster", "fsm"}, // throttle's TOML, applied through the log
	"httpapi/noderedclient":  {},                 // a client as Node-RED's users have, for tests
	"httpapi/throttleclient": {},                 // a client as throttle's are, for tests
	"cluster":                {"fsm", "store"},
	"cluster/memnet":         {}, // the network that cluster's tests break
	"fsm":                    {},
	"store":                  {},
	"client":                 {}, // for users: it knows the service by its API alone
}

// testLayers widens layers for tests: beside what the package itself may import
// and everything below that, these.
var testLayers = map[string][]string{
	"cluster": {"cluster/memnet"},
	"httpapi": {"cluster/memnet", "httpapi/callback", "httpapi/noderedclient", "httpapi/throttleclient"},
	"client":  {"cluster", "cluster/memnet", "fsm", "httpapi", "store"}, // against the real service
}

// bareLoop is what Signalbox is measured against: a route straight to a bare Raft.
const bareLoop = "cmd/signalbox/bench_bare_test.go"

// homes says where alone a dependency may be imported, by the prefix of its path:
// in which folders, or in which file. Tests are held to it as well.
var homes = map[string][]string{
	"github.com/labstack/echo":          {"httpapi", bareLoop},
	"github.com/hashicorp/raft":         {"cluster", "store", bareLoop},
	"github.com/hashicorp/raft-boltdb":  {"cluster", "store", bareLoop},
	"go.etcd.io/bbolt":                  {"cluster", "store", bareLoop},
	"github.com/spf13/cobra":            {"cmd/signalbox"},
	"github.com/BurntSushi/toml":        {"httpapi/declare"},
	"github.com/anishathalye/porcupine": {"cluster", "httpapi", "cmd/signalbox"},
	"net/http":                          {"httpapi", "client", "cmd/signalbox"},
}

// pureImports is all that the state machine's code may import: nothing that reads
// a clock, a disk, the network or chance, and nothing that starts or joins
// goroutines.
var pureImports = []string{
	"bufio", "bytes", "cmp", "container/heap", "crypto/sha256", "encoding/binary", "encoding/hex", "errors", "fmt", "hash/crc32", "io", "maps", "math", "math/bits",
	"slices", "sort", "strconv", "strings", "unicode", "unicode/utf8",
	"github.com/tidwall/btree", // copy-on-write ordered maps
}

// pureVariables are the package variables that the state machine may have; none
// is ever assigned after its declaration, which the purity rule checks as well.
var pureVariables = map[string]string{
	"operations":   "the table of operations",
	"codeNames":    "the names of result codes",
	"ruleNames":    "the names of rules",
	"castagnoli":   "the table of CRC32C",
	"errMalformed": "an error's identity",
}

// pureMapRanges are the files of the state machine that may range over a map, since
// its order can't show in their outcome.
var pureMapRanges = map[string]string{
	"fsm/check.go":         "looks for broken invariants: which one is found first doesn't matter",
	"fsm/check_entries.go": "the same",
}

// longFiles and longFunctions may exceed the limits: path, or path and function,
// and why.
var (
	longFiles     = map[string]string{}
	longFunctions = map[string]string{}
)

const (
	maxFileLines     = 400
	maxTestFileLines = 800
	maxFunctionLines = 60
	// maxTestFunctionLines leaves room for a table and what is done with its rows.
	maxTestFunctionLines = 90
)

// source is one Go file.
type source struct {
	path  string // from the root, with slashes
	dir   string
	test  bool
	lines int
	file  *ast.File
}

// tree is all Go files of a project.
type tree struct {
	fset    *token.FileSet
	sources []source
}

// rule checks one thing; check returns a line for each place that breaks it.
type rule struct {
	name  string
	check func(tree) []string
}

var rules = []rule{
	{"imports point down", importsPointDown},
	{"dependencies stay at home", dependenciesStayHome},
	{"the state machine is pure", stateMachineIsPure},
	{"files are short", filesAreShort},
	{"functions are short", functionsAreShort},
	{"packages are documented", packagesAreDocumented},
	{"exported names are documented", exportedNamesAreDocumented},
	{"tests don't sleep", testsDontSleep},
	{"names say something", namesSaySomething},
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
	samples, err := filepath.Glob("testdata/architecture/*.txt")
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

// readTree parses every Go file but those of testdata and hidden folders.
func readTree(t *testing.T, files fs.FS) tree {
	t.Helper()
	project := tree{fset: token.NewFileSet()}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if entry.IsDir() && name != "." && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_') {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(project.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		project.sources = append(project.sources, source{
			path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			lines: strings.Count(string(text), "\n"), file: file,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// sample is a small project that breaks a rule.
type sample struct {
	rule  rule
	want  []string
	files fstest.MapFS
}

// readSample reads a sample. "-- path --" starts a file; "repeat N: line" stands
// for that many equal lines.
func readSample(t *testing.T, name string) sample {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
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
		s.files[title] = &fstest.MapFile{Data: []byte(repeatLines(t, strings.TrimSuffix(content, "\n")+"\n"))}
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
