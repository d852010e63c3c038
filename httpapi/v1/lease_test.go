package v1_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestHangUpEndsTheCall(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	a.Must(200, "POST /v1/semaphores/db/up", "")
	a.Must(201, "POST /v1/semaphores/db/leases", "")
	ctx, hangUp := context.WithCancel(context.Background())
	done := make(chan apitest.Reply, 1)
	r := httptest.NewRequest("POST", "/v1/semaphores/db/leases", strings.NewReader(`{"wait":"60s"}`)).WithContext(ctx)
	go func() { done <- a.Send(r) }()
	a.Node.AwaitWaits(1)
	hangUp()
	if got := <-done; got.Status != exchange.StatusGone {
		t.Errorf("status %d after a hang-up", got.Status)
	}
}
