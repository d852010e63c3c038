package cluster

import (
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// TestRenewalsShareAnEntry: what comes within 5 ms goes into one command, and each
// caller has its own results.
func TestRenewalsShareAnEntry(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.follower()
		var sessions []uint64
		for range 100 {
			sessions = append(sessions, c.open(n, time.Hour))
		}
		sessions[50] = 12345 // one that never was
		before := c.leader().raft().LastIndex()
		began := time.Now()
		var answers []<-chan answer
		for i, s := range sessions {
			answers = append(answers, background(t.Context(), n, calls.Call{
				Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: s, TTLMS: int64(60_000 + i)}}},
			}))
		}
		for i, a := range answers {
			got := <-a
			want := fsm.OK
			if i == 50 {
				want = fsm.UnknownSession
			}
			if got.err != nil || len(got.Each) != 1 || got.Each[0].Code != want {
				t.Fatalf("renewal %d: %+v, %v", i, got.Each, got.err)
			}
			if want == fsm.OK && (got.Each[0].TTLMS != int64(60_000+i) || got.Each[0].Session != sessions[i]) {
				t.Fatalf("renewal %d has another's result: %+v", i, got.Each[0])
			}
		}
		if took := time.Since(began); took < 5*time.Millisecond || took > 6*time.Millisecond {
			t.Errorf("they took %v", took)
		}
		if got := c.leader().raft().LastIndex(); got != before+1 {
			t.Errorf("%d entries for 100 renewals at once", got-before)
		}
		list := make([]calls.Call, len(sessions))
		for i, s := range sessions {
			list[i].Command = fsm.Renew{Renewals: []fsm.Renewal{{Session: s, TTLMS: int64(90_000 + i)}}}
		}
		replies, errs := n.DoMany(t.Context(), list)
		for i, got := range replies {
			if unknown := i == 50; errs[i] != nil || len(got.Each) != 1 || (got.Each[0].Code == fsm.UnknownSession) != unknown ||
				!unknown && (got.Each[0].Session != sessions[i] || got.Each[0].TTLMS != int64(90_000+i)) {
				t.Fatalf("renewal %d of a list: %+v, %v", i, got.Each, errs[i])
			}
		}
	})
}

// TestRenewalsOfOwnersShareEntries: the renewals of one owner go into one command, and no owner renews
// a session of another one by sharing.
func TestRenewalsOfOwnersShareEntries(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		n := c.follower()
		owners := []string{"", "ci", "db"}
		sessions := map[string][]uint64{}
		for _, owner := range owners {
			for range 30 {
				got := c.call(n, calls.Call{Command: fsm.OpenSession{Session: n.DrawSession(), TTLMS: 3_600_000}, Owner: owner}, fsm.OK)
				sessions[owner] = append(sessions[owner], got.Session)
			}
		}
		sessions["ci"][7] = sessions["db"][0] // another one's
		sent := func() float64 { return metricsOf(t, c.leader())["commands_forwarded_total"] }
		before := sent()
		answers := map[string][]<-chan answer{}
		for _, owner := range owners {
			for i, s := range sessions[owner] {
				answers[owner] = append(answers[owner], background(t.Context(), n, calls.Call{Owner: owner,
					Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: s, TTLMS: int64(60_000 + i)}}}}))
			}
		}
		for _, owner := range owners {
			for i, a := range answers[owner] {
				got, want := <-a, fsm.OK
				if owner == "ci" && i == 7 {
					want = fsm.UnknownSession
				}
				if got.err != nil || len(got.Each) != 1 || got.Each[0].Code != want || got.Each[0].Session != sessions[owner][i] {
					t.Errorf("renewal %d of %q: %+v, %v", i, owner, got.Each, got.err)
				}
			}
		}
		if got := sent() - before; got != float64(len(owners)) {
			t.Errorf("%v commands for the renewals of %d owners", got, len(owners))
		}
	})
}
