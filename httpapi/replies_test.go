package httpapi_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/openapitest"
)

// provoked notes the replies that requests got, as openapitest.Replies has them.
type provoked struct {
	a     *apitest.API
	found map[string]bool

	route string // of routeRights
	row   rights
}

// errorsOf returns the errors that the node's methods return to a route, as they document them.
func errorsOf(route string) []error {
	_, path, _ := strings.Cut(route, " ")
	ofCommands := []error{outcome.ErrNoLeader, outcome.ErrNotApplied, outcome.ErrDraining, outcome.ErrStorageFull, outcome.ErrSplitState,
		outcome.ErrOverloaded, outcome.ErrOutcomeUnknown, outcome.ErrBelowLevel}
	ofMembers := []error{outcome.ErrNoLeader, outcome.ErrDraining, context.DeadlineExceeded}
	switch {
	case route == "GET /v1/cluster" || path == "/v1/openapi.json" || path == "/v1/batch":
		return nil
	case strings.HasPrefix(route, "GET "):
		return []error{outcome.ErrNoLeader, outcome.ErrBehind, outcome.ErrDraining}
	case route == "PUT /v1/cluster/members/:member":
		return append(ofMembers, outcome.ErrMemberInvalid, outcome.ErrCatchingUp, outcome.ErrNoTarget)
	case route == "DELETE /v1/cluster/members/:member":
		return append(ofMembers, outcome.ErrMemberInvalid, outcome.ErrLastVoter, outcome.ErrNoTarget)
	case path == "/v1/cluster/leader":
		return append(ofMembers, outcome.ErrNoTarget)
	case path == "/v1/cluster/level":
		return append(ofMembers, outcome.ErrLevelUnknown)
	case path == "/v1/snapshot":
		return []error{outcome.ErrNotLeader, outcome.ErrRestoring, outcome.ErrBackupRefused, outcome.ErrLevelUnknown, outcome.ErrStorageFull,
			outcome.ErrSplitState, outcome.ErrNotApplied, outcome.ErrDraining, outcome.ErrOutcomeUnknown}
	}
	if slices.Contains(waiting, route) || strings.HasSuffix(path, "/waitlist/wait") {
		ofCommands = append(ofCommands, outcome.ErrBehind)
	}
	return ofCommands
}

// ask sends the row's request after changes of it, and notes the reply.
func (p *provoked) ask(change ...func(*http.Request)) {
	p.a.Helper()
	r := p.row.request(p.a, p.route, "ci/x", "Bearer secret-admin")
	for _, c := range change {
		c(r)
	}
	got := p.a.Send(r)
	reply := strconv.Itoa(got.Status)
	if got.Status >= 400 {
		reply += " " + got.Member("code")
	}
	p.found[p.described()+reply] = true
}

// described is the route as the description has it, with a space after it.
func (p *provoked) described() string {
	return regexp.MustCompile(`:(\w+)`).ReplaceAllString(p.route, "{$1}") + " "
}

// set makes the scene of the row, and carries out commands after it, of which some may be
// refused in this scene.
func (p *provoked) set(commands ...fsm.Command) {
	p.a.Helper()
	p.row.scene.set(p.a, "ci/x", "admin")
	p.do(commands...)
}

// do carries out commands of the admin.
func (p *provoked) do(commands ...fsm.Command) {
	p.a.Helper()
	for _, command := range commands {
		if _, err := p.a.Node.Do(p.a.Context(), calls.Call{Command: command, Owner: "admin"}); err != nil {
			p.a.Fatalf("%s: %+v: %v", p.route, command, err)
		}
	}
}

// body replaces the body of a request.
func body(text string) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	}
}

// header sets a header of a request.
func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// query adds to the query of a request.
func query(more string) func(*http.Request) {
	return func(r *http.Request) {
		r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&"+more, "&")
		r.RequestURI = r.URL.RequestURI()
	}
}

// path replaces a part of the path.
func path(old, with string) func(*http.Request) {
	return func(r *http.Request) {
		escaped := strings.ReplaceAll(r.URL.EscapedPath(), old, with)
		r.URL.Path, _ = url.PathUnescape(escaped)
		r.URL.RawPath = escaped
		r.RequestURI = r.URL.RequestURI()
	}
}

// late is a body that does not come in time.
type late struct{}

func (late) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// guards are refused before a handler, or by what it reads.
func (p *provoked) guards() {
	p.set()
	p.ask()
	p.ask(header("Authorization", ""))
	p.ask(header("Authorization", "Bearer secret-reads"))
	p.ask(header("Authorization", "Bearer secret-uses-ci"), named("other"))
	p.ask(header("Sec-Fetch-Site", "cross-site"))
	for n := 0; n < 100 && !p.found[p.described()+"429 limit-reached"]; n++ { // two in one second are too many
		p.ask(header("Authorization", "Bearer secret-often"))
	}
	p.ask(func(r *http.Request) { r.Host = "elsewhere.example" })
	p.ask(query("nonsense=1"))
	p.ask(header("Content-Encoding", "gzip"), body("x"))
	p.ask(body("x"), func(r *http.Request) { r.ContentLength = 1 << 40 })
	p.ask(stalled)
	p.set()
	p.ask(func(*http.Request) { p.a.Node.Panics = true })
	p.a.Node.Panics = false
	p.a.Node.Set(func() { p.a.Node.StatusNow.Leader = "n2" })
	p.ask()
	if p.route == "PUT /v1/snapshot" { // which hands over before it looks at the backup
		p.ask(func(*http.Request) { p.a.Node.Fail = outcome.ErrNoTarget })
	}
	p.a.Node.Set(func() { p.a.Node.StatusNow.Leader, p.a.Node.StatusNow.Cluster, p.a.Node.Fail = "n1", "another", nil })
	p.ask()
	p.a.Node.Set(func() { p.a.Node.StatusNow.Cluster = apitest.ClusterID })
}

// failures are the node's.
func (p *provoked) failures() {
	for _, err := range append(errorsOf(p.route), errors.New("of no meaning")) {
		p.set()
		p.ask(func(*http.Request) { p.a.Node.Fail = err })
		p.a.Node.Fail = nil
	}
}

// full are commands after which no permit of ci/x is free, whatever the scene.
var full = []fsm.Command{
	fsm.OpenSession{Session: 88, TTLMS: 600_000}, fsm.Acquire{Session: 88, Name: "ci/x", Count: 3, TTLMS: fsm.KeepTTL},
	fsm.OpenSession{Session: 89, TTLMS: 600_000}, fsm.Acquire{Session: 89, Name: "ci/x", Count: 1, TTLMS: fsm.KeepTTL},
	fsm.OpenSession{Session: 90, TTLMS: 600_000}, fsm.Acquire{Session: 90, Name: "ci/x", Count: 1, TTLMS: fsm.KeepTTL},
}

// settings are for a put of ci/x.
func settings(c fsm.SettingsChange) fsm.Command { return fsm.PutSemaphore{Name: "ci/x", Settings: c} }

func given[T any](value T) fsm.Change[T] { return fsm.Change[T]{Given: true, Value: value} }

// one are commands after which one request may wait for ci/x, and drop says that it makes room for
// another one.
func one(drop bool) []fsm.Command {
	return []fsm.Command{settings(fsm.SettingsChange{MaxWaiting: given[int64](1), DropOldest: given(drop)}), fsm.OpenSession{Session: 91, TTLMS: 600_000},
		fsm.OpenSession{Session: 92, TTLMS: 600_000}, fsm.OpenSession{Session: 93, TTLMS: 600_000}}
}

// newer are three requests more: in some scenes two wait before the one of the row.
var newer = []fsm.Command{
	fsm.Acquire{Session: 91, Name: "ci/x", Count: 1, TTLMS: fsm.KeepTTL}, fsm.Acquire{Session: 92, Name: "ci/x", Count: 1, TTLMS: fsm.KeepTTL},
	fsm.Acquire{Session: 93, Name: "ci/x", Count: 1, TTLMS: fsm.KeepTTL},
}

// states are refusals by the state machine, and its other successes.
func (p *provoked) states() {
	level := func(name string, value int32) fsm.Command {
		return fsm.PutSemaphore{Name: name, Permits: fsm.Change[int64]{Given: true, Value: 5}, Level: fsm.Change[*int32]{Given: true, Value: &value}}
	}
	open := fsm.OpenSession{Session: 77, TTLMS: 60_000}
	for _, before := range [][]fsm.Command{
		nil, {open}, full,
		{fsm.EndSession{Session: 77}},
		{open, fsm.EndSession{Session: 77, Operator: true}},
		{fsm.Release{Session: 77, Name: "ci/x"}},
		{fsm.Release{Session: 77, Name: "ci/x"}, fsm.Acquire{Session: 77, Name: "ci/x", Count: 3, TTLMS: fsm.KeepTTL}},
		append(slices.Clone(full), fsm.Release{Session: 77, Name: "ci/x"}, fsm.Acquire{Session: 77, Name: "ci/x", Count: 2, TTLMS: fsm.KeepTTL}),
		{fsm.DeleteSemaphore{Name: "ci/x"}},
		{fsm.PutSemaphore{Name: "ci/x", Permits: fsm.Change[int64]{Given: true}}},
		{fsm.Up{Name: "ci/x", Count: math.MaxInt64 - 5}},
		{fsm.RestoreSession{Session: 88, TTLMS: 600_000, Leases: []fsm.Want{{Semaphore: "ci/x", Count: math.MaxInt64}}}},
		{fsm.ListAdd{Session: 77, Name: "ci/x", Count: 1}},
		slices.Concat(full, one(false), newer),
		{settings(fsm.SettingsChange{Groups: given(fsm.ByRequest), Family: true, PerGroup: given[int64](5)})},
		{fsm.Release{Session: 77, Name: "ci/x"}, fsm.Up{Name: "ci/x", Count: math.MaxInt64 - 5}, settings(fsm.SettingsChange{WindowMS: given[int64](600_000)}), fsm.OpenSession{Session: 88, TTLMS: 600_000},
			fsm.Acquire{Session: 88, Name: "ci/x", Count: math.MaxInt64 - 10, TTLMS: fsm.KeepTTL}, fsm.Acquire{Session: 77, Name: "ci/x", Count: 1, TTLMS: fsm.KeepTTL}},
		{settings(fsm.SettingsChange{Slots: given(true)}), fsm.OpenSession{Session: 88, TTLMS: 600_000}, fsm.Acquire{Session: 88, Name: "ci/x", Count: 1, TTLMS: fsm.KeepTTL}},
		{level("ci/z", 1), level("ci/x", 5), fsm.Acquire{Session: 77, Name: "ci/z", Count: 1, TTLMS: fsm.KeepTTL}},
	} {
		for _, change := range []func(*http.Request){
			query("try=true"), query("epoch=99"), header("If-Match", `"9.9"`), header("If-None-Match", "*"), query("since=1"), query("session=99"), named("ci/none"),
			query("if_version=99"), body(`{"value":"w","if_version":99}`), outside,
			path("n2", "n9"), body(`{"id":"n9"}`), body(`{"count":4}`), body(`{"value":9223372036854775807}`), body(`{"count":9223372036854775807}`), body(`{"permits":9223372036854775807}`), body(`{"groups":"owner"}`),
			body(`{"count":9007199254740992}`), body(`{"ttl":"1m","leases":[{"name":"ci/x","slots":[0]}]}`), path("acme", "none"),
			func(*http.Request) {}, func(*http.Request) { p.a.Node.Advance(3_600_000) },
		} {
			p.set(before...)
			p.a.Node.Set(func() { p.a.Node.Floor = 5 })
			p.ask(change)
			p.a.Node.Set(func() { p.a.Node.Floor = 0 })
		}
	}
}

// waiting are the routes that wait for permits.
var waiting = []string{"POST /v1/semaphores/:name/down", "POST /v1/semaphores/:name/leases", "PUT /v1/sessions/:id/leases/:name", "POST /v1/sessions/:id/acquire"}

// waits are the ends of waits.
func (p *provoked) waits() {
	if !slices.Contains(waiting, p.route) {
		return
	}
	for _, scene := range []struct {
		before []fsm.Command
		during func() []fsm.Command
	}{
		{full, func() []fsm.Command { return []fsm.Command{fsm.DeleteSemaphore{Name: "ci/x"}} }},
		{full, func() []fsm.Command { return []fsm.Command{fsm.PutSemaphore{Name: "ci/x", Permits: given[int64](0)}} }},
		{full, func() []fsm.Command { return []fsm.Command{fsm.EndSession{Session: p.waiter()}} }},
		{full, func() []fsm.Command {
			return []fsm.Command{fsm.EndSession{Session: p.waiter(), Operator: true, Reason: "drill"}}
		}},
		{full, func() []fsm.Command { return []fsm.Command{fsm.Release{Session: p.waiter(), Name: "ci/x"}} }},
		{full, func() []fsm.Command { return []fsm.Command{fsm.Up{Name: "ci/z", Count: 1}} }},
		{slices.Concat(full, one(true)), func() []fsm.Command { return newer }},
	} {
		p.set(scene.before...)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.ask(query("wait=5s"), header("Idempotency-Key", key))
		}()
		waits := make(chan struct{})
		go func() {
			p.a.Node.AwaitWaits(1)
			close(waits)
		}()
		select {
		case <-waits:
		case <-done:
			p.a.Fatalf("%s does not wait", p.route)
		}
		p.ask(header("Idempotency-Key", key)) // stops listening
		p.do(scene.during()...)
		p.a.Node.Advance(5_000)
		<-done
	}
	p.set(slices.Concat(full, one(false), newer)...)
	p.ask(query("wait=5s"))
}

// waiter is the session of the request that waits, the last in the line.
func (p *provoked) waiter() (id uint64) {
	p.a.Node.View(func(m *fsm.Machine) {
		line := m.Waiters("ci/x", fsm.LinePlace{}, 10)
		id = line[len(line)-1].Session
	})
	return id
}

// named replaces the name of the semaphore.
func named(name string) func(*http.Request) {
	return func(r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		body(strings.ReplaceAll(string(text), "ci/x", name))(r)
		path("ci%2Fx", url.PathEscape(name))(r)
		r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, "ci/x", name)
		r.RequestURI = r.URL.RequestURI()
	}
}

// outside waits for items beyond the prefixes of its identity.
func outside(r *http.Request) {
	header("Authorization", "Bearer secret-uses-ci")(r)
	r.URL.RawQuery = ""
	query("index=1&wait=1s&prefix=other")(r)
}

// stalled has a body that does not come in time.
func stalled(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(late{}), 5 }

// key is the key of a request and its repeats.
const key = "the-key-of-one-request"

// keys are repeats.
func (p *provoked) keys() {
	for _, between := range []func(){
		func() { p.a.Node.Advance(120_000) },
		func() { p.do(fsm.Release{Session: 77, Name: "ci/x"}) },
		func() { p.do(fsm.EndSession{Session: 77}) },
		func() { p.do(fsm.EndSession{Session: p.a.Node.Drawn}) },
	} {
		p.set()
		p.ask(header("Idempotency-Key", key))
		between()
		p.ask(header("Idempotency-Key", key))
	}
	p.set()
	p.a.Do("PUT /v1/semaphores/ci%2Fkey", `{"permits":1}`, "Idempotency-Key: "+key, "Authorization: Bearer secret-admin")
	p.ask(header("Idempotency-Key", key))
	p.set()
	p.ask(header("Idempotency-Key", key))
	p.ask(header("Idempotency-Key", key), path("77", "78"), path("/lost/1", "/lost/2"), func(r *http.Request) {
		if r.URL.Path == "/v1/cluster/tokens" { // it names no object
			body(`{"above":7}`)(r)
		}
	})
}

// TestEveryReplyIsReached provokes every reply that the description lists, by route, status and
// code. A reply that it does not list fails where it is sent, so the two are equal.
func TestEveryReplyIsReached(t *testing.T) {
	d, err := openapitest.Loaded()
	if err != nil {
		t.Fatal(err)
	}
	p := newProvoked(t)
	for p.route, p.row = range routeRights {
		if strings.Contains(p.route, " /v1/") {
			switch {
			case strings.HasSuffix(p.route, "/batch"):
				p.row.body = `{"operations":[{"op":"renew","session":"77"}]}`
			case strings.HasSuffix(p.route, "/acquire"): // of one, so that each refusal of it shows
				p.row.body = `{"mode":"all","semaphores":[{"name":"N","count":1}]}`
			}
			p.guards()
			p.failures()
			p.states()
			p.waits()
			p.keys()
		}
	}
	p.a.Handler.EndWaits()
	for p.route, p.row = range routeRights {
		if strings.Contains(p.route, " /v1/") {
			p.set()
			p.ask(stalled)
		}
	}
	replies := d.Replies()
	for _, reply := range replies {
		if why, listed := unreached[reply]; p.found[reply] == listed {
			t.Errorf("%s is reached: %v; listed as unreachable: %q", reply, p.found[reply], why)
		}
	}
	for reply := range unreached {
		if !slices.Contains(replies, reply) {
			t.Errorf("%s is not described", reply)
		}
	}
	t.Logf("%d of %d replies, by route, status and code, are reached", len(replies)-len(unreached), len(replies))
}

// unreached are the replies that this test can't provoke, and why.
var unreached = map[string]string{
	"GET /v1/cluster 500 internal":           "what a fault of the program gives: the route fails in no known way",
	"GET /v1/openapi.json 500 internal":      "what a fault of the program gives: the route fails in no known way",
	"GET /v1/openapi.json 429 limit-reached": "it needs more connections than a node takes: TestConnectionsAreBounded has it for other routes",
}

// newProvoked has clients with tokens, one of which may send a request a second.
func newProvoked(t *testing.T) *provoked {
	file := accessFile(t, append(slices.Clone(accessClients), client{"often", access.Admin, ""})...)
	text, err := os.ReadFile(file)
	if err == nil {
		limited := strings.Replace(string(text), `name = "often"`, "name = \"often\"\nrequests_per_second = 1", 1)
		err = os.WriteFile(file, []byte(limited), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := access.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return &provoked{found: map[string]bool{}, a: apitest.New(t, func(cfg *apitest.Config) {
		cfg.Exchange.Tokens = tokens
		cfg.HTTP.Hosts = []string{"example.com"}
	})}
}
