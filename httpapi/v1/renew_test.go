package v1_test

import (
	"fmt"
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// TestRenewalShowsNoLeasesWithoutMemory: while clients that don't read have used up the memory for large replies, a
// renewal still shows a few leases, but not many.
func TestRenewalShowsNoLeasesWithoutMemory(t *testing.T) {
	a := apitest.New(t)
	path := "PUT /v1/sessions/" + a.Open("20s")
	for _, name := range []string{"db", "kept"} {
		a.Must(201, "PUT /v1/semaphores/"+name, `{"permits":3}`)
		a.Must(200, path+"/leases/"+name, "")
	}
	held, ok := a.X.ReplyMemory.Reserve(exchange.DefaultReplyMemory + 16<<10) // clients who don't read have all of it
	if !ok {
		t.Fatal("no room for replies")
	}
	a.Do(path+"?leases=true", "").Is(200, "leases.length=2")
	const many = 200
	for i := range many {
		a.Must(201, fmt.Sprintf("PUT /v1/semaphores/s%d", i), `{"permits":1}`)
		a.Must(200, fmt.Sprintf("%s/leases/s%d", path, i), "")
	}
	a.Do(path+"?leases=true", "").Is(200, "expires_in_ms=20000", "leases=absent")
	a.X.ReplyMemory.Release(held)
	a.Do(path+"?leases=true", "").Is(200, fmt.Sprintf("leases.length=%d", many+2))
	if used := a.Gauge("signalbox_http_reply_bytes"); used != 0 {
		t.Errorf("%d bytes are still reserved", used)
	}

	a.Node.Lagging = true // the renewal counts nevertheless
	a.Node.Advance(1000)
	a.Do(path+"?leases=true", "").Is(200, "expires_in_ms=20000", "leases=absent")
}
