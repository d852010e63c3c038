package exchange_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// A reply shows the first obstacles of a waiter and how many obstacles there are in all. It shows as many waiters as fit
// into a few megabytes.
func TestRepliesAreBounded(t *testing.T) {
	const pageBytes = 4 << 20 // of text
	a := apitest.New(t)
	a.Crowd(1000)
	path := exchange.SemaphorePath(apitest.LongName(0))
	got := a.Do("GET "+path, "").Is(200, "waiter_count=1000", "waiters.0.obstacle_count=64", "waiters.0.obstacles.length=8",
		"waiters.0.obstacles.0.semaphore="+apitest.LongName(0))
	if shown := got.Member("waiters.length"); shown != "100" {
		t.Errorf("%s of 100 waiters are shown", shown)
	}
	whole := a.Do("GET "+path+"?waiters=1000&holders=1000", "").Is(200, "waiter_count=1000", "holder_count=1")
	if len(whole.Text) > 3*pageBytes || len(whole.Text) < pageBytes || whole.Member("waiters.999.position") != "absent" {
		t.Errorf("a reply of %d bytes", len(whole.Text))
	}
	session := a.Do("GET /v1/sessions/2", "").Is(200, "waiting_count=1", "waiting.0.obstacle_count=64", "waiting.0.obstacles.length=8")
	if len(session.Text) > 200<<10 {
		t.Errorf("a session of %d bytes", len(session.Text))
	}
	wide := fsm.DefaultLimits()
	wide.SessionWaiting, wide.SessionLeases = 20_000, 20_000
	commands := []fsm.Command{fsm.StartTerm{Term: 1, Leader: "n1", Limits: wide}, fsm.OpenSession{Session: 5000, TTLMS: 3_600_000}}
	const requests = 160 // each for other semaphores: more than a reply shows
	for i := range requests {
		var wants []fsm.Want
		for j := range fsm.MaxMembers {
			name := apitest.LongName(1000 + i*fsm.MaxMembers + j)
			wants = append(wants, fsm.Want{Semaphore: name, Count: 1})
			commands = append(commands, fsm.CreateSemaphore{Name: name, Permits: 1}, fsm.Down{Name: name, Count: 1})
		}
		commands = append(commands, fsm.AcquireMany{Session: 5000, Wants: wants, Mode: fsm.Any})
	}
	a.Begin(commands...)
	busy := a.Do("GET /v1/sessions/5000", "").Is(200, fmt.Sprintf("waiting_count=%d", requests))
	if len(busy.Text) > 3*pageBytes || len(busy.Text) < pageBytes || busy.Member("waiting.159.position") != "absent" {
		t.Errorf("a session of %d bytes", len(busy.Text))
	}
}

// Unread replies leave room for small replies, and for no more large replies.
func TestUntakenRepliesAreBounded(t *testing.T) {
	a, _, address := apitest.Serve(t, func(cfg *apitest.Config) { cfg.Exchange.ReplyMemory = 24 << 20 })
	a.Crowd(1000)
	path := exchange.SemaphorePath(apitest.LongName(0)) + "?waiters=1000"
	var conns []net.Conn
	for range 12 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: n1\r\n\r\n", path)
		conns = append(conns, conn)
	}
	refused := 0
	for _, conn := range conns { // the heads of all: replies that are made stay, the others are refusals
		response, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode == 429 {
			refused++
			body, _ := io.ReadAll(response.Body)
			if !strings.Contains(string(body), `"rule":"reply-memory"`) {
				t.Errorf("%s", body)
			}
		}
	}
	if refused == 0 || refused == len(conns) {
		t.Errorf("%d of %d were refused", refused, len(conns))
	}
	if used := a.X.UsedReplies(); used > 24<<20 {
		t.Errorf("%d bytes of replies", used)
	}
	a.Do("GET /v1/semaphores/"+strings.TrimPrefix(exchange.SemaphorePath("none"), "/v1/semaphores/"), "").RefusedWith(404, "unknown-semaphore")
	for _, conn := range conns {
		conn.Close()
	}
	awaitFree(a, a.X.UsedReplies)
}

// Replies that report an effect are never refused, so they may exceed the budget. Small reads are served nevertheless.
func TestSmallReadsBesideTooManyReplies(t *testing.T) {
	a := apitest.New(t)
	a.Crowd(100)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.X.InsistReplies(a.X.MostReplies() + 1)
	a.Do("GET /v1/semaphores/db", "").Is(200)
	refused := a.Do("GET "+exchange.SemaphorePath(apitest.LongName(0)), "").RefusedWith(429, "limit-reached", "rule=reply-memory")
	if tag := refused.Header.Get("ETag"); tag != "" {
		t.Errorf("the refusal has the ETag %s of the semaphore", tag)
	}
}

// A read waits while other large replies are built. If its client hangs up meanwhile, its reply is not built any more.
func TestReadThatWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := apitest.New(t)
		a.X.TakeTurns()
		ctx, hangUp := context.WithCancel(t.Context())
		response := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Handler.ServeHTTP(response, httptest.NewRequestWithContext(ctx, "GET", "/v1/semaphores", nil))
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("it does not wait for its turn")
		default:
		}
		hangUp()
		<-done
		if response.Code != exchange.StatusGone {
			t.Errorf("status %d", response.Code)
		}
	})
}

// awaitFree waits until a budget is free again.
func awaitFree(a *apitest.API, used func() int64) {
	a.Helper()
	for began := time.Now(); used() != 0; runtime.Gosched() {
		if time.Since(began) > 20*time.Second {
			a.Fatalf("%d bytes are still reserved", used())
		}
	}
}

// However many bodies stall after a part of them, they take no more than their budget. They keep out later large
// requests, but no small requests.
func TestStalledBodiesAreBounded(t *testing.T) {
	a, _, address := apitest.Serve(t, func(cfg *apitest.Config) {
		cfg.Exchange.BodyMemory = 8 << 20
		withThrottle(cfg)
	})
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var conns []net.Conn
	var sent sync.WaitGroup
	part := strings.Repeat(" ", 900<<10)
	for i := range 100 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		path := "/v1/batch"
		if i%10 == 0 {
			path = "/restore"
		}
		sent.Go(func() {
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: n1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, 1<<20)
			_, _ = io.WriteString(conn, part) // refused ones may be reset
		})
	}
	sent.Wait()
	for began := time.Now(); a.X.UsedBodies() < 4<<20; runtime.Gosched() {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("only %d bytes are held", a.X.UsedBodies())
		}
	}
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 24<<20 {
		t.Errorf("the heap grew by %d MiB under 100 stalled bodies", grown>>20)
	}
	a.Do("PUT /v1/semaphores/small", `{"permits":1}`).Is(201)
	a.X.InsistBodies(8 << 20) // certainly full
	a.Do("POST /v1/batch", `{"operations":[]}`+strings.Repeat(" ", 10<<10)).RefusedWith(429, "limit-reached", "rule=body-memory")
	a.Do("PUT /v1/semaphores/small", `{"permits":2}`).Is(200)
	a.X.InsistBodies(-8 << 20)
	for _, conn := range conns {
		conn.Close()
	}
	awaitFree(a, a.X.UsedBodies)
	a.Do("POST /v1/batch", `{"operations":[{"op":"up","semaphore":"small"}]}`+strings.Repeat(" ", 10<<10)).Is(200)
	awaitFree(a, a.X.UsedBodies)
}

// While a request waits, its body, which has been read, takes no room.
func TestWaitingRequestHoldsNoBody(t *testing.T) {
	a := apitest.New(t, withNodeRED)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.Must(201, "POST /v1/semaphores/db/leases", "")
	for _, c := range []struct {
		Route, body string
		status      int
	}{
		{"POST /v1/semaphores/db/leases", `{"wait":"10m"}`, 201},
		{"POST /semaphore/down", `{"name":"db","wait":"10m"}`, 200},
	} {
		waits := a.GoDo(c.Route, c.body+strings.Repeat(" ", 50<<10))
		a.Node.AwaitWaits(1)
		awaitFree(a, a.X.UsedBodies)
		a.Must(200, "POST /v1/semaphores/db/up", "")
		(<-waits).Is(c.status)
	}
}

// A body that is too large gets its 413, even if the client sends the whole body first.
func TestOverlargeBodyIsReadOn(t *testing.T) {
	_, _, address := apitest.Serve(t)
	for _, head := range []string{"Content-Length: 4000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3D0900\r\n"} {
		for range 5 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, "POST /v1/batch HTTP/1.1\r\nHost: n1\r\n"+head)
			part := strings.Repeat(" ", 1_000_000)
			for range 4 {
				if _, err := io.WriteString(conn, part); err != nil {
					t.Fatalf("the connection was cut off while it was sent: %v", err)
				}
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || response.StatusCode != 413 {
				t.Fatalf("%v %v", response, err)
			}
			conn.Close()
		}
	}
}

// A batch that is performed always gets its whole reply, however long. So a node performs no batch while unread replies
// exceed the budget.
func TestBatchBesideTooManyReplies(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/a", `{"permits":0}`)
	const up = `{"operations":[{"op":"up","semaphore":"a"}]}`
	a.X.InsistReplies(a.X.MostReplies() + 1)
	a.Do("POST /v1/batch", up).RefusedWith(429, "limit-reached", "rule=reply-memory")
	a.X.InsistReplies(-1)
	a.Do("POST /v1/batch", up).Is(200, "results.0.body.value=1")
}
