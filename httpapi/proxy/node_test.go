package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client/cells"
)

// behind starts a proxy before one cell with these addresses, of which it asks the first one first.
func behind(t *testing.T, addresses ...string) *site {
	t.Helper()
	s := &site{T: t, list: []cells.Cell{{Number: 1, Prefixes: []string{""}, Nodes: addresses}}}
	s.start()
	s.first()
	return s
}

func (s *site) first() { s.p.table.Load().nodes[1].current.Store(0) }

// TestFailover: a request goes to the next node if the first node did not get it, or if it is safe to repeat.
func TestFailover(t *testing.T) {
	var count atomic.Int32
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		count.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler) // takes the request, and closes the connection
	}))
	defer silent.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	bodies := make(chan string, 8)
	works := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		_, _ = w.Write([]byte("works"))
	}))
	defer works.Close()

	s := behind(t, gone.URL, works.URL)
	large := strings.Repeat("x", 2<<20)
	for _, body := range []string{"small", large} {
		s.first()
		s.ask("PUT /v1/items/a", body).is(200, "works")
		if got := <-bodies; got != body || len(bodies) > 0 {
			t.Errorf("%d bytes came, and %d more bodies", len(got), len(bodies))
		}
	}
	behind(t, gone.URL).ask("PUT /v1/items/a", "small").is(503, "not-applied", "no effect")
	behind(t, gone.URL).ask("PUT /v1/kv/a", "x").is(500, "could be reached")

	s = behind(t, silent.URL, works.URL)
	s.ask("GET /v1/items/a", "").is(200, "works")
	s.first()
	s.ask("POST /v1/semaphores/a/up", "").is(504, "outcome-unknown")
	s.ask("POST /v1/semaphores/a/up", "").is(200, "works") // the next request goes elsewhere
	s.first()
	s.ask("POST /v1/semaphores/a/up", "", "Idempotency-Key: 0123456789abcdef").is(200, "works")
	behind(t, silent.URL).ask("GET /v1/items/a", "").is(503, "not-applied")

	// If the first node got a request, neither the reply of a later node nor its absence tells what became of the
	// request.
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer refuses.Close()
	for _, later := range []string{gone.URL, refuses.URL} {
		s = behind(t, silent.URL, later)
		s.first()
		s.ask("POST /v1/semaphores/a/up", "", "Idempotency-Key: 0123456789abcdef").is(504, "outcome-unknown")
	}
	if n := count.Load(); n != 6 { // net/http itself does not repeat on a new connection
		t.Errorf("the silent node was asked %d times", n)
	}
}

// TestRepeatsHaveTheirBody: a request with a key, whose body the proxy has read, is repeated with that body.
func TestRepeatsHaveTheirBody(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	defer silent.Close()
	works := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer works.Close()
	s := &site{T: t, list: []cells.Cell{{Number: 1, Prefixes: []string{""}, Nodes: []string{silent.URL, works.URL}}, {Number: 2, Prefixes: []string{"eu/"}, Nodes: []string{works.URL}}}}
	s.start()
	s.first()
	s.ask("POST /v1/semaphores", `{"name":"a"}`, "Idempotency-Key: 0123456789abcdef").is(200, `{"name":"a"}`)
}

// TestFaultsOfNodesMoveOn: a reply of 503 goes to the client, and the next request goes to another node.
func TestFaultsOfNodesMoveOn(t *testing.T) {
	draining := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(503)
		_, _ = w.Write([]byte("draining"))
	}))
	defer draining.Close()
	works := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("works")) }))
	defer works.Close()
	s := behind(t, draining.URL, works.URL)
	if a := s.ask("POST /v1/semaphores/a/up", "").is(503, "draining"); a.header.Get("Retry-After") != "1" {
		t.Errorf("headers: %v", a.header)
	}
	s.ask("POST /v1/semaphores/a/up", "").is(200, "works")
}

// TestNodesOfOtherCellsAreNoticed: if the file lists a node of cell 1 under cell 2, the node refuses the requests of
// cell 2. The log names the node, and the next request goes to another node.
func TestNodesOfOtherCellsAreNoticed(t *testing.T) {
	s := &site{T: t, cells: map[int]*cellOfTest{1: newCell(t, 1), 2: newCell(t, 2)}}
	s.list = []cells.Cell{{Number: 1, Prefixes: []string{""}, Nodes: []string{s.cells[1].URL}}, {Number: 2, Prefixes: []string{"eu/"}, Nodes: []string{s.cells[1].URL, s.cells[2].URL}}}
	s.start()
	for _, line := range []string{"PUT /v1/semaphores/eu%2Fdb", "PUT /cells/2/v1/semaphores/eu%2Fdb", "GET /v1/semaphores"} {
		s.p.table.Load().nodes[2].current.Store(0)
		s.ask(line, `{"permits":1}`).is(421, "This node is of cell 1")
	}
	s.ask("PUT /v1/semaphores/eu%2Fdb", `{"permits":1}`).is(201)
	s.ask("GET /v1/semaphores", "").is(200, "eu/db")
	s.askAt(s.cells[1].URL, "GET /v1/semaphores/eu%2Fdb", "").is(404)
	if want := "cell=2 node=" + strings.TrimPrefix(s.cells[1].URL, "http://") + " cell_of_node=1"; strings.Count(s.log.String(), want) != 3 {
		t.Errorf("the log lacks %q three times: %s", want, s.log.String())
	}
}

// TestRepliesPassAsTheyCome: the client gets a part of a reply before the node has sent the rest. If a client hangs up,
// the proxy ends the request at the node.
func TestRepliesPassAsTheyCome(t *testing.T) {
	ended := make(chan struct{})
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s\n", r.Host, r.Header.Get("X-Forwarded-For"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	}))
	defer node.Close()
	s := behind(t, node.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := s.request(s.proxy.URL, "GET /v1/events", "", "X-Forwarded-For: 192.0.2.7").WithContext(ctx)
	r.Host = "signalbox.example"
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil || line != "signalbox.example 192.0.2.7, 127.0.0.1\n" {
		t.Errorf("%q %v", line, err)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the request at the node goes on")
	}
}

// TestBodiesAreBounded: a body that the proxy has to read is refused above its limit. A body that it passes on has no
// limit.
func TestBodiesAreBounded(t *testing.T) {
	s := newSite(t)
	large := `{"name":"` + strings.Repeat("x", bodyBytes) + `"}`
	s.ask("POST /v1/semaphores", large).is(413, "too-large", fmt.Sprint(bodyBytes)).cameTo()
	s.ask("POST /terraform/eu/prod", `{"version":4,"serial":1,"x":"`+large+`"}`).cameTo(2)
	for range bodiesInMemory {
		s.p.reading <- struct{}{}
	}
	s.ask("POST /v1/semaphores", `{"permits":1,"name":"eu/x"}`).is(201)
	s.ask("POST /v1/batch", `{"operations":[]`+strings.Repeat(" ", smallBytes)+"}").is(429, "limit-reached")
	<-s.p.reading
	for range 2 { // the place comes back
		s.ask("POST /v1/batch", `{"operations":[]`+strings.Repeat(" ", smallBytes)+"}").is(200)
	}
}

// TestAddressesAreChecked: a node has a base URL without a user.
func TestAddressesAreChecked(t *testing.T) {
	for _, address := range []string{"ftp://n1", "http://", "http://u:p@n1", "http://n1?x=1", "%"} {
		m, err := cells.New([]cells.Cell{{Number: 5, Prefixes: []string{""}, Nodes: []string{"http://n2", address}}})
		if err == nil {
			_, err = New(Config{Cells: m})
		}
		if err == nil || !strings.Contains(err.Error(), "cell 5") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestSmallBodiesKeepNoPlace: a small body of unknown length takes a place while it is read, but not while its request
// waits.
func TestSmallBodiesKeepNoPlace(t *testing.T) {
	var s *site
	during := -1
	node := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) { during = len(s.p.reading) }))
	defer node.Close()
	s = &site{T: t, list: []cells.Cell{{Number: 1, Prefixes: []string{""}, Nodes: []string{node.URL}}, {Number: 2, Prefixes: []string{"eu/"}, Nodes: []string{node.URL}}}}
	s.start()
	s.p.reading <- struct{}{} // of another request
	r := s.request(s.proxy.URL, "POST /v1/semaphores", "")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`{"name":"a"}`)), -1
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	s.proxy.Close() // waits for the request's end
	if during != 1 || len(s.p.reading) != 1 {
		t.Errorf("%d places during the request, %d after it, want the other request's", during, len(s.p.reading))
	}
}

// TestStalledBodiesEnd: if a client announces a body and does not send it, its connection ends after bodyTimeout. This
// holds whether the proxy or the node reads the body, and also after a refusal.
func TestStalledBodiesEnd(t *testing.T) {
	s := newSite(t)
	s.p.bodyTimeout = 50 * time.Millisecond
	for _, line := range []string{"PUT /v1/items/a", "POST /v1/semaphores", "POST /v1/batch", "PUT /v1/cluster/tokens"} {
		conn, err := net.Dial("tcp", s.proxy.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.WriteString(conn, line+" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil { // until the proxy closes it
			t.Errorf("%s: %v", line, err)
		}
	}
}
