package events_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox/signalbox/httpapi"
)

// watching is a client that follows events. A test may read its events while no goroutine runs: after synctest.Wait, or
// after the end of the stream.
type watching struct {
	*testing.T
	got    *sharedRecorder
	hangUp context.CancelFunc
	ended  chan struct{}
}

// sharedRecorder is a recorder that may be read while a handler writes.
type sharedRecorder struct {
	*httptest.ResponseRecorder
	mu sync.Mutex // guards the body
}

func (r *sharedRecorder) Write(data []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ResponseRecorder.Write(data)
}

func (r *sharedRecorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Body.String()
}

// toldEvent is one event as a client sees it.
type toldEvent struct {
	id, name, data string
	body           map[string]any
}

// watchEvents follows the events of a node, in the background.
func watchEvents(t *testing.T, h *httpapi.Handler, query string, headers ...string) *watching {
	t.Helper()
	ctx, hangUp := context.WithCancel(context.Background())
	r := httptest.NewRequestWithContext(ctx, "GET", "/v1/events"+query, nil)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	w := &watching{T: t, got: &sharedRecorder{ResponseRecorder: httptest.NewRecorder()}, hangUp: hangUp, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		h.ServeHTTP(w.got, r)
	}()
	return w
}

// stop hangs up and waits for the handler's end.
func (w *watching) stop() {
	w.hangUp()
	<-w.ended
}

// told parses the bytes so far by the standard of server-sent events, and returns the events and the last id.
func (w *watching) told() (events []toldEvent, lastID string) {
	w.Helper()
	if w.got.Code != 200 || w.got.Header().Get("Content-Type") != "text/event-stream" {
		w.Fatalf("status %d, %v: %s", w.got.Code, w.got.Header(), w.got.text())
	}
	text := w.got.text()
	if !strings.HasSuffix(text, "\n\n") {
		w.Errorf("the stream ends within an event: %q", text)
	}
	var e toldEvent
	for _, line := range strings.Split(text, "\n") {
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "id":
			e.id, lastID = value, value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "": // a comment, or the end of an event
			if line == "" && e.data != "" {
				w.decode(&e)
				events = append(events, e)
			}
			if line == "" {
				e = toldEvent{}
			}
		case "retry":
		default:
			w.Errorf("a line %q", line)
		}
	}
	return events, lastID
}

func (w *watching) decode(e *toldEvent) {
	w.Helper()
	decoder := json.NewDecoder(strings.NewReader(e.data))
	decoder.UseNumber()
	if err := decoder.Decode(&e.body); err != nil {
		w.Fatalf("data %q: %v", e.data, err)
	}
}

// is compares the events so far with want. Each event is "id name".
func (w *watching) is(want ...string) {
	w.Helper()
	events, _ := w.told()
	var got []string
	for _, e := range events {
		got = append(got, e.id+" "+e.name)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (e toldEvent) text(member string) string {
	text, _ := e.body[member].(string)
	return text
}

func (e toldEvent) number(member string) int64 {
	n, _ := e.body[member].(json.Number)
	number, _ := n.Int64()
	return number
}
