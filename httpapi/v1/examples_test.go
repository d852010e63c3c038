package v1_test

import (
	"encoding/json"
	"flag"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/openapitest"
)

func apiPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// samples has what examples send and get, by the operationId of their route.
type samples map[string]sample

type sample struct {
	Request json.RawMessage            `json:"request,omitempty"`
	Replies map[string]json.RawMessage `json:"replies,omitempty"` // by status
}

// add records an example, the first of its route and status. It leaves out refusals, and the
// description itself.
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
	one := all[id]
	if one.Request == nil && json.Valid([]byte(body)) {
		one.Request = json.RawMessage(body)
	}
	if status := strconv.Itoa(got.Status); one.Replies[status] == nil && got.Body != nil {
		if one.Replies == nil {
			one.Replies = map[string]json.RawMessage{}
		}
		one.Replies[status] = json.RawMessage(got.Text)
	}
	if one.Request != nil || one.Replies != nil {
		all[id] = one
	}
}

// compare compares the samples with those that the description is made of.
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
		t.Errorf("%s differs from the examples of docs/api.md (%v): write it anew by go test ./httpapi/v1 -run TestDocsExamples -update, and openapi.json after it", file, err)
	}
}

// further are examples for the description that a reader of docs/api.md does not paste: they
// change the cluster.
var further = [][2]string{
	{"PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`},
	{"DELETE /v1/cluster/members/n2", ""},
	{"POST /v1/cluster/leader", `{"id":"n2"}`},
	{"PUT /v1/cluster/level", `{"level":3}`},
}

// Every example gets the reply that its comment says, in the order of the page.
func TestDocsExamples(t *testing.T) {
	a := apitest.New(t)
	a.Begin(fsm.StartTerm{Term: 3, Leader: "n1", Limits: fsm.DefaultLimits(), Cluster: fsm.ClusterID{15: 1}, Level: fsm.FeatureLevel}) // a backup needs a term
	example := regexp.MustCompile(`(?m)^    (SESSION=\$\()?curl (.+?)\s+# (\d+)$`)
	path := regexp.MustCompile(`["']?localhost:870[123](/[^\s"']*)`)
	flag := func(line, name string) []string {
		var found []string
		for _, m := range regexp.MustCompile(name+` (?:'([^']*)'|"((?:[^"\\]|\\.)*)")`).FindAllStringSubmatch(line, -1) {
			found = append(found, m[1]+strings.ReplaceAll(m[2], `\"`, `"`))
		}
		return found
	}
	session, examples, all := "", 0, samples{}
	for _, m := range example.FindAllStringSubmatch(apiPage(t), -1) {
		examples++
		line := strings.ReplaceAll(m[2], "$SESSION", session)
		method, body := "GET", strings.Join(flag(line, "-d"), "")
		if body != "" {
			method = "POST"
		}
		if given := regexp.MustCompile(`-X ([A-Z]+)`).FindStringSubmatch(line); given != nil {
			method = given[1]
		}
		target := path.FindStringSubmatch(line)
		if target == nil {
			t.Errorf("no address in %s", line)
			continue
		}
		var got apitest.Reply
		select {
		case got = <-a.GoDo(method+" "+target[1], body, append(flag(line, "-H"), "Content-Type: application/x-www-form-urlencoded")...):
		case <-time.After(10 * time.Second):
			t.Fatalf("%s\nwaits", m[0])
		}
		if m[3] != strconv.Itoa(got.Status) {
			t.Errorf("%s\nanswers %d: %s", m[0], got.Status, got.Text)
		}
		all.add(t, method+" "+target[1], body, got)
		if m[1] != "" {
			session = got.Member("session")
		}
	}
	if lines := strings.Count(apiPage(t), "curl "); examples < 30 || lines < examples {
		t.Errorf("%d examples run, of %d", examples, lines)
	}
	for _, one := range further {
		all.add(t, one[0], one[1], a.Do(one[0], one[1]))
	}
	all.add(t, "PUT /v1/snapshot", "", a.Do("PUT /v1/snapshot?cluster="+apitest.ClusterID, a.Do("GET /v1/snapshot", "").Text))
	all.compare(t)
}
