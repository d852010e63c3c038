package rules

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// layers says which packages of ours a package may import; a package that isn't
// here may not exist. Arrows point down only. "..." stands for all of them.
var layers = map[string][]string{
	"cmd/signalbox": {"..."},

	"cmd/signalbox/verbs":               {"client", "client/items", "client/operator", "cmd/signalbox/internal/cli", "cmd/signalbox/internal/waiting", "cluster/offline", "cluster/peer", "cluster/probe", "httpapi/access", "internal/certs", "store/archive"}, // subcommands for the terminal
	"cmd/signalbox/internal/mcp":        {"client", "client/operator"},                                                                                                                                                                                          // permits for a language model
	"cmd/signalbox/internal/hold":       {"client", "client/items", "client/operator", "cmd/signalbox/internal/cli", "cmd/signalbox/internal/waiting"},                                                                                                          // a command, run while permits are held
	"cmd/signalbox/internal/waiting":    {"client", "cmd/signalbox/internal/cli"},                                                                                                                                                                               // what a request waits for, on a terminal
	"cmd/signalbox/internal/supervisor": {"cluster", "fsm", "internal/wake"},                                                                                                                                                                                    // systemd, and its watchdog
	"cmd/signalbox/internal/tune":       {},                                                                                                                                                                                                                     // the heap and the timers of the process

	"httpapi": {"client/cells", "httpapi/access", "httpapi/audit", "httpapi/exchange", "httpapi/ui", "httpapi/v1"},
	// The native API, its reads and stream of events, and the cluster's members.
	"httpapi/v1":          {"cluster/calls", "fsm", "httpapi/exchange", "httpapi/strictjson", "httpapi/v1/events", "httpapi/v1/members", "httpapi/v1/reads", "httpapi/v1/snapshot"},
	"httpapi/v1/reads":    {"cluster/calls", "fsm", "httpapi/access", "httpapi/exchange"},
	"httpapi/v1/events":   {"cluster/outcome", "cluster/replica", "fsm", "httpapi/access", "httpapi/exchange"},
	"httpapi/v1/members":  {"cluster", "cluster/outcome", "httpapi/exchange", "httpapi/strictjson"},
	"httpapi/v1/snapshot": {"cluster/backup", "cluster/calls", "cluster/outcome", "fsm", "httpapi/exchange"},
	"httpapi/ui":          {"httpapi/exchange"}, // the console: files, and no way to the state
	// The dialects: no package but cmd/signalbox imports one.
	"httpapi/consul":        {"cluster", "cluster/calls", "cluster/outcome", "fsm", "httpapi/consul/queues", "httpapi/exchange"},
	"httpapi/fleetlock":     {"cluster/calls", "fsm", "httpapi/exchange"},
	"httpapi/terraform":     {"cluster/calls", "cluster/outcome", "fsm", "httpapi/exchange"},
	"httpapi/throttle":      {"cluster/calls", "fsm", "httpapi/exchange", "httpapi/strictjson"},
	"httpapi/nodered":       {"cluster/calls", "fsm", "httpapi/exchange", "httpapi/strictjson"},
	"httpapi/consul/queues": {"internal/wake"}, // in which order waiting queries hear of a change
	// One request and its reply, for every API, on JSON whose every byte has a meaning.
	"httpapi/exchange":   {"cluster", "cluster/backup", "cluster/calls", "cluster/outcome", "cluster/replica", "fsm", "httpapi/access", "httpapi/audit", "httpapi/strictjson", "internal/wake"},
	"httpapi/strictjson": {},
	"httpapi/audit":      {},      // one line for each change
	"httpapi/access":     {"fsm"}, // tokens, and what their identities may do

	"httpapi/proxy":    {"httpapi/exchange", "httpapi/v1/reads", "client/cells", "client/credentials"}, // requests to the clusters that share the names
	"httpapi/tracing":  {"cluster/calls", "cluster/replica", "fsm", "httpapi/exchange"},                // spans of requests, for OpenTelemetry
	"httpapi/callback": {"cluster/notices", "fsm"},                                                     // notices over HTTP
	"httpapi/declare":  {"cluster", "cluster/calls", "cluster/outcome", "fsm"},                         // throttle's TOML, applied through the log

	"cluster":            {"cluster/backup", "cluster/calls", "cluster/election", "cluster/forward", "cluster/lead", "cluster/membership", "cluster/metrics", "cluster/notices", "cluster/outcome", "cluster/peer", "cluster/probe", "cluster/raftlib", "cluster/replica", "cluster/requests", "cluster/watchdog", "fsm", "internal/wake", "store"},
	"cluster/backup":     {"cluster/outcome", "cluster/replica", "fsm", "internal/wake", "store/archive"},                                                                                                                   // the state as a file, and back
	"cluster/calls":      {"client/cells", "cluster/forward", "cluster/lead", "cluster/outcome", "cluster/replica", "cluster/requests", "fsm", "internal/wake"},                                                             // a caller's command or read, until its reply
	"cluster/election":   {"internal/wake"},                                                                                                                                                                                 // a leader without waiting for silence that proves nothing
	"cluster/forward":    {"cluster/lead", "cluster/outcome", "cluster/replica", "cluster/requests", "fsm", "internal/wake", "internal/wire"},                                                                               // a command's way to the leader
	"cluster/lead":       {"cluster/outcome", "cluster/raftlib", "cluster/replica", "fsm", "internal/wake"},                                                                                                                 // what a leader does in one term
	"cluster/membership": {"cluster/election", "cluster/outcome", "cluster/peer", "cluster/probe", "cluster/raftlib", "fsm", "internal/wake"},                                                                               // who is in the cluster
	"cluster/metrics":    {"fsm"},                                                                                                                                                                                           // what the log does, in numbers
	"cluster/notices":    {"cluster/replica", "fsm", "internal/wake"},                                                                                                                                                       // delivers due notices during one term
	"cluster/offline":    {"cluster/backup", "cluster/membership", "cluster/outcome", "cluster/peer", "cluster/probe", "cluster/replica", "fsm", "store", "store/archive", "internal/wake", "store/damage", "store/folder"}, // what a data folder holds, and a new cluster of it
	"cluster/outcome":    {},                                                                                                                                                                                                // what is known of a command; the only place that knows Raft's errors
	"cluster/peer":       {"internal/wake"},                                                                                                                                                                                 // the one port between peers
	"cluster/probe":      {"cluster/election", "cluster/outcome", "internal/wake"},                                                                                                                                          // the questions that nodes ask each other
	"cluster/raftlib":    {"internal/wake"},                                                                                                                                                                                 // hashicorp/raft without its known faults
	"cluster/replica":    {"cluster/outcome", "fsm", "internal/wake"},                                                                                                                                                       // this node's copy of the state
	"cluster/requests":   {"cluster/lead", "cluster/outcome", "cluster/replica", "fsm"},                                                                                                                                     // commands under way here, and waits
	"cluster/watchdog":   {"fsm", "internal/wake", "store"},                                                                                                                                                                 // troubles of a node that Raft does not see

	"internal/certs": {}, // certificates of nodes and clients
	"internal/wake":  {}, // how goroutines wait and are woken

	"fsm":           {"internal/wire"},
	"internal/wire": {}, // decodes what the log and the peers' frames are made of

	"store":           {"store/damage", "store/folder", "store/logs", "store/snapshots"},
	"store/journal":   {},                                                   // changes of the log, durable with one write each
	"store/logs":      {"store/boltcheck", "store/damage", "store/journal"}, // the log, and term and vote
	"store/snapshots": {"store/boltcheck", "store/damage"},                  // the snapshots
	"store/folder":    {"store/damage"},                                     // whose folder it is, and what is stored in it at least
	"store/damage":    {"internal/wake", "store/boltcheck"},                 // damage found in files: its errors, and the guard around bbolt
	"store/boltcheck": {},                                                   // the structure of a bbolt file, checked without bbolt
	"store/archive":   {},                                                   // the file format of backups

	"client":                {"client/internal/calls", "client/internal/nodes", "client/internal/reply", "client/cells", "client/credentials"}, // for users: a module that knows the service by its API alone
	"client/internal/calls": {"client/internal/nodes", "client/credentials"},                                                                   // one call, to one node after the other
	"client/operator":       {"client", "client/internal/calls", "client/internal/reply"},                                                      // for those who watch over a cluster
	"client/items":          {"client", "client/internal/calls", "client/internal/reply"},                                                      // small named values, and leaders
	"client/batch":          {"client", "client/internal/calls", "client/internal/reply"},                                                      // many operations in one request
	"client/internal/reply": {},                                                                                                                // durations and pages in replies
	"client/internal/nodes": {"client/credentials"},                                                                                            // addresses, and which to ask next
	"client/cells":          {},                                                                                                                // which cluster has a name
	"client/credentials":    {},                                                                                                                // what clients show to nodes, and trust in them

	"cmd/signalbox/internal/cli": {"client", "client/cells", "client/credentials"}, // flags, output and exit statuses of subcommands

	// One program each, for users to read.
	"client/examples/cron-lock":     {"client"},
	"client/examples/fenced-write":  {"client"},
	"client/examples/model-gateway": {"client"},
	"client/examples/rate-limit":    {"client"},
	"client/examples/tenant-pool":   {"client"},
	"client/examples/worker-pool":   {"client"},

	// What tests alone use.
	"test/apitest":        {"cluster", "cluster/backup", "cluster/calls", "cluster/outcome", "cluster/replica", "fsm", "httpapi", "httpapi/exchange", "store", "test/memnet", "test/openapitest"},
	"test/chaos":          {},                                                                                // real processes under faults: tests alone
	"test/checks":         {"client", "cluster/replica", "fsm", "test/noderedclient", "test/throttleclient"}, // what a run under faults is held to
	"test/client":         {},                                                                                // the Go client against real nodes: tests alone
	"test/clienttest":     {"client", "cluster", "httpapi", "httpapi/exchange", "store"},                     // a node, for users' tests
	"test/comparison":     {"client"},                                                                        // a module: Signalbox and other systems, measured
	"test/consulclient":   {},                                                                                // a separate module, on Consul's client
	"test/hostile":        {},                                                                                // the list of hostile inputs
	"test/logtest":        {},                                                                                // a log that the tests of nodes read
	"test/memnet":         {},                                                                                // the network that cluster's tests break
	"test/mutants":        {},                                                                                // faults in the source, and the tests that catch them
	"test/noderedclient":  {},
	"test/openapitest":    {}, // requests and replies, compared with the description of the API
	"test/otlptest":       {}, // a collector of spans, for tests
	"test/recorder":       {}, // package os with a record of all changes, for the test of power losses
	"test/rules":          {}, // the rules of the tree
	"test/simulation":     {}, // the whole service under faults, in virtual time: tests alone
	"test/storetest":      {}, // entries, snapshots, and damage to files, for tests
	"test/throttleclient": {},
}

// testLayers widens layers for tests: beside what the package itself may import
// and everything below that, these.
var testLayers = map[string][]string{
	"test/rules":          {"test/hostile"}, // counted there
	"store":               {"test/recorder", "test/storetest"},
	"store/boltcheck":     {"test/storetest"},
	"store/damage":        {"test/storetest"},
	"store/folder":        {"test/storetest"},
	"store/logs":          {"test/storetest"},
	"store/snapshots":     {"test/storetest"},
	"cluster":             {"cluster/offline", "internal/certs", "test/logtest", "test/memnet"},
	"cluster/peer":        {"internal/certs", "test/hostile", "test/memnet"},
	"cluster/forward":     {"test/hostile"},
	"cluster/membership":  {"test/logtest", "test/memnet"},
	"cluster/probe":       {"test/hostile", "test/memnet"},
	"cluster/raftlib":     {"test/hostile", "test/memnet"},
	"cluster/backup":      {"store"}, // a folder with a state that is not in force
	"cluster/replica":     {"store"}, // what a logged tick takes on the disk
	"internal/certs":      {"test/memnet"},
	"httpapi":             {"httpapi/consul", "httpapi/fleetlock", "httpapi/terraform", "test/apitest", "httpapi/nodered", "httpapi/throttle", "internal/certs", "test/logtest", "test/hostile", "test/memnet", "test/openapitest"},
	"httpapi/callback":    {"test/hostile"},
	"httpapi/exchange":    {"httpapi", "test/apitest", "httpapi/nodered", "httpapi/throttle"},
	"httpapi/ui":          {"httpapi", "test/apitest", "test/openapitest"},
	"httpapi/v1":          {"test/apitest", "test/hostile", "test/openapitest"},
	"httpapi/v1/events":   {"httpapi", "test/apitest", "test/hostile"},
	"httpapi/v1/reads":    {"test/apitest"},
	"httpapi/v1/members":  {"test/apitest"},
	"httpapi/v1/snapshot": {"test/apitest"},
	"httpapi/consul":      {"httpapi", "test/apitest", "test/hostile"},
	"httpapi/fleetlock":   {"test/apitest"},
	"httpapi/terraform":   {"test/apitest"},
	"httpapi/throttle":    {"test/apitest", "test/hostile", "test/throttleclient"},
	"httpapi/proxy":       {"httpapi/consul", "httpapi/fleetlock", "httpapi/nodered", "httpapi/terraform", "httpapi/throttle", "test/apitest", "test/memnet"},
	"httpapi/tracing":     {"test/logtest", "test/otlptest"},
	"httpapi/nodered":     {"httpapi", "test/apitest", "test/hostile"},

	"test/clienttest":            {"client/operator"},
	"cmd/signalbox/internal/mcp": {"test/clienttest"},
	"cmd/signalbox/verbs":        {"cluster", "cluster/calls"}, // a folder to inspect
	"cluster/offline":            {"test/memnet"},

	"client":          {"client/batch", "client/operator"}, // without a node
	"test/client":     {"client", "client/batch", "client/items", "client/operator", "cluster", "httpapi", "httpapi/exchange", "store", "test/clienttest", "test/memnet", "test/openapitest"},
	"test/chaos":      {"client", "client/operator", "cluster/replica", "fsm", "test/checks"},
	"test/simulation": {"client", "cluster", "cluster/outcome", "cluster/replica", "httpapi", "httpapi/exchange", "httpapi/nodered", "httpapi/throttle", "test/checks", "test/memnet", "store"},
}

// isTestOnly reports whether only tests, and other packages below test/, may import a
// package.
func isTestOnly(dir string) bool { return strings.HasPrefix(dir, "test/") }

// entries are the packages that no other one has to import: programs, and what users import.
var entries = []string{"client", "client/batch", "client/items", "client/operator", "cmd/signalbox"}

func importsPointDown(p tree) (broken []string) {
	for _, s := range p.sources {
		allowed, known := layers[s.dir]
		if !known {
			broken = append(broken, s.path+": no layer is given for package "+s.dir)
			continue
		}
		if s.test {
			allowed = append(append(below(s.dir), testLayers[s.dir]...), s.dir)
		}
		for spec, imported := range s.imports {
			ours, ok := strings.CutPrefix(imported, module+"/")
			switch {
			case !ok:
			case !slices.Contains(allowed, ours) && !slices.Contains(allowed, "..."):
				broken = append(broken, fmt.Sprintf("%s: %s may not import %s", p.at(spec), s.dir, ours))
			case !s.test && isTestOnly(ours) && !isTestOnly(s.dir):
				broken = append(broken, fmt.Sprintf("%s: only tests may import %s", p.at(spec), ours))
			}
		}
	}
	return broken
}

// permittedImportsAreUsed finds imports that layers or testLayers permits to a package
// of the tree in vain: a test also may import what its package reaches without testLayers.
func permittedImportsAreUsed(p tree) (broken []string) {
	type edge struct {
		from, to string
		test     bool
	}
	used, dirs := map[edge]bool{}, map[string]bool{}
	for _, s := range p.sources {
		dirs[s.dir] = true
		for _, imported := range s.imports {
			used[edge{s.dir, strings.TrimPrefix(imported, module+"/"), s.test}] = true
		}
	}
	for dir := range dirs {
		for _, to := range layers[dir] {
			if to != "..." && !used[edge{dir, to, false}] {
				broken = append(broken, fmt.Sprintf("layers permits %s to import %s, which no file does", dir, to))
			}
		}
		for _, to := range testLayers[dir] {
			if !used[edge{dir, to, true}] || slices.Contains(below(dir), to) {
				broken = append(broken, fmt.Sprintf("testLayers permits %s to import %s, which no test does, or may do without", dir, to))
			}
		}
	}
	return broken
}

// below is everything that a package may reach through its imports.
func below(dir string) (reached []string) {
	for _, direct := range layers[dir] {
		reached = append(append(reached, direct), below(direct)...)
	}
	return reached
}

// testMachineryStaysHome finds packages outside of test/ that no file of the program imports.
func testMachineryStaysHome(p tree) (broken []string) {
	used := map[string]bool{}
	for _, s := range p.sources {
		for _, imported := range s.imports {
			used[imported] = used[imported] || !s.test && !isTestOnly(s.dir)
		}
	}
	for _, s := range p.sources {
		if path.Base(s.path) == "doc.go" && !used[module+"/"+s.dir] && !isTestOnly(s.dir) && !slices.Contains(entries, s.dir) {
			broken = append(broken, s.dir+" is imported by tests alone: move it below test/")
		}
	}
	return broken
}

// bareLoop is what Signalbox is measured against: a route straight to a bare Raft.
const bareLoop = "cmd/signalbox/bench_bare_test.go"

// homes says where alone a dependency may be imported, by the prefix of its path:
// in which folders, or in which file. Tests are held to it as well.
var homes = map[string][]string{
	"github.com/labstack/echo":                {"httpapi", bareLoop},
	"github.com/hashicorp/raft":               {"cluster", "store", "test/simulation", "test/storetest", bareLoop, "cmd/signalbox/bench_trace_test.go"},
	"github.com/hashicorp/raft-boltdb":        {"cluster", "store"},
	"go.etcd.io/bbolt":                        {"cluster", "store"},
	"github.com/spf13/cobra":                  {"cmd/signalbox"},
	"github.com/BurntSushi/toml":              {"httpapi/access", "httpapi/declare", "cmd/signalbox/internal/cli"},
	"github.com/santhosh-tekuri/jsonschema":   {"test/openapitest"},
	"golang.org/x/time":                       {"httpapi/access"},
	"github.com/hashicorp/go-immutable-radix": {"cluster/replica"},
	"go.opentelemetry.io":                     {"httpapi/tracing", "test/otlptest"},
	"github.com/anishathalye/porcupine":       {"cluster", "httpapi", "cmd/signalbox", "test/checks"},
	"github.com/hashicorp/consul":             {"test/consulclient"},
	"net/http":                                {"httpapi", "client", "cmd/signalbox", "test/apitest", "test/client", "test/clienttest", "test/consulclient", "test/noderedclient", "test/throttleclient", "test/openapitest", "test/otlptest", "test/checks", "test/chaos", "test/simulation", "test/comparison"},
}

func dependenciesStayHome(p tree) (broken []string) {
	for _, s := range p.sources {
		for spec, imported := range s.imports {
			for prefix, home := range homes {
				belongs := imported == prefix || strings.HasPrefix(imported, prefix+"/")
				inside := slices.ContainsFunc(home, func(h string) bool { return s.path == h || strings.HasPrefix(s.path, h+"/") })
				if belongs && !inside {
					broken = append(broken, fmt.Sprintf("%s: only %s may import %s", p.at(spec), strings.Join(home, ", "), imported))
				}
			}
		}
	}
	return broken
}

// raftErrors names Raft's errors that may stand outside of cluster/outcome, by folder
// and name: those that an interface of Raft has its implementations return.
var raftErrors = map[string]string{
	"cluster/raftlib ErrPipelineReplicationNotSupported": "raft.Transport",
	"store/logs ErrLogNotFound":                          "raft.LogStore",
	"test/storetest ErrLogNotFound":                      "raft.LogStore",
}

// raftErrorsStayHome holds that what Raft's errors say of a command is decided in one
// package. Tests may name them, to make a fake Raft fail.
func raftErrorsStayHome(p tree) []string {
	return raftNames(p, func(s source, name string) string {
		if s.dir == "cluster/outcome" || !strings.HasPrefix(name, "Err") || raftErrors[s.dir+" "+name] != "" {
			return ""
		}
		return "only cluster/outcome knows Raft's " + name
	})
}

// raftIsOpenedOnce checks that all packages but the one that opens Raft see it through
// interfaces of their own.
func raftIsOpenedOnce(p tree) []string {
	return raftNames(p, func(s source, name string) string {
		if s.dir == "cluster" || name != "Raft" && name != "NewRaft" {
			return ""
		}
		return "only package cluster has raft." + name + ": others declare the methods that they need"
	})
}

// raftNames returns the places outside of tests where a name of Raft's package breaks a rule.
func raftNames(p tree, judge func(s source, name string) string) (broken []string) {
	for _, s := range p.sources {
		library := ""
		for spec, imported := range s.imports {
			if imported == "github.com/hashicorp/raft" {
				if library = "raft"; spec.Name != nil {
					library = spec.Name.Name
				}
			}
		}
		if s.test || library == "" {
			continue
		}
		for node := range ast.Preorder(s.file) {
			named, ok := node.(*ast.SelectorExpr)
			if !ok || !isName(named.X, library) {
				continue
			}
			if reason := judge(s, named.Sel.Name); reason != "" {
				broken = append(broken, p.at(node)+": "+reason)
			}
		}
	}
	return broken
}
