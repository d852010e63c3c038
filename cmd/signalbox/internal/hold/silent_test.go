//go:build unix

package hold

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// silentNode is a cluster in which one node, from some time on, accepts requests and never replies.
type silentNode struct {
	*oneLease
	host string
	from time.Time
}

func (s *silentNode) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != s.host || time.Now().Before(s.from) {
		return s.oneLease.RoundTrip(r)
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestRunBesideASilentNode: whichever node falls silent, and whenever, Run gets the permits in time, or reports that
// they were not free.
func TestRunBesideASilentNode(t *testing.T) {
	for _, tc := range []struct {
		name   string
		after  time.Duration // until the node falls silent
		freed  time.Duration // when the permits are free; 0: from the start, below 0: never
		status int
	}{
		{"free", 0, 0, 7},
		{"freed", 0, 3 * time.Second, 7},
		{"never free", 0, -1, cli.StatusNotGranted},
		{"silent while it waits, freed", 500 * time.Millisecond, time.Second, 7},
		{"silent while it waits, never free", 500 * time.Millisecond, -1, cli.StatusNotGranted},
		{"silent at the end, never free", 4900 * time.Millisecond, -1, cli.StatusNotGranted},
	} {
		for i := range 12 { // the order in which run tries the nodes differs
			synctest.Test(t, func(t *testing.T) {
				cluster := newOneLease(rand.New(rand.NewPCG(1, 1)))
				nodes := &silentNode{oneLease: cluster, host: fmt.Sprintf("n%d:8701", 1+i%3), from: time.Now().Add(tc.after)}
				child := &actor{after: time.Second}
				h := newHolder(t, Config{Name: "db", Command: []string{"actor"}, Count: 1, TTL: 30 * time.Second, Wait: 5 * time.Second,
					Cluster: signalbox.Config{Addresses: []string{"n1:8701", "n2:8701", "n3:8701"}, HTTPClient: &http.Client{Transport: nodes}},
					Log:     slog.New(slog.DiscardHandler), begin: child.begin})
				cluster.occupy(tc.freed != 0)
				if tc.freed > 0 {
					time.AfterFunc(tc.freed, func() { cluster.occupy(false) })
				}
				began := time.Now()
				err := h.Run(t.Context())
				if status := cli.StatusOf(err); status != tc.status {
					t.Errorf("%s, %s silent: status %d after %v, not %d: %v", tc.name, nodes.host, status, time.Since(began), tc.status, err)
				}
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("%s: took %v", tc.name, took)
				}
				_ = h.client.Close(t.Context())
			})
		}
	}
}
