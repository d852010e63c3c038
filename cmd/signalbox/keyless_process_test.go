//go:build processes && linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox/signalbox/test/noderedclient"
)

// keyless is a script as users of the subflow write it: it sends no keys, and repeats failed requests. It counts the
// requests with a reply and the requests without a reply.
type keyless struct {
	mu                  sync.Mutex
	ups, downs          int64 // acknowledged with 200
	lostUps, lostDowns  int64 // sent, and perhaps done
	refused, unexpected map[int]int
}

// keylessPermits is so large that permits are never lacking, although some downs count twice.
const keylessPermits = 1000

func newKeyless() *keyless {
	return &keyless{refused: map[int]int{}, unexpected: map[int]int{}}
}

func (k *keyless) at(base string) *noderedclient.Client {
	return &noderedclient.Client{Addresses: []string{base}, HTTP: &http.Client{Transport: k}}
}

// RoundTrip sends a request and counts its outcome.
func (k *keyless) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil { // a reply that breaks off is lost as well
		var body []byte
		body, err = io.ReadAll(response.Body)
		response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(body))
	}
	status := 0
	if err == nil {
		status = response.StatusCode
	} else {
		response = nil
	}
	k.count(r.URL.Path, status, err)
	return response, err
}

func (k *keyless) count(path string, status int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	told, lost := &k.downs, &k.lostDowns
	switch {
	case strings.HasSuffix(path, "/up"):
		told, lost = &k.ups, &k.lostUps
	case !strings.HasSuffix(path, "/down"):
		told, lost = new(int64), new(int64) // changes no value
	}
	var dial *net.OpError
	switch {
	case errors.As(err, &dial) && dial.Op == "dial": // never sent
	case err != nil, status == http.StatusGatewayTimeout:
		*lost++
	case status == http.StatusOK:
		*told++
	case status == http.StatusSeeOther, status == http.StatusConflict, status == http.StatusServiceUnavailable:
		k.refused[status]++
	default:
		k.unexpected[status]++
	}
}

// work takes a permit and gives it back, again and again. It treats a 504 like a success.
func (k *keyless) work(ctx context.Context, base string, inside func() bool) error {
	client := k.at(base)
	if _, err := client.Create(ctx, "keyless", keylessPermits); err != nil && !isTimeout(err) {
		return fmt.Errorf("create: %w", err)
	}
	for goesOn := true; goesOn; {
		if _, err := client.Down(ctx, "keyless"); err != nil && !isTimeout(err) {
			return fmt.Errorf("down: %w", err)
		}
		goesOn = inside()
		if _, err := client.Up(ctx, "keyless"); err != nil && !isTimeout(err) {
			return fmt.Errorf("up: %w", err)
		}
	}
	return nil
}

func isTimeout(err error) bool {
	var status *noderedclient.StatusError
	return errors.As(err, &status) && status.Status == http.StatusGatewayTimeout
}

// finish checks that the value differs by no more than the number of lost requests, in either direction, and that the
// contract allows every status.
func (k *keyless) finish(t *testing.T, c *processes, u *users) {
	t.Helper()
	u.end(t)
	told := keylessPermits + k.ups - k.downs
	for node, base := range c.bases {
		value, err := nodeREDAt(base).Value(t.Context(), "keyless")
		if err != nil || value < told-k.lostDowns || value > told+k.lostUps {
			t.Errorf("without keys: n%d says %d (%v); by the answers it is %d, with %d downs and %d ups lost",
				node+1, value, err, told, k.lostDowns, k.lostUps)
		}
	}
	if len(k.unexpected) > 0 {
		t.Errorf("without keys: statuses %v", k.unexpected)
	}
	t.Logf("without keys: %d ups, %d downs told; %d, %d lost; refused %v", k.ups, k.downs, k.lostUps, k.lostDowns, k.refused)
}
