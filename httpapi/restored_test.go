package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/httpapi/nodered"
	"github.com/signalbox/signalbox/httpapi/throttle"
	"github.com/signalbox/signalbox/test/apitest"
)

// restoredReads has, for each route that reads, the requests that TestRestoredReadsAreAlike
// compares: N stands for each semaphore, S for each session.
var restoredReads = map[string][]string{
	"/v1/semaphores":               {"", "?limit=3", "?prefix=ci%2F"},
	"/v1/semaphores/:name":         {"/v1/semaphores/N", "/v1/semaphores/N?holders=1&waiters=1"},
	"/v1/semaphores/:name/holders": {"/v1/semaphores/N/holders", "/v1/semaphores/N/holders?limit=1"},
	"/v1/semaphores/:name/waiters": {"/v1/semaphores/N/waiters", "/v1/semaphores/N/waiters?limit=1"},
	"/v1/semaphores/:name/groups":  {"/v1/semaphores/N/groups"},
	"/v1/sessions":                 {"", "?limit=2"},

	"/v1/semaphores/:name/groups/:group": {"/v1/semaphores/N/groups/-"},
	"/v1/semaphores/:name/lost":          {"/v1/semaphores/N/lost"},

	"/v1/sessions/:id":              {"/v1/sessions/S"},
	"/v1/sessions/:id/leases":       {"/v1/sessions/S/leases", "/v1/sessions/S/leases?limit=1"},
	"/v1/sessions/:id/leases/:name": {"/v1/sessions/S/leases/N"},
	"/v1/items":                     {"", "?limit=1", "?prefix=ci%2F"},
	"/v1/items/:name":               {"/v1/items/N"},
	"/v1/kv/*":                      {"/v1/kv/?recurse", "/v1/kv/N"},
	"/terraform/*":                  {"/terraform/N"},
	"/v1/session/list":              {""},
	"/v1/session/info/:id":          {"/v1/session/info/5369676e-616c-626f-0000-000000000078"},
	"/v1/session/info/":             {""},
	"/v1/session/node/:node":        {"/v1/session/node/n1"},
	"/v1/session/node/":             {""},
	"/v1/health/node/:node":         {"/v1/health/node/n1"},
	"/v1/health/node/":              {""},
	"/v1/catalog/nodes":             {""},
	"/v1/agent/self":                {""},
	"/v1/status/leader":             {""},
	"/v1/status/peers":              {""},
	"/v1/snapshot":                  {""},
	"/peers/:id/is_acquired":        {"/peers/S/is_acquired"},
	"/remainder":                    {"/remainder?semaphore=N"},
	"/peers/":                       {""},
	"/semaphore/value/:name":        {"/semaphore/value/N"},
	"/metrics":                      {""},
	"/v1/cluster":                   {""},
	"/v1/events":                    {"/v1/events?prefix=ci%2F"},
	"/v1/openapi.json":              {""},
	"/livez":                        {""},
	"/readyz":                       {"", "?verbose"},
	"/health":                       {""},
	"/version":                      {""},
	"/problems/:code":               {"/problems/over"},
	"/":                             {""},
	"/favicon.ico":                  {""},
}

// stateless are the routes of restoredReads whose reply does not depend on semaphores and sessions.
var stateless = []string{"/v1/session/info/", "/v1/session/node/", "/v1/health/node/:node", "/v1/health/node/", "/v1/catalog/nodes", "/v1/agent/self", "/v1/status/leader", "/v1/status/peers",
	"/v1/cluster", "/v1/events", "/v1/openapi.json", "/livez", "/readyz", "/health", "/version", "/problems/:code", "/", "/favicon.ico"}

// leaseWithKey is the command of a key that fillAll leaves behind.
var leaseWithKey = fsm.AcquireOnce{Session: 112, Name: "other/many", Count: 1, TTLMS: 3_600_000}

// fillAll fills a cluster with records of each kind, and returns its semaphores and sessions,
// with one of each that is not there.
func fillAll(t *testing.T, c *apitest.Cluster) (names []string, sessions []uint64) {
	t.Helper()
	node := c.Nodes[c.Leader()]
	do := func(owner string, want fsm.Code, command fsm.Command, key ...string) calls.Reply {
		t.Helper()
		reply, err := node.Do(t.Context(), calls.Call{Command: command, Owner: owner, Key: strings.Join(key, "")})
		if err != nil || reply.Code != want {
			t.Fatalf("%+v: %v, want %v, %v", command, reply.Code, want, err)
		}
		return *reply
	}
	semaphore := func(name string, permits int64) {
		names = append(names, name)
		do("admin", fsm.OK, fsm.CreateSemaphore{Name: name, Permits: permits, Metadata: []fsm.Pair{{Key: "team", Value: "für " + name}}})
	}
	session := func(owner string, id uint64, keep bool) {
		sessions = append(sessions, id)
		do(owner, fsm.OK, fsm.OpenSession{Session: id, TTLMS: int64(3_600_000 + id), Metadata: []fsm.Pair{{Key: "host", Value: fmt.Sprint(id)}}, Keep: keep})
	}
	for name, permits := range map[string]int64{"ci/db": 5, "ci/lock": 1, "db/taken": 1, "items": 0, "gone": 1, "notices": 0, "due": 0, "ü/x": 9, "other/many": 2} {
		semaphore(name, permits)
	}
	slices.Sort(names)
	level := int32(3)
	do("admin", fsm.OK, fsm.PutSemaphore{Name: "ü/x", Permits: fsm.Change[int64]{Given: true, Value: 7}, Level: fsm.Change[*int32]{Given: true, Value: &level}})
	do("admin", fsm.OK, fsm.Up{Name: "ü/x", Count: 4})
	session("uses", 101, false)
	session("uses-ci", 102, false)
	session("", 103, true)
	session("admin", 104, false)
	acquire := func(owner string, want fsm.Code, session uint64, name string, count int64) {
		t.Helper()
		do(owner, want, fsm.Acquire{Session: session, Name: name, Count: count, TTLMS: fsm.KeepTTL})
	}
	acquire("uses", fsm.OK, 101, "ci/db", 3)
	do("uses", fsm.OK, fsm.ResizeLease{Session: 101, Name: "ci/db", Count: 2})
	acquire("uses-ci", fsm.OK, 102, "ci/db", 3)
	acquire("", fsm.Waiting, 103, "ci/db", 1)
	acquire("admin", fsm.OK, 104, "ci/lock", 1)
	acquire("uses", fsm.Waiting, 101, "ci/lock", 1)
	do("uses-ci", fsm.Waiting, fsm.AcquireMany{Session: 102, Mode: fsm.Any, Wants: []fsm.Want{{Semaphore: "ci/lock", Count: 1}, {Semaphore: "items", Count: 2}}})
	acquire("admin", fsm.OK, 104, "other/many", 1)
	acquire("uses", fsm.OK, 101, "ü/x", 2)
	do("uses", fsm.OK, fsm.ItemAcquire{Session: 101, Name: "ci/db", Value: "n1", Flags: 1 << 63})
	do("uses", fsm.OK, fsm.ItemPut{Name: "ü/x", Value: "\xff"})
	do("uses", fsm.OK, fsm.ItemPut{Name: "terraform/ci/db", Value: `{"state":{"folder":"f","bytes":1}}`, Flags: 't'<<8 | 'f'})
	do("uses", fsm.OK, fsm.ItemPut{Name: "terraform/ci/db//state/f/000", Value: "1"})
	do("uses", fsm.OK, fsm.OpenHolder{Session: 120, TTLMS: 3_600_000, About: "consul node=n1 ttl=15s delay=0 checks=1 name=x"})
	acquire("uses", fsm.OK, 101, "db/taken", 1)
	do("", fsm.OK, fsm.RevokeLease{Session: 101, Name: "db/taken", Reason: "maintenance"})
	sessions = append(sessions, 110, 111, 112)
	do("uses", fsm.Waiting, fsm.AcquireOnce{Session: 110, Name: "ci/lock", Count: 1, TTLMS: 60_000, WaitMS: 3_600_000, Metadata: []fsm.Pair{{Key: "a", Value: "b"}}}, "a-key-of-a-waiting-call")
	do("uses", fsm.Waiting, fsm.Down{Session: 111, Name: "items", Count: 3, WaitMS: 3_600_000})
	do("uses", fsm.OK, leaseWithKey, "a-key-of-a-lease-0123")
	do("", fsm.OK, fsm.ListAdd{Session: 103, Name: "gone", Count: 2})
	do("", fsm.OK, fsm.ListAdd{Session: 103, Name: "ci/lock", Count: 2})
	do("admin", fsm.OK, fsm.DeleteSemaphore{Name: "gone"})
	do("uses", fsm.Unavailable, fsm.Down{Name: "notices", Count: 2, Notice: "http://n9:1/notices"})
	do("uses", fsm.Unavailable, fsm.Down{Name: "due", Count: 1, Notice: "http://n9:1/due"})
	do("uses", fsm.OK, fsm.Up{Name: "due", Count: 1})
	session("uses", 105, false)
	do("", fsm.OK, fsm.EndSession{Session: 105, Operator: true, Reason: "too long"})
	sessions = append(sessions, 106, 999)
	do("uses", fsm.OK, fsm.OpenSession{Session: 106, TTLMS: 1000})
	time.Sleep(5 * time.Second) // virtual: it ends
	return append(names, "missing"), sessions
}

// asked is the reply to a request, in the form that is compared.
type asked struct {
	status int
	kind   string
	body   any
}

// read sends a request of a client to a node.
func read(t *testing.T, h *httpapi.Handler, target, client string) asked {
	t.Helper()
	r := httptest.NewRequest("GET", target, nil)
	r.Header.Set("Authorization", "Bearer secret-"+client)
	r.Header.Set("X-Request-Id", "same")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w := &recorder{ResponseRecorder: httptest.NewRecorder()}
	if strings.HasPrefix(target, "/v1/events") {
		w.onStatus = cancel // the stream ends once it has begun
	}
	h.ServeHTTP(w, r.WithContext(ctx))
	got := asked{w.Code, w.Header().Get("Content-Type"), w.Body.String()}
	switch {
	case strings.Contains(got.kind, "json"):
		decoder := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
		decoder.UseNumber()
		if err := decoder.Decode(&got.body); err != nil {
			t.Errorf("%s: %v: %s", target, err, w.Body)
		}
	case got.kind == "application/octet-stream" && strings.HasPrefix(target, "/v1/snapshot"):
		got.body = recordsOf(t, w.Body.Bytes())
	case strings.HasPrefix(target, "/v1/events"):
		got.body = "" // events are no part of the state: each node has those that it has seen
	case strings.HasPrefix(target, "/metrics"):
		got.body = gaugesOfTheState(w.Body.String())
	}
	return got
}

// recorder records a reply, and says when its status is there.
type recorder struct {
	*httptest.ResponseRecorder
	onStatus func() // or nil
}

func (r *recorder) WriteHeader(status int) {
	r.ResponseRecorder.WriteHeader(status)
	if r.onStatus != nil {
		r.onStatus()
	}
}

// recordsOf returns the records of a backup, decoded.
func recordsOf(t *testing.T, file []byte) (records any) {
	t.Helper()
	_, m, err := backup.Read(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"keys": m.Keys(), "notices": m.DueNotices()}
	for _, s := range m.Sessions(0, 1000) {
		all[fmt.Sprint("list of ", s.ID)] = m.WaitList(s.ID)
		all[fmt.Sprint("session ", s.ID)] = s
	}
	for _, s := range m.Semaphores("", "", 1000) {
		all["semaphore "+s.Name] = []any{s, m.Holders(s.Name, 0, 1000), m.Waiters(s.Name, fsm.LinePlace{}, 1000)}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&records); err != nil {
		t.Fatal(err)
	}
	return relative(records, "", m.NowMS())
}

// relative replaces the times of a record by how far they are from a time.
func relative(record any, key string, nowMS int64) any {
	switch r := record.(type) {
	case map[string]any:
		for key := range r {
			r[key] = relative(r[key], key, nowMS)
		}
	case []any:
		for i := range r {
			r[i] = relative(r[i], key, nowMS)
		}
	case json.Number:
		if at, err := r.Int64(); err == nil && at != 0 && strings.HasSuffix(key, "MS") && key != "TTLMS" {
			return json.Number(strconv.FormatInt(at-nowMS, 10))
		}
	}
	return record
}

// gaugesOfTheState returns the metrics that say what the state has.
func gaugesOfTheState(text string) (kept string) {
	for line := range strings.Lines(text) {
		for _, name := range []string{"signalbox_objects", "signalbox_idempotency_keys", "throttle_acquired", "throttle_max", "throttle_pending"} {
			if strings.HasPrefix(line, name+"{") && !strings.Contains(line, `"bytes"`) {
				kept += line
			}
		}
	}
	return kept
}

// mayDiffer are the members that only a restored state has: indexes, the term, and who
// the cluster is; who a node is, and its connections; the bytes of keys, whose outcomes have times.
var mayDiffer = []string{"index", "NodeName", "Member", "modified_index", "ModifiedIndex", "ModifyIndex", "version", "term", "cluster", "commit_index", "applied_index", "cluster_time_ms", "state_hash", "node", "leader", "lag", "Bytes"}

// whoIsWho are the ids of clusters and nodes in texts.
var whoIsWho = regexp.MustCompile(`the leader is n\d|cluster [0-9a-f]{32}|^n\d:8711$`)

// alike returns where two bodies differ, or "". Times differ by no more than the test takes.
func alike(at string, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return fmt.Sprintf("%s: %v, %v", at, a, b)
		}
		for key := range a {
			if slices.Contains(mayDiffer, key) {
				continue
			}
			if differs := alike(at+"."+key, a[key], b[key]); differs != "" {
				return differs
			}
		}
		return ""
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return fmt.Sprintf("%s: %v, %v", at, a, b)
		}
		for i := range a {
			if differs := alike(fmt.Sprintf("%s.%d", at, i), a[i], b[i]); differs != "" {
				return differs
			}
		}
		return ""
	case json.Number:
		b, ok := b.(json.Number)
		x, _ := a.Float64()
		y, _ := b.Float64()
		key := at[strings.LastIndex(at, ".")+1:]
		if ok && strings.HasSuffix(strings.ToLower(key), "ms") && !strings.HasPrefix(strings.ToLower(key), "ttl") && math.Abs(x-y) <= 5000 {
			return ""
		}
	case string:
		if b, ok := b.(string); ok && whoIsWho.ReplaceAllString(a, "") == whoIsWho.ReplaceAllString(b, "") {
			return ""
		}
	}
	if a != b {
		return fmt.Sprintf("%s: %v, %v", at, a, b)
	}
	return ""
}

// requestsOf returns the requests of a route.
func requestsOf(path string, names []string, sessions []uint64) (requests []string) {
	for _, form := range restoredReads[path] {
		if !strings.HasPrefix(form, "/") {
			form = path + form
		}
		withNames := []string{form}
		if strings.Contains(form, "N") {
			withNames = nil
			for _, name := range names {
				withNames = append(withNames, strings.ReplaceAll(form, "N", url.PathEscape(name)))
			}
		}
		for _, request := range withNames {
			if !strings.Contains(request, "S") {
				requests = append(requests, request)
				continue
			}
			for _, id := range sessions {
				requests = append(requests, strings.Replace(request, "S", fmt.Sprint(id), 1))
			}
		}
	}
	return requests
}

// TestRestoredReadsAreAlike: on every node of an empty cluster, into which the backup of another
// one is restored, every route that reads replies as that one did, but for index, term,
// cluster and the times. A GET route without a row in restoredReads fails.
func TestRestoredReadsAreAlike(t *testing.T) {
	tokens := withTokens(t, accessClients...)
	setup := func(cfg *apitest.Config) {
		tokens(cfg)
		cfg.HTTP.Collectors = append(cfg.HTTP.Collectors, cfg.Exchange.Node.(*cluster.Node).Collector())
		cfg.Dialects["throttle"] = func(x *exchange.Exchange) (exchange.Dialect, error) {
			return throttle.New(x, throttle.Config{Declared: func() []string { return []string{"ci/db", "ü/x"} }})
		}
		cfg.Dialects["nodered"] = func(x *exchange.Exchange) (exchange.Dialect, error) {
			return nodered.New(x, nodered.Config{CheckCallback: func(string) error { return nil }}), nil
		}
	}
	clients := []string{"admin", "uses-ci"}
	synctest.Test(t, func(t *testing.T) {
		to := apitest.NewCluster(t, setup)
		time.Sleep(time.Minute) // virtual: its cluster time is ahead
		from := apitest.NewCluster(t, setup)
		names, sessions := fillAll(t, from)
		var requests []string
		moved := map[string]bool{} // routes that reply otherwise without the state
		routeOf := map[string]string{}
		for _, route := range from.APIs["n1"].RouteNames() {
			method, path, _ := strings.Cut(route, " ")
			if method != "GET" {
				continue
			}
			if _, known := restoredReads[path]; !known {
				t.Errorf("%s has no row in restoredReads", route)
			}
			for _, target := range requestsOf(path, names, sessions) {
				requests, routeOf[target] = append(requests, target), path
			}
		}
		before := map[string]asked{}
		leader := from.APIs[from.Leader()]
		empty := to.APIs[to.Leader()]
		for _, target := range requests {
			for _, client := range clients {
				before[client+" "+target] = read(t, leader, target, client)
				bare := read(t, empty, target, client)
				moved[routeOf[target]] = moved[routeOf[target]] || bare.status != before[client+" "+target].status || alike("", before[client+" "+target].body, bare.body) != ""
			}
		}
		restore(t, leader, empty)
		to.AwaitReady()
		compared := 0
		for _, id := range to.IDs {
			read(t, to.APIs[id], "/v1/semaphores", "admin") // linearizable: after it the node has the state, for /metrics
			for _, target := range requests {
				for _, client := range clients {
					want, got := before[client+" "+target], read(t, to.APIs[id], target, client)
					compared++
					differs := alike("", want.body, got.body)
					if strings.Contains(target, "/waiters?") && strings.HasPrefix(differs, ".next:") {
						differs = "" // the cursor has the cluster time of a request, which a restore moves
					}
					if want.status != got.status || want.kind != got.kind || differs != "" {
						t.Errorf("%s of %s at %s: %d %s, was %d %s: %s", target, client, id, got.status, got.kind, want.status, want.kind, differs)
					}
				}
			}
		}
		keyed := calls.Call{Command: leaseWithKey, Owner: "uses", Key: "a-key-of-a-lease-0123"}
		first, err := from.Nodes[from.Leader()].Do(t.Context(), keyed)
		again, failed := to.Nodes[to.Leader()].Do(t.Context(), keyed)
		if err != nil || failed != nil || !first.Replayed || !again.Replayed || again.Session != 112 || again.Grants[0].Token != first.Grants[0].Token {
			t.Errorf("a key: %+v, %v; after the restore %+v, %v", first, err, again, failed)
		}
		for path := range restoredReads {
			if moved[path] == slices.Contains(stateless, path) {
				t.Errorf("%s depends on the state: %v", path, moved[path])
			}
		}
		t.Logf("%d routes, %d requests, %d replies compared", len(restoredReads), len(requests), compared)
	})
}

// restore gives one cluster the state of another over HTTP.
func restore(t *testing.T, from, to http.Handler) {
	t.Helper()
	file := httptest.NewRecorder()
	get := httptest.NewRequest("GET", "/v1/snapshot", nil)
	get.Header.Set("Authorization", "Bearer secret-admin")
	from.ServeHTTP(file, get)
	identity := httptest.NewRecorder()
	head := httptest.NewRequest("HEAD", "/v1/snapshot", nil)
	head.Header = get.Header
	to.ServeHTTP(identity, head)
	query := "?cluster=" + identity.Header().Get("X-Signalbox-Cluster") + "&from=" + file.Header().Get("X-Signalbox-Cluster")
	put := httptest.NewRequest("PUT", "/v1/snapshot"+query, file.Body)
	put.Header.Set("Authorization", "Bearer secret-admin")
	done := httptest.NewRecorder()
	to.ServeHTTP(done, put)
	if done.Code != 200 {
		t.Fatalf("%d %s", done.Code, done.Body)
	}
}
