package v1_test

import (
	"fmt"
	"testing"
	"time"
)

func TestIrisWaitMany(t *testing.T) {
	onIris(t, []irisTest{
		{"W1 an entry is a Decrement in the background", func(s *irisSite) {
			s.create("a", 2)
			job := s.job()
			s.add(job, "a", 5, 2, 0) // at once, and partially
			s.value("a", 0)
			s.create("b", 0)
			s.add(job, "b", 5, 0, 5)
			s.do("PUT "+list(job, "b"), `{"count":0}`).RefusedWith(400, "invalid-request", "field=count")
			s.do("GET /v1/sessions/"+job, "").Is(200, "waitlist.0.name=a", "waitlist.0.granted=2", "waitlist.0.wanted=0",
				"waitlist.0.position=0", "waitlist.1.name=b", "waitlist.1.wanted=5", "waitlist.1.position=1", "waiting=[]")
		}},
		{"W2 one queue with the blocked Decrements", func(s *irisSite) {
			s.create("a", 0)
			firstJob, secondJob := s.job(), s.job()
			s.add(firstJob, "a", 1, 0, 1)
			first := s.blocked("a", 1, "10m")
			s.add(secondJob, "a", 1, 0, 1)
			last := s.blocked("a", 1, "10m")
			s.waitMany(secondJob, "0s", "")
			s.up("a", 1, 0)
			s.waitMany(firstJob, "0s", "a 1")
			s.waits(first, last)
			s.up("a", 1, 0)
			s.granted(first, 1)
			s.waitMany(secondJob, "0s", "")
			s.up("a", 1, 0)
			s.waitMany(secondJob, "0s", "a 1")
			s.waits(last)
			s.up("a", 1, 0)
			s.granted(last, 1)
		}},
		{"W3 taken without a WaitMany and told by it", func(s *irisSite) {
			s.create("a", 0)
			job := s.job()
			s.add(job, "a", 3, 0, 3)
			s.up("a", 5, 2)
			s.value("a", 2)
			time.Sleep(time.Minute) // virtual
			s.waitMany(job, "0s", "a 3")
			s.value("a", 2)
		}},
		// The headline of one text says "waits for all"; its details, and the other text,
		// say any.
		{"W4 waits for any and tells all that are ready", func(s *irisSite) {
			job := s.job()
			for _, name := range []string{"a", "b", "c"} {
				s.create(name, 0)
				s.add(job, name, 9, 0, 9)
			}
			s.waitMany(job, "0s", "") // a poll
			began := time.Now()
			s.waitMany(job, "3s", "")
			if took := time.Since(began); took < 3*time.Second || took > 3200*time.Millisecond {
				s.Errorf("it took %v", took)
			}
			waiting := s.waitLater(job, "10m")
			s.waits(waiting)
			s.up("b", 4, 0)
			s.told(<-waiting, "b 4") // one is enough
			s.up("c", 2, 0)
			s.up("a", 7, 0)
			s.waitMany(job, "10m", "c 2; a 7").Is(200, "count=2") // entries, not permits
		}},
	})
}

func TestIrisDelivery(t *testing.T) {
	onIris(t, []irisTest{
		{"W5 round robin", func(s *irisSite) {
			job := s.job()
			names := []string{"a", "b", "c", "d"}
			for _, name := range names {
				s.create(name, 0)
				s.add(job, name, 1, 0, 1)
			}
			s.up("b", 1, 0)
			s.waitMany(job, "0s", "b 1")
			for _, name := range []string{"a", "c", "d"} {
				s.up(name, 1, 0)
			}
			s.waitMany(job, "0s", "c 1; d 1; a 1") // it begins after b
		}},
		{"W6 what was told is off the list", func(s *irisSite) {
			s.create("a", 1)
			job := s.job()
			s.add(job, "a", 1, 1, 0)
			s.waitMany(job, "0s", "a 1")
			s.up("a", 1, 1)
			s.waitMany(job, "0s", "")
			s.do("GET /v1/sessions/"+job, "").Is(200, "waitlist=[]")
			s.add(job, "a", 2, 1, 0) // again is explicit
			s.waitMany(job, "0s", "a 1")
		}},
		{"W7 the end of the time keeps the places", func(s *irisSite) {
			s.create("a", 0)
			job := s.job()
			s.add(job, "a", 3, 0, 3)
			behind := s.blocked("a", 1, "10m")
			s.waitMany(job, "1s", "")
			s.waitMany(job, "1s", "")
			s.do("GET /v1/sessions/"+job, "").Is(200, "waitlist.0.position=1", "waitlist.0.wanted=3")
			s.up("a", 2, 0)
			s.waits(behind)
			s.waitMany(job, "0s", "a 2")
		}},
		{"W8 what is served meanwhile is told now or next", func(s *irisSite) {
			job := s.job()
			s.create("a", 0)
			s.create("b", 0)
			s.add(job, "a", 1, 0, 1)
			s.add(job, "b", 1, 0, 1)
			waiting := s.waitLater(job, "10m")
			s.up("a", 1, 0)
			s.up("b", 1, 0)
			now := <-waiting
			next := s.must(200, "POST /v1/sessions/"+job+"/waitlist/wait", "")
			if now.Member("count") == "2" {
				s.told(now, "a 1; b 1")
				s.told(next, "")
			} else {
				s.told(now, "a 1")
				s.told(next, "b 1")
			}
		}},
	})
}

func TestIrisMerges(t *testing.T) {
	onIris(t, []irisTest{
		{"W9 merged while pending", func(s *irisSite) {
			s.create("a", 0)
			job := s.job()
			s.add(job, "a", 4, 0, 4)
			behind := s.blocked("a", 1, "10m")
			s.add(job, "a", 1, 0, 5) // the place is kept
			s.do("PUT "+at("a")+"/value", `{"value":4}`).Is(200, "value=0")
			s.waits(behind)
			s.waitMany(job, "0s", "a 4")
		}},
		{"W9 merged after a grant", func(s *irisSite) {
			s.create("a", 1)
			job := s.job()
			s.add(job, "a", 3, 1, 0)
			s.add(job, "a", 4, 1, 4)
			s.waitMany(job, "0s", "a 1")
			s.line("a", 0)
		}},
		{"W9 merged grants", func(s *irisSite) {
			s.create("a", 1)
			job := s.job()
			s.add(job, "a", 3, 1, 0)
			s.add(job, "a", 4, 1, 4)
			s.do("PUT "+at("a")+"/value", `{"value":5}`).Is(200, "value=1")
			s.waitMany(job, "0s", "a 5")
			s.value("a", 1)
		}},
	})
}

func TestIrisListEnds(t *testing.T) {
	onIris(t, []irisTest{
		{"W10 an undelivered grant goes back and serves others", func(s *irisSite) {
			s.create("a", 0)
			job := s.job()
			s.add(job, "a", 3, 0, 3)
			s.must(204, "DELETE "+list(job, "a"), "") // pending
			s.line("a", 0)
			s.up("a", 4, 4)
			s.add(job, "a", 3, 3, 0)
			s.down("a", 9, 1)
			next := s.blocked("a", 2, "10m")
			s.must(204, "DELETE "+list(job, "a"), "")
			s.granted(next, 2)
			s.value("a", 1)
			s.waitMany(job, "0s", "")
			s.must(204, "DELETE "+list(job, "a"), "") // nothing there
		}},
		// A comment of the vendor's example says 200; the reference says 64, and so is
		// ours unless configured otherwise.
		{"W11 at most 64", func(s *irisSite) {
			job := s.job()
			for i := range 65 {
				s.create(fmt.Sprint(i), 0)
				if i < 64 {
					s.add(job, fmt.Sprint(i), 1, 0, 1)
				}
			}
			s.do("PUT "+list(job, "64"), "").RefusedWith(429, "limit-reached", "rule=wait-list")
			s.add(job, "3", 1, 0, 2) // is there already
			s.up("3", 1, 0)
			s.waitMany(job, "0s", "3 1")
			s.add(job, "64", 1, 0, 1)
		}},
		// One text drops a pending entry silently and counts a satisfied one with 0; the
		// other completes both with 0, and so do we: counted and marked. A grant that was
		// not delivered ends with its semaphore.
		{"W12 deleted", func(s *irisSite) {
			s.create("pending", 0)
			s.create("satisfied", 2)
			job := s.job()
			s.add(job, "pending", 3, 0, 3)
			s.add(job, "satisfied", 3, 2, 0)
			waiting := s.waitLater(s.job(), "10m") // an empty list
			s.told(<-waiting, "")
			s.must(204, "DELETE "+at("pending"), "")
			s.must(204, "DELETE "+at("satisfied"), "")
			s.do("GET /v1/sessions/"+job, "").Is(200, "waitlist.1.deleted=true", "waitlist.1.granted=0")
			s.create("satisfied", 0)
			s.waitMany(job, "0s", "pending deleted; satisfied deleted").Is(200, "count=2")
			s.value("satisfied", 0)
		}},
	})
}

func TestIrisWaitManyDiffers(t *testing.T) {
	end := func(s *irisSite, onEnd string, die func(job string)) {
		s.create("granted", 3)
		s.create("pending", 0)
		job := s.must(201, "POST /v1/sessions", `{"ttl":"1m","on_end":"`+onEnd+`"}`).Member("session")
		s.add(job, "granted", 2, 2, 0)
		s.add(job, "pending", 2, 0, 2)
		s.waitMany(job, "0s", "granted 2")
		s.add(job, "granted", 2, 1, 0)
		behind := s.blocked("pending", 1, "10m")
		die(job)
		s.up("pending", 1, 0) // the pending entry is gone
		s.granted(behind, 1)
	}
	expire := func(string) { time.Sleep(2 * time.Minute) } // virtual
	onIris(t, []irisTest{
		// There, a grant that was not delivered leaks when a job dies. Here it goes back; a
		// delivered grant stays taken.
		{"W13 a job that dies gives back what it was not told", func(s *irisSite) {
			end(s, "return", expire)
			s.value("granted", 1)
		}},
		{"W13 a job that ends does too", func(s *irisSite) {
			end(s, "return", func(job string) { s.must(204, "DELETE /v1/sessions/"+job, "") })
			s.value("granted", 1)
		}},
		{"W13 as there for who asks for it", func(s *irisSite) {
			end(s, "keep", expire)
			s.value("granted", 0)
		}},
		// There, a lost connection completes the entries with 0. Here a list belongs to no
		// node and no connection: it outlives them, and every delivery is true.
		{"W14 a lost node completes nothing", func(s *irisSite) {
			s.create("a", 0)
			job := s.job()
			s.add(job, "a", 3, 0, 3)
			lost := s.cluster.IDs[s.calls%len(s.cluster.IDs)] // whose turn is next
			waiting := s.waitLater(job, "10m")
			s.waits(waiting)
			s.cluster.Kill(lost)
			if got := <-waiting; got.Status == 200 && got.Member("count") != "0" {
				s.Errorf("told %s", got.Text)
			}
			s.do("GET /v1/sessions/"+job, "").Is(200, "waitlist.0.wanted=3", "waitlist.0.granted=0", "waitlist.0.deleted=false")
			s.up("a", 2, 0)
			s.waitMany(job, "0s", "a 2")
		}},
	})
}
