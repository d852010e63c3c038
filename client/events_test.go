package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/client/operator"
)

// streams replies to each request with the next of its texts. After a text that ends in "…" the stream stays open,
// without further bytes, until its request ends.
type streams struct {
	mu    sync.Mutex
	texts []string
	asked []string
}

// RoundTrip implements http.RoundTripper.
func (s *streams) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.URL.Host+"?"+r.URL.RawQuery)
	if len(s.texts) == 0 {
		body := `{"code":"history-gone","status":410}`
		return &http.Response{StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/problem+json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
	text, silent := strings.CutSuffix(s.texts[0], "…")
	s.texts = s.texts[1:]
	var body io.Reader = strings.NewReader(text)
	if silent {
		body = io.MultiReader(body, quietUntil{r.Context()})
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X-Signalbox-Index": {"7"}}, Body: io.NopCloser(body)}, nil
}

// quietUntil is a reader that brings no byte until its ctx ends.
type quietUntil struct{ ctx context.Context }

func (q quietUntil) Read([]byte) (int, error) {
	<-q.ctx.Done()
	return 0, q.ctx.Err()
}

// TestEventsGoOn: after a stream ends or falls silent, even in the middle of an event, Events resumes after the last
// complete event.
func TestEventsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &streams{texts: []string{
			"",
			"id: 8.1\nevent: granted\ndata: {\"index\":8,\"cluster_time_ms\":1500,\"semaphore\":\"db\",\"token\":3}\n\n: quiet\nid: 9\n\nid: 10.1\nevent: granted\ndata: {\"ind",
			"id: 10.1\nevent: session-opened\ndata: {\"index\":10,\"session\":\"5\",\"ttl_ms\":30000}\n\n…",
			"id: 11.2\nevent: deleted\ndata: {\"index\":11,\"semaphore\":\"db\"}\n\n",
		}}
		c, err := client.New(client.Config{Addresses: []string{"n1", "n2"}, InOrder: true, HTTPClient: &http.Client{Transport: s}})
		must(t, err)
		var seen []string
		began := time.Now()
		for e, err := range operator.New(c).Events(t.Context(), operator.OfSemaphore("db"), operator.OfSemaphore("a b")) {
			if err != nil {
				if !errors.Is(err, operator.ErrHistoryGone) {
					t.Error(err)
				}
				break
			}
			if e.Kind == "granted" && (e.ClusterTime != 1500*time.Millisecond || e.Token != 3 || e.Semaphore != "db" || e.Index != 8) ||
				e.Kind == "session-opened" && (e.TTL != 30*time.Second || e.Session != "5") {
				t.Errorf("%+v", e)
			}
			seen = append(seen, e.ID+" "+e.Kind)
		}
		if want := []string{"8.1 granted", "10.1 session-opened", "11.2 deleted"}; !slices.Equal(seen, want) {
			t.Errorf("saw %q", seen)
		}
		if took := time.Since(began); took < 40*time.Second || took > 42*time.Second {
			t.Errorf("took %v", took)
		}
		var since []string
		for _, query := range s.asked {
			_, at, _ := strings.Cut(query, "since=")
			since = append(since, at)
			if !strings.Contains(query, "name=db&name=a+b") {
				t.Errorf("asked %s", query)
			}
		}
		if want := []string{"", "7", "9", "10.1", "11.2"}; !slices.Equal(since, want) {
			t.Errorf("asked since %q", since)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestEventsEnd: a silent stream ends when ctx ends, when the loop breaks, and when the Client is closed.
func TestEventsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		event := "id: 8.1\nevent: created\ndata: {\"index\":8}\n\n…"
		s := &streams{texts: []string{event, event, event}}
		c, err := client.New(client.Config{Addresses: []string{"n1"}, HTTPClient: &http.Client{Transport: s}})
		must(t, err)
		var last error
		for _, err := range operator.New(c).Events(ctx) {
			last = err
		}
		if !errors.Is(last, context.DeadlineExceeded) {
			t.Errorf("ended with %v", last)
		}
		for range operator.New(c).Events(t.Context()) {
			break
		}
		time.AfterFunc(time.Second, func() { _ = c.Close(context.Background()) })
		for _, err := range operator.New(c).Events(t.Context()) {
			last = err
		}
		if !errors.Is(last, client.ErrClosed) {
			t.Errorf("ended with %v", last)
		}
	})
}
