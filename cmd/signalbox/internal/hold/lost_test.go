//go:build unix

package hold

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	signalbox "github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/cmd/signalbox/internal/cli"
)

// TestRunFreesItsLostHold: after its command has ended, Run frees the permits of its lost lease, if a node replies in
// time. The lease is lost after 24 s, and its session expires after 30 s.
func TestRunFreesItsLostHold(t *testing.T) {
	for _, tc := range []*struct {
		name  string
		heals time.Duration // until the network works again
		child actor
		away  bool // the permit, in the end
		log   string
	}{
		{"its session has expired", 31 * time.Second, actor{}, false, "of the lost lease are free again"},
		{"its session can be ended", 27 * time.Second, actor{}, false, ""},
		{"its session expires meanwhile", 29500 * time.Millisecond, actor{}, false, ""},
		{"no node replies in time", 40 * time.Second, actor{}, true, "of the lost lease may stay away"},
		{"its command does not end", 31 * time.Second, actor{onTerm: -1, onKill: time.Hour}, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				cluster := newOneLease(rand.New(rand.NewPCG(1, 1)))
				h := newHolder(t, Config{Name: "db", Command: []string{"actor"}, Count: 1, TTL: 30 * time.Second,
					Cluster: signalbox.Config{Addresses: []string{"n1"}, HTTPClient: &http.Client{Transport: cluster}},
					Log:     slog.New(slog.NewTextHandler(&log, nil)), begin: tc.child.begin})
				time.AfterFunc(time.Second, func() { cluster.cutFrom(refuses) })
				time.AfterFunc(tc.heals, func() { cluster.do(func(int64) { cluster.cut = false }) })
				began := time.Now()
				if err := h.Run(t.Context()); cli.StatusOf(err) != cli.StatusLost {
					t.Errorf("%v", err)
				}
				if took := time.Since(began); took > 36*time.Second {
					t.Errorf("it took %v", took)
				}
				cluster.mu.Lock()
				if away := cluster.held || cluster.lostFor != 0; away != tc.away {
					t.Errorf("the permit is away: %v", away)
				}
				if at := tc.child.vanished; !cluster.freed.IsZero() && (at.IsZero() || cluster.freed.Before(at)) {
					t.Errorf("freed %v before the command's end", at.Sub(cluster.freed))
				}
				cluster.mu.Unlock()
				if tc.log != "" && !strings.Contains(log.String(), tc.log) || tc.log == "" && tc.away && strings.Contains(log.String(), "of the lost lease") {
					t.Errorf("logged %s", log.String())
				}
				_ = h.client.Close(t.Context())
			})
		})
	}
}
