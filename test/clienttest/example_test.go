package clienttest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/client"
	"github.com/signalbox/signalbox/test/clienttest"
)

// export is the program under test: a job that must not run twice at a time. It works until the
// work is done or the lease is lost, and returns the number of steps.
func export(ctx context.Context, c *client.Client) (steps int, err error) {
	lease, err := c.Acquire(ctx, "export", client.TTL(time.Minute))
	if err != nil {
		return 0, err
	}
	working, stop := lease.Context(ctx)
	defer stop()
	for range 100 {
		select {
		case <-time.After(10 * time.Second):
			steps++
		case <-working.Done():
			return steps, context.Cause(working)
		}
	}
	return steps, lease.Release(ctx)
}

// TestExample tests the program above in virtual time: it takes 17 minutes, which pass in a moment.
func TestExample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := clienttest.Start(t)
		c := cluster.Client()
		if _, _, err := c.Put(t.Context(), "export", client.Permits(1)); err != nil {
			t.Fatal(err)
		}
		if steps, err := export(t.Context(), c); steps != 100 || err != nil {
			t.Errorf("%d steps, %v", steps, err)
		}

		begun := time.Now()
		time.AfterFunc(5*time.Minute, cluster.CutOff)
		steps, err := export(t.Context(), c)
		if took := time.Since(begun); err == nil || took > 6*time.Minute || steps > 36 {
			t.Errorf("cut off after 5 minutes it goes on for %d steps, until %v: %v", steps, took, err)
		}
		cluster.Rejoin()
	})
}
