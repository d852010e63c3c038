package v1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/test/apitest"
)

// irisSite is the service as programs of IRIS's users would see it: see testdata/iris.txt. Its tests are the cases that
// scripts can't express.
type irisSite struct {
	*testing.T
	cluster *apitest.Cluster
	calls   int
}

// onNodes runs a test on a cluster, in virtual time.
func onNodes(t *testing.T, test func(s *irisSite)) {
	synctest.Test(t, func(t *testing.T) { test(&irisSite{T: t, cluster: apitest.NewCluster(t)}) })
}

// next returns the API of the next node that runs; the nodes take turns.
func (s *irisSite) next() *apitest.API {
	for {
		id := s.cluster.IDs[s.calls%len(s.cluster.IDs)]
		s.calls++
		if s.cluster.Nodes[id] != nil {
			return &apitest.API{T: s.T, Handler: s.cluster.APIs[id]}
		}
	}
}

func (s *irisSite) do(line, body string, headers ...string) apitest.Reply {
	s.Helper()
	return s.next().Do(line, body, headers...)
}

// create is Create.
func (s *irisSite) create(name string) {
	s.Helper()
	s.next().Must(201, "POST /v1/semaphores", `{"permits":0,"name":"`+name+`"}`)
}

// up is Increment.
func (s *irisSite) up(name string, amount, want int64) {
	s.Helper()
	s.do("POST /v1/semaphores/"+name+"/up", fmt.Sprintf(`{"count":%d}`, amount)).Is(200, fmt.Sprintf("value=%d", want))
}

// job begins a job: a session.
func (s *irisSite) job() string {
	s.Helper()
	return s.next().Must(201, "POST /v1/sessions", `{"ttl":"100h"}`).Member("session")
}

// add is AddToWaitMany for a semaphore that is not on the list.
func (s *irisSite) add(job, name string, amount int64) {
	s.Helper()
	s.do("PUT /v1/sessions/"+job+"/waitlist/"+name, fmt.Sprintf(`{"count":%d}`, amount)).Is(200, "granted=0", fmt.Sprintf("wanted=%d", amount))
}

// wait is a WaitMany that waits, in the background.
func (s *irisSite) wait(job string, headers ...string) <-chan apitest.Reply {
	s.Helper()
	done := s.next().GoDo("POST /v1/sessions/"+job+"/waitlist/wait?wait=10m", "", headers...)
	time.Sleep(200 * time.Millisecond) // virtual: its entry is applied everywhere
	s.waits(done)
	return done
}

// waits checks that a request has no reply yet.
func (s *irisSite) waits(one <-chan apitest.Reply) {
	s.Helper()
	synctest.Wait()
	if len(one) > 0 {
		s.Fatalf("answered already: %s", (<-one).Text)
	}
}

// told checks the reply to a WaitMany. want is "name granted name granted".
func (s *irisSite) told(got apitest.Reply, want string) {
	s.Helper()
	pairs := strings.Fields(want)
	got.Is(200, fmt.Sprintf("count=%d", len(pairs)/2), fmt.Sprintf("completed.length=%d", len(pairs)/2))
	for i := range len(pairs) / 2 {
		at := fmt.Sprintf("completed.%d.", i)
		got.Is(200, at+"name="+pairs[2*i], at+"granted="+pairs[2*i+1], at+"deleted=false")
		if got.Member(at+"token") == "0" || got.Member(at+"epoch") == "0" {
			s.Error(got.Text)
		}
	}
}

// TestIrisChecklistIsWhole: every number of the checklist has its case.
func TestIrisChecklistIsWhole(t *testing.T) {
	has := map[string]bool{}
	for _, file := range []string{"iris_test.go", filepath.Join("testdata", "iris.txt")} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^(?:== |\tt\.Run\(")([A-Z]\d+) `).FindAllStringSubmatch(string(text), -1) {
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

func TestIris(t *testing.T) {
	// In IRIS, the limit is 32,768 for an instance. Here it is a million, and a flag sets it.
	t.Run("N5 more than 32,768", irisManySemaphores)
	t.Run("E1 calls are ordered by the log", irisOrder)
	t.Run("W8 what is served meanwhile is told now or next", irisServedMeanwhile)
	// In IRIS, a lost connection completes the entries with 0. Here a list belongs to no node and no connection. It
	// outlives them, and each delivery reports a real grant.
	t.Run("W14 a lost node completes nothing", irisLostNode)
	t.Run("many producers and consumers", irisManyConsumers)
}

func irisManySemaphores(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		for made := 0; made <= 32_768; {
			var operations []string
			for range 1000 {
				operations = append(operations, fmt.Sprintf(`{"op":"create","semaphore":"s%d","permits":%d}`, made, made))
				made++
			}
			s.do("POST /v1/batch", `{"operations":[`+strings.Join(operations, ",")+`]}`).Is(200, "results.999.status=201")
		}
		s.do("GET /v1/semaphores/s32768", "").Is(200, "available=32768")
	})
}

func irisOrder(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		s.create("a")
		last := 0
		for i := int64(1); i <= 12; i++ { // each at the next node
			got := s.do("POST /v1/semaphores/a/up", "").Is(200, fmt.Sprintf("value=%d", i))
			index := 0
			if _, err := fmt.Sscan(got.Header.Get("X-Signalbox-Index"), &index); err != nil || index <= last {
				s.Fatalf("index %d after %d", index, last)
			}
			last = index
		}
	})
}

func irisServedMeanwhile(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		job := s.job()
		for _, name := range []string{"a", "b"} {
			s.create(name)
			s.add(job, name, 1)
		}
		waiting := s.wait(job)
		s.up("a", 1, 0)
		s.up("b", 1, 0)
		now := <-waiting
		next := s.do("POST /v1/sessions/"+job+"/waitlist/wait", "")
		if now.Member("count") == "2" {
			s.told(now, "a 1 b 1")
			s.told(next, "")
		} else {
			s.told(now, "a 1")
			s.told(next, "b 1")
		}
	})
}

func irisLostNode(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		s.create("a")
		job := s.job()
		s.add(job, "a", 3)
		lost := s.cluster.IDs[s.calls%len(s.cluster.IDs)] // whose turn is next
		waiting := s.wait(job)
		s.cluster.Kill(lost)
		if got := <-waiting; got.Status == 200 && got.Member("count") != "0" {
			s.Errorf("told %s", got.Text)
		}
		s.do("GET /v1/sessions/"+job, "").Is(200, "waitlist.0.wanted=3", "waitlist.0.granted=0", "waitlist.0.deleted=false")
		s.up("a", 2, 0)
		s.told(s.do("POST /v1/sessions/"+job+"/waitlist/wait", `{"wait":"0s"}`), "a 2")
	})
}

// irisManyConsumers: consumers at all nodes wait at the same time. No grant is lost, and no grant is reported twice.
func irisManyConsumers(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		s.create("Counter")
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
					if added := api.Do("PUT /v1/sessions/"+job+"/waitlist/Counter", fmt.Sprintf(`{"count":%d}`, 1+i)); added.Status != 200 {
						e.err = added.Text
					}
					told := api.Do("POST /v1/sessions/"+job+"/waitlist/wait", `{"wait":"10s"}`)
					if told.Status != 200 {
						e.err = told.Text
					}
					if told.Member("count") == "0" {
						break // the producer has ended
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
			s.do("POST /v1/semaphores/Counter/up", fmt.Sprintf(`{"count":%d}`, 1+i%5)).Is(200)
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
		s.do("GET /v1/semaphores/Counter", "").Is(200, fmt.Sprintf("available=%d", produced))
		if produced != 0 {
			s.Errorf("%d are left", produced)
		}
	})
}

// TestIrisThroughAKilledLeader: one consumer waits for grants while one leader after another is killed. Its calls have
// an idempotency key, so it gets each grant once.
func TestIrisThroughAKilledLeader(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		s.create("Counter")
		job := s.job()
		for round := range 3 {
			s.add(job, "Counter", 4)
			key := fmt.Sprintf("Idempotency-Key: round-%d-89abcdef", round)
			waiting := s.wait(job, key)
			s.cluster.KillLeader()
			s.up("Counter", 4, 0)
			if got := <-waiting; got.Status == 200 { // else it was the killed node's
				s.told(got, "Counter 4")
			}
			s.told(s.do("POST /v1/sessions/"+job+"/waitlist/wait?wait=10m", "", key), "Counter 4")
			s.cluster.Restart()
		}
		s.do("GET /v1/semaphores/Counter", "").Is(200, "available=0")
	})
}
