package httpapi

import (
	"context"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster"
)

func TestConsistency(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	for _, path := range []string{"/v1/semaphores/db", "/v1/semaphores", "/v1/sessions"} {
		got := a.do("GET "+path, "").is(200)
		if a.node.lastRead != (cluster.Consistency{}) || got.header.Get(headerLastContact) != "" || got.header.Get(headerIndex) != "1" {
			t.Errorf("%s: default read %+v, head %v", path, a.node.lastRead, got.header)
		}
		got = a.do("GET "+path+"?consistency=stale", "").is(200)
		if !a.node.lastRead.Stale || got.header.Get(headerLastContact) != "42" {
			t.Errorf("%s: stale read %+v, head %v", path, a.node.lastRead, got.header)
		}
		a.do("GET "+path+"?min_index=1", "").is(200)
		if a.node.lastRead.MinIndex != 1 {
			t.Errorf("%s: read %+v", path, a.node.lastRead)
		}
		a.do("GET "+path+"?consistency=strong", "").refusedWith(400, "invalid-request", "field=consistency")
		a.do("GET "+path+"?min_index=-1", "").refusedWith(400, "invalid-request", "field=min_index")
	}
	for query, asked := range map[string]cluster.Consistency{
		"consistency=linearizable": {Linearizable: true}, "consistency=linearizable&min_index=7": {Linearizable: true, MinIndex: 7},
		"consistency=stale&min_index=7": {Stale: true, MinIndex: 7},
	} {
		if a.do("GET /v1/semaphores?"+query, "").is(200); a.node.lastRead != asked {
			t.Errorf("?%s: read %+v", query, a.node.lastRead)
		}
	}
	a.node.fail = fmt.Errorf("index 99 has not come to this node: %w", cluster.ErrBehind)
	if got := a.do("GET /v1/semaphores/db?min_index=99", "").refusedWith(503, "behind", "index=1"); got.header.Get(headerIndex) != "1" {
		t.Errorf("head %v", got.header)
	}
	a.node.fail = cluster.ErrNoLeader
	if got := a.do("GET /v1/semaphores/db", "").refusedWith(503, "no-leader"); got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After with no-leader")
	}
	a.do("GET /v1/semaphores/db?consistency=stale", "").is(200)
}

func TestHead(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	get := a.do("GET /v1/semaphores/db", "")
	head := a.do("HEAD /v1/semaphores/db", "").is(200)
	for _, name := range []string{"Content-Length", "Content-Type", headerIndex} {
		if get.header.Get(name) != head.header.Get(name) {
			t.Errorf("%s: GET %q, HEAD %q", name, get.header.Get(name), head.header.Get(name))
		}
	}
}

func TestBlockingQuery(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.do("GET /v1/semaphores/db?index=0&wait=60s", "").is(200, "modified_index=1")
	a.do("GET /v1/semaphores/db?index=99&wait=60s", "").is(200, "modified_index=1") // above the confirmed index
	a.do("GET /v1/semaphores/db?index=1", "").is(200, "modified_index=1")           // no wait
	a.do("GET /v1/semaphores/db?index=1&wait=20ms", "").is(200, "modified_index=1") // the wait ends
	a.do("GET /v1/semaphores/db?wait=1s", "").refusedWith(400, "invalid-request", "field=wait")
	a.do("GET /v1/semaphores/none?index=1&wait=60s", "").refusedWith(404, "unknown-semaphore")

	waiting := a.goDo("GET /v1/semaphores/db?index=1&wait=60s", "")
	a.node.awaitWatcher("db")
	a.must(200, "PUT /v1/semaphores/db", `{"metadata":{"a":"b"}}`) // does not move modified_index
	a.node.awaitWatcher("db")
	a.must(200, "POST /v1/semaphores/db/up", "")
	(<-waiting).is(200, "modified_index=3", "available=2")

	waiting = a.goDo("GET /v1/semaphores/db?index=3&wait=60s", "")
	a.node.awaitWatcher("db")
	a.must(204, "DELETE /v1/semaphores/db", "")
	(<-waiting).refusedWith(404, "unknown-semaphore")
}

func TestBlockingQueryEnds(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	ctx, hangUp := context.WithCancel(context.Background())
	done := make(chan reply, 1)
	go func() {
		done <- a.send(httptest.NewRequest("GET", "/v1/semaphores/db?index=1&wait=60s", nil).WithContext(ctx))
	}()
	a.node.awaitWatcher("db")
	hangUp()
	if got := <-done; got.status != statusGone {
		t.Errorf("status %d after a hang-up", got.status)
	}
	if len(a.node.watchers["db"]) != 0 {
		t.Error("the watcher is left behind")
	}
	waiting := a.goDo("GET /v1/semaphores/db?index=1&wait=60s", "")
	a.node.awaitWatcher("db")
	a.handler.EndWaits()
	(<-waiting).is(200, "modified_index=1")
}

func TestCluster(t *testing.T) {
	a := newTestAPI(t)
	a.do("GET /v1/cluster", "").is(200, "node=n1", "leader=n1", "term=3", "applied_index=0", "state_hash=00000000000000000000000000000000",
		"members.0.id=n1", "members.0.peer=n1:8711", "members.0.voter=true", "members.0.leader=true", "members.0.last_contact_ms=0",
		"members.1.last_contact_ms=null", "cluster=null")
	a.node.status.Cluster = "5a0f6c1e8d7b4a39926e1f0c3b5d7e81"
	a.do("GET /v1/cluster", "").is(200, "cluster=5a0f6c1e8d7b4a39926e1f0c3b5d7e81")
	a.node.status.Leader, a.node.status.Level, a.node.status.Members[1].Knows = "", 7, 8
	a.do("GET /v1/cluster", "").is(200, "leader=null")
	a.do("PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`).is(200, "node=n1")
	a.do("DELETE /v1/cluster/members/n2", "").is(200)
	a.do("POST /v1/cluster/leader", `{"id":"n2"}`).is(200)
	a.do("POST /v1/cluster/leader", "").is(200)
	a.do("PUT /v1/cluster/level", `{"level":2}`).is(200, "level=7", "members.1.knows=8")
	if got := fmt.Sprint(a.node.asked); got != "[add n4 n4:8711 remove n2 transfer n2 transfer  raise 2]" {
		t.Errorf("asked %s", got)
	}
	a.do("DELETE /v1/cluster/members/n9", "").refusedWith(404, "unknown-member")
	a.do("POST /v1/cluster/leader", `{"id":"n9"}`).refusedWith(404, "unknown-member")
	for _, body := range []string{``, `{"peer":"n4"}`, `{"peer":":8711"}`, `{"peer":"n4:0"}`, `{"peer":"n4:99999"}`, `{"peer":7}`, `{"peer":"a b:1"}`} {
		a.do("PUT /v1/cluster/members/n4", body).refusedWith(400, "invalid-request", "field=peer")
	}
	a.do("PUT /v1/cluster/members/n%204", `{"peer":"n4:8711"}`).refusedWith(400, "invalid-request", "field=id")
	for _, body := range []string{``, `{"level":0}`, `{"level":"1"}`, `{"level":4294967296}`, `{"level":1.5}`} {
		a.do("PUT /v1/cluster/level", body).refusedWith(400, "invalid-request", "field=level")
	}
	a.node.fail = fmt.Errorf("%w 2: n2 knows level 1", cluster.ErrLevelUnknown)
	a.do("PUT /v1/cluster/level", `{"level":2}`).refusedWith(409, "level-unknown", "reason="+a.node.fail.Error())
	a.node.fail = cluster.ErrBelowLevel
	a.do("PUT /v1/cluster/level", `{"level":2}`).refusedWith(409, "level-too-low")
	a.node.fail = cluster.ErrCatchingUp
	a.do("PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`).is(202, "node=n1")
	a.node.fail = fmt.Errorf("%w: n9 has the address", cluster.ErrMemberInvalid)
	a.do("PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`).refusedWith(409, "member-refused", "reason="+a.node.fail.Error())
	a.node.fail = cluster.ErrLastVoter
	a.do("DELETE /v1/cluster/members/n2", "").refusedWith(409, "member-refused")
	a.node.fail = cluster.ErrNoTarget
	a.do("POST /v1/cluster/leader", "").refusedWith(409, "no-successor")
	a.node.fail = cluster.ErrNoLeader
	a.do("PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`).refusedWith(503, "no-leader")
	a.do("GET /v1/cluster", "").is(200)
}

func TestHealth(t *testing.T) {
	a := newTestAPI(t)
	a.node.set(func() {
		a.node.checks = []cluster.Check{{Name: "leader", Detail: "none known"}, {Name: "storage", OK: true}}
	})
	a.do("GET /livez", "").is(200)
	a.do("GET /health", "").is(503)
	if got := a.do("GET /readyz", "").is(503); got.text != "not ready" {
		t.Errorf("body %q", got.text)
	}
	if got := a.do("GET /readyz?verbose", "").is(503); got.text != "[-] leader none known\n[+] storage\nnot ready\n" {
		t.Errorf("body %q", got.text)
	}
	a.node.set(func() {
		a.node.checks[0] = cluster.Check{Name: "address", Detail: "it differs", Moved: &cluster.Peer{ID: "n3", Address: "n3.example:8711"}}
	})
	want := `[-] address it differs: curl -X PUT http://ANOTHER-NODE/v1/cluster/members/n3 -d '{"peer":"n3.example:8711"}'`
	if got := a.do("GET /readyz?verbose", "").is(503); !strings.Contains(got.text, want) {
		t.Errorf("body %q", got.text)
	}
	a.node.set(func() { a.node.checks[0] = cluster.Check{Name: "leader", OK: true, Detail: "n1"} })
	if got := a.do("GET /health", "").is(200); got.text != "Ok" {
		t.Errorf("body %q", got.text)
	}
	a.do("GET /readyz", "").is(200)
	a.node.set(func() { a.node.checks[0].OK = false })
	a.do("GET /readyz", "").is(503)
	a.do("GET /health", "").is(200) // ready once: never to be killed for looking for a leader
	if got := a.do("GET /version", "").is(200); got.text != "1.2.3" {
		t.Errorf("body %q", got.text)
	}
}

func TestBlockingQueryTakesNoLongerThanItsWait(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	began := time.Now()
	a.do("GET /v1/semaphores/db?index=1&wait=30", "").is(200)
	if took := time.Since(began); took < 30*time.Millisecond {
		t.Errorf("answered after %v, before the wait of 30 ms was over", took)
	}
}

// Blocking queries that wait count as watchers do, together with streams of
// events; those that need not wait are always answered.
func TestBlockingQueriesAreBounded(t *testing.T) {
	a := newTestAPI(t, func(cfg *Config) { cfg.MaxWatchers = 2 })
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	ctx, hangUp := context.WithCancel(context.Background())
	w := httptest.NewRecorder()
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		a.handler.ServeHTTP(w, httptest.NewRequest("GET", "/v1/events", nil).WithContext(ctx))
	}()
	for open := 0; open == 0; {
		runtime.Gosched()
		a.handler.streams.mu.Lock()
		open = len(a.handler.streams.open)
		a.handler.streams.mu.Unlock()
	}
	waiting := a.goDo("GET /v1/semaphores/db?index=1&wait=60s", "")
	a.node.awaitWatcher("db")
	got := a.do("GET /v1/semaphores/db?index=1&wait=60s", "").refusedWith(429, "limit-reached", "rule=watchers")
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	a.do("GET /v1/events", "").refusedWith(429, "limit-reached", "rule=watchers")
	for _, query := range []string{"index=0&wait=60s", "index=1", "index=99&wait=60s"} {
		a.do("GET /v1/semaphores/db?"+query, "").is(200)
	}
	if page := a.do("GET /metrics", "").text; !strings.Contains(page, "signalbox_blocking_queries_open 1\n") {
		t.Error("the gauge does not say 1")
	}
	a.must(200, "POST /v1/semaphores/db/up", "")
	(<-waiting).is(200)
	waiting = a.goDo("GET /v1/semaphores/db?index=2&wait=60s", "")
	a.node.awaitWatcher("db") // there is room again
	a.handler.EndWaits()
	(<-waiting).is(200)
	hangUp()
	<-streamed
	if page := a.do("GET /metrics", "").text; !strings.Contains(page, "signalbox_blocking_queries_open 0\n") {
		t.Error("the gauge does not say 0")
	}
}
