package terraform_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/internal/apitest"
	"github.com/signalbox/signalbox/httpapi/terraform"
)

func withTerraform(cfg *apitest.Config) {
	cfg.Dialects["terraform"] = func(x *exchange.Exchange) (exchange.Dialect, error) { return terraform.New(x), nil }
}

// lockOf is what the http backend sends.
func lockOf(id string) string {
	return fmt.Sprintf(`{"ID":%q,"Operation":"OperationTypeApply","Info":"","Who":"u@h","Version":"1.9.0","Created":"2026-01-02T03:04:05Z","Path":""}`, id)
}

const done = "200 text"

// TestLock: one client has the lock, and the others get what it sent. Both requests may be
// repeated.
func TestLock(t *testing.T) {
	apitest.InEachPlace(t, func(s *apitest.Site) {
		for i, c := range []struct{ request, id, want string }{
			{"UNLOCK /terraform/prod", "1", done},
			{"LOCK /terraform/prod", "1", done},
			{"LOCK /terraform/prod", "1", done},
			{"LOCK /terraform/prod", "2", "423 json " + lockOf("1")},
			{"LOCK /terraform/net%2Fprod", "2", done},
			{"UNLOCK /terraform/prod", "2", "409 json " + lockOf("1")},
			{"LOCK /terraform/prod", "2", "423 json " + lockOf("1")},
			{"UNLOCK /terraform/prod", "1", done},
			{"UNLOCK /terraform/prod", "1", done},
			{"LOCK /terraform/prod", "2", done},
			{"UNLOCK /terraform/prod", "", done}, // force-unlock sends no body
			{"LOCK /terraform/prod", "3", done},
		} {
			body := ""
			if c.id != "" {
				body = lockOf(c.id)
			}
			if got := s.Ask(c.request, body, "Content-Type: application/json").String(); got != c.want {
				s.Errorf("%d: %s of %s: %s, want %s", i, c.request, c.id, got, c.want)
			}
		}
	}, withTerraform)
}

// TestForeignItem: an item that is not a lock is in the way of one, and no client of this
// interface deletes it.
func TestForeignItem(t *testing.T) {
	s, node := apitest.OnAPI(t, withTerraform)
	if _, err := node.Do(t.Context(), cluster.Call{Command: fsm.ItemPut{Name: "prod", Value: "text"}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ request, body, want string }{
		{"LOCK /terraform/prod", lockOf("1"), "423 json text"},
		{"UNLOCK /terraform/prod", lockOf("1"), "409 json text"},
		{"UNLOCK /terraform/prod", "", "409 json text"},
	} {
		if got := s.Ask(c.request, c.body).String(); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.request, c.body, got, c.want)
		}
	}
}

// TestHostile: what is not a request of the backend changes nothing.
func TestHostile(t *testing.T) {
	s, node := apitest.OnAPI(t, withTerraform)
	s.Is(s.Ask("LOCK /terraform/held", lockOf("1")), done)
	before := node.State(t)
	for name, c := range map[string]struct {
		request, body string
		headers       []string
		status        int
	}{
		"no body":            {"LOCK /terraform/held", "", nil, 400},
		"no JSON":            {"LOCK /terraform/a", "a=b", nil, 400},
		"a list":             {"LOCK /terraform/a", "[]", nil, 400},
		"no id":              {"LOCK /terraform/a", "{}", nil, 400},
		"an empty id":        {"LOCK /terraform/a", `{"ID":""}`, nil, 400},
		"an id of a number":  {"LOCK /terraform/a", `{"ID":1}`, nil, 400},
		"too large":          {"LOCK /terraform/a", `{"ID":"` + strings.Repeat("a", 64<<10) + `"}`, nil, 413},
		"compressed":         {"LOCK /terraform/a", lockOf("1"), []string{"Content-Encoding: gzip"}, 415},
		"from a page":        {"LOCK /terraform/a", lockOf("1"), []string{"Origin: http://other.example"}, 403},
		"a control letter":   {"LOCK /terraform/a%0A", lockOf("1"), nil, 400},
		"a long name":        {"LOCK /terraform/" + strings.Repeat("a", 513), lockOf("1"), nil, 400},
		"no name":            {"LOCK /terraform/", lockOf("1"), nil, 404},
		"two segments":       {"LOCK /terraform/a/b", lockOf("1"), nil, 404},
		"another method":     {"POST /terraform/a", lockOf("1"), nil, 405},
		"unlock of no lock":  {"UNLOCK /terraform/held", "{}", nil, 400},
		"unlock by another":  {"UNLOCK /terraform/held", lockOf("2"), nil, 409},
		"unlock from a page": {"UNLOCK /terraform/held", "", []string{"Origin: http://other.example"}, 403},
	} {
		if got := s.Ask(c.request, c.body, c.headers...); got.Status != c.status || node.State(t) != before {
			t.Errorf("%s: %s, want %d", name, got, c.status)
		}
	}
}

// TestOff: without the dialect its path is no route.
func TestOff(t *testing.T) {
	apitest.New(t).Do("LOCK /terraform/a", lockOf("1")).RefusedWith(404, "unknown-route")
}
