package httpapi_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/signalbox/signalbox/httpapi/access"
	"github.com/signalbox/signalbox/test/apitest"
)

// TestLimitsOfIdentities: each of two identities gets as much as its token allows, whether
// it asks the leader or a follower, one route or another, a batch or a dialect; what one has
// does not count for the other. A refusal names the limit. A repeat is not refused.
func TestLimitsOfIdentities(t *testing.T) {
	path := accessFile(t, client{"root", access.Admin, ""}, client{"ci", access.Use, ""}, client{"db", access.Use, ""})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	limited := strings.ReplaceAll(string(text), `scopes = ["use"]`, "scopes = [\"use\"]\nsessions = 3\nleases = 2\nwaiting = 1")
	if err := os.WriteFile(path, []byte(limited), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := apitest.NewCluster(t, func(cfg *apitest.Config) {
			cfg.Exchange.Tokens = tokens
			withThrottle(cfg)
		})
		leader, follower := &apitest.API{T: t, Handler: c.Site(true).Handler}, &apitest.API{T: t, Handler: c.Site(false).Handler}
		leader.Must(201, "POST /v1/semaphores", `{"name":"many","permits":9}`, as("root"))
		leader.Must(201, "POST /v1/semaphores", `{"name":"taken","permits":1}`, as("root"))
		leader.Must(201, "POST /v1/semaphores/taken/leases", `{"ttl":"1h"}`, as("root"))
		for i, who := range []string{"ci", "db"} {
			here, there := leader, follower
			if i == 1 {
				here, there = follower, leader
			}
			// Leases.
			lease := here.Must(201, "POST /v1/semaphores/many/leases", "", as(who)).Member("session")
			key := "Idempotency-Key: the-key-of-" + who + "-0001"
			second := there.Must(201, "POST /v1/semaphores/many/leases", "", as(who), key)
			here.Do("POST /v1/semaphores/many/leases", "", as(who)).RefusedWith(429, "limit-reached", "rule=owner-leases", "limit=2")
			here.Do("POST /v1/semaphores/many/leases", "", as(who), key).Is(201, "token="+second.Member("token"))

			// Sessions.
			session := there.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`, as(who)).Member("session")
			here.Do("POST /v1/sessions", `{"ttl":"1h"}`, as(who)).RefusedWith(429, "limit-reached", "rule=owner-sessions", "limit=3",
				"detail=This identity may have 3 sessions, including the sessions of single leases and waits. The request had no effect.")
			here.Do("POST /v1/sessions/4711/restore", `{"ttl":"1h","leases":[]}`, as(who)).RefusedWith(429, "limit-reached", "rule=owner-sessions")
			there.Do("POST /v1/batch", `{"operations":[{"op":"open","ttl":"1h"}]}`, as(who)).Is(200, "results.0.status=429", "results.0.body.rule=owner-sessions")
			peer := there.Do("POST /new_peer", `{"expires_in":"1h"}`, as(who), "Content-Type: application/json")
			if peer.Status != 503 || !strings.Contains(peer.Text, "This identity may have 3 sessions") {
				t.Errorf("a peer of throttle for %s: %d %s", who, peer.Status, peer.Text)
			}

			// Waiting requests: one of them may become a lease.
			here.Do("PUT /v1/sessions/"+session+"/leases/taken", "", as(who)).RefusedWith(429, "limit-reached", "rule=owner-leases")
			here.Must(204, "DELETE /v1/sessions/"+lease, "", as(who))
			there.Do("PUT /v1/sessions/"+session+"/leases/taken", "", as(who)).Is(202)
			here.Do("PUT /v1/sessions/"+session+"/leases/taken", "", as(who)).Is(202)
			there.Do("POST /v1/semaphores/taken/down", `{"wait":"1m"}`, as(who)).RefusedWith(429, "limit-reached", "rule=owner-waiting", "limit=1")
			here.Do("PUT /v1/sessions/"+session+"/waitlist/taken", "", as(who)).RefusedWith(429, "limit-reached", "rule=owner-waiting")
		}
		leader.Do("POST /v1/sessions", `{"ttl":"1h"}`, as("root")).Is(201)
	})
}
