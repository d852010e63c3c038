package v1_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/test/apitest"
)

// irisSite is the service as the programs of IRIS's users would see it: three real
// nodes in virtual time, and each call goes to the next of them, so that leader and
// followers take turns.
type irisSite struct {
	*testing.T
	cluster *apitest.Cluster
	calls   int
}

// irisTest is a named case of the checklist.
type irisTest struct {
	name string
	test func(s *irisSite)
}

// onIris runs each case on a cluster of its own.
func onIris(t *testing.T, tests []irisTest) {
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.test(&irisSite{T: t, cluster: apitest.NewCluster(t)}) })
		})
	}
}

// next returns the API of the node whose turn it is, of those that run.
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

func (s *irisSite) must(status int, line, body string, headers ...string) apitest.Reply {
	s.Helper()
	return s.next().Must(status, line, body, headers...)
}

// later sends a request that waits, and returns once it waits or has its reply.
func (s *irisSite) later(line, body string, headers ...string) <-chan apitest.Reply {
	done := s.next().GoDo(line, body, headers...)
	time.Sleep(200 * time.Millisecond) // virtual: its entry is applied everywhere
	synctest.Wait()
	return done
}

// waits checks that requests have no reply yet.
func (s *irisSite) waits(all ...<-chan apitest.Reply) {
	s.Helper()
	synctest.Wait()
	for i, replies := range all {
		if len(replies) > 0 {
			s.Fatalf("%d is answered already: %s", i, (<-replies).Text)
		}
	}
}

// at is the path of a semaphore.
func at(name string) string { return "/v1/semaphores/" + url.PathEscape(name) }

// create is Create: it returns the reference, an epoch.
func (s *irisSite) create(name string, value int64) (epoch string) {
	s.Helper()
	body, err := json.Marshal(map[string]any{"name": name, "permits": value})
	if err != nil {
		s.Fatal(err)
	}
	return s.must(201, "POST /v1/semaphores", string(body)).Member("epoch")
}

// value checks GetValue.
func (s *irisSite) value(name string, want int64) {
	s.Helper()
	s.do("GET "+at(name), "").Is(200, fmt.Sprintf("available=%d", want))
}

// up is Increment; it checks the value after it.
func (s *irisSite) up(name string, amount, want int64) {
	s.Helper()
	s.do("POST "+at(name)+"/up", fmt.Sprintf(`{"count":%d}`, amount)).Is(200, fmt.Sprintf("value=%d", want))
}

// down is Decrement without a wait; it checks what it got.
func (s *irisSite) down(name string, amount, want int64) {
	s.Helper()
	s.do("POST "+at(name)+"/down", fmt.Sprintf(`{"count":%d,"partial":true}`, amount)).Is(200, fmt.Sprintf("granted=%d", want))
}

// blocked is Decrement with a wait.
func (s *irisSite) blocked(name string, amount int64, wait string) <-chan apitest.Reply {
	return s.later("POST "+at(name)+"/down", fmt.Sprintf(`{"count":%d,"partial":true,"wait":%q}`, amount, wait))
}

// job begins a job: a session.
func (s *irisSite) job() string {
	s.Helper()
	return s.must(201, "POST /v1/sessions", `{"ttl":"100h"}`).Member("session")
}

// list is the path of an entry of a job's wait list.
func list(job, name string) string {
	return "/v1/sessions/" + job + "/waitlist/" + url.PathEscape(name)
}

// add is AddToWaitMany; it checks what the entry has and wants then.
func (s *irisSite) add(job, name string, amount, granted, wanted int64) {
	s.Helper()
	s.do("PUT "+list(job, name), fmt.Sprintf(`{"count":%d}`, amount)).
		Is(200, fmt.Sprintf("granted=%d", granted), fmt.Sprintf("wanted=%d", wanted), "name="+name, "session="+job)
}

// waitMany is WaitMany; it checks the reply, as "name granted; name deleted".
func (s *irisSite) waitMany(job, wait, want string) apitest.Reply {
	s.Helper()
	return s.told(s.do("POST /v1/sessions/"+job+"/waitlist/wait", fmt.Sprintf(`{"wait":%q}`, wait)), want)
}

// waitLater is WaitMany that waits.
func (s *irisSite) waitLater(job, wait string) <-chan apitest.Reply {
	return s.later("POST /v1/sessions/"+job+"/waitlist/wait?wait="+wait, "")
}

// told checks the reply to a WaitMany.
func (s *irisSite) told(got apitest.Reply, want string) apitest.Reply {
	s.Helper()
	if got.Status != 200 {
		s.Fatalf("status %d: %s", got.Status, got.Text)
	}
	var body struct {
		Count     int
		Completed []struct {
			Name    string
			Epoch   uint64
			Granted int64
			Deleted bool
			Token   uint64
		}
	}
	if err := json.Unmarshal([]byte(got.Text), &body); err != nil {
		s.Fatal(err)
	}
	var all []string
	for _, c := range body.Completed {
		what := fmt.Sprintf("%s %d", c.Name, c.Granted)
		if c.Deleted {
			what = c.Name + " deleted"
		}
		if c.Deleted != (c.Granted == 0) || c.Deleted != (c.Token == 0) || c.Epoch == 0 {
			s.Errorf("%+v", c)
		}
		all = append(all, what)
	}
	if told := strings.Join(all, "; "); told != want || body.Count != len(all) || body.Completed == nil {
		s.Fatalf("told %q of %d, want %q: %s", told, body.Count, want, got.Text)
	}
	return got
}

// granted checks the reply to a Decrement.
func (s *irisSite) granted(waiting <-chan apitest.Reply, want int64) {
	s.Helper()
	(<-waiting).Is(200, fmt.Sprintf("granted=%d", want))
}

// line checks how many wait for a semaphore.
func (s *irisSite) line(name string, want int) {
	s.Helper()
	s.do("GET "+at(name), "").Is(200, fmt.Sprintf("waiter_count=%d", want))
}

// restart starts a node that was killed.
func (s *irisSite) restart(id string) {
	s.cluster.Net.Rejoin(id)
	s.cluster.Start(id)
}

// killLeader kills it and waits until another one leads.
func (s *irisSite) killLeader() (gone string) {
	s.Helper()
	gone = s.cluster.Leader()
	s.cluster.Kill(gone)
	for range 600 {
		if led := s.cluster.Leads(); led != "" && led != gone {
			return gone
		}
		time.Sleep(100 * time.Millisecond) // virtual
	}
	s.Fatal("no other leader")
	return ""
}
