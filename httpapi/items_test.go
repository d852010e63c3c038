package httpapi_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/test/apitest"
)

// Of items a client reads those that its prefixes cover, in lists and in its session, and waits
// only below one of these.
func TestItemsAreNarrowed(t *testing.T) {
	a := apitest.New(t, withTokens(t, accessClients...))
	const admin, ci, all = "Authorization: Bearer secret-admin", "Authorization: Bearer secret-uses-ci", "Authorization: Bearer secret-uses"
	session := a.Must(201, "POST /v1/sessions", `{"ttl":"1m"}`, all).Member("session")
	a.Must(201, "PUT /v1/items/ci%2Fa", `{"value":"v","session":"`+session+`"}`, all)
	a.Must(201, "PUT /v1/items/other", `{"value":"v","session":"`+session+`"}`, all)
	a.Do("GET /v1/items", "", all).Is(200, "items.length=2", "items.0.session="+session)
	a.Do("GET /v1/items", "", ci).Is(200, "items.length=1", "items.0.name=ci/a", "items.0.session="+session)
	a.Do("GET /v1/items?prefix=o", "", ci).Is(200, "items=[]")
	a.Do("GET /v1/items?prefix=ci/&index=1&wait=1ms", "", ci).Is(200, "items.length=1")
	for _, prefix := range []string{"", "c", "other"} {
		a.Do("GET /v1/items?prefix="+prefix+"&index=1&wait=1m", "", ci).RefusedWith(403, "forbidden")
	}
	a.Do("GET /v1/items/other?index=1&wait=1m", "", ci).RefusedWith(403, "forbidden")
	a.Do("PUT /v1/items/ci%2Fa", `{"value":"w","session":"`+session+`"}`, ci).RefusedWith(404, "unknown-session") // of another identity
	a.Do("GET /v1/sessions/"+session, "", admin).Is(200, "items.length=2")
	a.Do("GET /v1/sessions/"+session, "", all).Is(200, "items.length=2")
	ciSession := a.Must(201, "POST /v1/sessions", `{"ttl":"1m","about":"x"}`, ci).Member("session")
	a.Must(201, "PUT /v1/items/ci%2Fb", `{"value":"w","session":"`+ciSession+`"}`, ci)
	a.Do("GET /v1/sessions/"+ciSession, "", ci).Is(200, "items.length=1", "items.0=ci/b")
	a.Do("DELETE /v1/items/other", "", ci).RefusedWith(403, "forbidden")
	a.Do("DELETE /v1/items/ci%2Fa", "", ci).Is(204) // held or not
}

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
	tail := `"item":"ci/a","session":"` + session + `","outcome":"ok"}`
	want := []string{
		`{"index":1,` + who + `"open-holder","session":"` + session + `","outcome":"ok"}`,
		`{"index":2,` + who + `"item-put","item":"ci/a","outcome":"ok"}`,
		`{"index":3,` + who + `"item-acquire",` + tail,
		`{"index":4,` + who + `"item-put","item":"ci/a","outcome":"item-differs"}`,
		`{` + who + `"item-put","item":"web/a","outcome":"forbidden","reason":"No prefix of this identity covers the name. An operator adds prefixes to its token."}`,
		`{"index":5,` + who + `"item-release",` + tail,
		`{"index":6,` + who + `"item-delete","item":"ci/a","outcome":"ok"}`,
	}
	if got := l.end(t); !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if logged.Len() == 0 || strings.Contains(logged.String(), value) {
		t.Errorf("the log has a value, or nothing:\n%s", &logged)
	}
}
