package v1_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

func TestWaitList(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":2}`)
	a.Must(201, "PUT /v1/semaphores/jobs", `{"permits":0}`)
	s := a.Open("1h")
	a.Do("GET /v1/sessions/"+s, "").Is(200, "waitlist=[]")
	a.Do("PUT /v1/sessions/"+s+"/waitlist/db", `{"count":3}`).Is(200, "session="+s, "name=db", "epoch=1", "granted=2", "wanted=0", "position=0")
	a.Do("PUT /v1/sessions/"+s+"/waitlist/jobs", "").Is(200, "name=jobs", "epoch=2", "granted=0", "wanted=1", "position=1")
	a.Node.Advance(812)
	a.Do("GET /v1/sessions/"+s, "").Is(200, "waiting=[]", "waitlist.length=2",
		`waitlist.0={"deleted":false,"epoch":1,"granted":2,"name":"db","position":0,"waiting_ms":0,"wanted":0}`,
		`waitlist.1={"deleted":false,"epoch":2,"granted":0,"name":"jobs","position":1,"waiting_ms":812,"wanted":1}`)
	a.Do("GET /v1/sessions", "").Is(200, "sessions.0.waitlist.length=2")
	a.Do("GET /v1/semaphores/jobs", "").Is(200, "waiter_count=1", "waiters.0.session="+s, "waiters.0.unowned=true", "waiters.0.count=1")
	a.Do("POST /v1/sessions/"+s+"/waitlist/wait", "").Is(200, "count=1",
		`completed=[{"deleted":false,"epoch":1,"granted":2,"name":"db","token":1}]`)
	a.Do("POST /v1/sessions/"+s+"/waitlist/wait", "").Is(200, "count=0", "completed=[]")
	a.Do("DELETE /v1/sessions/"+s+"/waitlist/jobs", "").Is(204)
	a.Do("DELETE /v1/sessions/"+s+"/waitlist/jobs", "").Is(204)
	a.Do("GET /v1/semaphores/jobs", "").Is(200, "waiter_count=0")
	a.Do("POST /v1/sessions/"+s+"/waitlist/wait?wait=9s", "").Is(200, "count=0") // the list is empty
	a.Do("PUT /v1/sessions/"+s+"/waitlist/none", "").RefusedWith(404, "unknown-semaphore")
	a.Do("PUT /v1/sessions/"+s+"/waitlist/db", `{"count":0}`).RefusedWith(400, "invalid-request", "field=count")
	a.Do("PUT /v1/sessions/"+s+"/waitlist/jobs", `{"count":9223372036854775807}`).Is(200, "wanted=9223372036854775807")
	a.Do("PUT /v1/sessions/"+s+"/waitlist/jobs", "").RefusedWith(409, "overflow")
	for _, line := range []string{"PUT /v1/sessions/7/waitlist/db", "DELETE /v1/sessions/7/waitlist/db", "POST /v1/sessions/7/waitlist/wait"} {
		a.Do(line, "").RefusedWith(404, "unknown-session", "session=7")
	}
	a.Do("POST /v1/sessions/"+s+"/waitlist/wait?wait=1s", `{"wait":"1s"}`).RefusedWith(400, "invalid-request", "field=wait")
	a.Do("POST /v1/sessions/"+s+"/waitlist/wait?wait=11m", "").RefusedWith(400, "invalid-request", "field=wait")
	a.Do("POST /v1/sessions/"+s+"/waitlist/wait?epoch=1", "").RefusedWith(400, "invalid-request", "field=epoch")
}

// A semaphore may have the name of the route beside it.
func TestWaitListOfASemaphoreNamedWait(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/wait", `{"permits":1}`)
	s := a.Open("1h")
	for _, segment := range []string{"wait", "w%61it"} {
		a.Do("PUT /v1/sessions/"+s+"/waitlist/"+segment, "").Is(200, "name=wait", "granted=1")
		a.Do("DELETE /v1/sessions/"+s+"/waitlist/"+segment, "").Is(204)
		a.Do("POST /v1/sessions/"+s+"/waitlist/"+segment, "").Is(200, "count=0")
	}
	got := a.Do("POST /v1/sessions/"+s+"/waitlist/db", "").RefusedWith(405, "method-not-allowed")
	if allow := got.Header.Get("Allow"); !strings.Contains(allow, "PUT") || !strings.Contains(allow, "DELETE") || strings.Contains(allow, "POST") {
		t.Errorf("Allow %q", allow)
	}
	a.Do("GET /v1/sessions/"+s+"/waitlist/wait", "").RefusedWith(405, "method-not-allowed")
	for _, path := range []string{"/waitlist", "/waitlist/", "/waitlist/wait/", "/waitlist/db/wait"} {
		a.Do("POST /v1/sessions/"+s+path, "").RefusedWith(404, "unknown-route")
	}
}

// An epoch names an entry, also one whose semaphore is another now.
func TestWaitListOfEarlierEpochs(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	s := a.Open("1h")
	path := "/v1/sessions/" + s + "/waitlist/db"
	a.Must(200, "PUT "+path+"?epoch=1", "")
	a.Must(204, "DELETE /v1/semaphores/db", "")
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.Do("PUT "+path+"?epoch=1", "").RefusedWith(412, "precondition-failed", "epoch=2")
	a.Do("PUT "+path+"?epoch=2", `{"count":4}`).Is(200, "epoch=2", "granted=1")
	a.Do("DELETE "+path+"?epoch=9", "").Is(204)
	a.Do("GET /v1/sessions/"+s, "").Is(200, "waitlist.length=2", "waitlist.0.deleted=true", "waitlist.0.epoch=1")
	a.Do("DELETE "+path+"?epoch=1", "").Is(204)
	a.Do("GET /v1/sessions/"+s, "").Is(200, "waitlist.length=1", "waitlist.0.granted=1")
	a.Do("DELETE "+path, "").Is(204)
	a.Do("GET /v1/semaphores/db", "").Is(200, "available=1")
}

func TestWaitListKeys(t *testing.T) {
	a := apitest.New(t)
	a.Must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	s := a.Open("1h")
	const add, wait = "Idempotency-Key: add-0123456789abcdef", "Idempotency-Key: wait-0123456789abcdef"
	a.Do("PUT /v1/sessions/"+s+"/waitlist/db", `{"count":3}`, add).Is(200, "wanted=3")
	again := a.Do("PUT /v1/sessions/"+s+"/waitlist/db", `{"count":3}`, add).Is(200, "wanted=3", "name=db", "session="+s)
	if again.Header.Get("Idempotency-Replayed") != "true" {
		t.Error("a repeat is not marked")
	}
	a.Do("GET /v1/sessions/"+s, "").Is(200, "waitlist.0.wanted=3")
	line := "POST /v1/sessions/" + s + "/waitlist/wait"
	a.Do(line, "", wait).Is(200, "count=0") // leaves the key unused
	a.Must(200, "POST /v1/semaphores/db/up", `{"count":2}`)
	first := a.Do(line, "", wait).Is(200, "count=1", "completed.0.granted=2")
	a.Must(200, "PUT /v1/sessions/"+s+"/waitlist/db", "")
	a.Must(200, "POST /v1/semaphores/db/up", "")
	a.Node.Advance(60_000)
	repeat := a.Do(line, `{"wait":"5s"}`, wait).Is(200) // its wait is no part of the request
	if repeat.Text != first.Text || repeat.Header.Get("Idempotency-Replayed") != "true" || first.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%s, then %s", first.Text, repeat.Text)
	}
	a.Do("POST /v1/sessions/"+a.Open("1h")+"/waitlist/wait", "", wait).RefusedWith(422, "key-reused")
	a.Do(line, "").Is(200, "count=1", "completed.0.granted=1")
}

func TestWaitListInABatch(t *testing.T) {
	a := apitest.New(t)
	s := a.Open("1h")
	a.Do("POST /v1/batch", strings.ReplaceAll(`{"operations":[
		{"op":"put","semaphore":"db","permits":2},
		{"op":"list-add","session":"$","semaphore":"db","count":5,"epoch":1},
		{"op":"list-add","session":"$","semaphore":"db","epoch":2},
		{"op":"list-deliver","session":"$","key":"0123456789abcdef"},
		{"op":"list-deliver","session":"$","key":"0123456789abcdef"},
		{"op":"list-deliver","session":"$"},
		{"op":"list-add","session":"$","semaphore":"db"},
		{"op":"list-remove","session":"$","semaphore":"db"},
		{"op":"list-deliver","session":"$","wait":"1s"},
		{"op":"list-add","session":"$"},
		{"op":"list-remove","session":"5","semaphore":"db"}
	]}`, "$", s)).Is(200, "results.1.status=200", "results.1.body.granted=2", "results.2.status=412", "results.3.body.count=1",
		"results.3.body.completed.0.token=1", "results.4.replayed=true", "results.4.body.count=1", "results.5.status=200",
		"results.5.body.count=0", "results.6.body.wanted=1", "results.7.status=204", "results.8.status=400",
		"results.8.body.field=wait", "results.9.status=400", "results.9.body.field=semaphore", "results.10.status=404")
	a.Do("GET /v1/semaphores/db", "").Is(200, "available=0", "waiter_count=0")
}

// onNodes runs a test on a cluster, in virtual time.
func onNodes(t *testing.T, test func(s *irisSite)) {
	synctest.Test(t, func(t *testing.T) { test(&irisSite{T: t, cluster: apitest.NewCluster(t)}) })
}

func TestWaitListEndsWithItsSession(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		s.create("db", 0)
		for range s.cluster.IDs {
			job := s.job()
			s.add(job, "db", 1, 0, 1)
			waiting := s.waitLater(job, "10m")
			s.waits(waiting)
			s.must(204, "DELETE /v1/sessions/"+job, "")
			(<-waiting).RefusedWith(404, "unknown-session", "session="+job)
			job = s.job()
			s.add(job, "db", 1, 0, 1)
			waiting = s.waitLater(job, "10m")
			s.must(204, "POST /v1/sessions/"+job+"/revoke", `{"reason":"maintenance"}`)
			(<-waiting).RefusedWith(410, "revoked", "reason=maintenance")
			job = s.must(201, "POST /v1/sessions", `{"ttl":"5s"}`).Member("session")
			s.add(job, "db", 1, 0, 1)
			began := time.Now()
			s.do("POST /v1/sessions/"+job+"/waitlist/wait?wait=10m", "").RefusedWith(410, "expired-session")
			if took := time.Since(began); took < 4*time.Second || took > 6*time.Second {
				s.Errorf("told after %v", took)
			}
		}
	})
}

func TestWaitListHangUpAndDrain(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		s.create("db", 0)
		job := s.job()
		s.add(job, "db", 4, 0, 4)
		for _, id := range s.cluster.IDs {
			api := &apitest.API{T: s.T, Handler: s.cluster.APIs[id]}
			ctx, hangUp := context.WithCancel(context.Background())
			done := make(chan apitest.Reply, 1)
			r := httptest.NewRequest("POST", "/v1/sessions/"+job+"/waitlist/wait?wait=10m", nil).WithContext(ctx)
			go func() { done <- api.Send(r) }()
			time.Sleep(time.Second) // virtual
			s.waits(done)
			hangUp()
			if got := <-done; got.Status != exchange.StatusGone {
				s.Errorf("status %d after a hang-up", got.Status)
			}
		}
		drains := s.cluster.IDs[s.calls%len(s.cluster.IDs)] // whose turn is next
		waiting := s.waitLater(job, "10m")
		s.waits(waiting)
		s.cluster.Nodes[drains].Drain()
		s.told(<-waiting, "")
		s.do("POST /v1/semaphores/db/up", `{"count":3}`).Is(200, "value=0")
		s.waitMany(job, "0s", "db 3")
	})
}
