package calls

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// TestFullRenewalsDontWait: a thousand make a command at once, and no command gets more
// than the machine takes.
func TestFullRenewalsDontWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan int, 10)
		r := newRenewals(func(_ string, c fsm.Renew) (Reply, error) {
			sent <- len(c.Renewals)
			return Reply{Result: fsm.Result{Each: make([]fsm.Result, len(c.Renewals))}}, nil
		})
		began := time.Now()
		for range 3 {
			reply, err := r.renew(t.Context(), "", make([]fsm.Renewal, renewalsTogether))
			if err != nil || len(reply.Each) != renewalsTogether || <-sent != renewalsTogether {
				t.Fatalf("%d results, %v", len(reply.Each), err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("full commands waited %v", took)
		}
		go func() { _, _ = r.renew(t.Context(), "", make([]fsm.Renewal, renewalsTogether-1)) }()
		synctest.Wait()
		if _, err := r.renew(t.Context(), "", make([]fsm.Renewal, renewalsTogether)); err != nil {
			t.Fatal(err)
		}
		if together := <-sent; together > 4096 {
			t.Errorf("a command has %d renewals, more than the machine takes", together)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.renew(gone, "", make([]fsm.Renewal, 1)); err != context.Canceled {
			t.Errorf("a caller that is gone: %v", err)
		}
		time.Sleep(renewalDelay) // virtual: the last one is sent
	})
}
