package v1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/test/apitest"
)

// What the vendor's article lets its programs do, with the values that it logs.

func TestIrisArticle(t *testing.T) {
	onIris(t, []irisTest{
		{"lifecycle", func(s *irisSite) {
			s.create("Counter", 0)
			s.value("Counter", 0)
			s.must(204, "DELETE "+at("Counter"), "")
			s.do("GET "+at("Counter"), "").RefusedWith(404, "unknown-semaphore")
		}},
		{"producer alone", func(s *irisSite) {
			s.create("Counter", 0)
			seen := []int64{0, 5, 7, 9, 13, 18, 21, 25, 28}
			for i, amount := range []int64{5, 2, 2, 4, 5, 3, 4, 3} {
				s.value("Counter", seen[i])
				s.up("Counter", amount, seen[i+1])
			}
			s.value("Counter", 28)
		}},
		{"producer and consumer", irisProducerAndConsumer},
		{"many producers and consumers", irisManyConsumers},
		{"merge while pending", func(s *irisSite) {
			s.create("A", 0)
			job := s.job()
			s.add(job, "A", 4, 0, 4)
			s.add(job, "A", 1, 0, 5)
			s.do("PUT "+at("A")+"/value", `{"value":4}`).Is(200, "value=0")
			s.waitMany(job, "0s", "A 4")
		}},
		{"merge of a grant and what is pending", func(s *irisSite) {
			s.create("A", 1)
			job := s.job()
			s.add(job, "A", 3, 1, 0)
			s.add(job, "A", 4, 1, 4)
			s.waitMany(job, "0s", "A 1")
			// Not stated there: the pending rest goes with its entry.
			s.do("GET /v1/sessions/"+job, "").Is(200, "waitlist=[]")
			s.do("PUT "+at("A")+"/value", `{"value":4}`).Is(200, "value=4")
			s.waitMany(job, "0s", "")
		}},
		{"merge of two grants", func(s *irisSite) {
			s.create("A", 1)
			job := s.job()
			s.add(job, "A", 3, 1, 0)
			s.add(job, "A", 4, 1, 4)
			s.do("PUT "+at("A")+"/value", `{"value":5}`).Is(200, "value=1")
			s.waitMany(job, "0s", "A 5")
			s.value("A", 1)
		}},
		{"deleted in Main while others run", irisDeletedInMain},
	})
}

// irisProducerAndConsumer is the log of one consumer. It asks by its wait list, and
// adds again after the end of its time, which merges.
func irisProducerAndConsumer(s *irisSite) {
	s.create("Counter", 2)
	job, got := s.job(), int64(0)
	ask := func(amount, granted, wanted int64) {
		s.Helper()
		s.add(job, "Counter", amount, granted, wanted)
	}
	take := func(granted int64) {
		s.Helper()
		s.waitMany(job, "1s", fmt.Sprintf("Counter %d", granted))
		got += granted
	}
	ask(4, 2, 0)
	take(2)
	s.value("Counter", 0)
	ask(1, 0, 1)
	s.up("Counter", 5, 4)
	take(1)
	ask(4, 4, 0)
	take(4)
	ask(1, 0, 1)
	s.up("Counter", 4, 3)
	take(1)
	ask(2, 2, 0)
	take(2)
	s.value("Counter", 1)
	ask(4, 1, 0)
	take(1)
	ask(3, 0, 3)
	s.waitMany(job, "1s", "")
	ask(1, 0, 4)
	s.waitMany(job, "1s", "")
	ask(5, 0, 9)
	s.up("Counter", 2, 0)
	take(2)
	// The rest of the log, up to the whole amount that was produced.
	for _, amount := range []int64{3, 5} {
		ask(amount+1, 0, amount+1)
		waiting := s.waitLater(job, "10m")
		s.up("Counter", amount, 0)
		s.told(<-waiting, fmt.Sprintf("Counter %d", amount))
		got += amount
	}
	s.value("Counter", 0)
	if got != 21 {
		s.Errorf("%d consumed of 21", got)
	}
}

// irisManyConsumers: all at once, through all nodes; no grant is lost, and no grant is
// reported twice.
func irisManyConsumers(s *irisSite) {
	s.create("Counter", 0)
	const consumers, rounds = 6, 20
	type end struct {
		got int64
		err string
	}
	ends := make(chan end, consumers)
	for i := range consumers {
		id := s.cluster.IDs[i%3]
		api, job := &apitest.API{T: s.T, Handler: s.cluster.APIs[id]}, s.job()
		go func() {
			var e end
			for e.err == "" {
				if added := api.Do("PUT "+list(job, "Counter"), fmt.Sprintf(`{"count":%d}`, 1+i)); added.Status != 200 {
					e.err = added.Text
				}
				told := api.Do("POST /v1/sessions/"+job+"/waitlist/wait", `{"wait":"10s"}`)
				if told.Status != 200 {
					e.err = told.Text
				}
				if told.Member("count") == "0" {
					break // nothing is produced any more
				}
				granted := int64(0)
				if _, err := fmt.Sscan(told.Member("completed.0.granted"), &granted); err != nil || granted < 1 || granted > int64(1+i) {
					e.err = "told " + told.Text
				}
				e.got += granted
			}
			ends <- e
		}()
	}
	produced := int64(0)
	for i := range int64(rounds) {
		s.do("POST "+at("Counter")+"/up", fmt.Sprintf(`{"count":%d}`, 1+i%5)).Is(200)
		produced += 1 + i%5
		time.Sleep(time.Duration(i%3) * 20 * time.Millisecond) // virtual
	}
	for range consumers {
		e := <-ends
		if e.err != "" {
			s.Error(e.err)
		}
		produced -= e.got
	}
	s.value("Counter", produced)
	if produced != 0 {
		s.Errorf("%d are left", produced)
	}
}

// irisDeletedInMain: the next call of each raises the error of an invalid semaphore.
func irisDeletedInMain(s *irisSite) {
	epoch := s.create("Counter", 0)
	lister := s.job()
	s.add(lister, "Counter", 3, 0, 3)
	listens, blocked := s.waitLater(lister, "10m"), s.blocked("Counter", 3, "10m")
	s.waits(listens, blocked)
	s.must(204, "DELETE "+at("Counter")+"?epoch="+epoch, "")
	s.told(<-listens, "Counter deleted")
	(<-blocked).RefusedWith(410, "deleted")
	s.create("Counter", 9) // by another program, which must not be taken for the first
	for _, line := range []string{"POST " + at("Counter") + "/up", "POST " + at("Counter") + "/down", "PUT " + list(lister, "Counter"), "GET " + at("Counter")} {
		s.do(line+"?epoch="+epoch, "").RefusedWith(412, "precondition-failed")
	}
	s.value("Counter", 9)
}

// TestIrisChecklistIsWhole: every number of the checklist has its case.
func TestIrisChecklistIsWhole(t *testing.T) {
	files, err := filepath.Glob("iris_*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\t\t\{"([A-Z]\d+) [^"]+", func`).FindAllStringSubmatch(string(text), -1) {
			has[m[1]] = true
		}
	}
	for letter, last := range map[string]int{"N": 7, "C": 6, "V": 4, "D": 8, "W": 14, "E": 3} {
		for i := 1; i <= last; i++ {
			if name := fmt.Sprintf("%s%d", letter, i); !has[name] {
				t.Errorf("no case for %s", name)
			}
		}
	}
	if len(has) != 42 {
		t.Errorf("%d numbers have cases", len(has))
	}
}

// TestIrisThroughAKilledLeader: one consumer listens while leader after leader is
// killed, and gets each grant once, by calls that carry a key.
func TestIrisThroughAKilledLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &irisSite{T: t, cluster: apitest.NewCluster(t)}
		s.create("Counter", 0)
		job := s.job()
		for round := range 3 {
			s.add(job, "Counter", 4, 0, 4)
			key := fmt.Sprintf("Idempotency-Key: round-%d-89abcdef", round)
			line := "POST /v1/sessions/" + job + "/waitlist/wait?wait=10m"
			waiting := s.later(line, "", key)
			s.waits(waiting)
			gone := s.killLeader()
			s.up("Counter", 4, 0)
			if got := <-waiting; got.Status == 200 { // else it was the killed node's
				s.told(got, "Counter 4")
			}
			s.told(s.do(line, "", key), "Counter 4")
			s.restart(gone)
			s.cluster.AwaitReady()
		}
		s.value("Counter", 0)
	})
}
