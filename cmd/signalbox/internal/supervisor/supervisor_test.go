package supervisor

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster"
)

// TestWatchdogOfAnotherProcess: a watchdog time that is meant for another process is ignored.
func TestWatchdogOfAnotherProcess(t *testing.T) {
	for process, want := range map[string]time.Duration{"": time.Minute, fmt.Sprint(os.Getpid()): time.Minute, "1": 0} {
		s := Of(func(name string) (string, bool) {
			value, set := map[string]string{"NOTIFY_SOCKET": "@none", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": process}[name]
			return value, set
		}, hclog.NewNullLogger())
		if s.watchdog != want {
			t.Errorf("process %q: %v", process, s.watchdog)
		}
	}
}

// TestWatchdogIsSilentWithoutProgress: a node that hangs, or makes no progress, does not report that it is alive. A node
// that makes progress reports so three times per limit.
func TestWatchdogIsSilentWithoutProgress(t *testing.T) {
	for name, c := range map[string]struct {
		alive func(ctx context.Context) bool
		want  int64
	}{
		"goes on":  {func(context.Context) bool { return true }, 6},
		"is stuck": {func(context.Context) bool { return false }, 0},
		"hangs":    {func(ctx context.Context) bool { <-ctx.Done(); return true }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reports atomic.Int64
				s := Supervisor{send: func(string) { reports.Add(1) }, watchdog: time.Minute}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+time.Second)
				defer cancel()
				s.Watch(ctx, func() bool { return c.alive(ctx) })
				if got := reports.Load(); got != c.want {
					t.Errorf("%d reports, not %d", got, c.want)
				}
			})
		})
	}
}

// TestProgress: a node makes progress if it applies entries, or if it has applied all entries that it knows to be
// committed.
func TestProgress(t *testing.T) {
	p := &Progress{applied: 5}
	for _, look := range []struct {
		name            string
		applied, commit uint64
		want            bool
	}{
		{"behind, and it applies", 7, 9, true},
		{"behind, and it stands", 7, 9, false},
		{"behind, and it still stands", 7, 12, false},
		{"it applies again", 8, 12, true},
		{"all is applied", 12, 12, true},
		{"nothing new", 12, 12, true},
	} {
		if got := p.since(cluster.Status{AppliedIndex: look.applied, CommitIndex: look.commit}); got != look.want {
			t.Errorf("%s: %v", look.name, got)
		}
	}
}
