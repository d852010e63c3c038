package members_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestMembers(t *testing.T) {
	a := apitest.New(t)
	a.Node.StatusNow.Cluster = ""
	a.Do("GET /v1/cluster", "").Is(200, "node=n1", "leader=n1", "term=3", "applied_index=0", "state_hash=00000000000000000000000000000000",
		"members.0.id=n1", "members.0.peer=n1:8711", "members.0.voter=true", "members.0.leader=true", "members.0.last_contact_ms=0",
		"members.0.storage=room", "members.1.last_contact_ms=null", "members.1.storage=null", "members.1.state=unknown", "majority=false", "cluster=null")
	a.Node.StatusNow.Members = append(a.Node.StatusNow.Members, cluster.Member{ID: "n3", Voter: true, State: cluster.MemberDown, LastContact: 14 * time.Second, Lag: 3},
		cluster.Member{ID: "n4", State: cluster.MemberDown, LastContact: -1})
	a.Do("GET /v1/cluster", "").Is(200, "members.2.state=down", "members.2.last_contact_ms=14000", "members.2.lag=null", "members.2.storage=null", "members.3.state=down", "majority=false")
	a.Node.StatusNow.Members[1].State, a.Node.StatusNow.Members[1].Lag = cluster.MemberUp, 2
	a.Do("GET /v1/cluster", "").Is(200, "majority=true", "members.1.lag=2", "members.1.storage=room")
	a.Node.StatusNow.Cluster = "5a0f6c1e8d7b4a39926e1f0c3b5d7e81"
	a.Do("GET /v1/cluster", "").Is(200, "cluster=5a0f6c1e8d7b4a39926e1f0c3b5d7e81")
	a.Node.StatusNow.Leader, a.Node.StatusNow.Level, a.Node.StatusNow.Members[1].Knows = "", 7, 8
	a.Do("GET /v1/cluster", "").Is(200, "leader=null")
	for words, m := range map[string]cluster.Member{"room": {}, "low": {Low: true}, "full": {Low: true, Spent: true}} {
		a.Node.StatusNow.Members[0].Low, a.Node.StatusNow.Members[0].Spent = m.Low, m.Spent
		a.Do("GET /v1/cluster", "").Is(200, "members.0.storage="+words)
	}
	a.Do("PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`).Is(200, "node=n1")
	a.Do("DELETE /v1/cluster/members/n2", "").Is(200)
	a.Do("POST /v1/cluster/leader", `{"id":"n2"}`).Is(200)
	a.Do("POST /v1/cluster/leader", "").Is(200)
	a.Do("PUT /v1/cluster/level", `{"level":2}`).Is(200, "level=7", "members.1.knows=8")
	if got := fmt.Sprint(a.Node.Asked); got != "[add n4 n4:8711 remove n2 transfer n2 transfer  raise 2]" {
		t.Errorf("asked %s", got)
	}
	a.Do("DELETE /v1/cluster/members/n9", "").RefusedWith(404, "unknown-member")
	a.Do("POST /v1/cluster/leader", `{"id":"n9"}`).RefusedWith(404, "unknown-member")
	for _, body := range []string{``, `{"peer":"n4"}`, `{"peer":":8711"}`, `{"peer":"[]:8711"}`, `{"peer":"n4:0"}`, `{"peer":"n4:99999"}`, `{"peer":7}`, `{"peer":"a b:1"}`, `{"peer":"0.0.0.0:1"}`,
		`{"peer":"[::]:1"}`, `{"peer":"224.0.0.1:1"}`, `{"peer":"[ff02::1]:1"}`, `{"peer":"10.0.0.256:1"}`, `{"peer":"//n4:1"}`} {
		a.Do("PUT /v1/cluster/members/n4", body).RefusedWith(400, "invalid-request", "field=peer")
	}
	a.Do("PUT /v1/cluster/members/n%204", `{"peer":"n4:8711"}`).RefusedWith(400, "invalid-request", "field=id")
	for _, body := range []string{``, `{"level":0}`, `{"level":"1"}`, `{"level":4294967296}`, `{"level":1.5}`} {
		a.Do("PUT /v1/cluster/level", body).RefusedWith(400, "invalid-request", "field=level")
	}
	a.Node.Fail = fmt.Errorf("%w 2: n2 knows level 1", outcome.ErrLevelUnknown)
	a.Do("PUT /v1/cluster/level", `{"level":2}`).RefusedWith(409, "level-unknown", "reason="+a.Node.Fail.Error())
	a.Node.Fail = outcome.ErrCatchingUp
	a.Do("PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`).Is(202, "node=n1")
	a.Node.Fail = fmt.Errorf("%w: n9 has the address", outcome.ErrMemberInvalid)
	a.Do("PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`).RefusedWith(409, "member-refused", "reason="+a.Node.Fail.Error())
	a.Node.Fail = outcome.ErrLastVoter
	a.Do("DELETE /v1/cluster/members/n2", "").RefusedWith(409, "member-refused")
	a.Node.Fail = outcome.ErrNoTarget
	a.Do("POST /v1/cluster/leader", "").RefusedWith(409, "no-successor")
	a.Node.Fail = outcome.ErrNoLeader
	a.Do("PUT /v1/cluster/members/n4", `{"peer":"n4:8711"}`).RefusedWith(503, "no-leader")
	a.Do("GET /v1/cluster", "").Is(200)
}

// A member that does not reply at its address is not added, whichever node gets the request.
func TestAddedMemberThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // virtual
		c := apitest.NewCluster(t)
		for _, id := range c.IDs {
			a := &apitest.API{T: t, Handler: c.APIs[id]}
			a.Do("PUT /v1/cluster/members/n9", `{"peer":"n9:8711"}`).RefusedWith(409, "member-refused")
		}
	})
}
