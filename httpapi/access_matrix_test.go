package httpapi_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/test/apitest"
)

// scene is the state before a request. There are the semaphores N, ci/z and fleetlock/g with 5 permits each,
// an item ci/z, and a session 77 of the client.
type scene int

const (
	holds   scene = iota // 77 has two permits of N, and holds the item N
	idle                 // it has none
	alone                // there is no session
	missing              // there is no semaphore N either
	listed               // a permit of N waits on the list of 77 for its delivery
	kept                 // 77 is a session of Consul's kind, and holds the item N
	grouped              // as holds, and N has groups, of which acme has an own limit
	lost                 // a lease of N, with token 1, was lost
)

// rights is a row of the matrix: the rights that a route needs, a request to it, and its effect
// where it is allowed.
type rights struct {
	scope  access.Scope // 0: no token
	named  bool         // the request names a semaphore or an item, N in path, query and body
	all    bool         // the reply has names of all prefixes
	lists  bool         // the reply has N from the list of the session
	query  string
	body   string
	scene  scene
	status int    // of the reply; 0: 200
	shows  string // what the reply has, N in it too
	reads  bool   // it changes nothing that apitest.Node.State shows, though it is no GET
}

// routeRights has a row for each route, HEAD beside GET.
var routeRights = map[string]rights{
	"PUT /v1/semaphores/:name":                     {scope: access.Use, named: true, body: `{"permits":3}`, shows: `"permits":3`},
	"PATCH /v1/semaphores/:name":                   {scope: access.Use, named: true, body: `{"permits":3}`, shows: `"permits":3`},
	"POST /v1/semaphores":                          {scope: access.Use, named: true, body: `{"name":"N","permits":3}`, scene: missing, status: 201, shows: `"N"`},
	"GET /v1/semaphores":                           {scope: access.Read, shows: `"ci/z"`},
	"GET /v1/semaphores/:name":                     {scope: access.Read, named: true, query: "?index=0&wait=1s", shows: `"N"`},
	"GET /v1/semaphores/:name/holders":             {scope: access.Read, named: true, shows: `"77"`},
	"GET /v1/semaphores/:name/waiters":             {scope: access.Read, named: true, shows: `"waiters":[]`},
	"GET /v1/semaphores/:name/groups":              {scope: access.Read, named: true, scene: grouped, shows: `"acme"`},
	"GET /v1/semaphores/:name/groups/:group":       {scope: access.Read, named: true, scene: grouped, shows: `"own":true`},
	"GET /v1/semaphores/:name/lost":                {scope: access.Read, named: true, scene: lost, shows: `"token":1`},
	"DELETE /v1/semaphores/:name/lost/:token":      {scope: access.Use, named: true, scene: lost, status: 204},
	"PUT /v1/semaphores/:name/groups/:group":       {scope: access.Use, named: true, scene: grouped, body: `{"limit":3}`, shows: `"limit":3`},
	"DELETE /v1/semaphores/:name":                  {scope: access.Use, named: true, status: 204},
	"PUT /v1/semaphores/:name/value":               {scope: access.Use, named: true, body: `{"value":1}`, shows: `"value":1`},
	"POST /v1/semaphores/:name/up":                 {scope: access.Use, named: true, shows: `"value":4`},
	"POST /v1/semaphores/:name/down":               {scope: access.Use, named: true, shows: `"granted":1`},
	"POST /v1/semaphores/:name/leases":             {scope: access.Use, named: true, status: 201, shows: `"token"`},
	"DELETE /v1/semaphores/:name/holders/:session": {scope: access.Admin, named: true, status: 204},
	"POST /v1/sessions":                            {scope: access.Use, body: `{"ttl":"1m"}`, status: 201, shows: `"session"`},
	"GET /v1/sessions":                             {scope: access.Read, shows: `"77"`},
	"GET /v1/sessions/:id":                         {scope: access.Read, shows: `"77"`},
	"PUT /v1/sessions/:id":                         {scope: access.Use, shows: `"77"`},
	"DELETE /v1/sessions/:id":                      {scope: access.Use, status: 204},
	"POST /v1/sessions/:id/revoke":                 {scope: access.Admin, status: 204},
	"GET /v1/sessions/:id/leases":                  {scope: access.Read, shows: `"leases":[`},
	"PUT /v1/sessions/:id/leases/:name":            {scope: access.Use, named: true, scene: idle, shows: `"token"`},
	"GET /v1/sessions/:id/leases/:name":            {scope: access.Read, named: true, shows: `"token"`},
	"PATCH /v1/sessions/:id/leases/:name":          {scope: access.Use, named: true, body: `{"count":1}`, shows: `"count":1`},
	"DELETE /v1/sessions/:id/leases/:name":         {scope: access.Use, named: true, status: 204},
	"POST /v1/sessions/:id/acquire":                {scope: access.Use, named: true, body: `{"mode":"any","semaphores":[{"name":"ci/z","count":1},{"name":"N","count":1}]}`, scene: idle, shows: `"token"`},
	"POST /v1/sessions/:id/restore":                {scope: access.Use, named: true, body: `{"ttl":1000,"leases":[{"name":"N","count":1}]}`, scene: alone, shows: `"N"`},
	"PUT /v1/sessions/:id/waitlist/:name":          {scope: access.Use, named: true, shows: `"granted":1`},
	"DELETE /v1/sessions/:id/waitlist/:name":       {scope: access.Use, named: true, scene: listed, status: 204},
	"POST /v1/sessions/:id/waitlist/wait":          {scope: access.Use, lists: true, scene: listed, shows: `"N"`},
	"GET /v1/items":                                {scope: access.Read, query: "?prefix=ci/", shows: `"ci/z"`},
	"GET /v1/items/:name":                          {scope: access.Read, named: true, query: "?index=0&wait=1s", shows: `"N"`},
	"PUT /v1/items/:name":                          {scope: access.Use, named: true, body: `{"value":"w","session":"77"}`, shows: `"N"`},
	"DELETE /v1/items/:name":                       {scope: access.Use, named: true, status: 204},
	"POST /v1/batch":                               {scope: access.Read, body: `{"operations":[]}`, reads: true, shows: `"results":[]`}, // each operation by itself
	"GET /v1/openapi.json":                         {shows: `"openapi"`},
	"GET /v1/events":                               {scope: access.Read, named: true, query: "?name=N"},
	"GET /v1/cluster":                              {scope: access.Read, shows: `"n2:8711"`},
	"PUT /v1/cluster/members/:member":              {scope: access.Admin, body: `{"peer":"n9:8711"}`},
	"DELETE /v1/cluster/members/:member":           {scope: access.Admin},
	"POST /v1/cluster/leader":                      {scope: access.Admin},
	"PUT /v1/cluster/level":                        {scope: access.Admin, body: `{"level":1}`},
	"PUT /v1/cluster/tokens":                       {scope: access.Admin, body: `{"above":1000000}`, reads: true, shows: "1000000"},
	"GET /v1/snapshot":                             {scope: access.Admin, shows: "SBBACKUP"},
	"PUT /v1/snapshot":                             {scope: access.Admin, query: "?cluster=" + apitest.ClusterID, body: aBackup},
	"GET /livez":                                   {shows: "Ok"},
	"GET /readyz":                                  {query: "?verbose"},
	"GET /health":                                  {shows: "Ok"},
	"GET /version":                                 {shows: "1.2.3"},
	"GET /metrics":                                 {scope: access.Metrics, all: true, shows: "go_goroutines"},
	"GET /problems/:code":                          {shows: "over"},
	"GET /":                                        {},
	"GET /favicon.ico":                             {},
	"POST /new_peer":                               {scope: access.Use, body: `{"expires_in":"1m"}`},
	"GET /peers/":                                  {scope: access.Read, shows: "77"},
	"PUT /peers/:id":                               {scope: access.Use, body: `{"expires_in":"1m"}`, shows: "Ok"},
	"DELETE /peers/:id":                            {scope: access.Use, shows: "Peer released"},
	"GET /peers/:id/is_acquired":                   {scope: access.Read, shows: "true"},
	"PUT /peers/:id/:semaphore":                    {scope: access.Use, named: true, body: `1`, scene: idle},
	"DELETE /peers/:id/:semaphore":                 {scope: access.Use, named: true, shows: "Ok"},
	"GET /remainder":                               {scope: access.Read, named: true, query: "?semaphore=N", shows: "3"},
	"POST /restore":                                {scope: access.Use, named: true, body: `{"peer_id":77,"expires_in":"1m","acquired":{"N":1}}`, scene: alone, shows: "Ok"},
	"POST /semaphore":                              {scope: access.Use, named: true, body: `{"name":"N","value":1}`, scene: missing, shows: `"N"`},
	"DELETE /semaphore/:name":                      {scope: access.Use, named: true},
	"GET /semaphore/value/:name":                   {scope: access.Read, named: true, shows: "3"},
	"POST /semaphore/up":                           {scope: access.Use, named: true, body: `{"name":"N"}`, shows: "4"},
	"POST /semaphore/down":                         {scope: access.Use, named: true, body: `{"name":"N"}`, shows: "2"},
	"PUT /v1/session/create":                       {scope: access.Use, shows: `"ID"`},
	"PUT /v1/session/renew/:id":                    {scope: access.Use, scene: kept, shows: `"Behavior":"release"`},
	"PUT /v1/session/destroy/:id":                  {scope: access.Use, scene: kept, shows: "true"},
	"GET /v1/session/info/:id":                     {scope: access.Read, scene: kept, shows: `"Behavior":"release"`},
	"GET /v1/session/list":                         {scope: access.Read, scene: kept, shows: `"Behavior":"release"`},
	"GET /v1/session/node/:node":                   {scope: access.Read, scene: kept, shows: `"Behavior":"release"`},
	"GET /v1/kv/*":                                 {scope: access.Read, named: true, scene: kept, query: "?recurse", shows: `"N"`},
	"PUT /v1/kv/*":                                 {scope: access.Use, named: true, scene: kept, body: "w", shows: "true"},
	"GET /terraform/*":                             {scope: access.Read, all: true, status: 404}, // terraform/N, which no prefix of a client covers
	"LOCK /terraform/*":                            {scope: access.Use, all: true, body: `{"ID":"1"}`},
	"UNLOCK /terraform/*":                          {scope: access.Use, all: true, reads: true}, // there is no lock
	"POST /terraform/*":                            {scope: access.Use, all: true, body: `{"serial":1}`},
	"PUT /terraform/*":                             {scope: access.Use, all: true, body: `{"serial":1}`},
	"PATCH /terraform/*":                           {scope: access.Use, all: true, body: `{"serial":1}`},
	"DELETE /terraform/*":                          {scope: access.Use, all: true, reads: true},                                                   // there is no state
	"POST /v1/pre-reboot":                          {scope: access.Use, all: true, body: `{"client_params":{"id":"m","group":"g"}}`},              // of fleetlock/g, which no prefix of a client covers
	"POST /v1/steady-state":                        {scope: access.Use, all: true, body: `{"client_params":{"id":"m","group":"g"}}`, reads: true}, // the machine has no slot
	"DELETE /v1/kv/*":                              {scope: access.Use, named: true, scene: kept, query: "?recurse", shows: "true"},
	"GET /v1/agent/self":                           {scope: access.Read, shows: "n1"},
	"GET /v1/status/leader":                        {scope: access.Read, shows: "n1:8711"},
	"GET /v1/status/peers":                         {scope: access.Read, shows: "n2:8711"},
	"GET /v1/catalog/nodes":                        {scope: access.Read, shows: "n2"},
	"GET /v1/health/node/:node":                    {scope: access.Read, shows: "serfHealth"},
	"PUT /v1/session/renew/":                       {scope: access.Read, status: 400, shows: "Missing", reads: true},
	"PUT /v1/session/destroy/":                     {scope: access.Read, status: 400, shows: "Missing", reads: true},
	"GET /v1/session/info/":                        {scope: access.Read, status: 400, shows: "Missing"},
	"GET /v1/session/node/":                        {scope: access.Read, status: 400, shows: "Missing"},
	"GET /v1/health/node/":                         {scope: access.Read, status: 400, shows: "Missing"},
}

// aBackup is the body of a row that stands for the backup of the scene.
const aBackup = "a backup"

// client is a column of the matrix: an identity of the file of tokens.
type client struct {
	name   string // "": no token; its token is secret-NAME
	scope  access.Scope
	prefix string
}

var accessClients = []client{
	{"reads", access.Read, ""}, {"uses", access.Use, ""}, {"admin", access.Admin, ""},
	{"scrapes", access.Metrics, ""}, {"reads-ci", access.Read, "ci/"}, {"uses-ci", access.Use, "ci/"}, {"stranger", 0, ""}, {"", 0, ""},
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

// withTokens serves all dialects to clients with tokens alone.
func withTokens(t *testing.T, clients ...client) func(*apitest.Config) {
	tokens, err := access.Open(accessFile(t, clients...))
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *apitest.Config) {
		cfg.Exchange.Tokens = tokens
		withNodeRED(cfg)
		withThrottle(cfg)
		withConsul(cfg)
		withFleetLock(cfg)
		withTerraform(cfg)
	}
}

// forms are the ways in which a request carries a token.
var forms = []func(token string) string{
	func(token string) string { return "Bearer " + token },
	func(token string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+token)) },
	func(token string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(token+":")) },
}

// request returns a row's request, with a semaphore's name.
func (r rights) request(a *apitest.API, route, name, authorization string) *http.Request {
	a.Helper()
	method, path, _ := strings.Cut(route, " ")
	session := "77"
	if strings.HasPrefix(path, "/v1/session/") {
		session = "5369676e-616c-626f-0000-00000000004d" // the same, as Consul's clients have it
	}
	target := strings.NewReplacer(":name", url.PathEscape(name), ":semaphore", url.PathEscape(name), "*", url.PathEscape(name), ":id", session,
		":session", session, ":group", "acme", ":token", "1", ":member", "n2", ":node", "n1", ":code", "over").Replace(path)
	inserted := strings.NewReplacer("N", name)
	body := inserted.Replace(r.body)
	if r.body == aBackup {
		body = backupOf(a)
	}
	request := httptest.NewRequest(method, target+inserted.Replace(r.query), strings.NewReader(body))
	request.Header.Set("X-Request-Id", "same")
	request.Header.Set("fleet-lock-protocol", "true")
	if r.body == aBackup {
		request.Header.Set("Content-Type", "application/octet-stream")
	} else if r.body != "" {
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
	return request
}

// ask sends a row's request, with a semaphore's name.
func (r rights) ask(a *apitest.API, route, name, authorization string) *httptest.ResponseRecorder {
	a.Helper()
	w := httptest.NewRecorder()
	a.Handler.ServeHTTP(w, r.request(a, route, name, authorization))
	return w
}

// allows reports whether a client may send a row's request with a name.
func (c client) allows(r rights, name string) bool {
	return c.scope >= r.scope && (!r.named && !r.lists || strings.HasPrefix(name, c.prefix)) && (!r.all || c.prefix == "")
}

// backupOf returns a backup of the state.
func backupOf(a *apitest.API) string {
	a.Helper()
	b, err := a.Node.Backup(a.Context())
	var file strings.Builder
	if err == nil {
		err = b.Write(&file)
	}
	if err != nil {
		a.Fatal(err)
	}
	return file.String()
}

// set makes the state of a scene, with a session of the client. It is new for each cell.
func (s scene) set(a *apitest.API, name, owner string) {
	a.Helper()
	a.Node.Clear()
	do := func(command fsm.Command) {
		a.Helper()
		if reply, err := a.Node.Do(a.Context(), calls.Call{Command: command, Owner: owner}); err != nil || reply.Code != fsm.OK {
			a.Fatalf("%+v: %v, %v", command, reply.Code, err)
		}
	}
	do(fsm.StartTerm{Term: 3, Leader: "n1", Limits: fsm.DefaultLimits(), Level: fsm.FeatureLevel})
	do(fsm.CreateSemaphore{Name: "ci/z", Permits: 5})
	do(fsm.CreateSemaphore{Name: "fleetlock/g", Permits: 5})
	do(fsm.ItemPut{Name: "ci/z", Value: "v"})
	if s != missing {
		do(fsm.CreateSemaphore{Name: name, Permits: 5})
	}
	switch s {
	case missing, alone:
	case kept:
		do(fsm.OpenHolder{Session: 77, TTLMS: 60_000, About: "consul node=n1 ttl=15s delay=0 checks=1 name=x"})
		do(fsm.ItemAcquire{Session: 77, Name: name, Value: "v"})
	default:
		do(fsm.OpenSession{Session: 77, TTLMS: 60_000})
	}
	switch s {
	case grouped:
		do(fsm.PutSemaphore{Name: name, Settings: fsm.SettingsChange{Groups: fsm.Change[fsm.Grouping]{Given: true, Value: fsm.ByRequest}}})
		do(fsm.GroupPut{Name: name, Group: "acme", Limit: 2})
		fallthrough
	case holds:
		do(fsm.Acquire{Session: 77, Name: name, Count: 2, TTLMS: fsm.KeepTTL})
		do(fsm.ItemAcquire{Session: 77, Name: name, Value: "v"})
	case lost:
		do(fsm.PutSemaphore{Name: name, Settings: fsm.SettingsChange{OnLostMS: fsm.Change[int64]{Given: true, Value: fsm.Quarantine}}})
		do(fsm.AcquireOnce{Session: 76, Name: name, Count: 1, TTLMS: 500})
	case listed:
		do(fsm.ListAdd{Session: 77, Name: name, Count: 1})
	}
	a.Node.Advance(1000) // a renewal shows
}

// stateOf returns all that requests may change, and how many commands the node got.
func stateOf(a *apitest.API) (state string, commands int) {
	state = a.Node.State(a.T)
	a.Node.Set(func() { state, commands = state+strings.Join(a.Node.Asked, ","), len(a.Node.Calls) })
	return state, commands
}

// TestAccessMatrix asks every route as every client, with each form of token and names
// inside and outside of its prefix. What is allowed has its effect; what is refused reaches no
// node. A route without a row fails.
func TestAccessMatrix(t *testing.T) {
	a := apitest.New(t, withTokens(t, accessClients...))
	cells, seen := 0, map[string]bool{}
	for _, route := range a.Handler.RouteNames() {
		row, known := routeRights[strings.Replace(route, "HEAD ", "GET ", 1)]
		if !known {
			t.Errorf("%s has no row: decide which scope it needs, and whether it names semaphores or items", route)
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
					cell{a, route, c, row, name}.check(authorization)
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

// cell is a request of a client with a name.
type cell struct {
	a     *apitest.API
	route string
	client
	row   rights
	named string
}

// check sends the request of a cell, in a new scene.
func (c cell) check(authorization string) {
	t := c.a
	t.Helper()
	c.row.scene.set(c.a, c.named, c.name)
	before, commands := stateOf(c.a)
	got := c.row.ask(c.a, c.route, c.named, authorization)
	after, since := stateOf(c.a)
	call := fmt.Sprintf("%s of %s by %q", c.route, c.named, c.name)
	status, text := got.Code, got.Body.String()
	refused := 0
	switch {
	case c.row.scope != 0 && c.scope == 0:
		refused = 401
	case !c.allows(c.row, c.named) && c.row.scope != 0:
		refused = 403
	}
	if refused != 0 {
		if challenged := len(got.Header()["Www-Authenticate"]) == 2; status != refused || challenged != (refused == 401) {
			t.Errorf("%s: %d, want %d, challenged %v: %s", call, status, refused, challenged, text)
		}
		if before != after || since != commands {
			t.Errorf("%s: refused with %d, and has an effect: %d commands, %s", call, status, since-commands, after)
		}
		return
	}
	shows := strings.ReplaceAll(c.row.shows, "N", c.named)
	reads := c.row.reads || strings.HasPrefix(c.route, "GET ") || strings.HasPrefix(c.route, "HEAD ")
	if status != cmp.Or(c.row.status, 200) || !strings.Contains(text, shows) && !strings.HasPrefix(c.route, "HEAD ") {
		t.Errorf("%s: %d %s; want %d with %q", call, status, text, cmp.Or(c.row.status, 200), shows)
	}
	if reads != (before == after) {
		t.Errorf("%s: allowed, and has an effect: %v", call, before != after)
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
	"create":         {scope: access.Use, named: true, body: `"semaphore":"N","permits":1`, scene: missing},
	"delete":         {scope: access.Use, named: true, body: `"semaphore":"N"`},
	"set":            {scope: access.Use, named: true, body: `"semaphore":"N","value":1`},
	"up":             {scope: access.Use, named: true, body: `"semaphore":"N"`},
	"down":           {scope: access.Use, named: true, body: `"semaphore":"N"`},
	"group-put":      {scope: access.Use, named: true, body: `"semaphore":"N","group":"acme","limit":3`, scene: grouped},
	"free-lost":      {scope: access.Use, named: true, body: `"semaphore":"N","token":1`, scene: lost},
	"acquire-once":   {scope: access.Use, named: true, body: `"semaphore":"N"`},
	"acquire":        {scope: access.Use, named: true, body: `"semaphore":"N","session":"77"`, scene: idle},
	"acquire-many":   {scope: access.Use, named: true, body: `"session":"77","mode":"all","semaphores":[{"name":"N","count":1}]`, scene: idle},
	"release":        {scope: access.Use, named: true, body: `"semaphore":"N","session":"77"`},
	"resize":         {scope: access.Use, named: true, body: `"semaphore":"N","session":"77","count":1`},
	"revoke":         {scope: access.Admin, named: true, body: `"semaphore":"N","session":"77"`},
	"open":           {scope: access.Use, body: `"ttl":"1m"`},
	"renew":          {scope: access.Use, body: `"session":"77"`},
	"end":            {scope: access.Use, body: `"session":"77"`},
	"revoke-session": {scope: access.Admin, body: `"session":"77"`},
	"restore":        {scope: access.Use, named: true, body: `"session":"77","ttl":"1m","leases":[{"name":"N","count":1}]`, scene: alone},
	"list-add":       {scope: access.Use, named: true, body: `"semaphore":"N","session":"77"`},
	"list-remove":    {scope: access.Use, named: true, body: `"semaphore":"N","session":"77"`, scene: listed},
	"list-deliver":   {scope: access.Use, lists: true, body: `"session":"77"`, scene: listed},
	"item-put":       {scope: access.Use, named: true, body: `"item":"N","value":"w"`},
	"item-acquire":   {scope: access.Use, named: true, body: `"item":"N","session":"77","value":"v"`, scene: idle},
	"item-release":   {scope: access.Use, named: true, body: `"item":"N","session":"77","value":"v"`},
	"item-delete":    {scope: access.Use, named: true, body: `"item":"N"`},
	"raise-tokens":   {scope: access.Admin, body: `"above":1000000`, reads: true},
}

// TestAccessOfBatches: each operation of a batch is refused or performed by itself: between two
// that no client may perform, what is allowed has its effect, and what is refused has none.
func TestAccessOfBatches(t *testing.T) {
	a := apitest.New(t, withTokens(t, accessClients...))
	cells := 0
	for op, row := range batchOperations {
		for _, c := range accessClients {
			if c.scope < access.Read { // no part of a batch
				continue
			}
			for _, name := range []string{"ci/x", "other/x"} {
				cells++
				row.scene.set(a, name, c.name)
				before, _ := stateOf(a)
				operation := `{"op":"` + op + `",` + strings.ReplaceAll(row.body, `"N"`, `"`+name+`"`) + `}`
				got := a.Do("POST /v1/batch", `{"operations":[{"op":"nothing"},`+operation+`,{"op":"nothing"}]}`, "Authorization: Bearer secret-"+c.name).Is(200)
				after, _ := stateOf(a)
				status, allowed := got.Member("results.1.status"), c.allows(row, name)
				if allowed != strings.HasPrefix(status, "2") || !allowed && status != "403" || (allowed && !row.reads) == (before == after) {
					t.Errorf("%s of %s by %s: %s, allowed %v, effect %v", op, name, c.name, status, allowed, before != after)
				}
			}
		}
	}
	t.Logf("%d operations, %d cells", len(batchOperations), cells)
}
