package v1_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestBatchDoesEveryOperation(t *testing.T) {
	a := apitest.New(t)
	s := a.Open("1h")
	got := a.Do("POST /v1/batch", `{"operations":[
		{"op":"create","semaphore":"db","permits":2,"level":3,"metadata":{"a":"b"}},
		{"semaphore":"jobs","permits":0,"op":"put"},
		{"op":"put","semaphore":"jobs","permits":1,"only_new":true},
		{"op":"up","semaphore":"jobs","count":5},
		{"op":"down","semaphore":"jobs","count":9,"partial":true},
		{"op":"set","semaphore":"jobs","value":7,"epoch":2},
		{"op":"set","semaphore":"jobs","value":7,"epoch":9},
		{"op":"open","ttl":"1s"},
		{"op":"renew","session":"`+s+`","ttl":"2h"},
		{"op":"acquire","session":"`+s+`","semaphore":"db","count":2},
		{"op":"resize","session":"`+s+`","semaphore":"db","count":1},
		{"op":"acquire-once","semaphore":"db","ttl":5000},
		{"op":"acquire","session":"`+s+`","semaphore":"jobs","try":true,"count":9},
		{"op":"acquire-many","session":"`+s+`","mode":"any","semaphores":[{"name":"jobs"}]},
		{"op":"release","session":"`+s+`","semaphore":"jobs"},
		{"op":"revoke","session":"`+s+`","semaphore":"db","reason":"why"},
		{"op":"restore","session":"5","ttl":"1h","leases":[{"name":"db"}]},
		{"op":"revoke-session","session":"5","reason":"why"},
		{"op":"delete","semaphore":"jobs"},
		{"op":"up","semaphore":"jobs"}
	]}`)
	got.Is(200, "results.length=20", "results.0.status=201", "results.0.body.name=db", "results.0.body.created=true",
		"results.1.status=201", "results.1.body.epoch=2", "results.2.status=412", "results.2.body.code=precondition-failed",
		"results.3.status=200", "results.3.body.value=5", "results.4.body.granted=5", "results.5.body.value=7",
		"results.6.status=412", "results.6.body.epoch=2", "results.7.status=201", "results.7.body.ttl_ms=1000",
		"results.8.status=200", "results.8.body.ttl_ms=7200000", "results.9.status=200", "results.9.body.token=1",
		"results.10.body.count=1", "results.11.status=201", "results.11.body.token=2", "results.12.status=409",
		"results.12.body.code=never", "results.13.body.leases.0.semaphore=jobs", "results.14.status=204", "results.14.body=absent",
		"results.15.status=204", "results.16.status=200", "results.16.body.leases.0.token=4", "results.17.status=204",
		"results.18.status=204", "results.19.status=404", "results.19.body.code=unknown-semaphore")
	if got.Header.Get("X-Signalbox-Index") != fmt.Sprint(a.Node.Index) {
		t.Errorf("index %s, want the last one's, %d", got.Header.Get("X-Signalbox-Index"), a.Node.Index)
	}
}

func TestBatchTellsBadOperationsAlone(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	for _, c := range []struct{ operation, field string }{
		{`{}`, "op"}, {`7`, ""}, {`{"op":7}`, "op"}, {`{"op":"acquire_once","semaphore":"db"}`, "op"},
		{`{"op":"start-term"}`, "op"}, {`{"op":"up"}`, "semaphore"}, {`{"op":"up","name":"db"}`, "name"},
		{`{"op":"up","semaphore":"db","ttl":1}`, "ttl"}, {`{"op":"up","semaphore":"db","count":"1"}`, "count"},
		{`{"op":"down","semaphore":"db","wait":1}`, "wait"}, {`{"op":"acquire-once","semaphore":"db","wait":"1s"}`, "wait"},
		{`{"op":"acquire","semaphore":"db"}`, "session"}, {`{"op":"acquire","semaphore":"db","session":5}`, "session"},
		{`{"op":"up","semaphore":"db","key":"short"}`, "key"}, {`{"op":"up","semaphore":"db","epoch":0}`, "epoch"},
		{`{"op":"up","semaphore":"db","surprise":1}`, "surprise"}, {`{"op":"up","semaphore":"db","Count":1}`, "Count"},
		{`{"op":"acquire-many","session":"5","mode":"all","semaphores":[]}`, "semaphores"},
	} {
		got := a.Do("POST /v1/batch", `{"operations":[`+c.operation+`,{"op":"set","semaphore":"db","value":4}]}`)
		want := c.field
		if want == "" {
			want = "absent"
		}
		got.Is(200, "results.length=2", "results.0.status=400", "results.0.body.code=invalid-request",
			"results.0.body.field="+want, "results.1.status=200", "results.1.body.value=4")
	}
}

func TestBatchIsRefusedWhole(t *testing.T) {
	a := apitest.New(t)
	up := `{"op":"up","semaphore":"db"}`
	for body, field := range map[string]string{
		``: "operations", `{}`: "operations", `{"operations":null}`: "operations", `{"operations":{}}`: "operations",
		`{"operations":[],"more":1}`:                                     "more",
		`{"operations":[` + strings.Repeat(up+",", 1000) + up + `]}`:     "operations",
		`{"operations":[{"op":"up","semaphore":"db","semaphore":"db"}]}`: "semaphore",
		`{"operations":[` + up + `}`:                                     "absent",
	} {
		a.Do("POST /v1/batch", body).RefusedWith(400, "invalid-request", "field="+field)
	}
	a.Do("POST /v1/batch", `{"operations":[]}`, "Idempotency-Key: 0123456789abcdef").RefusedWith(400, "invalid-request", "field=Idempotency-Key")
	a.Do("POST /v1/batch", `{"operations":[]}`).Is(200, "results=[]")
	a.Do("POST /v1/batch", `{"operations":["`+strings.Repeat("x", 1<<20)+`"]}`).RefusedWith(413, "too-large", "limit=1048576")
	if len(a.Node.Calls) != 0 {
		t.Errorf("%d calls were made", len(a.Node.Calls))
	}
}

func TestBatchStopsAtTheFirstFailure(t *testing.T) {
	a := apitest.New(t)
	const ups = `{"op":"put","semaphore":"a","permits":1},{"op":"nonsense"},{"op":"up","semaphore":"a"},{"op":"up","semaphore":"a"}`
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{{outcome.ErrNoLeader, 503, "no-leader"}, {outcome.ErrOutcomeUnknown, 504, "outcome-unknown"}, {outcome.ErrOverloaded, 503, "overloaded"}} {
		a.Node.Fail, a.Node.FailFrom = c.err, 1
		a.Do("POST /v1/batch", `{"operations":[`+ups+`]}`).Is(200, "results.length=4", "results.1.status=400",
			fmt.Sprintf("results.2.status=%d", c.status), "results.2.body.code="+c.code,
			"results.3.status=503", "results.3.body.code=not-applied")
	}
	a.Node.Fail = errors.New("secret of the inside")
	if got := a.Do("POST /v1/batch", `{"operations":[`+ups+`]}`).Is(200, "results.2.status=500"); strings.Contains(got.Text, "secret") {
		t.Errorf("an inner error leaks: %s", got.Text)
	}
}

func TestBatchKeys(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	const up = `{"op":"up","semaphore":"db","key":"0123456789abcdef"}`
	a.Do("POST /v1/batch", `{"operations":[`+up+`,`+up+`]}`).Is(200, "results.0.body.value=1", "results.0.replayed=absent",
		"results.1.body.value=1", "results.1.replayed=true")
	a.Do("POST /v1/semaphores/db/up", "", "Idempotency-Key: 0123456789abcdef").Is(200, "value=1")
	a.Do("GET /v1/semaphores/db", "").Is(200, "available=1")
}

// Each reply within a batch equals the reply of the single route, but for the instance of a
// problem, which is that of the whole request.
func TestBatchRepliesAsTheSingleRoutes(t *testing.T) {
	for _, c := range []struct{ line, body, operation string }{
		{"POST /v1/semaphores/db/leases", `{"ttl":"9s"}`, `{"op":"acquire-once","semaphore":"db","ttl":"9s"}`},
		{"POST /v1/semaphores/db/leases", `{"count":9}`, `{"op":"acquire-once","semaphore":"db","count":9}`},
		{"POST /v1/semaphores/db/leases", `{"count":0}`, `{"op":"acquire-once","semaphore":"db","count":0}`},
		{"PUT /v1/sessions/5/leases/db", ``, `{"op":"acquire","session":"5","semaphore":"db"}`},
		{"PUT /v1/semaphores/db", `{"permits":3}`, `{"op":"put","semaphore":"db","permits":3}`},
		{"PUT /v1/semaphores/x", ``, `{"op":"put","semaphore":"x"}`},
		{"POST /v1/sessions", `{"ttl":1}`, `{"op":"open","ttl":1}`},
	} {
		single, batch := apitest.New(t), apitest.New(t)
		single.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
		batch.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
		alone := single.Do(c.line, c.body, "X-Request-Id: q")
		want := fmt.Sprintf(`{"results":[{"status":%d,"body":%s}]}`, alone.Status, strings.TrimSpace(strings.Replace(alone.Text, `"instance":"/requests/q",`, "", 1)))
		if got := strings.TrimSpace(batch.Do("POST /v1/batch", `{"operations":[`+c.operation+`]}`).Text); got != want {
			t.Errorf("%s\nbatch  %s\nsingle %s", c.operation, got, want)
		}
	}
}

func BenchmarkBatchOfUps(b *testing.B) {
	a := apitest.New(&testing.T{})
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	body := `{"operations":[` + strings.Repeat(`{"op":"up","semaphore":"db"},`, 999) + `{"op":"up","semaphore":"db"}]}`
	b.ResetTimer()
	for range b.N {
		a.Do("POST /v1/batch", body)
		a.Node.Calls = nil
	}
	b.ReportMetric(float64(b.N*1000)/b.Elapsed().Seconds(), "operations/s")
}

// An operation that lists semaphores counts as many of a batch's size, and a batch
// that is refused for it has no effect.
func TestBatchWeighsLists(t *testing.T) {
	a := apitest.New(t, func(cfg *apitest.Config) { cfg.HTTP.Native.BatchSize = 10 })
	for _, name := range []string{"a", "b", "c", "d"} {
		a.Must(201, "PUT /v1/semaphores/"+name, `{"permits":9}`)
	}
	session := a.Open("1h")
	many := `{"op":"acquire-many","session":"` + session + `","mode":"all","semaphores":[` +
		`{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"}]}`
	batch := func(ups int) string {
		return `{"operations":[` + strings.Repeat(`{"op":"up","semaphore":"a"},`, ups) + many + `]}`
	}
	before := len(a.Node.Calls)
	got := a.Do("POST /v1/batch", batch(7)).RefusedWith(400, "invalid-request", "field=operations")
	if !strings.Contains(got.Text, "10") || len(a.Node.Calls) != before {
		t.Errorf("%d calls were made: %s", len(a.Node.Calls)-before, got.Text)
	}
	a.Do("POST /v1/batch", batch(6)).Is(200, "results.length=7", "results.6.status=200")
}

// A delivery lists semaphores in its reply alone, and so does each repeat: a batch of
// these has no reply of many megabytes.
func TestBatchOfDeliveries(t *testing.T) {
	a := apitest.New(t)
	commands := []fsm.Command{fsm.OpenSession{Session: 7, TTLMS: 3_600_000}}
	for i := range 64 {
		commands = append(commands, fsm.CreateSemaphore{Name: apitest.LongName(i), Permits: 1}, fsm.ListAdd{Session: 7, Name: apitest.LongName(i), Count: 1})
	}
	a.Begin(commands...)
	const deliver = `{"op":"list-deliver","session":"7","key":"0123456789abcdef"}`
	batch := func(n int) string { return `{"operations":[` + strings.Repeat(deliver+",", n-1) + deliver + `]}` }
	a.Do("POST /v1/batch", batch(16)).RefusedWith(400, "invalid-request", "field=operations")
	got := a.Do("POST /v1/batch", batch(15)).Is(200, "results.14.body.count=64", "results.14.replayed=true")
	if len(got.Text) > 4<<20 {
		t.Errorf("a reply of %d bytes", len(got.Text))
	}
}
