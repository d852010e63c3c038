package events_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/httpapi"
	"github.com/signalbox/signalbox/test/apitest"
)

// logged is a log that closes its channel when its words are logged.
type logged struct {
	words string
	once  sync.Once
	seen  chan struct{}
}

func logging(words string) *logged { return &logged{words: words, seen: make(chan struct{})} }

// Write implements io.Writer.
func (l *logged) Write(line []byte) (int, error) {
	if strings.Contains(string(line), l.words) {
		l.once.Do(func() { close(l.seen) })
	}
	return len(line), nil
}

// flood makes this many events, each larger than a kilobyte.
func flood(a *apitest.API, events int) {
	a.Helper()
	a.Do("POST /v1/semaphores", `{"name":"flood","permits":1}`)
	for i := range events {
		a.Must(200, "PUT /v1/semaphores/flood",
			fmt.Sprintf(`{"permits":1,"metadata":{"n":"%s%d"}}`, strings.Repeat("x", 1000), i))
	}
}

// openWatch opens a stream on a connection with a small window, and reads the headers of the reply.
func openWatch(t *testing.T, address, query string) (net.Conn, *bufio.Reader) {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		_ = raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		return err
	}}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /v1/events%s HTTP/1.1\r\nHost: n1\r\n\r\n", query)
	reader := bufio.NewReaderSize(conn, 16)
	if line, err := reader.ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
		t.Fatalf("%q, %v", line, err)
	}
	for line := ""; line != "\r\n"; {
		if line, err = reader.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return conn, reader
}

// TestEventsCutOffWhoDoesNotRead: a client that does not read is cut off. When it comes back, it resumes, or gets the
// notice that it has missed too much.
func TestEventsCutOffWhoDoesNotRead(t *testing.T) {
	log := logging("a stream of events was cut off")
	a, _, address := apitest.Serve(t, func(cfg *apitest.Config) {
		cfg.Exchange.BodyTimeout = time.Second // a busy machine holds a reader up, too
		cfg.Exchange.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: log})
	})
	_, reader := openWatch(t, address, "?since=0")
	flood(a, 10)
	id := ""
	for id == "" || !strings.Contains(id, ".") {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := strings.CutPrefix(line, "id: "); ok {
			id = strings.TrimSpace(text)
		}
	}
	flood(a, 8000) // more than the kernel takes
	select {
	case <-log.seen:
	case <-time.After(20 * time.Second):
		t.Fatal("who does not read is still served")
	}
	back := readEvents(t, address, id)
	flood(a, 2)
	for index := 2; index <= 8015; index++ { // each entry is one event
		if index == 12 || index == 8013 {
			continue // but for a flood's first, which finds its semaphore
		}
		if got := <-back; got != fmt.Sprintf("%d.1", index) {
			t.Fatalf("on its return it gets %q instead of %d.1", got, index)
		}
	}
	b := apitest.New(t)
	b.Node.Floor = 2
	b.Do("GET /v1/events", "", "Last-Event-ID: "+id).RefusedWith(410, "history-gone")
}

// readEvents follows events after an id, and returns the ids of the received events.
func readEvents(t *testing.T, address, after string) <-chan string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Last-Event-ID", after)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	ids := make(chan string)
	go func() {
		defer close(ids)
		defer response.Body.Close()
		lines, id := bufio.NewReader(response.Body), ""
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if text, ok := strings.CutPrefix(line, "id: "); ok {
				id = strings.TrimSpace(text)
			}
			if strings.HasPrefix(line, "data: ") {
				select {
				case ids <- id:
				case <-t.Context().Done():
					return
				}
			}
		}
	}()
	return ids
}

// TestEventsEndAtShutdown: the server shuts down in time although a thousand streams are open, some with a client that
// does not read.
func TestEventsEndAtShutdown(t *testing.T) {
	a := apitest.New(t)
	server := httpapi.NewServer(a.Handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	flood(a, 8000)
	const watches, readers = 1000, 980
	var ended sync.WaitGroup
	for i := range watches {
		query := "?name=none"
		if i >= readers {
			query = "?since=0" // the kernel does not take all of it
		}
		_, reader := openWatch(t, listener.Addr().String(), query)
		if i < readers {
			ended.Go(func() {
				if text, err := io.ReadAll(reader); err != nil || !strings.HasSuffix(string(text), "0\r\n\r\n") {
					t.Errorf("a stream ends with %q, %v", text, err)
				}
			})
		}
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	took := time.Since(began)
	if took > 8*time.Second {
		t.Errorf("Shutdown took %v", took)
	}
	t.Logf("Shutdown took %v", took)
	ended.Wait()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
