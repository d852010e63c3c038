package mcp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
	"github.com/signalbox/signalbox/test/clienttest"
)

// model is a client of one server.
type model struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Scanner
	ended chan error
	last  int // id of a request
}

// start runs a server until the test ends, or until end.
func start(t *testing.T, cluster *clienttest.Cluster) *model {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	m := &model{t: t, in: to, out: bufio.NewScanner(from), ended: make(chan error, 1)}
	c, err := signalbox.New(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		err := New(c, "1.2.3", 10*time.Second, out).Serve(t.Context(), in)
		_ = c.Close(t.Context())
		m.ended <- err
	}()
	return m
}

// end closes the input, and waits for the server.
func (m *model) end() {
	m.t.Helper()
	_ = m.in.Close()
	if err := <-m.ended; err != nil {
		m.t.Error(err)
	}
}

func (m *model) send(line string) {
	if _, err := io.WriteString(m.in, line+"\n"); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) receive() string {
	m.t.Helper()
	if !m.out.Scan() {
		m.t.Fatal("the server has closed its output")
	}
	return m.out.Text()
}

// call calls a tool, and returns what the model reads.
func (m *model) call(tool, arguments string) string {
	m.t.Helper()
	m.last++
	m.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, m.last, tool, arguments))
	line := m.receive()
	var reply struct {
		ID     int
		Result struct {
			Content []struct{ Text string }
			IsError bool
		}
		Error *failure
	}
	if err := json.Unmarshal([]byte(line), &reply); err != nil || reply.ID != m.last {
		m.t.Fatalf("%s: %v", line, err)
	}
	switch {
	case reply.Error != nil:
		return "refused: " + reply.Error.Message
	case reply.Result.IsError:
		return "failed: " + reply.Result.Content[0].Text
	}
	return reply.Result.Content[0].Text
}

// want calls a tool, and expects texts in what the model reads.
func (m *model) want(tool, arguments string, texts ...string) {
	m.t.Helper()
	got := m.call(tool, arguments)
	for _, text := range texts {
		if !strings.Contains(got, text) {
			m.t.Errorf("%s %s: %s\nit lacks %s", tool, arguments, got, text)
		}
	}
}

// virtually runs a test in virtual time, on a cluster with the semaphore db of one permit.
func virtually(t *testing.T, test func(t *testing.T, cluster *clienttest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := clienttest.Start(t)
		c := cluster.Client()
		if _, _, err := c.Create(t.Context(), "db", 1); err != nil {
			t.Fatal(err)
		}
		test(t, cluster)
	})
}

func TestProtocol(t *testing.T) {
	virtually(t, func(t *testing.T, cluster *clienttest.Cluster) {
		m := start(t, cluster)
		for _, c := range []struct{ send, want string }{
			{`{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"editor"}}}`,
				`{"id":"a","jsonrpc":"2.0","result":{"capabilities":{"tools":{}},"instructions":"Signalbox keeps`},
			{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}`, `"protocolVersion":"2025-11-25"`},
			{`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n\n" + `{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"id":2,"jsonrpc":"2.0","result":{}}`},
			{`{"jsonrpc":"2.0","id":3,"result":{}}` + "\n" + `{"jsonrpc":"2.0","id":4,"method":"resources/list"}`, `"error":{"code":-32601`},
			{`{"id":5,"method":"ping"}`, `{"error":{"code":-32600`},
			{`{"jsonrpc"`, `{"error":{"code":-32700,"message":"This is not JSON`},
			{`[1]`, `{"error":{"code":-32600,"message":"This is not a request`},
			{`{"jsonrpc":"2.0","id":11,"method":"` + strings.Repeat("x", longestMessage) + `"}`, `{"error":{"code":-32600,"message":"A message has at most`},
			{`{"jsonrpc":"2.0","id":6,"method":"tools/list"}`, `"required":["semaphore","used"]`},
			{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"steal"}}`, `"error":{"code":-32602,"message":"there is no tool \"steal\""}`},
			{`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"acquire","arguments":{"semaphore":"db","permits":2}}}`, `acquire has no argument \"permits\"`},
			{`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"why"}}`, `the arguments of why lack semaphore`},
			{`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"list","arguments":{"used":1}}}`, `list has no argument \"used\"`},
			{`{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"acquire","arguments":{"semaphore":"db","wait_seconds":-1}}}`, `wait_seconds: this is less than 0`},
			{`{"jsonrpc":"2.0","id":13,"method":"tools/call","params":{"name":"acquire","arguments":{"semaphore":"db","wait_seconds":51}}}`, `"wait_seconds: this is more than 50"`},
			{`{"jsonrpc":"2.0","id":14,"method":"tools/call","params":{"name":"acquire","arguments":{"semaphore":"db","count":0}}}`, `"count: this is less than 1"`},
			{`{"jsonrpc":"2.0","id":15,"method":"tools/call","params":{"name":"acquire","arguments":{"semaphore":"db","count":1.5}}}`, `"count: this is not a whole number"`},
			{`{"jsonrpc":"2.0","id":16,"method":"tools/call","params":{"name":"acquire","arguments":{"semaphore":"db","count":"1"}}}`, `"count: this is not a number"`},
			{`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"settle","arguments":{"semaphore":"db","used":-1}}}`, `"used: this is less than 0"`},
			{`{"jsonrpc":"2.0","id":18,"method":"tools/call","params":{"name":"why","arguments":{"semaphore":7}}}`, `"semaphore: this is not a string"`},
			{`{"jsonrpc":"2.0","id":19,"method":"tools/call","params":{"name":"why","arguments":[]}}`, `the arguments of why are not an object`},
		} {
			m.send(c.send)
			if got := m.receive(); !strings.Contains(got, c.want) {
				t.Errorf("%s\ngot    %s\nwanted %s", c.send, got, c.want)
			}
		}
		m.end()
	})
}

// TestAcquireKeepsItsPlace: a request waits on when its acquire has returned, and the next acquire of the same permits
// waits in the same place.
func TestAcquireKeepsItsPlace(t *testing.T) {
	virtually(t, func(t *testing.T, cluster *clienttest.Cluster) {
		holder, first, second := start(t, cluster), start(t, cluster), start(t, cluster)
		holder.want("acquire", `{"semaphore":"db"}`, `"state":"granted"`, `"token":1`)
		holder.want("acquire", `{"semaphore":"db","count":1.0}`, `"token":1`)
		holder.want("acquire", `{"semaphore":"db","count":2}`, "failed: this server holds or waits for 1 of db")
		begun := time.Now()
		first.want("acquire", `{"semaphore":"db"}`, `"state":"waiting"`, `"position":1`, "Call acquire again", `"why":`)
		if waited := time.Since(begun); waited < longestWait || waited > longestWait+time.Second {
			t.Error(waited)
		}
		second.want("acquire", `{"semaphore":"db","wait_seconds":1}`, `"position":2`)
		second.want("why", `{"semaphore":"db"}`, `"waiters":[`, `signalbox mcp`)
		holder.want("release", `{"semaphore":"db"}`, `"state":"released"`)
		holder.want("release", `{"semaphore":"db"}`, "failed: this server neither holds nor waits")
		second.want("acquire", `{"semaphore":"db","wait_seconds":1}`, `"position":1`)
		first.want("acquire", `{"semaphore":"db"}`, `"token":2`)
		first.end() // gives it back
		second.want("acquire", `{"semaphore":"db"}`, `"token":3`)
		second.want("list", `{"prefix":"d"}`, `"name":"db"`, `"mine":[{"count":1,"group":"","semaphore":"db","state":"granted","token":3}]`)
		second.end()
		holder.end()
	})
}

// TestAbandonedRequestIsWithdrawn: if no acquire asks for a request again, the request is withdrawn, so that it takes no
// permits from other clients.
func TestAbandonedRequestIsWithdrawn(t *testing.T) {
	virtually(t, func(t *testing.T, cluster *clienttest.Cluster) {
		holder, abandons, next := start(t, cluster), start(t, cluster), start(t, cluster)
		holder.want("acquire", `{"semaphore":"db"}`, "granted")
		abandons.want("acquire", `{"semaphore":"db","wait_seconds":1}`, "waiting")
		time.Sleep(keptFor - 10*time.Second)                           // virtual
		abandons.want("acquire", `{"semaphore":"db"}`, `"position":1`) // also beyond the two minutes
		next.want("acquire", `{"semaphore":"db","wait_seconds":1}`, `"position":2`)
		holder.want("release", `{"semaphore":"db"}`, "released")
		next.want("acquire", `{"semaphore":"db"}`, `"position":1`) // the grant waits for its acquire
		time.Sleep(keptFor)                                        // virtual
		next.want("acquire", `{"semaphore":"db"}`, "granted")
		abandons.want("release", `{"semaphore":"db"}`, "failed: this server neither holds")
		for _, m := range []*model{holder, abandons, next} {
			m.end()
		}
	})
}

// TestCancelledCall: a call that its client cancels gets no response, but its request still waits.
func TestCancelledCall(t *testing.T) {
	virtually(t, func(t *testing.T, cluster *clienttest.Cluster) {
		holder, waits := start(t, cluster), start(t, cluster)
		holder.want("acquire", `{"semaphore":"db"}`, "granted")
		waits.send(`{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"acquire","arguments":{"semaphore":"db"}}}`)
		synctest.Wait()
		waits.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w"}}`)
		waits.want("list", `{}`, `"state":"waiting"`)
		holder.want("release", `{"semaphore":"db"}`, "released")
		synctest.Wait()
		waits.want("list", `{}`, "granted: call acquire")
		waits.want("acquire", `{"semaphore":"db","wait_seconds":0}`, `"state":"granted"`)
		waits.want("release", `{"semaphore":"db"}`, "released")
		waits.want("acquire", `{"semaphore":"none"}`, "failed: ", "The tool list shows the names.")
		waits.want("acquire", `{"semaphore":"db","count":2}`, "failed: ", "permits. The semaphore never has so many permits.")
		waits.end()
		holder.end()
	})
}

// TestSettle: the permits that were really used are settled, and the loss of a lease is reported.
func TestSettle(t *testing.T) {
	virtually(t, func(t *testing.T, cluster *clienttest.Cluster) {
		m, c := start(t, cluster), cluster.Client()
		if _, _, err := c.Create(t.Context(), "tpm", 100, signalbox.Window(time.Minute), signalbox.Groups(signalbox.ByRequest)); err != nil {
			t.Fatal(err)
		}
		m.want("settle", `{"semaphore":"tpm","used":3}`, "failed: this server holds no permits of tpm")
		m.want("acquire", `{"semaphore":"tpm","group":"acme","count":60}`, "granted", "Call settle")
		m.want("settle", `{"semaphore":"tpm","group":"acme"}`, "refused: the arguments of settle lack used")
		m.want("settle", `{"semaphore":"tpm","group":"acme","used":20}`, `"settled":true`)
		m.want("acquire", `{"semaphore":"tpm","count":80}`, "granted", `"token":2`)
		m.want("settle", `{"semaphore":"tpm","used":79.0}`, `"settled":true`)
		m.want("settle", `{"semaphore":"tpm","used":1}`, "failed: this server holds no permits of tpm")
		m.want("acquire", `{"semaphore":"tpm","count":5,"wait_seconds":1}`, "waiting") // 99 of 100 are spent
		m.end()
	})
}

// TestOutcomeIsToldOnce: the acquire after the end of a request tells how the request ended; only a further acquire
// begins a new request.
func TestOutcomeIsToldOnce(t *testing.T) {
	virtually(t, func(t *testing.T, cluster *clienttest.Cluster) {
		holder, older, newer, c := start(t, cluster), start(t, cluster), start(t, cluster), cluster.Client()
		if _, _, err := c.Create(t.Context(), "one", 1, signalbox.MaxWaiting(1), signalbox.WhenFull(signalbox.DropOldest)); err != nil {
			t.Fatal(err)
		}
		holder.want("acquire", `{"semaphore":"one"}`, "granted")
		older.want("acquire", `{"semaphore":"one","wait_seconds":1}`, "waiting")
		newer.want("acquire", `{"semaphore":"one","wait_seconds":1}`, "waiting")
		synctest.Wait()
		older.want("acquire", `{"semaphore":"one","wait_seconds":1}`, "failed: ", "superseded")
		newer.want("list", `{"prefix":"o"}`, `"state":"waiting"`)
		if err := c.Delete(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		newer.want("acquire", `{"semaphore":"one"}`, "failed: ", "deleted")
		newer.want("acquire", `{"semaphore":"one"}`, "failed: ", "The tool list shows the names.")
		holder.want("acquire", `{"semaphore":"one"}`, "failed: ", "lost")
		for _, m := range []*model{holder, older, newer} {
			m.end()
		}
	})
}

// TestLossIsTold: acquire does not repeat a grant that was revoked a moment ago.
func TestLossIsTold(t *testing.T) {
	virtually(t, func(t *testing.T, cluster *clienttest.Cluster) {
		m, c := start(t, cluster), cluster.Client()
		m.want("acquire", `{"semaphore":"db"}`, `"token":1`)
		db, err := c.Get(t.Context(), "db", signalbox.Holders(1))
		if err != nil {
			t.Fatal(err)
		}
		if err := operator.New(c).Revoke(t.Context(), "db", db.Holders[0].Session, "maintenance", 0); err != nil {
			t.Fatal(err)
		}
		m.want("acquire", `{"semaphore":"db"}`, "failed: ", "lost", "maintenance")
		m.want("acquire", `{"semaphore":"db"}`, `"token":2`)
		m.end()
	})
}
