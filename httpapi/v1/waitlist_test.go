package v1_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestWaitListHangUpAndDrain(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		s.create("db")
		job := s.job()
		s.add(job, "db", 4)
		for _, id := range s.cluster.IDs {
			api := &apitest.API{T: s.T, Handler: s.cluster.APIs[id]}
			ctx, hangUp := context.WithCancel(context.Background())
			done := make(chan apitest.Reply, 1)
			r := httptest.NewRequest("POST", "/v1/sessions/"+job+"/waitlist/wait?wait=10m", nil).WithContext(ctx)
			go func() { done <- api.Send(r) }()
			time.Sleep(time.Second) // virtual
			s.waits(done)
			hangUp()
			if got := <-done; got.Status != exchange.StatusGone {
				s.Errorf("status %d after a hang-up", got.Status)
			}
		}
		drains := s.cluster.IDs[s.calls%len(s.cluster.IDs)] // whose turn is next
		waiting := s.wait(job)
		s.cluster.Nodes[drains].Drain()
		s.told(<-waiting, "")
		s.do("POST /v1/semaphores/db/up", `{"count":3}`).Is(200, "value=0")
		s.told(s.do("POST /v1/sessions/"+job+"/waitlist/wait", `{"wait":"0s"}`), "db 3")
	})
}
