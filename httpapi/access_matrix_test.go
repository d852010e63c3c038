package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/httpapi/internal/apitest"
)

// rights is a row of the matrix: the rights that a route needs, and a request to it.
type rights struct {
	scope access.Scope // 0: no token
	named bool         // the request names a semaphore, N in path, query and body
	all   bool         // the reply has names of all prefixes
	query string
	body  string
}

// routeRights has a row for each route, HEAD beside GET.
var routeRights = map[string]rights{
	"PUT /v1/semaphores/:name":                     {scope: access.Use, named: true, body: `{"permits":3}`},
	"PATCH /v1/semaphores/:name":                   {scope: access.Use, named: true, body: `{"permits":3}`},
	"POST /v1/semaphores":                          {scope: access.Use, named: true, body: `{"name":"N","permits":3}`},
	"GET /v1/semaphores":                           {scope: access.Read},
	"GET /v1/semaphores/:name":                     {scope: access.Read, named: true, query: "?index=0&wait=1s"},
	"DELETE /v1/semaphores/:name":                  {scope: access.Use, named: true},
	"PUT /v1/semaphores/:name/value":               {scope: access.Use, named: true, body: `{"value":1}`},
	"POST /v1/semaphores/:name/up":                 {scope: access.Use, named: true},
	"POST /v1/semaphores/:name/down":               {scope: access.Use, named: true},
	"POST /v1/semaphores/:name/leases":             {scope: access.Use, named: true},
	"DELETE /v1/semaphores/:name/holders/:session": {scope: access.Admin, named: true},
	"POST /v1/sessions":                            {scope: access.Use, body: `{"ttl":"1m"}`},
	"GET /v1/sessions":                             {scope: access.Read},
	"GET /v1/sessions/:id":                         {scope: access.Read},
	"PUT /v1/sessions/:id":                         {scope: access.Use},
	"DELETE /v1/sessions/:id":                      {scope: access.Use},
	"POST /v1/sessions/:id/revoke":                 {scope: access.Admin},
	"PUT /v1/sessions/:id/leases/:name":            {scope: access.Use, named: true},
	"GET /v1/sessions/:id/leases/:name":            {scope: access.Read, named: true},
	"PATCH /v1/sessions/:id/leases/:name":          {scope: access.Use, named: true, body: `{"count":1}`},
	"DELETE /v1/sessions/:id/leases/:name":         {scope: access.Use, named: true},
	"POST /v1/sessions/:id/acquire":                {scope: access.Use, named: true, body: `{"mode":"any","semaphores":[{"name":"ci/z","count":1},{"name":"N","count":1}]}`},
	"POST /v1/sessions/:id/restore":                {scope: access.Use, named: true, body: `{"ttl":1000,"leases":[{"name":"N","count":1}]}`},
	"PUT /v1/sessions/:id/waitlist/:name":          {scope: access.Use, named: true},
	"DELETE /v1/sessions/:id/waitlist/:name":       {scope: access.Use, named: true},
	"POST /v1/sessions/:id/waitlist/wait":          {scope: access.Use},
	"POST /v1/batch":                               {scope: access.Read, body: `{"operations":[]}`}, // each operation by itself
	"GET /v1/openapi.json":                         {},
	"GET /v1/events":                               {scope: access.Read, named: true, query: "?name=N"},
	"GET /v1/cluster":                              {scope: access.Read},
	"PUT /v1/cluster/members/:member":              {scope: access.Admin, body: `{"peer":"n9:8711"}`},
	"DELETE /v1/cluster/members/:member":           {scope: access.Admin},
	"POST /v1/cluster/leader":                      {scope: access.Admin},
	"PUT /v1/cluster/level":                        {scope: access.Admin, body: `{"level":1}`},
	"GET /v1/snapshot":                             {scope: access.Admin},
	"PUT /v1/snapshot":                             {scope: access.Admin},
	"GET /livez":                                   {},
	"GET /readyz":                                  {query: "?verbose"},
	"GET /health":                                  {},
	"GET /version":                                 {},
	"GET /metrics":                                 {scope: access.Read, all: true},
	"GET /problems/:code":                          {},
	"GET /":                                        {},
	"GET /favicon.ico":                             {},
	"POST /new_peer":                               {scope: access.Use, body: `{"expires_in":"1m"}`},
	"GET /peers/":                                  {scope: access.Read},
	"PUT /peers/:id":                               {scope: access.Use, body: `{"expires_in":"1m"}`},
	"DELETE /peers/:id":                            {scope: access.Use},
	"GET /peers/:id/is_acquired":                   {scope: access.Read},
	"PUT /peers/:id/:semaphore":                    {scope: access.Use, named: true, body: `1`},
	"DELETE /peers/:id/:semaphore":                 {scope: access.Use, named: true},
	"GET /remainder":                               {scope: access.Read, named: true, query: "?semaphore=N"},
	"POST /restore":                                {scope: access.Use, named: true, body: `{"peer_id":7,"expires_in":"1m","acquired":{"N":1}}`},
	"POST /semaphore":                              {scope: access.Use, named: true, body: `{"name":"N","value":1}`},
	"DELETE /semaphore/:name":                      {scope: access.Use, named: true},
	"GET /semaphore/value/:name":                   {scope: access.Read, named: true},
	"POST /semaphore/up":                           {scope: access.Use, named: true, body: `{"name":"N"}`},
	"POST /semaphore/down":                         {scope: access.Use, named: true, body: `{"name":"N"}`},
}

// client is a column of the matrix: an identity of the file of tokens.
type client struct {
	name   string // "": no token; its token is secret-NAME
	scope  access.Scope
	prefix string
}

var accessClients = []client{
	{"reads", access.Read, ""}, {"uses", access.Use, ""}, {"admin", access.Admin, ""},
	{"reads-ci", access.Read, "ci/"}, {"uses-ci", access.Use, "ci/"}, {"stranger", 0, ""}, {"", 0, ""},
}

// accessFile writes the file of tokens of clients.
func accessFile(t *testing.T, clients ...client) string {
	t.Helper()
	text := ""
	for _, c := range clients {
		if c.scope == 0 {
			continue
		}
		sum := sha256.Sum256([]byte("secret-" + c.name))
		text += fmt.Sprintf("[[token]]\nname = %q\nhash = \"sha256:%s\"\nscopes = [%q]\n", c.name, hex.EncodeToString(sum[:]), c.scope)
		if c.prefix != "" {
			text += fmt.Sprintf("prefixes = [%q]\n", c.prefix)
		}
	}
	path := filepath.Join(t.TempDir(), "tokens.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// withTokens serves both dialects to clients with tokens alone.
func withTokens(t *testing.T, clients ...client) func(*apitest.Config) {
	tokens, err := access.Open(accessFile(t, clients...))
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *apitest.Config) {
		cfg.Exchange.Tokens = tokens
		withNodeRED(cfg)
		withThrottle(cfg)
	}
}

// forms are the ways in which a request carries a token.
var forms = []func(token string) string{
	func(token string) string { return "Bearer " + token },
	func(token string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+token)) },
	func(token string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(token+":")) },
}

// ask sends a row's request, with a semaphore's name.
func (r rights) ask(a *apitest.API, route, name, authorization string) *httptest.ResponseRecorder {
	a.Helper()
	method, path, _ := strings.Cut(route, " ")
	target := strings.NewReplacer(":name", url.PathEscape(name), ":semaphore", url.PathEscape(name), ":id", "77", ":session", "77", ":member", "n2", ":code", "over").Replace(path)
	inserted := strings.NewReplacer("N", name)
	request := httptest.NewRequest(method, target+inserted.Replace(r.query), strings.NewReader(inserted.Replace(r.body)))
	request.Header.Set("X-Request-Id", "same")
	if r.body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	if path == "/v1/events" {
		ctx, cancel := context.WithCancel(request.Context())
		cancel() // the stream ends at once
		request = request.WithContext(ctx)
	}
	w := httptest.NewRecorder()
	a.Handler.ServeHTTP(w, request)
	return w
}

// allows reports whether a client may send a row's request with a name.
func (c client) allows(r rights, name string) bool {
	return c.scope >= r.scope && (!r.named || strings.HasPrefix(name, c.prefix)) && (!r.all || c.prefix == "")
}

// TestAccessMatrix asks every route as every client, with each form of token and names
// inside and outside of its prefix. A route without a row fails.
func TestAccessMatrix(t *testing.T) {
	a := apitest.New(t, withTokens(t, accessClients...))
	cells, seen := 0, map[string]bool{}
	for _, route := range a.Handler.RouteNames() {
		row, known := routeRights[strings.Replace(route, "HEAD ", "GET ", 1)]
		if !known {
			t.Errorf("%s has no row: decide which scope it needs, and whether it names semaphores", route)
			continue
		}
		seen[strings.Replace(route, "HEAD ", "GET ", 1)] = true
		if _, path, _ := strings.Cut(route, " "); httpapi.OpenRoute(path) != (row.scope == 0) {
			t.Errorf("%s is open: %v", route, httpapi.OpenRoute(path))
		}
		for _, c := range accessClients {
			for _, name := range []string{"ci/x", "other/x"} {
				for i, form := range forms {
					authorization := ""
					if c.name != "" {
						authorization = form("secret-" + c.name)
					} else if i > 0 {
						continue
					}
					cells++
					got := row.ask(a, route, name, authorization)
					checkCell(t, fmt.Sprintf("%s of %s by %q", route, name, c.name), c, row, name, got)
				}
			}
		}
	}
	for route := range routeRights {
		if !seen[route] {
			t.Errorf("%s is no route", route)
		}
	}
	t.Logf("%d routes, %d cells", len(a.Handler.RouteNames()), cells)
}

func checkCell(t *testing.T, cell string, c client, row rights, name string, got *httptest.ResponseRecorder) {
	t.Helper()
	status, text := got.Code, got.Body.String()
	challenged := len(got.Header()["Www-Authenticate"]) == 2
	switch {
	case row.scope == 0:
		if status != 200 {
			t.Errorf("%s: %d %s", cell, status, text)
		}
	case c.scope == 0:
		if status != 401 || !challenged {
			t.Errorf("%s: %d, challenged %v: %s", cell, status, challenged, text)
		}
	case !c.allows(row, name):
		if status != 403 || challenged {
			t.Errorf("%s: %d, want 403: %s", cell, status, text)
		}
	case status == 401 || status == 403 || status >= 500 || status == 405 || status == 415 || status == 400 && !strings.HasPrefix(text, "Unknown"):
		t.Errorf("%s: %d %s", cell, status, text)
	}
}

// TestNamesOutsideShowNothing: the reply to a client whose prefixes do not cover a name is
// the same whether the semaphore exists or not.
func TestNamesOutsideShowNothing(t *testing.T) {
	a := apitest.New(t, withTokens(t, accessClients...))
	a.Must(201, "PUT /v1/semaphores/other%2Fa", `{"permits":1}`, "Authorization: Bearer secret-admin")
	for route, row := range routeRights {
		if !row.named {
			continue
		}
		there := row.ask(a, route, "other/a", "Bearer secret-uses-ci")
		missing := row.ask(a, route, "other/b", "Bearer secret-uses-ci")
		if there.Code != 403 || missing.Code != 403 || strings.ReplaceAll(there.Body.String(), "other/a", "other/b") != missing.Body.String() {
			t.Errorf("%s: %d %s\n%d %s", route, there.Code, there.Body, missing.Code, missing.Body)
		}
	}
}

// TestUnknownRoutesNeedAToken: a stranger does not learn which paths are routes.
func TestUnknownRoutesNeedAToken(t *testing.T) {
	a := apitest.New(t, withTokens(t, accessClients...))
	for _, line := range []string{"GET /v1/nothing", "GET /", "PATCH /v1/batch", "GET /v1/semaphores/a/b", "GET /livez/", "BREW /peers/1", "OPTIONS /v1/batch"} {
		want := 401
		if line == "GET /" {
			want = 200
		}
		if got := a.Do(line, ""); got.Status != want {
			t.Errorf("%s: %d", line, got.Status)
		}
	}
	a.Do("GET /v1/nothing", "", "Authorization: Bearer secret-reads").RefusedWith(404, "unknown-route")
	a.Do("PATCH /v1/batch", "", "Authorization: Bearer secret-reads").RefusedWith(405, "method-not-allowed")
}

// batchOperations has a request for each operation of a batch, and the scope it needs.
var batchOperations = map[string]rights{
	"put":            {scope: access.Use, named: true, body: `"semaphore":"N","permits":1`},
	"patch":          {scope: access.Use, named: true, body: `"semaphore":"N","permits":1`},
	"create":         {scope: access.Use, named: true, body: `"semaphore":"N","permits":1`},
	"delete":         {scope: access.Use, named: true, body: `"semaphore":"N"`},
	"set":            {scope: access.Use, named: true, body: `"semaphore":"N","value":1`},
	"up":             {scope: access.Use, named: true, body: `"semaphore":"N"`},
	"down":           {scope: access.Use, named: true, body: `"semaphore":"N"`},
	"acquire-once":   {scope: access.Use, named: true, body: `"semaphore":"N"`},
	"acquire":        {scope: access.Use, named: true, body: `"semaphore":"N","session":"77"`},
	"acquire-many":   {scope: access.Use, named: true, body: `"session":"77","mode":"all","semaphores":[{"name":"N","count":1}]`},
	"release":        {scope: access.Use, named: true, body: `"semaphore":"N","session":"77"`},
	"resize":         {scope: access.Use, named: true, body: `"semaphore":"N","session":"77","count":1`},
	"revoke":         {scope: access.Admin, named: true, body: `"semaphore":"N","session":"77"`},
	"open":           {scope: access.Use, body: `"ttl":"1m"`},
	"renew":          {scope: access.Use, body: `"session":"77"`},
	"end":            {scope: access.Use, body: `"session":"77"`},
	"revoke-session": {scope: access.Admin, body: `"session":"77"`},
	"restore":        {scope: access.Use, named: true, body: `"session":"77","ttl":"1m","leases":[{"name":"N","count":1}]`},
	"list-add":       {scope: access.Use, named: true, body: `"semaphore":"N","session":"77"`},
	"list-remove":    {scope: access.Use, named: true, body: `"semaphore":"N","session":"77"`},
	"list-deliver":   {scope: access.Use, body: `"session":"77"`},
}

// TestAccessOfBatches: each operation of a batch is refused or performed by itself.
func TestAccessOfBatches(t *testing.T) {
	a := apitest.New(t, withTokens(t, accessClients...))
	names := make([]string, 0, len(batchOperations))
	for name := range batchOperations {
		names = append(names, name)
	}
	slices.Sort(names)
	cells := 0
	for _, c := range accessClients {
		if c.scope == 0 {
			continue
		}
		for _, name := range []string{"ci/x", "other/x"} {
			var operations []string
			for _, op := range names {
				operations = append(operations, `{"op":"`+op+`",`+strings.ReplaceAll(batchOperations[op].body, `"N"`, `"`+name+`"`)+`}`)
			}
			got := a.Do("POST /v1/batch", `{"operations":[`+strings.Join(operations, ",")+`]}`, "Authorization: Bearer secret-"+c.name).Is(200)
			for i, op := range names {
				cells++
				status := got.Member(fmt.Sprintf("results.%d.status", i))
				if allowed := c.allows(batchOperations[op], name); allowed == (status == "403") || status == "400" || status == "absent" {
					t.Errorf("%s of %s by %s: %s, allowed %v", op, name, c.name, status, allowed)
				}
			}
		}
	}
	t.Logf("%d operations, %d cells", len(names), cells)
}
