package v1_test

import (
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
)

func TestPutSettings(t *testing.T) {
	a := apitest.New(t)
	plain := a.Must(201, "PUT /v1/semaphores/plain", `{"permits":1}`)
	for _, member := range []string{"groups", "per_group", "paused", "max_waiting", "when_full", "head_start", "sweeping", "null,\"offset"} {
		if strings.Contains(plain.Text, member) {
			t.Errorf("a plain semaphore shows %s: %s", member, plain.Text)
		}
	}
	a.Must(201, "PUT /v1/semaphores/pool", `{"permits":9,"groups":"owner","per_group":2,"max_waiting":7,"when_full":"drop-oldest","head_start":"1h","paused":"drill"}`).
		Is(201, "permits=9", "groups=owner", "per_group=2", "max_waiting=7", "when_full=drop-oldest", "head_start_ms=3600000", "paused=drill", "groups_count=0", "settings=1")
	a.Must(200, "PATCH /v1/semaphores/pool", `{"max_waiting":8,"when_full":null}`).Is(200, "max_waiting=8", "when_full=refuse", "groups=owner", "settings=2")
	cleared := a.Must(200, "PUT /v1/semaphores/pool", `{"groups":null,"per_group":null,"paused":null,"max_waiting":null,"head_start":null}`).Is(200, "settings=3")
	if strings.Contains(cleared.Text, "groups") || strings.Contains(cleared.Text, "when_full") || strings.Contains(cleared.Text, "head_start") {
		t.Errorf("cleared: %s", cleared.Text)
	}
	a.Must(200, "PUT /v1/semaphores/pool", `{}`).Is(200, "settings=3")
	a.Must(201, "POST /v1/semaphores", `{"name":"family","permits":null,"groups":"request","per_group":1}`).Is(201, "permits=null", "available=null", "held=0", "created=true")
	a.Do("GET /v1/semaphores?prefix=family", "").Is(200, "semaphores.0.permits=null", "semaphores.0.per_group=1")
	a.Must(200, "PATCH /v1/semaphores/family", `{"permits":5}`).Is(200, "permits=5", "available=5")
	a.Must(200, "PATCH /v1/semaphores/family", `{"permits":null}`).Is(200, "permits=null")
	a.Must(200, "POST /v1/batch", `{"operations":[{"op":"patch","semaphore":"plain","paused":"x"},{"op":"create","semaphore":"b","permits":null,"groups":"request","per_group":1},
		{"op":"put","semaphore":"plain","per_group":1},{"head_start":null,"op":"put","semaphore":"plain"},{"head_start":null,"op":"acquire-once","semaphore":"b"}]}`).
		Is(200, "results.0.body.paused=x", "results.1.body.permits=null", "results.2.body.field=per_group", "results.3.status=200", "results.4.body.field=head_start")
}

func TestGroupsOfAPool(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/pool", `{"permits":4,"groups":"request","per_group":2}`)
	s, other := a.Open("1h"), a.Open("1h")
	lease := "/v1/sessions/" + s + "/leases/pool"
	a.Must(200, "PUT "+lease, `{"count":2,"group":"acme"}`).Is(200, "group=acme", "count=2")
	a.Must(200, "PUT "+lease+"?group=b", "").Is(200, "group=b")
	if got := a.Must(200, "PUT "+lease, ""); strings.Contains(got.Text, "group") {
		t.Errorf("the empty group is shown: %s", got.Text)
	}
	a.Do("PUT /v1/sessions/"+other+"/leases/pool?group=acme&try=true", "").
		RefusedWith(409, "unavailable", "rule=group-limit", "group=acme", "limit=2", "used=2", "detail=Group acme uses 2 of its 2.")
	a.Do("PUT /v1/sessions/"+other+"/leases/pool?group=acme&try=true", `{"count":3}`).RefusedWith(409, "never", "rule=group-limit", "most=2", "limit=2")
	a.Do("PUT /v1/sessions/"+other+"/leases/pool", `{"group":"acme"}`).Is(202, "group=acme", "position=1")
	a.Do("GET /v1/sessions/"+other+"/leases/pool?group=acme", "").Is(202, "group=acme", "count=1")
	a.Do("GET /v1/sessions/"+other+"/leases/pool", "").RefusedWith(404, "not-held")
	a.Do("GET /v1/semaphores/pool/waiters", "").Is(200, "waiters.0.group=acme", "waiters.0.count=1", "waiters.0.blocked_by=group-limit", "waiters.0.reason=Group acme uses 2 of its 2.",
		"waiters.0.obstacles.0.group=acme", "waiters.0.obstacles.0.limit=2", "waiters.0.obstacles.0.used=2")
	a.Do("GET /v1/sessions/"+other, "").Is(200, "waiting.0.members.0.name=pool", "waiting.0.members.0.group=acme", "waiting.0.members.0.count=1")
	a.Do("GET /v1/semaphores/pool/holders?group=b", "").Is(200, "holders.length=1", "holders.0.group=b")
	a.Do("GET /v1/semaphores/pool/holders?group=", "").Is(200, "holders.length=1")
	a.Do("GET /v1/semaphores/pool/holders", "").Is(200, "holders.length=3")
	a.Do("GET /v1/semaphores/pool/waiters?group=b", "").Is(200, "waiters.length=0")
	a.Do("GET /v1/semaphores/pool/waiters?group=acme", "").Is(200, "waiters.length=1")
	a.Do("GET /v1/semaphores/pool", "").Is(200, "groups_count=3", "holders.length=3", "waiters.0.group=acme")
	a.Must(200, "PATCH "+lease+"?group=acme", `{"count":1}`).Is(200, "group=acme", "count=1")
	a.Do("GET /v1/sessions/"+other+"/leases/pool?group=acme", "").Is(200, "group=acme")
	a.Must(204, "DELETE "+lease+"?group=acme", "")
	a.Must(204, "DELETE /v1/semaphores/pool/holders/"+other+"?group=acme&reason=drill", "")
	a.Do("GET /v1/sessions/"+other+"/leases/pool?group=acme", "").RefusedWith(410, "revoked")
	a.Do("GET /v1/sessions/"+s+"/leases", "").Is(200, "leases.length=2", "leases.0.group=b")
}

func TestLimitsOfGroups(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/pool", `{"permits":9,"groups":"request","per_group":2}`)
	a.Do("PUT /v1/semaphores/pool/groups/acme", `{"limit":5}`).Is(200, "semaphore=pool", "group=acme", "limit=5", "epoch=1")
	a.Do("PUT /v1/semaphores/pool/groups/-", `{"limit":1}`).Is(200, "group=", "limit=1")
	a.Do("PUT /v1/semaphores/pool/groups/--", `{"limit":1}`).Is(200, "group=-")
	a.Do("PUT /v1/semaphores/pool/groups/--%2Fx", `{"limit":0}`).Is(200, "group=-/x", "limit=0")
	a.Do("GET /v1/semaphores/pool/groups/--%2Fx", "").Is(200, "group=-/x", "limit=0", "own=true", "used=0")
	a.Do("POST /v1/semaphores/pool/leases", `{"group":"-/x"}`).RefusedWith(409, "never", "group=-/x", "limit=0", "used=0")
	for _, group := range []string{"b", "acme", "acme", "acme"} {
		a.Must(201, "POST /v1/semaphores/pool/leases", `{"group":"`+group+`","ttl":"1h"}`)
	}
	a.Do("GET /v1/semaphores/pool/groups", "").Is(200, "groups.length=5", "groups.0.group=", "groups.1.group=-", "groups.3.group=acme", "groups.3.used=3", "groups.4.own=false", "groups.4.limit=2", "next=null")
	page := a.Do("GET /v1/semaphores/pool/groups?limit=3", "").Is(200, "groups.length=3")
	a.Do("GET /v1/semaphores/pool/groups?limit=3&cursor="+page.Member("next"), "").Is(200, "groups.length=2", "groups.0.group=acme", "next=null")
	a.Do("GET /v1/semaphores/pool/groups?waiting=true", "").Is(200, "groups=[]")
	a.Do("PUT /v1/semaphores/pool/groups/acme", `{"limit":null}`).Is(200, "limit=null")
	a.Do("PUT /v1/sessions/"+a.Open("1h")+"/leases/pool?group=acme", "").Is(202, "position=1")
	a.Node.Advance(1500)
	a.Do("GET /v1/semaphores/pool/groups?waiting=true", "").Is(200, "groups.length=1", "groups.0.group=acme", "groups.0.own=false", "groups.0.limit=2", "groups.0.used=3", "groups.0.waiting=1", "groups.0.oldest_wait_ms=1500")
	a.Do("POST /v1/batch", `{"operations":[{"op":"group-put","semaphore":"pool","group":"","limit":null},{"op":"group-put","semaphore":"pool","limit":1}]}`).
		Is(200, "results.0.body.limit=null", "results.1.body.field=group")
	a.Do("GET /v1/semaphores/pool/groups/-", "").RefusedWith(404, "unknown-group", "semaphore=pool")
}

func TestFamily(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/branches", `{"permits":null,"groups":"request","per_group":1}`)
	s, other := a.Open("1h"), a.Open("1h")
	a.Must(200, "POST /v1/sessions/"+s+"/acquire", `{"mode":"all","semaphores":[{"name":"branches","group":"a"},{"name":"branches","group":"b"}]}`).
		Is(200, "leases.0.group=a", "leases.1.group=b")
	a.Do("POST /v1/sessions/"+other+"/acquire", `{"mode":"all","semaphores":[{"name":"branches","group":"a"},{"name":"branches","group":"c"}]}`).
		Is(202, "members.0.name=branches", "members.0.group=a", "members.1.group=c", "mode=all")
	a.Do("GET /v1/semaphores/branches", "").Is(200, "permits=null", "available=null", "held=2", "groups_count=3")
	a.Do("GET /v1/semaphores/branches/waiters?limit=1", "").Is(200, "waiters.0.group=a", "waiters.0.reason=Group a uses 1 of its 1.")
	page := a.Do("GET /v1/semaphores/branches/waiters?limit=1", "")
	a.Do("GET /v1/semaphores/branches/waiters?limit=1&cursor="+page.Member("next"), "").Is(200, "waiters.length=1", "waiters.0.group=c",
		`waiters.0.reason=It waits for "branches" in another group of its list.`, "next=null")
	for _, line := range []string{"POST /v1/semaphores/branches/up", "POST /v1/semaphores/branches/down", "PUT /v1/sessions/" + s + "/waitlist/branches"} {
		a.Do(line, "").RefusedWith(409, "no-total", "semaphore=branches")
	}
	a.Do("PUT /v1/semaphores/branches/value", `{"value":1}`).RefusedWith(409, "no-total")
	a.Do("PUT /v1/semaphores/branches", `{"permits":3}`).RefusedWith(409, "requests-waiting")
	a.Do("POST /v1/sessions/77/restore", `{"ttl":"1m","leases":[{"name":"branches","group":"a"}]}`).Is(200, "leases.0.group=a")
	a.Do("POST /v1/sessions/"+s+"/acquire", `{"mode":"all","semaphores":[{"name":"p1","group":"a"},{"name":"p2","group":"a"}]}`).RefusedWith(404, "unknown-semaphore")
	a.Must(201, "PUT /v1/semaphores/p1", `{"permits":1,"groups":"request"}`)
	a.Must(201, "PUT /v1/semaphores/p2", `{"permits":1,"groups":"request"}`)
	a.Do("POST /v1/sessions/"+s+"/acquire", `{"mode":"all","semaphores":[{"name":"p1","group":"a"},{"name":"p2","group":"a"}]}`).RefusedWith(400, "invalid-request", "field=semaphores", "semaphore=p2")
}

func TestPause(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1,"paused":"disk swap"}`)
	s := a.Open("1h")
	a.Do("PUT /v1/sessions/"+s+"/leases/db?try=true", "").RefusedWith(409, "unavailable", "rule=paused", "reason=disk swap", "detail=The semaphore is paused: disk swap.")
	a.Do("PUT /v1/sessions/"+s+"/leases/db", "").Is(202, "position=1")
	a.Do("GET /v1/semaphores/db", "").Is(200, "paused=disk swap", "waiters.0.blocked_by=paused", "waiters.0.reason=The semaphore is paused: disk swap.")
	a.Must(200, "PUT /v1/semaphores/db", `{"paused":null}`)
	a.Do("GET /v1/sessions/"+s+"/leases/db", "").Is(200, "count=1")
}

func TestShortLines(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1,"max_waiting":1}`)
	a.Must(201, "POST /v1/semaphores/db/leases", `{"ttl":"1h"}`)
	a.Do("PUT /v1/sessions/"+a.Open("1h")+"/leases/db", "").Is(202, "position=1")
	a.Do("PUT /v1/sessions/"+a.Open("1h")+"/leases/db", "").RefusedWith(409, "line-full", "semaphore=db", "queue_length=1")
	a.Must(200, "PUT /v1/semaphores/db", `{"when_full":"drop-oldest"}`)
	waiting := a.GoDo("PUT /v1/sessions/"+a.Open("1h")+"/leases/db?wait=1m", "")
	a.Node.AwaitWaits(1)
	a.Do("PUT /v1/sessions/"+a.Open("1h")+"/leases/db", "").Is(202, "position=1")
	(<-waiting).RefusedWith(409, "superseded", "semaphore=db")
}

func TestHeadStart(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1,"head_start":"1m"}`)
	a.Must(201, "POST /v1/semaphores/db/leases", `{"ttl":"1h"}`)
	first, late := a.Open("1h"), a.Open("1h")
	a.Do("PUT /v1/sessions/"+first+"/leases/db", "").Is(202, "position=1")
	a.Node.Advance(30_000)
	a.Do("PUT /v1/sessions/"+late+"/leases/db", `{"head_start":"2m"}`).Is(202, "position=1")
	a.Do("GET /v1/semaphores/db/waiters", "").Is(200, "waiters.0.session="+late, "waiters.0.waiting_ms=0", "waiters.1.session="+first, "waiters.1.waiting_ms=30000")
	page := a.Do("GET /v1/semaphores/db/waiters?limit=1", "")
	a.Do("GET /v1/semaphores/db/waiters?limit=1&cursor="+page.Member("next"), "").Is(200, "waiters.length=1", "waiters.0.session="+first, "next=null")
}
