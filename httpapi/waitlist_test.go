package httpapi

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitList(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":2}`)
	a.must(201, "PUT /v1/semaphores/jobs", `{"permits":0}`)
	s := a.open("1h")
	a.do("GET /v1/sessions/"+s, "").is(200, "waitlist=[]")
	a.do("PUT /v1/sessions/"+s+"/waitlist/db", `{"count":3}`).is(200, "session="+s, "name=db", "epoch=1", "granted=2", "wanted=0", "position=0")
	a.do("PUT /v1/sessions/"+s+"/waitlist/jobs", "").is(200, "name=jobs", "epoch=2", "granted=0", "wanted=1", "position=1")
	a.node.advance(812)
	a.do("GET /v1/sessions/"+s, "").is(200, "waiting=[]", "waitlist.length=2",
		`waitlist.0={"deleted":false,"epoch":1,"granted":2,"name":"db","position":0,"waiting_ms":0,"wanted":0}`,
		`waitlist.1={"deleted":false,"epoch":2,"granted":0,"name":"jobs","position":1,"waiting_ms":812,"wanted":1}`)
	a.do("GET /v1/sessions", "").is(200, "sessions.0.waitlist.length=2")
	a.do("GET /v1/semaphores/jobs", "").is(200, "waiter_count=1", "waiters.0.session="+s, "waiters.0.unowned=true", "waiters.0.count=1")
	a.do("POST /v1/sessions/"+s+"/waitlist/wait", "").is(200, "count=1",
		`completed=[{"deleted":false,"epoch":1,"granted":2,"name":"db","token":1}]`)
	a.do("POST /v1/sessions/"+s+"/waitlist/wait", "").is(200, "count=0", "completed=[]")
	a.do("DELETE /v1/sessions/"+s+"/waitlist/jobs", "").is(204)
	a.do("DELETE /v1/sessions/"+s+"/waitlist/jobs", "").is(204)
	a.do("GET /v1/semaphores/jobs", "").is(200, "waiter_count=0")
	a.do("POST /v1/sessions/"+s+"/waitlist/wait?wait=9s", "").is(200, "count=0") // the list is empty
	a.do("PUT /v1/sessions/"+s+"/waitlist/none", "").refusedWith(404, "unknown-semaphore")
	a.do("PUT /v1/sessions/"+s+"/waitlist/db", `{"count":0}`).refusedWith(400, "invalid-request", "field=count")
	a.do("PUT /v1/sessions/"+s+"/waitlist/jobs", `{"count":9223372036854775807}`).is(200, "wanted=9223372036854775807")
	a.do("PUT /v1/sessions/"+s+"/waitlist/jobs", "").refusedWith(409, "overflow")
	for _, line := range []string{"PUT /v1/sessions/7/waitlist/db", "DELETE /v1/sessions/7/waitlist/db", "POST /v1/sessions/7/waitlist/wait"} {
		a.do(line, "").refusedWith(404, "unknown-session", "session=7")
	}
	a.do("POST /v1/sessions/"+s+"/waitlist/wait?wait=1s", `{"wait":"1s"}`).refusedWith(400, "invalid-request", "field=wait")
	a.do("POST /v1/sessions/"+s+"/waitlist/wait?wait=11m", "").refusedWith(400, "invalid-request", "field=wait")
	a.do("POST /v1/sessions/"+s+"/waitlist/wait?epoch=1", "").refusedWith(400, "invalid-request", "field=epoch")
}

// A semaphore may have the name of the route beside it.
func TestWaitListOfASemaphoreNamedWait(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/wait", `{"permits":1}`)
	s := a.open("1h")
	for _, segment := range []string{"wait", "w%61it"} {
		a.do("PUT /v1/sessions/"+s+"/waitlist/"+segment, "").is(200, "name=wait", "granted=1")
		a.do("DELETE /v1/sessions/"+s+"/waitlist/"+segment, "").is(204)
		a.do("POST /v1/sessions/"+s+"/waitlist/"+segment, "").is(200, "count=0")
	}
	got := a.do("POST /v1/sessions/"+s+"/waitlist/db", "").refusedWith(405, "method-not-allowed")
	if allow := got.header.Get("Allow"); !strings.Contains(allow, "PUT") || !strings.Contains(allow, "DELETE") || strings.Contains(allow, "POST") {
		t.Errorf("Allow %q", allow)
	}
	a.do("GET /v1/sessions/"+s+"/waitlist/wait", "").refusedWith(405, "method-not-allowed")
	for _, path := range []string{"/waitlist", "/waitlist/", "/waitlist/wait/", "/waitlist/db/wait"} {
		a.do("POST /v1/sessions/"+s+path, "").refusedWith(404, "unknown-route")
	}
}

// An epoch names an entry, also one whose semaphore is another now.
func TestWaitListOfEarlierEpochs(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	s := a.open("1h")
	path := "/v1/sessions/" + s + "/waitlist/db"
	a.must(200, "PUT "+path+"?epoch=1", "")
	a.must(204, "DELETE /v1/semaphores/db", "")
	a.must(201, "PUT /v1/semaphores/db", `{"permits":1}`)
	a.do("PUT "+path+"?epoch=1", "").refusedWith(412, "precondition-failed", "epoch=2")
	a.do("PUT "+path+"?epoch=2", `{"count":4}`).is(200, "epoch=2", "granted=1")
	a.do("DELETE "+path+"?epoch=9", "").is(204)
	a.do("GET /v1/sessions/"+s, "").is(200, "waitlist.length=2", "waitlist.0.deleted=true", "waitlist.0.epoch=1")
	a.do("DELETE "+path+"?epoch=1", "").is(204)
	a.do("GET /v1/sessions/"+s, "").is(200, "waitlist.length=1", "waitlist.0.granted=1")
	a.do("DELETE "+path, "").is(204)
	a.do("GET /v1/semaphores/db", "").is(200, "available=1")
}

func TestWaitListKeys(t *testing.T) {
	a := newTestAPI(t)
	a.must(201, "PUT /v1/semaphores/db", `{"permits":0}`)
	s := a.open("1h")
	const add, wait = "Idempotency-Key: add-0123456789abcdef", "Idempotency-Key: wait-0123456789abcdef"
	a.do("PUT /v1/sessions/"+s+"/waitlist/db", `{"count":3}`, add).is(200, "wanted=3")
	again := a.do("PUT /v1/sessions/"+s+"/waitlist/db", `{"count":3}`, add).is(200, "wanted=3", "name=db", "session="+s)
	if again.header.Get("Idempotency-Replayed") != "true" {
		t.Error("a repeat is not marked")
	}
	a.do("GET /v1/sessions/"+s, "").is(200, "waitlist.0.wanted=3")
	line := "POST /v1/sessions/" + s + "/waitlist/wait"
	a.do(line, "", wait).is(200, "count=0") // leaves the key unused
	a.must(200, "POST /v1/semaphores/db/up", `{"count":2}`)
	first := a.do(line, "", wait).is(200, "count=1", "completed.0.granted=2")
	a.must(200, "PUT /v1/sessions/"+s+"/waitlist/db", "")
	a.must(200, "POST /v1/semaphores/db/up", "")
	a.node.advance(60_000)
	repeat := a.do(line, `{"wait":"5s"}`, wait).is(200) // its wait is no part of the request
	if repeat.text != first.text || repeat.header.Get("Idempotency-Replayed") != "true" || first.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("%s, then %s", first.text, repeat.text)
	}
	a.do("POST /v1/sessions/"+a.open("1h")+"/waitlist/wait", "", wait).refusedWith(422, "key-reused")
	a.do(line, "").is(200, "count=1", "completed.0.granted=1")
}

func TestWaitListInABatch(t *testing.T) {
	a := newTestAPI(t)
	s := a.open("1h")
	a.do("POST /v1/batch", strings.ReplaceAll(`{"operations":[
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
	]}`, "$", s)).is(200, "results.1.status=200", "results.1.body.granted=2", "results.2.status=412", "results.3.body.count=1",
		"results.3.body.completed.0.token=1", "results.4.replayed=true", "results.4.body.count=1", "results.5.status=200",
		"results.5.body.count=0", "results.6.body.wanted=1", "results.7.status=204", "results.8.status=400",
		"results.8.body.field=wait", "results.9.status=400", "results.9.body.field=semaphore", "results.10.status=404")
	a.do("GET /v1/semaphores/db", "").is(200, "available=0", "waiter_count=0")
}

// onNodes runs a test on a cluster, in virtual time.
func onNodes(t *testing.T, test func(s *irisSite)) {
	synctest.Test(t, func(t *testing.T) { test(&irisSite{T: t, cluster: newThrottleCluster(t)}) })
}

func TestWaitListEndsWithItsSession(t *testing.T) {
	onNodes(t, func(s *irisSite) {
		s.create("db", 0)
		for range s.cluster.ids {
			job := s.job()
			s.add(job, "db", 1, 0, 1)
			waiting := s.waitLater(job, "10m")
			s.waits(waiting)
			s.must(204, "DELETE /v1/sessions/"+job, "")
			(<-waiting).refusedWith(404, "unknown-session", "session="+job)
			job = s.job()
			s.add(job, "db", 1, 0, 1)
			waiting = s.waitLater(job, "10m")
			s.must(204, "POST /v1/sessions/"+job+"/revoke", `{"reason":"maintenance"}`)
			(<-waiting).refusedWith(410, "revoked", "reason=maintenance")
			job = s.must(201, "POST /v1/sessions", `{"ttl":"5s"}`).member("session")
			s.add(job, "db", 1, 0, 1)
			began := time.Now()
			s.do("POST /v1/sessions/"+job+"/waitlist/wait?wait=10m", "").refusedWith(410, "expired-session")
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
		for _, id := range s.cluster.ids {
			api := &testAPI{T: s.T, handler: s.cluster.apis[id]}
			ctx, hangUp := context.WithCancel(context.Background())
			done := make(chan reply, 1)
			r := httptest.NewRequest("POST", "/v1/sessions/"+job+"/waitlist/wait?wait=10m", nil).WithContext(ctx)
			go func() { done <- api.send(r) }()
			time.Sleep(time.Second) // virtual
			s.waits(done)
			hangUp()
			if got := <-done; got.status != statusGone {
				s.Errorf("status %d after a hang-up", got.status)
			}
		}
		drains := s.cluster.ids[s.calls%len(s.cluster.ids)] // whose turn is next
		waiting := s.waitLater(job, "10m")
		s.waits(waiting)
		s.cluster.nodes[drains].Drain()
		s.told(<-waiting, "")
		s.do("POST /v1/semaphores/db/up", `{"count":3}`).is(200, "value=0")
		s.waitMany(job, "0s", "db 3")
	})
}
