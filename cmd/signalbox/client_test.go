package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// reply has the members of replies that the tests read.
type reply struct {
	status int
	index  string // X-Signalbox-Index
	replay bool   // Idempotency-Replayed

	Code        string  `json:"code"`
	Detail      string  `json:"detail"`
	Reason      string  `json:"reason"`
	Session     string  `json:"session"`
	Count       int64   `json:"count"`
	Token       uint64  `json:"token"`
	ExpiresInMS int64   `json:"expires_in_ms"`
	WaitedMS    int64   `json:"waited_ms"`
	Position    int64   `json:"position"`
	Value       int64   `json:"value"`
	Permits     int64   `json:"permits"`
	Held        int64   `json:"held"`
	Available   int64   `json:"available"`
	Holders     []place `json:"holders"`
	Waiters     []place `json:"waiters"`

	Node      string  `json:"node"`
	Leader    *string `json:"leader"`
	Applied   uint64  `json:"applied_index"`
	Commit    uint64  `json:"commit_index"`
	StateHash string  `json:"state_hash"`
	Members   []struct {
		ID    string `json:"id"`
		Voter bool   `json:"voter"`
	} `json:"members"`
}

// place is a holder or a waiter.
type place struct {
	Session  string            `json:"session"`
	Token    uint64            `json:"token"`
	Position int64             `json:"position"`
	Metadata map[string]string `json:"metadata"`
}

// client talks to the nodes of one cluster. Safe for concurrent use.
type client struct {
	bases []string // http://host:port of each node
	http  *http.Client
}

func newClient(bases ...string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 512, IdleConnTimeout: 20 * time.Second}
	return &client{bases: bases, http: &http.Client{Transport: transport}}
}

// ask sends one request to one node. It returns an error only if there was no reply; a reply may have any status.
func (c *client) ask(ctx context.Context, node int, method, path, body string, headers ...string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.bases[node%len(c.bases)]+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := c.http.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{status: response.StatusCode, index: response.Header.Get("X-Signalbox-Index"),
		replay: response.Header.Get("Idempotency-Replayed") == "true"}
	if strings.Contains(response.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(text, &r); err != nil {
			return r, fmt.Errorf("%s %s: %w in %q", method, path, err, text)
		}
	} else {
		r.Detail = strings.TrimSpace(string(text))
	}
	return r, nil
}

// retryPause is how long a client waits before it turns to the next node.
const retryPause = 20 * time.Millisecond

// insist asks one node after another, beginning with node, until one replies with another status than 503 and 504. The
// request must be safe to repeat.
func (c *client) insist(ctx context.Context, node int, method, path, body string, headers ...string) (reply, error) {
	return c.insistBy(ctx, time.Minute, node, method, path, body, headers...)
}

// insistBy does what insist does. within bounds each attempt, after which the client turns to the next node.
func (c *client) insistBy(ctx context.Context, attemptAtMost time.Duration, node int, method, path, body string, headers ...string) (reply, error) {
	for last := error(nil); ; node++ {
		attempt, cancel := context.WithTimeout(ctx, attemptAtMost)
		r, err := c.ask(attempt, node, method, path, body, headers...)
		cancel()
		if err == nil && r.status != http.StatusServiceUnavailable && r.status != http.StatusGatewayTimeout {
			return r, nil
		}
		if err == nil {
			err = fmt.Errorf("%d %s: %s", r.status, r.Code, r.Detail)
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("%s %s: given up: %w", method, path, last)
		case <-time.After(retryPause):
		}
	}
}

// must does what insist does. The test fails unless the status is one of the wanted statuses.
func (c *client) must(t *testing.T, node int, method, path, body string, want ...int) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := c.insist(ctx, node, method, path, body)
	must(t, err)
	for _, status := range want {
		if r.status == status {
			return r
		}
	}
	t.Fatalf("%s %s %s on node %d: %d %s %s, wanted %v", method, path, body, node+1, r.status, r.Code, r.Detail, want)
	return r
}

// leader returns the index of the leader, according to any node that knows the leader, or -1 if no node does.
func (c *client) leader(ctx context.Context) int {
	for node := range c.bases {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		r, err := c.ask(attempt, node, http.MethodGet, "/v1/cluster", "")
		cancel()
		if err != nil || r.Leader == nil {
			continue
		}
		var id int
		if _, err := fmt.Sscanf(*r.Leader, "n%d", &id); err == nil {
			return id - 1
		}
	}
	return -1
}

func semaphorePath(name string) string { return "/v1/semaphores/" + url.PathEscape(name) }

func leasePath(session, name string) string {
	return "/v1/sessions/" + session + "/leases/" + url.PathEscape(name)
}

// eventually waits until check returns nil. After the given time it fails the test with check's last error.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	late := time.After(within)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-late:
			t.Fatalf("not within %v: %v", within, err)
		case <-again.C:
		}
	}
}
