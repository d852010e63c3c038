package httpapi

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
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// begin applies commands that prepare a test, many in one entry.
func (a *testAPI) begin(commands ...fsm.Command) {
	a.Helper()
	a.node.set(func() {
		for len(commands) > 0 {
			n := min(len(commands), 500)
			var encoded [][]byte
			for _, c := range commands[:n] {
				encoded = append(encoded, fsm.Envelope{}.Encode(c))
			}
			for i, r := range a.node.apply(encoded...).Commands {
				if r.Result.Code != fsm.OK && r.Result.Code != fsm.Waiting {
					a.Fatalf("%T: %v", commands[i], r.Result.Code)
				}
			}
			commands = commands[n:]
		}
	})
}

// longName is a name of 512 bytes, each of which JSON writes as two.
func longName(i int) string { return fmt.Sprintf("%s%05d", strings.Repeat(`"`, 507), i) }

// crowd makes requests that each wait for the same 64 semaphores of long names.
func (a *testAPI) crowd(requests int) {
	var commands []fsm.Command
	var wants []fsm.Want
	for i := range fsm.MaxMembers {
		commands = append(commands, fsm.CreateSemaphore{Name: longName(i)})
		wants = append(wants, fsm.Want{Semaphore: longName(i), Count: 1})
	}
	for i := range wants { // so that each of them can be waited for
		commands = append(commands, fsm.Up{Name: wants[i].Semaphore, Count: 1})
	}
	holder := uint64(1)
	commands = append(commands, fsm.OpenSession{Session: holder, TTLMS: 3_600_000}, fsm.AcquireMany{Session: holder, Wants: wants, Mode: fsm.All})
	metadata := []fsm.Pair{{Key: "k", Value: strings.Repeat(`"`, 1000)}}
	for i := range requests {
		id := uint64(i + 2)
		commands = append(commands, fsm.OpenSession{Session: id, TTLMS: 3_600_000, Metadata: metadata},
			fsm.AcquireMany{Session: id, Wants: wants, Mode: fsm.All})
	}
	a.begin(commands...)
}

// A reply shows the first of a waiter's obstacles and how many there are, and as many
// waiters as few megabytes hold.
func TestRepliesAreBounded(t *testing.T) {
	a := newTestAPI(t)
	a.crowd(1000)
	path := semaphorePath(longName(0))
	got := a.do("GET "+path, "").is(200, "waiter_count=1000", "waiters.0.obstacle_count=64", "waiters.0.obstacles.length=8",
		"waiters.0.obstacles.0.semaphore="+longName(0))
	if shown := got.member("waiters.length"); shown != "100" {
		t.Errorf("%s of 100 waiters are shown", shown)
	}
	whole := a.do("GET "+path+"?waiters=1000&holders=1000", "").is(200, "waiter_count=1000", "holder_count=1")
	if len(whole.text) > 3*pageBytes || len(whole.text) < pageBytes {
		t.Errorf("a reply of %d bytes", len(whole.text))
	}
	session := a.do("GET /v1/sessions/2", "").is(200, "waiting_count=1", "waiting.0.obstacle_count=64", "waiting.0.obstacles.length=8")
	if len(session.text) > 200<<10 {
		t.Errorf("a session of %d bytes", len(session.text))
	}
	wide := fsm.DefaultLimits()
	wide.SessionWaiting, wide.SessionLeases = 20_000, 20_000
	commands := []fsm.Command{fsm.Reign{Term: 1, Leader: "n1", Limits: wide}, fsm.OpenSession{Session: 5000, TTLMS: 3_600_000}}
	const requests = 160 // each for semaphores of its own: more than a reply shows
	for i := range requests {
		var wants []fsm.Want
		for j := range fsm.MaxMembers {
			name := longName(1000 + i*fsm.MaxMembers + j)
			wants = append(wants, fsm.Want{Semaphore: name, Count: 1})
			commands = append(commands, fsm.CreateSemaphore{Name: name, Permits: 1}, fsm.Down{Name: name, Count: 1})
		}
		commands = append(commands, fsm.AcquireMany{Session: 5000, Wants: wants, Mode: fsm.Any})
	}
	a.begin(commands...)
	busy := a.do("GET /v1/sessions/5000", "").is(200, fmt.Sprintf("waiting_count=%d", requests))
	if len(busy.text) > 3*pageBytes || len(busy.text) < pageBytes || busy.member("waiting.159.position") != "absent" {
		t.Errorf("a session of %d bytes", len(busy.text))
	}
}

// Replies that nobody takes leave room for small ones, and for no more large ones.
func TestUntakenRepliesAreBounded(t *testing.T) {
	a, _, address := serve(t, func(cfg *Config) { cfg.ReplyMemory = 24 << 20 })
	a.crowd(1000)
	path := semaphorePath(longName(0)) + "?waiters=1000"
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
	for _, conn := range conns { // the heads of all: those that are made stay, the others are told
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
	if used := a.handler.replies.used.Load(); used > 24<<20 {
		t.Errorf("%d bytes of replies", used)
	}
	a.do("GET /v1/semaphores/"+strings.TrimPrefix(semaphorePath("none"), "/v1/semaphores/"), "").refusedWith(404, "unknown-semaphore")
	for _, conn := range conns {
		conn.Close()
	}
	a.awaitFree(&a.handler.replies.used)
}

// Replies that tell what was done are never refused, and may take more room than
// there is: small reads are served nevertheless.
func TestSmallReadsBesideTooManyReplies(t *testing.T) {
	a := newTestAPI(t)
	a.crowd(100)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.handler.replies.insist(a.handler.replies.most + 1)
	a.do("GET /v1/semaphores/db", "").is(200)
	a.do("GET "+semaphorePath(longName(0)), "").refusedWith(429, "limit-reached", "rule=reply-memory")
}

// A read whose client hangs up while other replies are made is not made any more.
func TestReadThatWaitsForItsTurn(t *testing.T) {
	a := newTestAPI(t)
	for range cap(a.handler.makers) {
		a.handler.makers <- struct{}{}
	}
	ctx, hangUp := context.WithCancel(t.Context())
	response := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.handler.ServeHTTP(response, httptest.NewRequestWithContext(ctx, "GET", "/v1/semaphores", nil))
	}()
	hangUp()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it waits on")
	}
	if response.Code != statusGone {
		t.Errorf("status %d", response.Code)
	}
}

type loader interface{ Load() int64 }

// awaitFree waits until a budget is free again.
func (a *testAPI) awaitFree(used loader) {
	a.Helper()
	for began := time.Now(); used.Load() != 0; runtime.Gosched() {
		if time.Since(began) > 20*time.Second {
			a.Fatalf("%d bytes are still reserved", used.Load())
		}
	}
}

// Bodies that arrive in part and stall take no more than their budget, however many
// there are, and keep small requests out no more than large ones that come later.
func TestStalledBodiesAreBounded(t *testing.T) {
	a, _, address := serve(t, func(cfg *Config) {
		cfg.BodyMemory = 8 << 20
		cfg.Throttle = &Throttle{}
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
	for began := time.Now(); a.handler.bodySpace.used.Load() < 4<<20; runtime.Gosched() {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("only %d bytes are held", a.handler.bodySpace.used.Load())
		}
	}
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 24<<20 {
		t.Errorf("the heap grew by %d MiB under 100 stalled bodies", grown>>20)
	}
	a.do("PUT /v1/semaphores/small", `{"permits":1}`).is(201)
	a.handler.bodySpace.insist(8 << 20) // certainly full
	a.do("POST /v1/batch", `{"operations":[]}`+strings.Repeat(" ", 10<<10)).refusedWith(429, "limit-reached", "rule=body-memory")
	a.do("PUT /v1/semaphores/small", `{"permits":2}`).is(200)
	a.handler.bodySpace.give(8 << 20)
	for _, conn := range conns {
		conn.Close()
	}
	a.awaitFree(&a.handler.bodySpace.used)
	a.do("POST /v1/batch", `{"operations":[{"op":"up","semaphore":"small"}]}`+strings.Repeat(" ", 10<<10)).is(200)
	a.awaitFree(&a.handler.bodySpace.used)
}

// A request that waits holds no room of its body, which has been read.
func TestWaitingRequestHoldsNoBody(t *testing.T) {
	a := newTestAPI(t, func(cfg *Config) { cfg.NodeRED = &NodeRED{} })
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.must(201, "POST /v1/semaphores/db/leases", "")
	for _, c := range []struct {
		route, body string
		status      int
	}{
		{"POST /v1/semaphores/db/leases", `{"wait":"10m"}`, 201},
		{"POST /semaphore/down", `{"name":"db","wait":"10m"}`, 200},
	} {
		waits := a.goDo(c.route, c.body+strings.Repeat(" ", 50<<10))
		a.node.awaitWaits(1)
		a.awaitFree(&a.handler.bodySpace.used)
		a.must(200, "POST /v1/semaphores/db/up", "")
		(<-waits).is(c.status)
	}
}

// An overlarge body gets its 413 though the client sends all of it first.
func TestOverlargeBodyIsReadOn(t *testing.T) {
	_, _, address := serve(t)
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

// peers lists more than a reply that is made in one piece.
func TestThrottlePeersInParts(t *testing.T) {
	a, _, address := serve(t, func(cfg *Config) { cfg.Throttle = &Throttle{} })
	const most = 30_000
	var commands []fsm.Command
	var want strings.Builder
	for i := range most {
		commands = append(commands, fsm.OpenSession{Session: uint64(i + 1), TTLMS: 3_600_000})
		fmt.Fprintf(&want, `,{"id":%d}`, i+1)
	}
	a.begin(commands...)
	response, err := http.Get("http://" + address + "/peers/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil || string(got) != "["+want.String()[1:]+"]" || response.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d bytes, %v, %v", len(got), err, response.Header)
	}
	if response.ContentLength >= 0 {
		t.Error("a list of many peers is made in one piece")
	}
	if head, err := http.Head("http://" + address + "/peers/"); err != nil || head.StatusCode != 200 {
		t.Errorf("HEAD: %v %v", head, err)
	}
}

// Clients who use up the connections lock no probe out, and get no more than there
// are.
func TestConnectionsAreBounded(t *testing.T) {
	const most = 5
	a, _, address := serve(t, func(cfg *Config) { cfg.MaxConnections = most })
	var idle []net.Conn
	defer func() {
		for _, conn := range idle {
			conn.Close()
		}
	}()
	dialIdle := func() net.Conn {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
		return conn
	}
	open := func(n int64) {
		t.Helper()
		for began := time.Now(); a.handler.connections.open.Load() != n; runtime.Gosched() {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("%d connections are open, not %d", a.handler.connections.open.Load(), n)
			}
		}
	}
	for range most {
		dialIdle()
	}
	open(most)
	status, body, closed := raw(t, address, "GET /v1/semaphores HTTP/1.1\r\nHost: n1\r\n\r\n")
	if status != 429 || !closed || !strings.Contains(body, `"rule":"connections"`) {
		t.Errorf("status %d, closed %v: %s", status, closed, body)
	}
	for _, path := range []string{"/livez", "/readyz", "/health", "/version", "/metrics"} {
		if status, body, closed := raw(t, address, "GET "+path+" HTTP/1.1\r\nHost: n1\r\n\r\n"); status != 200 && path != "/health" || !closed {
			t.Errorf("%s: status %d, closed %v: %s", path, status, closed, body)
		}
	}
	began := time.Now()
	silent := dialIdle() // a probe's place, which nothing comes on
	if _, err := silent.Read(make([]byte, 1)); err == nil || time.Since(began) > 4*time.Second {
		t.Errorf("it was kept open for %v", time.Since(began))
	}
	open(most)
	for range 2 * keptConnections {
		dialIdle()
	}
	for began := time.Now(); a.handler.connections.refused.Load() < keptConnections; runtime.Gosched() {
		if time.Since(began) > 20*time.Second {
			t.Fatal("no connection beyond those kept was refused")
		}
	}
	if n := a.handler.connections.open.Load(); n > most+keptConnections {
		t.Errorf("%d connections are open", n)
	}
	for _, conn := range idle {
		conn.Close()
	}
	open(0)
	if status, _, closed := raw(t, address, "GET /v1/semaphores HTTP/1.1\r\nHost: n1\r\n\r\n"); status != 200 || closed {
		t.Errorf("afterwards: status %d, closed %v", status, closed)
	}
}
