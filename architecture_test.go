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
	".":             {},
	"cmd/signalbox": {"..."},

	"cmd/signalbox/verbs":               {"client", "client/operator", "cmd/signalbox/internal/exit", "cluster/offline", "cluster/peer", "cluster/probe", "cmd/signalbox/internal/target", "cmd/signalbox/internal/terminal", "httpapi/access", "internal/certs", "store/archive"}, // subcommands for the terminal
	"cmd/signalbox/operate":             {"client", "client/items", "client/operator", "cmd/signalbox/internal/exit", "cmd/signalbox/internal/settings", "cmd/signalbox/internal/target", "cmd/signalbox/internal/terminal", "cmd/signalbox/internal/waiting"},                     // subcommands on a running cluster
	"cmd/signalbox/internal/settings":   {},                                                                                                                                                                                                                                        // flags from variables and files
	"cmd/signalbox/internal/terminal":   {},                                                                                                                                                                                                                                        // what verbs print and ask
	"cmd/signalbox/internal/exit":       {"client"},                                                                                                                                                                                                                                // the exit status of each failure
	"cmd/signalbox/internal/hold":       {"client", "client/items", "cmd/signalbox/internal/exit", "cmd/signalbox/internal/waiting"},                                                                                                                                               // a command, run while permits are held
	"cmd/signalbox/internal/waiting":    {"client", "cmd/signalbox/internal/terminal"},                                                                                                                                                                                             // what a request waits for, on a terminal
	"cmd/signalbox/internal/supervisor": {"cluster", "fsm", "internal/wake"},                                                                                                                                                                                                       // systemd, and its watchdog
	"cmd/signalbox/internal/tune":       {},                                                                                                                                                                                                                                        // the heap and the timers of the process

	"httpapi": {"httpapi/access", "httpapi/audit", "httpapi/exchange", "httpapi/ui", "httpapi/v1"},
	// The native API, its reads and stream of events, and the cluster's members.
	"httpapi/v1":          {"cluster", "fsm", "httpapi/exchange", "httpapi/strictjson", "httpapi/v1/events", "httpapi/v1/members", "httpapi/v1/reads", "httpapi/v1/snapshot"},
	"httpapi/v1/reads":    {"cluster", "fsm", "httpapi/access", "httpapi/exchange"},
	"httpapi/v1/events":   {"cluster/outcome", "cluster/replica", "fsm", "httpapi/access", "httpapi/exchange"},
	"httpapi/v1/members":  {"cluster", "cluster/outcome", "httpapi/exchange", "httpapi/strictjson"},
	"httpapi/v1/snapshot": {"cluster", "cluster/backup", "cluster/outcome", "fsm", "httpapi/exchange"},
	"httpapi/ui":          {"httpapi/exchange"}, // the console: files, and no way to the state
	// The dialects: no package but cmd/signalbox imports one.
	"httpapi/consul":       {"cluster", "cluster/outcome", "fsm", "httpapi/consul/turns", "httpapi/exchange"},
	"httpapi/fleetlock":    {"cluster", "fsm", "httpapi/exchange"},
	"httpapi/terraform":    {"cluster", "cluster/outcome", "fsm", "httpapi/exchange"},
	"httpapi/throttle":     {"cluster", "fsm", "httpapi/exchange", "httpapi/strictjson"},
	"httpapi/nodered":      {"cluster", "fsm", "httpapi/exchange", "httpapi/strictjson"},
	"httpapi/consul/turns": {"internal/wake"}, // in which order waiting queries hear of a change
	// One request and its reply, for every API, on JSON whose every byte has a meaning.
	"httpapi/exchange":   {"cluster", "cluster/backup", "cluster/outcome", "cluster/replica", "fsm", "httpapi/access", "httpapi/audit", "httpapi/strictjson", "internal/wake"},
	"httpapi/strictjson": {},
	"httpapi/audit":      {},      // one line for each change
	"httpapi/access":     {"fsm"}, // tokens, and what their identities may do

	"httpapi/tracing":  {"cluster", "cluster/replica", "fsm", "httpapi/access", "httpapi/exchange"}, // spans of requests, for OpenTelemetry
	"httpapi/callback": {"cluster/notices", "fsm"},                                                  // notices over HTTP
	"httpapi/declare":  {"cluster", "cluster/outcome", "fsm"},                                       // throttle's TOML, applied through the log

	// For tests: the API's router, and clients as the dialects' users have them.
	"httpapi/internal/apitest": {"cluster", "cluster/backup", "cluster/outcome", "cluster/replica", "fsm", "httpapi", "httpapi/exchange", "internal/memnet", "internal/openapitest", "store"},
	"internal/consulclient":    {}, // a module of its own, on Consul's client
	"internal/noderedclient":   {},
	"internal/otlptest":        {}, // a collector of spans, for tests
	"internal/throttleclient":  {},

	"cluster":              {"cluster/backup", "cluster/election", "cluster/forward", "cluster/lead", "cluster/membership", "cluster/metrics", "cluster/notices", "cluster/outcome", "cluster/peer", "cluster/probe", "cluster/raftlib", "cluster/replica", "cluster/requests", "cluster/watchdog", "fsm", "internal/wake", "store"},
	"cluster/backup":       {"cluster/outcome", "cluster/replica", "fsm", "internal/wake", "store/archive"},                                                                                                                   // the state as a file, and back
	"cluster/election":     {"internal/wake"},                                                                                                                                                                                 // a leader without waiting for silence that proves nothing
	"cluster/forward":      {"cluster/lead", "cluster/outcome", "cluster/replica", "cluster/requests", "fsm", "internal/wake", "internal/wire"},                                                                               // a command's way to the leader
	"cluster/lead":         {"cluster/outcome", "cluster/raftlib", "cluster/replica", "fsm", "internal/wake"},                                                                                                                 // what a leader does in one term
	"cluster/membership":   {"cluster/election", "cluster/outcome", "cluster/peer", "cluster/probe", "cluster/raftlib", "fsm", "internal/wake"},                                                                               // who is in the cluster
	"cluster/metrics":      {"fsm"},                                                                                                                                                                                           // what the log does, in numbers
	"cluster/notices":      {"cluster/replica", "fsm", "internal/wake"},                                                                                                                                                       // delivers due notices during one term
	"cluster/offline":      {"cluster/backup", "cluster/membership", "cluster/outcome", "cluster/peer", "cluster/probe", "cluster/replica", "fsm", "store", "store/archive", "internal/wake", "store/damage", "store/folder"}, // what a data folder holds, and a new cluster of it
	"cluster/outcome":      {},                                                                                                                                                                                                // what is known of a command; the only place that knows Raft's errors
	"cluster/peer":         {"internal/wake"},                                                                                                                                                                                 // the one port between peers
	"cluster/probe":        {"cluster/election", "cluster/outcome", "internal/wake"},                                                                                                                                          // the questions that nodes ask each other
	"cluster/raftlib":      {"internal/wake"},                                                                                                                                                                                 // hashicorp/raft without its known faults
	"cluster/replica":      {"cluster/outcome", "fsm", "internal/wake"},                                                                                                                                                       // this node's copy of the state
	"cluster/requests":     {"cluster/lead", "cluster/outcome", "cluster/replica", "fsm"},                                                                                                                                     // commands under way here, and waits
	"cluster/watchdog":     {"fsm", "internal/wake", "store"},                                                                                                                                                                 // troubles of a node that Raft does not see
	"internal/hostile":     {},                                                                                                                                                                                                // the list of hostile inputs
	"internal/logtest":     {},                                                                                                                                                                                                // a log that the tests of nodes read
	"internal/openapitest": {},                                                                                                                                                                                                // requests and replies, compared with the description of the API
	"internal/simulation":  {},                                                                                                                                                                                                // the whole service under faults, in virtual time: tests alone
	"internal/checks":      {"client", "cluster/replica", "fsm", "internal/noderedclient", "internal/throttleclient"},                                                                                                         // what a run under faults is held to
	"internal/chaos":       {},                                                                                                                                                                                                // real processes under faults: tests alone
	"internal/memnet":      {},                                                                                                                                                                                                // the network that cluster's tests break
	"internal/mutants":     {},                                                                                                                                                                                                // faults in the source, and the tests that catch them

	"internal/certs": {}, // certificates of nodes and clients
	"internal/wake":  {}, // how goroutines wait and are woken

	"fsm":           {"internal/wire"},
	"internal/wire": {}, // decodes what the log and the peers' frames are made of

	"store":                    {"store/damage", "store/folder", "store/logs", "store/snapshots"},
	"store/journal":            {},                                                   // changes of the log, durable with one write each
	"store/logs":               {"store/boltcheck", "store/damage", "store/journal"}, // the log, and term and vote
	"store/snapshots":          {"store/boltcheck", "store/damage"},                  // the snapshots
	"store/folder":             {"store/damage"},                                     // whose folder it is, and what is stored in it at least
	"store/damage":             {"internal/wake", "store/boltcheck"},                 // damage found in files: its errors, and the guard around bbolt
	"store/boltcheck":          {},                                                   // the structure of a bbolt file, checked without bbolt
	"store/archive":            {},                                                   // the file format of backups
	"store/internal/storetest": {},                                                   // entries, snapshots, and damage to files, for tests
	"store/internal/recorder":  {},                                                   // package os with a record of all changes, for the test of power losses

	"client":                {"client/internal/calls", "client/internal/nodes", "client/internal/reply", "internal/credentials"}, // for users: it knows the service by its API alone
	"client/internal/calls": {"client/internal/nodes", "internal/credentials"},                                                   // one call, to one node after the other
	"client/operator":       {"client", "client/internal/calls", "client/internal/reply"},                                        // for those who watch over a cluster
	"client/items":          {"client", "client/internal/calls", "client/internal/reply"},                                        // small named values, and leaders
	"client/batch":          {"client", "client/internal/calls", "client/internal/reply"},                                        // many operations in one request
	"client/clienttest":     {"client", "cluster", "httpapi", "httpapi/exchange", "store"},                                       // a node, for users' tests
	"client/internal/reply": {},                                                                                                  // durations and pages in replies
	"client/internal/nodes": {"internal/credentials"},                                                                            // addresses, and which to ask next
	"internal/credentials":  {},                                                                                                  // what clients show to nodes, and trust in them

	"cmd/signalbox/internal/target": {"client", "cmd/signalbox/internal/settings", "internal/credentials"}, // the cluster that flags name

	// One program each, for users to read.
	"examples/cron-lock":    {"client"},
	"examples/fenced-write": {"client"},
	"examples/rate-limit":   {"client"},
	"examples/worker-pool":  {"client"},
}

// testLayers widens layers for tests: beside what the package itself may import
// and everything below that, these.
var testLayers = map[string][]string{
	".":                   {"internal/hostile"}, // counted there
	"store":               {"store/internal/recorder", "store/internal/storetest"},
	"store/boltcheck":     {"store/internal/storetest"},
	"store/damage":        {"store/internal/storetest"},
	"store/folder":        {"store/internal/storetest"},
	"store/logs":          {"store/internal/storetest"},
	"store/snapshots":     {"store/internal/storetest"},
	"cluster":             {"cluster/offline", "internal/certs", "internal/logtest", "internal/memnet"},
	"cluster/peer":        {"internal/certs", "internal/hostile", "internal/memnet"},
	"cluster/forward":     {"internal/hostile"},
	"cluster/membership":  {"internal/logtest", "internal/memnet"},
	"cluster/probe":       {"internal/hostile", "internal/memnet"},
	"cluster/raftlib":     {"internal/hostile", "internal/memnet"},
	"cluster/backup":      {"store"}, // a folder with a state that is not in force
	"cluster/replica":     {"store"}, // what a logged tick takes on the disk
	"internal/certs":      {"internal/memnet"},
	"httpapi":             {"httpapi/consul", "httpapi/fleetlock", "httpapi/terraform", "httpapi/internal/apitest", "httpapi/nodered", "httpapi/throttle", "internal/certs", "internal/logtest", "internal/hostile", "internal/memnet", "internal/openapitest"},
	"httpapi/callback":    {"internal/hostile"},
	"httpapi/exchange":    {"httpapi", "httpapi/internal/apitest", "httpapi/nodered", "httpapi/throttle"},
	"httpapi/ui":          {"httpapi", "httpapi/internal/apitest", "internal/openapitest"},
	"httpapi/v1":          {"httpapi/internal/apitest", "internal/hostile", "internal/openapitest"},
	"httpapi/v1/events":   {"httpapi", "httpapi/internal/apitest", "internal/hostile"},
	"httpapi/v1/reads":    {"httpapi/internal/apitest"},
	"httpapi/v1/members":  {"httpapi/internal/apitest"},
	"httpapi/v1/snapshot": {"httpapi/internal/apitest"},
	"httpapi/consul":      {"httpapi", "httpapi/internal/apitest", "internal/hostile"},
	"httpapi/fleetlock":   {"httpapi/internal/apitest"},
	"httpapi/terraform":   {"httpapi/internal/apitest"},
	"httpapi/throttle":    {"httpapi", "httpapi/internal/apitest", "internal/hostile", "internal/throttleclient"},
	"httpapi/tracing":     {"internal/logtest", "internal/otlptest"},
	"httpapi/nodered":     {"httpapi", "httpapi/callback", "httpapi/internal/apitest", "internal/hostile", "internal/noderedclient"},
	"client":              {"client/operator", "client/batch", "client/clienttest", "client/items", "cluster", "internal/memnet", "internal/openapitest", "httpapi", "httpapi/exchange", "store"}, // against the real service

	"client/clienttest":   {"client/operator"},
	"cmd/signalbox/verbs": {"cluster"}, // a folder to inspect
	"cluster/offline":     {"internal/memnet"},

	"internal/credentials": {"internal/certs"},
	"internal/chaos":       {"client", "cluster/replica", "fsm", "internal/checks"},
	"internal/simulation":  {"client", "cluster", "cluster/outcome", "cluster/replica", "httpapi", "httpapi/exchange", "httpapi/nodered", "httpapi/throttle", "internal/checks", "internal/memnet", "store"},
}

// testOnly are packages that only tests import, and packages of this list.
var testOnly = []string{
	"httpapi/internal/apitest", "internal/hostile", "internal/checks", "internal/logtest", "internal/memnet", "internal/noderedclient", "internal/openapitest", "internal/otlptest", "internal/throttleclient",
	"store/internal/storetest",
}

// bareLoop is what Signalbox is measured against: a route straight to a bare Raft.
const bareLoop = "cmd/signalbox/bench_bare_test.go"

// homes says where alone a dependency may be imported, by the prefix of its path:
// in which folders, or in which file. Tests are held to it as well.
var homes = map[string][]string{
	"github.com/labstack/echo":                {"httpapi", bareLoop},
	"github.com/hashicorp/raft":               {"cluster", "store", "internal/simulation", bareLoop, "cmd/signalbox/bench_trace_test.go"},
	"github.com/hashicorp/raft-boltdb":        {"cluster", "store"},
	"go.etcd.io/bbolt":                        {"cluster", "store"},
	"github.com/spf13/cobra":                  {"cmd/signalbox"},
	"github.com/BurntSushi/toml":              {"httpapi/access", "httpapi/declare", "cmd/signalbox/internal/settings", "cmd/signalbox/internal/target"},
	"github.com/santhosh-tekuri/jsonschema":   {"internal/openapitest"},
	"golang.org/x/time":                       {"httpapi/access"},
	"github.com/hashicorp/go-immutable-radix": {"cluster/replica"},
	"go.opentelemetry.io":                     {"httpapi/tracing", "internal/otlptest"},
	"github.com/anishathalye/porcupine":       {"cluster", "httpapi", "cmd/signalbox", "internal/checks"},
	"github.com/hashicorp/consul":             {"internal/consulclient"},
	"net/http":                                {"httpapi", "client", "cmd/signalbox", "internal/consulclient", "internal/noderedclient", "internal/throttleclient", "internal/credentials", "internal/openapitest", "internal/otlptest", "internal/checks", "internal/chaos", "internal/simulation", "examples/rate-limit"},
}

// pureFolders are the state machine's folder and those of the packages of ours that
// it imports.
var pureFolders = []string{"fsm", "internal/wire"}

// raftErrors names Raft's errors that may stand outside of cluster/outcome, by folder
// and name: those that an interface of Raft has its implementations return.
var raftErrors = map[string]string{
	"cluster/raftlib ErrPipelineReplicationNotSupported": "raft.Transport",
	"store/logs ErrLogNotFound":                          "raft.LogStore",
	"store/internal/storetest ErrLogNotFound":            "raft.LogStore",
}

// pureImports is all that the state machine's code may import: no package that reads
// a clock, a disk, the network or chance, and no package that starts or joins
// goroutines.
var pureImports = []string{
	"bufio", "bytes", "cmp", "container/heap", "crypto/sha256", "encoding/binary", "encoding/hex", "errors", "fmt", "hash/crc32", "io", "maps", "math", "math/bits",
	"slices", "sort", "strconv", "strings", "unicode", "unicode/utf8",
	"github.com/tidwall/btree", // copy-on-write ordered maps
	module + "/internal/wire",  // as pure itself, see pureFolders
}

// pureVariables are the package variables that the state machine may have. The purity
// rule also checks that they are not assigned after their declaration.
var pureVariables = map[string]string{
	"operations":   "the table of operations",
	"codeNames":    "the names of result codes",
	"ruleNames":    "the names of rules",
	"castagnoli":   "the table of CRC32C",
	"ErrMalformed": "an error's identity",
}

// pureMapRanges are the files of the state machine that may range over a map, since
// its order can't show in their outcome.
var pureMapRanges = map[string]string{
	"fsm/check.go": "looks for broken invariants: which one is found first doesn't matter",
}

// longFiles and longFunctions may exceed the limits: path, or path and function,
// and why.
var (
	longFiles     = map[string]string{}
	longFunctions = map[string]string{}
)

const (
	maxFileLines     = 500
	maxTestFileLines = 800
	maxFunctionLines = 60
	// maxTestFunctionLines leaves room for a table and the loop over its rows.
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

// tree is all Go files and pages of a project.
type tree struct {
	files   fs.FS
	fset    *token.FileSet
	sources []source
	pages   []page
	typed   *typeChecker
}

// rule checks one thing; check returns a finding for each place that breaks it.
type rule struct {
	name  string
	check func(tree) []finding
}

// finding is one place that breaks a rule. The weights of all findings of a subject
// (a package, or a word) are added up, for an exception to bound them.
type finding struct {
	subject string // "" has no exceptions
	weight  int
	text    string
}

// always makes a check without exceptions.
func always(check func(tree) []string) func(tree) []finding {
	return func(p tree) (found []finding) {
		for _, text := range check(p) {
			found = append(found, finding{text: text})
		}
		return found
	}
}

var rules = []rule{
	{"imports point down", always(importsPointDown)},
	{"permitted imports are used", always(permittedImportsAreUsed)},
	{"dependencies stay at home", always(dependenciesStayHome)},
	{"Raft's errors stay at home", always(raftErrorsStayHome)},
	{"Raft is opened once", always(raftIsOpenedOnce)},
	{"the state machine is pure", always(stateMachineIsPure)},
	{"packages are small", packagesAreSmall},
	{"packages have few files", packagesHaveFewFiles},
	{"files are short", always(filesAreShort)},
	{"files are no splinters", filesAreNoSplinters},
	{"prefixes are packages", prefixesArePackages},
	{"methods stand together", methodsStandTogether},
	{"functions are short", always(functionsAreShort)},
	{"fields are set once", fieldsAreSetOnce},
	{"few fields are functions", fewFuncFields},
	{"packages are documented", always(packagesAreDocumented)},
	{"docs begin with the contract", always(docsBeginWithTheContract)},
	{"docs list files", docsListFiles},
	{"exported names are documented", always(exportedNamesAreDocumented)},
	{"comments are plain", commentsArePlain},
	{"texts are plain", textsArePlain},
	{"docs are plain", docsArePlain},
	{"docs name what exists", docsNameWhatExists},
	{"errors name no flag", errorsNameNoFlag},
	{"tests don't sleep", always(testsDontSleep)},
	{"names say something", always(namesSaySomething)},
}

func TestArchitecture(t *testing.T) {
	project := readTree(t, os.DirFS("."))
	if len(project.sources) < 20 {
		t.Fatalf("only %d Go files found: the rules would hold for nothing", len(project.sources))
	}
	allowed := readExceptions(t, exceptions)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, broken := range beyond(r.check(project), allowed[r.name]) {
				t.Error(broken)
			}
			if r.name == "comments are plain" {
				logWords(t, project)
				logDocWords(t, project)
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
			var got []string
			for _, f := range sample.rule.check(readTree(t, sample.files)) {
				got = append(got, f.text)
			}
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

// readTree parses every Go file but those of testdata and hidden folders, and reads the
// pages.
func readTree(t *testing.T, files fs.FS) tree {
	t.Helper()
	project := tree{files: files, fset: token.NewFileSet(), pages: readPages(t, files), typed: &typeChecker{}}
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
