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

// Each reply within a batch equals the reply of the single route. Only the instance of a problem differs: it is the
// instance of the whole batch.
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

// An operation that lists semaphores counts once for each of them. A batch that is refused because of this count has no
// effect.
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

// The reply to a delivery lists semaphores that the operation does not name, and so does each repeat. Nevertheless a
// batch of deliveries has no reply of many megabytes.
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
