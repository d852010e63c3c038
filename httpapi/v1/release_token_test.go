package v1_test

import (
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
)

// TestReleaseOfOneLease: a release that names a token leaves a newer lease alone,
// and so does a resize.
func TestReleaseOfOneLease(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":3}`)
	s := a.Open("1h")
	lease := "/v1/sessions/" + s + "/leases/db"
	a.Do("PUT "+lease, `{"count":3}`).Is(200, "token=1")
	a.Do("DELETE "+lease+"?token=1", "").Is(204)
	a.Do("PUT "+lease, `{"count":3}`).Is(200, "token=2")
	a.Do("DELETE "+lease+"?token=1", "").Is(204)
	a.Do("PATCH "+lease+"?token=1", `{"count":1}`).RefusedWith(404, "not-held")
	a.Do("GET "+lease, "").Is(200, "token=2", "count=3")
	a.Do("PATCH "+lease+"?token=2", `{"count":2}`).Is(200, "token=2", "count=2")
	a.Do("POST /v1/batch", `{"operations":[
		{"op":"release","session":"`+s+`","semaphore":"db","token":1},
		{"op":"resize","session":"`+s+`","semaphore":"db","count":1,"token":2},
		{"op":"release","session":"`+s+`","semaphore":"db","token":2},
		{"op":"release","session":"`+s+`","semaphore":"db","token":0}]}`).
		Is(200, "results.0.status=204", "results.1.body.count=1", "results.2.status=204", "results.3.status=400")
	a.Do("GET /v1/semaphores/db", "").Is(200, "held=0")
	for _, bad := range []string{"0", "-1", "x", "9223372036854775808"} {
		a.Do("DELETE "+lease+"?token="+bad, "").RefusedWith(400, "invalid-request", "field=token")
	}

	other := a.Open("1h")
	a.Must(200, "PUT "+lease, `{"count":3}`)
	a.Do("PUT /v1/sessions/"+other+"/leases/db", "").Is(202)
	a.Do("DELETE /v1/sessions/"+other+"/leases/db?token=3", "").Is(204)
	a.Do("GET /v1/sessions/"+other+"/leases/db", "").Is(202)
}
