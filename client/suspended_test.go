package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// TestSuspension: the time while the machine was suspended counts, although timers and the monotonic clock stood still.
// A lease whose deadline has passed is lost within a second after the machine resumes. Deadline shows the change at
// once. A grant that was requested before the suspension has less time left.
func TestSuspension(t *testing.T) {
	var slept atomic.Int64
	stop := make(chan struct{})
	var beforeReply func()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			<-stop // no renewal succeeds
			return
		}
		beforeReply()
		fmt.Fprint(w, `{"session":"7","semaphore":"db","count":1,"token":1,"expires_in_ms":30000}`)
	}))
	defer server.Close()
	defer close(stop)
	for name, c := range map[string]struct {
		during, after time.Duration // the suspension, of the request or of the lease
		lost          bool
	}{
		"suspended for a moment": {after: 20 * time.Second}, "suspended": {after: time.Minute, lost: true}, "suspended before the reply": {during: time.Minute, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			slept.Store(0)
			beforeReply = func() { slept.Add(int64(c.during)) }
			client, err := New(Config{Addresses: []string{server.URL}, suspended: func() time.Duration { return time.Duration(slept.Load()) }})
			if err != nil {
				t.Fatal(err)
			}
			lease, err := client.Acquire(t.Context(), "db")
			if err != nil {
				t.Fatal(err)
			}
			defer lease.Detach()
			slept.Add(int64(c.after))
			if left, want := time.Until(lease.Deadline()), 30*time.Second-c.during-c.after; left > want || left < want-5*time.Second {
				t.Errorf("%v left, not %v", left, want)
			}
			select {
			case <-lease.Lost():
			case <-time.After(3 * checkEvery / 2):
			}
			if lost := errors.Is(lease.Err(), ErrNotRenewed); lost != c.lost {
				t.Errorf("after that: %v", lease.Err())
			}
		})
	}
}
