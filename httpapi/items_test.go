package httpapi_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/test/apitest"
)

// The audit log has who changed which item, and never a value; nor has the log of a node.
func TestAuditOfItems(t *testing.T) {
	var logged bytes.Buffer
	a, l := audited(t, func(cfg *apitest.Config) {
		cfg.Exchange.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: &logged})
	})
	const value = "c2VjcmV0LXZhbHVl"
	do := func(status int, line, body string) apitest.Reply {
		return a.Must(status, line, body, as("ci"), "X-Request-Id: q")
	}
	session := do(201, "POST /v1/sessions", `{"ttl":"1m","about":"of `+value+`"}`).Member("session")
	do(201, "PUT /v1/items/ci%2Fa", `{"value":"`+value+`"}`)
	do(200, "PUT /v1/items/ci%2Fa", `{"value_base64":"`+value+`","session":"`+session+`"}`)
	do(409, "PUT /v1/items/ci%2Fa", `{"value":"`+value+`","if_version":9}`)
	do(403, "PUT /v1/items/web%2Fa", `{"value":"`+value+`"}`)
	do(400, "PUT /v1/items/ci%2Fa", `{"value":"`+value+`","release":true}`)
	do(200, "POST /v1/batch", `{"operations":[{"op":"item-release","item":"ci/a","session":"`+session+`","value":"`+value+`"},{"op":"item-delete","item":"ci/a"}]}`)
	const who = `"identity":"ci","remote":"192.0.2.1","request":"q","operation":`
	own := `"item":"ci/a","session":"` + session + `","outcome":"ok"}`
	want := []string{
		`{"index":1,` + who + `"open-holder","session":"` + session + `","outcome":"ok"}`,
		`{"index":2,` + who + `"item-put","item":"ci/a","outcome":"ok"}`,
		`{"index":3,` + who + `"item-acquire",` + own,
		`{"index":4,` + who + `"item-put","item":"ci/a","outcome":"item-differs"}`,
		`{` + who + `"item-put","item":"web/a","outcome":"forbidden","reason":"No prefix of this identity covers the name. An operator adds prefixes to its token."}`,
		`{"index":5,` + who + `"item-release",` + own,
		`{"index":6,` + who + `"item-delete","item":"ci/a","outcome":"ok"}`,
	}
	if got := l.end(t); !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if logged.Len() == 0 || strings.Contains(logged.String(), value) {
		t.Errorf("the log has a value, or nothing:\n%s", &logged)
	}
}
