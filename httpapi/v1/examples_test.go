package v1_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/openapitest"
)

// apiPages returns the texts of the pages of the API, by their names.
func apiPages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../../docs/api*.md")
	if err != nil || len(names) < 2 {
		t.Fatalf("pages of the API: %v, %v", names, err)
	}
	texts := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(name)] = string(text)
	}
	return texts
}

// samples has requests and replies of examples, by the operationId of their route.
type samples map[string]sample

type sample struct {
	Request json.RawMessage            `json:"request,omitempty"`
	Replies map[string]json.RawMessage `json:"replies,omitempty"` // by status
}

// add records an example if it is the first of its route and status. It skips refusals and the description of the API
// itself.
func (all samples) add(t *testing.T, line, body string, got apitest.Reply) {
	t.Helper()
	d, err := openapitest.Loaded()
	if err != nil {
		t.Fatal(err)
	}
	method, target, _ := strings.Cut(line, " ")
	id, _ := d.Operation(httptest.NewRequest(method, target, nil))["operationId"].(string)
	if id == "" || got.Status >= 300 || len(got.Text) > 10_000 {
		return
	}
	shown := all[id]
	if shown.Request == nil && json.Valid([]byte(body)) {
		shown.Request = json.RawMessage(body)
	}
	if status := strconv.Itoa(got.Status); shown.Replies[status] == nil && got.Body != nil {
		if shown.Replies == nil {
			shown.Replies = map[string]json.RawMessage{}
		}
		shown.Replies[status] = json.RawMessage(got.Text)
	}
	if shown.Request != nil || shown.Replies != nil {
		all[id] = shown
	}
}

// compare compares the samples with the recorded samples, from which the description is made.
func (all samples) compare(t *testing.T) {
	t.Helper()
	const file = "testdata/examples.json"
	got, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != string(got)+"\n" {
		t.Errorf("%s differs from the examples of docs/api*.md (%v): write it anew by go test ./httpapi/v1 -run TestDocsExamples -update, and openapi.json after it", file, err)
	}
}

// further are examples for the description that are not on the pages: two repeats, and changes of the cluster.
var further = [][2]string{
	{"POST /v1/semaphores", `{"name":"disk","permits":20}`},
	{"PUT /v1/semaphores/disk", `{"permits":20}`},
	{"PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`},
	{"DELETE /v1/cluster/members/n2", ""},
	{"POST /v1/cluster/leader", `{"id":"n2"}`},
	{"PUT /v1/cluster/level", `{"level":1}`},
}

// The examples of a page run in the order of the page, on a cluster for this page alone. Each example gets the reply
// that its comment says.
func TestDocsExamples(t *testing.T) {
	var a *apitest.API
	examples, all, pages := 0, samples{}, apiPages(t)
	byLength := func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) } // api.md first: the description has the first samples
	for _, page := range slices.SortedFunc(maps.Keys(pages), byLength) {
		a = apitest.New(t)
		a.Begin(fsm.StartTerm{Term: 3, Leader: "n1", Limits: fsm.DefaultLimits(), Cluster: fsm.ClusterID{15: 1}, Level: fsm.FeatureLevel}) // a backup needs a term
		examples += all.run(t, a, page, pages[page])
	}
	if examples < 30 {
		t.Errorf("only %d examples run", examples)
	}
	for _, request := range further {
		all.add(t, request[0], request[1], a.Do(request[0], request[1]))
	}
	all.add(t, "PUT /v1/snapshot", "", a.Do("PUT /v1/snapshot?cluster="+apitest.ClusterID, a.Do("GET /v1/snapshot", "").Text))
	all.compare(t)
}

var (
	commandLine   = regexp.MustCompile(`(?m)^    (SESSION=\$\()?curl (-[^N]|[^-])`) // a stream of events (curl -N) does not end
	exampleLine   = regexp.MustCompile(`(?m)^    (SESSION=\$\()?curl (.+?)\s+# (\d+)$`)
	exampleTarget = regexp.MustCompile(`["']?localhost:870[123](/[^\s"']*)`)
	exampleMethod = regexp.MustCompile(`-X ([A-Z]+)`)
)

// run sends the examples of a page, adds them to the samples, and returns their number.
func (all samples) run(t *testing.T, a *apitest.API, page, text string) int {
	session, examples := "", exampleLine.FindAllStringSubmatch(text, -1)
	for _, m := range examples {
		line := strings.ReplaceAll(m[2], "$SESSION", session)
		method, body := "GET", strings.Join(flagValues(line, "-d"), "")
		if body != "" {
			method = "POST"
		}
		if named := exampleMethod.FindStringSubmatch(line); named != nil {
			method = named[1]
		}
		target := exampleTarget.FindStringSubmatch(line)
		if target == nil {
			t.Errorf("%s: no address in %s", page, line)
			continue
		}
		var got apitest.Reply
		select {
		case got = <-a.GoDo(method+" "+target[1], body, append(flagValues(line, "-H"), "Content-Type: application/x-www-form-urlencoded")...):
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: %s\nwaits", page, m[0])
		}
		if m[3] != strconv.Itoa(got.Status) {
			t.Errorf("%s: %s\nanswers %d: %s", page, m[0], got.Status, got.Text)
		}
		all.add(t, method+" "+target[1], body, got)
		if m[1] != "" {
			session = got.Member("session")
		}
	}
	if lines := len(commandLine.FindAllString(text, -1)); lines != len(examples) {
		t.Errorf("%s: %d of %d commands have a status", page, len(examples), lines)
	}
	return len(examples)
}

// flagValues returns the quoted values of a flag of curl.
func flagValues(line, name string) (found []string) {
	for _, m := range regexp.MustCompile(name+` (?:'([^']*)'|"((?:[^"\\]|\\.)*)")`).FindAllStringSubmatch(line, -1) {
		found = append(found, m[1]+strings.ReplaceAll(m[2], `\"`, `"`))
	}
	return found
}
