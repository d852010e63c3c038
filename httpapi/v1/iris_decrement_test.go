package v1_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox/signalbox/test/apitest"
)

func TestIrisDecrement(t *testing.T) {
	onIris(t, []irisTest{
		{"D1 amounts", func(s *irisSite) {
			s.create("a", 3)
			s.down("a", 1, 1)
			s.down("a", 1<<31-1, 2)
			for _, amount := range []string{"0", "-1", "0.5"} {
				s.do("POST "+at("a")+"/down", `{"partial":true,"count":`+amount+`}`).RefusedWith(400, "invalid-request", "field=count")
			}
		}},
		{"D2 takes what there is and forgets the rest", func(s *irisSite) {
			s.create("a", 2)
			s.down("a", 10, 2)
			s.value("a", 0)
			s.up("a", 5, 5)
		}},
		{"D3 any increase ends the wait of the first", func(s *irisSite) {
			s.create("a", 0)
			first, second := s.blocked("a", 10, "10m"), s.blocked("a", 10, "10m")
			s.up("a", 1, 0)
			s.granted(first, 1) // it never gathers
			s.waits(second)
			s.up("a", 2, 0)
			s.granted(second, 2)
		}},
		{"D4 timeouts", func(s *irisSite) {
			s.create("a", 0)
			for wait, ms := range map[string]int64{"0s": 0, "2s": 2000, "1.5s": 1500} { // a fraction: not documented there
				began := time.Now()
				s.do("POST "+at("a")+"/down?wait="+wait, `{"partial":true}`).Is(200, "granted=0", "value=0")
				if took := time.Since(began).Milliseconds(); took < ms-1 || took > ms+200 {
					s.Errorf("%s took %d ms", wait, took)
				}
			}
			s.up("a", 1, 1) // no client took it
			s.do("POST "+at("a")+"/down?wait=-2", `{"partial":true}`).RefusedWith(400, "invalid-request", "field=wait")
		}},
		// There, -1 waits for ever. Here a request lasts up to ten minutes. A client that waits
		// longer uses a wait list, whose places are kept from one request to the next.
		{"D4 for ever", func(s *irisSite) {
			s.create("a", 0)
			s.do("POST "+at("a")+"/down?wait=-1", `{"partial":true}`).RefusedWith(400, "invalid-request", "field=wait")
			job := s.job()
			s.add(job, "a", 4, 0, 4)
			later := s.blocked("a", 1, "10m")
			for range 3 {
				s.waitMany(job, "30s", "")
			}
			s.up("a", 3, 0)
			s.waitMany(job, "30s", "a 3")
			s.waits(later)
		}},
	})
}

func TestIrisDecrementServes(t *testing.T) {
	onIris(t, []irisTest{
		{"D5 0 is the end of the time and nothing else", func(s *irisSite) {
			s.create("a", 0)
			s.create("b", 0)
			s.do("POST "+at("a")+"/down?wait=1s", `{"partial":true,"count":2}`).Is(200, "granted=0")
			served, gone := s.blocked("a", 2, "10m"), s.blocked("b", 2, "10m")
			s.up("a", 1, 0)
			s.granted(served, 1)
			s.must(204, "DELETE "+at("b"), "")
			(<-gone).RefusedWith(410, "deleted")
		}},
		{"D6 first in first out", func(s *irisSite) {
			s.create("a", 0)
			var line []<-chan apitest.Reply
			for range 6 { // each at the next node
				line = append(line, s.blocked("a", 2, "10m"))
			}
			s.up("a", 5, 0)
			for i, want := range []int64{2, 2, 1} {
				s.granted(line[i], want)
			}
			s.waits(line[3:]...)
			s.up("a", 1, 0)
			s.granted(line[3], 1)
			s.up("a", 10, 6)
			s.granted(line[4], 2)
			s.granted(line[5], 2)
		}},
		{"D7 with a value nobody waits", func(s *irisSite) {
			s.create("a", 0)
			job := s.job()
			huge := s.blocked("a", 1<<40, "10m")
			s.add(job, "a", 1<<41, 0, 1<<41)
			small := s.blocked("a", 1, "10m")
			s.up("a", 1, 0) // a large request neither starves …
			s.granted(huge, 1)
			s.up("a", 1, 0)
			s.waitMany(job, "0s", "a 1")
			s.up("a", 3, 2) // … nor blocks
			s.granted(small, 1)
			s.line("a", 0)
		}},
		// Behind a request for all or nothing, which that system does not know, the line
		// stops although there is a value: first in, first out comes first.
		{"D7 behind all or nothing", func(s *irisSite) {
			s.create("a", 0)
			job := s.job()
			whole := s.later("POST "+at("a")+"/down", `{"count":3,"wait":"10m"}`)
			s.add(job, "a", 5, 0, 5)
			s.up("a", 2, 2)
			s.line("a", 2)
			s.down("a", 1, 0)
			s.waitMany(job, "0s", "")
			s.up("a", 2, 0)
			s.granted(whole, 3)
			s.waitMany(job, "0s", "a 1")
		}},
		// There, a remote semaphore may take two seconds to say no. Here every node
		// replies as soon as the log has the request.
		{"D8 no wait is no wait on every node", func(s *irisSite) {
			s.create("a", 0)
			for range s.cluster.IDs {
				began := time.Now()
				s.down("a", 1, 0)
				if took := time.Since(began); took > 100*time.Millisecond {
					s.Errorf("it took %v", took)
				}
			}
		}},
	})
}

func TestIrisOrder(t *testing.T) {
	onIris(t, []irisTest{
		{"E1 calls are ordered by the log", func(s *irisSite) {
			s.create("a", 0)
			last := 0
			for i := int64(1); i <= 12; i++ { // each at the next node
				got := s.do("POST "+at("a")+"/up", "").Is(200, fmt.Sprintf("value=%d", i))
				index := 0
				if _, err := fmt.Sscan(got.Header.Get("X-Signalbox-Index"), &index); err != nil || index <= last {
					s.Fatalf("index %d after %d", index, last)
				}
				last = index
			}
		}},
		{"E2 a grantee sees what its granter did before", func(s *irisSite) {
			s.create("data", 0)
			s.create("ready", 0)
			job := s.job()
			s.add(job, "ready", 1, 0, 1)
			for i := int64(1); i <= 6; i++ { // the nodes of the two jobs change from round to round
				waiting := s.waitLater(job, "10m")
				s.do("PUT "+at("data")+"/value", fmt.Sprintf(`{"value":%d}`, 7*i)).Is(200)
				s.up("ready", 1, 0)
				s.told(<-waiting, "ready 1")
				s.value("data", 7*i)
				s.add(job, "ready", 1, 0, 1)
			}
		}},
		// There, an outage deletes remote semaphores and drops pending decrements. Here
		// value, queue, places, deadlines, wait lists and grants that are not yet delivered
		// survive the loss of a minority.
		{"E3 the loss of a node loses nothing", func(s *irisSite) {
			epoch := s.create("a", 3)
			first, second := s.job(), s.job()
			s.add(first, "a", 5, 3, 0) // not delivered before the outage
			s.add(second, "a", 2, 0, 2)
			s.add(first, "a", 4, 3, 4)
			gone := s.killLeader()
			s.do("GET "+at("a"), "").Is(200, "epoch="+epoch, "available=0", "waiter_count=2")
			s.do("GET /v1/sessions/"+first, "").Is(200, "waitlist.0.granted=3", "waitlist.0.wanted=4", "waitlist.0.position=2")
			s.up("a", 3, 0)
			s.waitMany(second, "0s", "a 2")
			s.waitMany(first, "0s", "a 4")
			s.restart(gone)
			s.cluster.AwaitReady()
			for range s.cluster.IDs {
				s.do("GET "+at("a"), "").Is(200, "epoch="+epoch, "available=0", "waiter_count=0")
			}
		}},
		{"E3 deadlines stand still without a leader", func(s *irisSite) {
			s.create("a", 0)
			job := s.must(201, "POST /v1/sessions", `{"ttl":"30s"}`).Member("session")
			s.add(job, "a", 1, 0, 1)
			ids := s.cluster.IDs
			for _, id := range ids[1:] {
				s.cluster.Kill(id)
			}
			time.Sleep(2 * time.Minute) // virtual: no majority, and so no time
			for _, id := range ids[1:] {
				s.restart(id)
			}
			s.cluster.AwaitReady()
			s.up("a", 1, 0)
			s.waitMany(job, "0s", "a 1")
		}},
	})
}
