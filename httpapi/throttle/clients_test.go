package throttle

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/test/apitest"
	"github.com/signalbox/signalbox/test/throttleclient"
)

func clientOf(pick func() http.Handler) *throttleclient.Client {
	return &throttleclient.Client{BaseURL: "http://throttle", HTTP: &http.Client{Transport: apitest.InMemory(pick)}}
}

func clientAt(s *apitest.Site) *throttleclient.Client {
	return clientOf(func() http.Handler { return s.Handler })
}

// The test shows at which statuses the client repeats a request, how often and with which pauses.
func TestThrottleClientRetries(t *testing.T) {
	const all = "4s 4s 4s 8s 16s 32s 32s 32s 32s"
	for status, want := range map[int]struct {
		pauses string
		err    string
	}{
		0: {all, "connection refused"}, 408: {all, "status 408"}, 444: {all, "status 444"}, 499: {all, "status 499"}, 500: {all, "status 500"},
		502: {all, "status 502"}, 503: {all, "status 503"}, 504: {all, "status 504"}, 599: {all, "status 599"},
		501: {"", "status 501"}, 505: {"", "status 505"}, 507: {"", "status 507"}, 511: {"", "status 511"},
		400: {"", "no"}, 409: {"", "no"}, 404: {"", "status 404"}, 410: {"", "status 410"}, 422: {"", "status 422"}, 429: {"", "status 429"},
	} {
		var pauses []string
		c := clientOf(func() http.Handler {
			if status == 0 {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "no")
			})
		})
		c.Pause = func(_ context.Context, d time.Duration) error {
			pauses = append(pauses, d.String())
			return nil
		}
		err := c.Heartbeat(t.Context(), 1, time.Minute)
		if strings.Join(pauses, " ") != want.pauses || err == nil || !strings.Contains(err.Error(), want.err) {
			t.Errorf("%d: pauses %v, %v", status, pauses, err)
		}
	}
}

// By default the client sends its heartbeat at the moment when its lease ends. Without lingering another peer then gets
// the lock for a while; with lingering the client keeps it.
func TestThrottleLingerKeepsTheLock(t *testing.T) {
	for percent, kept := range map[int]bool{0: false, 10: true} {
		t.Run(fmt.Sprintf("%d percent", percent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apitest.OnFollower(t, speaks(Config{LingerPercent: percent}))
				s.Semaphore("A", "1", "0")
				thread := &throttleclient.Thread{Client: clientAt(s), Lease: 6 * time.Second, Beat: 6 * time.Second}
				unlock, err := thread.Lock(t.Context(), "A", 1, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				s.Peer("7", "1h")
				thief := s.Later("PUT /peers/7/A?block_for=13s", "1")
				got := <-thief
				if stolen := got.Status == 200; stolen == kept {
					t.Errorf("another one got: %s", got)
				}
				if err := unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
