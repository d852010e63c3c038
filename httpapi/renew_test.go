package httpapi

import (
	"fmt"
	"testing"
)

// TestRenewalShowsLeases: with ?leases=true a renewal says what the session holds,
// which operators and deletes change without ending the session. Many are left out
// where clients who don't read have taken the room for large replies.
func TestRenewalShowsLeases(t *testing.T) {
	a := newTestAPI(t)
	for _, name := range []string{"db", "gone", "kept"} {
		a.must(201, "PUT /v1/semaphores/"+name, `{"permits":3}`)
	}
	s := a.open("30s")
	path := "PUT /v1/sessions/" + s
	a.do(path+"?leases=true", "").is(200, "session="+s, "leases=[]", "ttl_ms=30000")
	for _, name := range []string{"db", "gone", "kept"} {
		a.must(200, path+"/leases/"+name, "")
	}
	a.node.advance(1000)
	a.do(path+"?leases=true", "").is(200, "expires_in_ms=30000", "leases.length=3", "leases.0.semaphore=db", "leases.0.token=1",
		"leases.2.semaphore=kept", "leases.2.expires_in_ms=30000")
	a.must(204, "DELETE /v1/semaphores/db/holders/"+s+"?reason=maintenance", "")
	a.must(204, "DELETE /v1/semaphores/gone", "")
	a.do(path+"?leases=true", `{"ttl":"20s"}`).is(200, "expires_in_ms=20000", "leases.length=2", "leases.0.semaphore=db",
		"leases.0.revoked=true", "leases.0.reason=maintenance", "leases.0.expires_in_ms=0", "leases.1.token=3")
	for _, plain := range []string{"", "?leases=false"} {
		a.do(path+plain, "").is(200, "leases=absent")
	}
	a.do(path+"?leases=yes", "").refusedWith(400, "invalid-request", "field=leases")
	a.do("POST /v1/batch", `{"operations":[{"op":"renew","session":"`+s+`","leases":true}]}`).is(200, "results.0.status=400")
	a.do("PUT /v1/sessions/9?leases=true", "").refusedWith(404, "unknown-session")

	a.handler.replies.insist(a.handler.replies.most) // clients who don't read have all of it
	a.do(path+"?leases=true", "").is(200, "leases.length=2")
	const many = 200
	for i := range many {
		a.must(201, fmt.Sprintf("PUT /v1/semaphores/s%d", i), `{"permits":1}`)
		a.must(200, fmt.Sprintf("%s/leases/s%d", path, i), "")
	}
	a.do(path+"?leases=true", "").is(200, "expires_in_ms=20000", "leases=absent")
	a.handler.replies.give(a.handler.replies.most)
	a.do(path+"?leases=true", "").is(200, fmt.Sprintf("leases.length=%d", many+2))
	a.awaitFree(&a.handler.replies.used)

	a.node.lagging = true // the renewal counts nevertheless
	a.node.advance(1000)
	a.do(path+"?leases=true", "").is(200, "expires_in_ms=20000", "leases=absent")
}
