package v1_test

import (
	"fmt"
	"testing"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// TestRenewalShowsLeases: with ?leases=true a renewal says what the session holds,
// which operators and deletes change without ending the session. Many are left out
// where clients who don't read have taken the room for large replies.
func TestRenewalShowsLeases(t *testing.T) {
	a := apitest.New(t)
	for _, name := range []string{"db", "gone", "kept"} {
		a.Must(201, "PUT /v1/semaphores/"+name, `{"permits":3}`)
	}
	s := a.Open("30s")
	path := "PUT /v1/sessions/" + s
	a.Do(path+"?leases=true", "").Is(200, "session="+s, "leases=[]", "ttl_ms=30000")
	for _, name := range []string{"db", "gone", "kept"} {
		a.Must(200, path+"/leases/"+name, "")
	}
	a.Node.Advance(1000)
	a.Do(path+"?leases=true", "").Is(200, "expires_in_ms=30000", "leases.length=3", "leases.0.semaphore=db", "leases.0.token=1",
		"leases.2.semaphore=kept", "leases.2.expires_in_ms=30000")
	a.Must(204, "DELETE /v1/semaphores/db/holders/"+s+"?reason=maintenance", "")
	a.Must(204, "DELETE /v1/semaphores/gone", "")
	a.Do(path+"?leases=true", `{"ttl":"20s"}`).Is(200, "expires_in_ms=20000", "leases.length=2", "leases.0.semaphore=db",
		"leases.0.revoked=true", "leases.0.reason=maintenance", "leases.0.expires_in_ms=0", "leases.1.token=3")
	for _, plain := range []string{"", "?leases=false"} {
		a.Do(path+plain, "").Is(200, "leases=absent")
	}
	a.Do(path+"?leases=yes", "").RefusedWith(400, "invalid-request", "field=leases")
	a.Do("POST /v1/batch", `{"operations":[{"op":"renew","session":"`+s+`","leases":true}]}`).Is(200, "results.0.status=400")
	a.Do("PUT /v1/sessions/9?leases=true", "").RefusedWith(404, "unknown-session")

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
