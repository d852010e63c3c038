package v1_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The checklist of IRIS's semaphores that a move to this service relies on, by its
// numbers: names, life and values here; Decrement, wait lists and order in the files
// beside. A case with a deliberate difference shows our own behaviour, and says why.

// irisNames are such as its programs use.
var irisNames = []string{"SlotsOpen", "J(3)", `^pendingRequest("j")`, `^Rem2("22")`, `^Rem2(22)`, "a b", "wait", "a/b%2Fc", "..", "日本"}

func TestIrisNames(t *testing.T) {
	onIris(t, []irisTest{
		{"N1 a name is an exact text", func(s *irisSite) {
			names := append([]string{"^REM2(22)", `^Rem2( 22)`, `^Rem2("22") `, "caf\u00e9", "cafe\u0301"}, irisNames...)
			epochs := map[string]bool{}
			for i, name := range names {
				epochs[s.create(name, int64(i))] = true
			}
			for i, name := range names {
				s.value(name, int64(i))
			}
			if len(epochs) != len(names) {
				s.Errorf("%d semaphores for %d names", len(epochs), len(names))
			}
		}},
		{"N2 subscripts and quotes in every call", func(s *irisSite) {
			job := s.job()
			for _, name := range irisNames {
				s.create(name, 0)
				s.add(job, name, 3, 0, 3)
				s.up(name, 2, 0)
				s.waitMany(job, "0s", name+" 2")
				s.up(name, 1, 1)
				s.down(name, 4, 1)
				s.add(job, name, 3, 0, 3)
				s.do("DELETE "+list(job, name), "").Is(204)
				s.do("PUT "+at(name)+"/value", `{"value":5}`).Is(200, "value=5")
				s.do("DELETE "+at(name), "").Is(204)
			}
		}},
		// There, a caret maps a name to a database, perhaps on another machine, and a
		// namespace prefix is stripped. Here there is one space of names, the cluster's:
		// every node serves all of it, and no part of a name has a meaning.
		{"N3 one space of names on all nodes", func(s *irisSite) {
			epoch := s.create("^x", 1)
			for range s.cluster.IDs {
				s.do("POST /v1/semaphores", `{"name":"^x","permits":9}`).Is(200, "created=false", "epoch="+epoch, "available=1")
			}
			s.create(`^|"USER"|x`, 2)
			s.create("x", 3)
			s.value("^x", 1)
		}},
		// There, a name with a caret needs write access to its database. Here there are
		// no databases: a client that may call the service may use every name.
		{"N4 no right but to call the service", func(s *irisSite) {
			epoch := s.create("^SYS.secret", 0)
			s.do("POST "+at("^SYS.secret")+"/up?epoch="+epoch, "").Is(200, "value=1")
			s.do("DELETE "+at("^SYS.secret"), "").Is(204)
		}},
		// There, 32,768 an instance. Here the limit is a million, and a flag.
		{"N5 more than 32,768", func(s *irisSite) {
			for made := 0; made <= 32_768; {
				var operations []string
				for range 1000 {
					operations = append(operations, fmt.Sprintf(`{"op":"create","semaphore":"s%d","permits":%d}`, made, made))
					made++
				}
				s.must(200, "POST /v1/batch", `{"operations":[`+strings.Join(operations, ",")+`]}`).Is(200, "results.999.status=201")
			}
			s.value("s32768", 32_768)
		}},
		{"N6 nobody owns it and it lives until it is deleted", func(s *irisSite) {
			epoch := s.create("a", 2)
			job := s.job()
			s.add(job, "a", 2, 2, 0)
			s.waitMany(job, "0s", "a 2")
			s.must(204, "DELETE /v1/sessions/"+job, "")
			time.Sleep(time.Minute) // virtual
			s.do("GET "+at("a"), "").Is(200, "available=0", "epoch="+epoch)
			s.do("DELETE "+at("a")+"?epoch="+epoch, "").Is(204) // by anybody
		}},
		// There, gone with the server's memory. Here it is on every node's disk.
		{"N7 it outlives the servers", func(s *irisSite) {
			epoch := s.create("a", 0)
			job := s.job()
			s.add(job, "a", 5, 0, 5)
			for _, id := range s.cluster.IDs {
				s.cluster.Kill(id)
			}
			for _, id := range s.cluster.IDs {
				s.restart(id)
			}
			s.cluster.AwaitReady()
			s.do("GET "+at("a"), "").Is(200, "available=0", "epoch="+epoch, "waiter_count=1")
			s.up("a", 7, 2)
			s.waitMany(job, "0s", "a 5")
		}},
	})
}

func TestIrisCreateOpenDelete(t *testing.T) {
	onIris(t, []irisTest{
		{"C1 Create opens what exists and ignores the value", func(s *irisSite) {
			first := s.do("POST /v1/semaphores", `{"name":"a","permits":3}`).Is(201, "created=true", "available=3")
			s.down("a", 1, 1)
			s.do("POST /v1/semaphores", `{"name":"a","permits":8}`).Is(200, "created=false", "available=2", "epoch="+first.Member("epoch"))
			s.do("POST /v1/semaphores", `{"name":"b","permits":-1}`).RefusedWith(400, "invalid-request", "field=permits") // not documented there
		}},
		{"C2 Open fails when there is none", func(s *irisSite) {
			s.do("GET "+at("a"), "").RefusedWith(404, "unknown-semaphore")
			s.create("a", 1)
			s.do("GET "+at("a"), "").Is(200, "epoch=1")
		}},
		{"C3 nothing works before Create", func(s *irisSite) { s.invalid("a", "", 404, "unknown-semaphore") }},
		{"C4 Delete makes every reference invalid", func(s *irisSite) {
			epoch := s.create("a", 1)
			s.do("DELETE "+at("a")+"?epoch="+epoch, "").Is(204)
			s.invalid("a", epoch, 404, "unknown-semaphore")
		}},
		{"C5 Delete wakes the waiters", func(s *irisSite) {
			s.create("a", 0)
			job, idle := s.job(), s.job()
			s.add(job, "a", 4, 0, 4)
			s.add(idle, "a", 4, 0, 4)
			waiting, down := s.waitLater(job, "10m"), s.blocked("a", 1, "10m")
			s.waits(waiting, down)
			s.must(204, "DELETE "+at("a"), "")
			s.told(<-waiting, "a deleted")
			(<-down).RefusedWith(410, "deleted") // there: 0 with the invalid error
			s.waitMany(idle, "0s", "a deleted")
			s.waitMany(idle, "10m", "")
		}},
		{"C6 created again it is another one", func(s *irisSite) {
			old := s.create("a", 1)
			s.must(204, "DELETE "+at("a"), "")
			fresh := s.create("a", 2)
			if fresh == old {
				s.Errorf("epoch %s twice", fresh)
			}
			s.invalid("a", old, 412, "precondition-failed")
			s.do("POST "+at("a")+"/up?epoch="+fresh, "").Is(200, "value=3")
		}},
	})
}

// invalid checks that no call works by a reference.
func (s *irisSite) invalid(name, epoch string, status int, code string) {
	s.Helper()
	job, query := s.job(), ""
	if epoch != "" {
		query = "?epoch=" + epoch
	}
	for line, body := range map[string]string{
		"GET " + at(name): "", "DELETE " + at(name): "", "PUT " + at(name) + "/value": `{"value":1}`,
		"POST " + at(name) + "/up": "", "POST " + at(name) + "/down": `{"partial":true}`, "PUT " + list(job, name): "",
	} {
		s.do(line+query, body).RefusedWith(status, code)
	}
}

func TestIrisValue(t *testing.T) {
	const most = 1<<63 - 1
	onIris(t, []irisTest{
		// The vendor's texts say 64 bits, and 63: the second is exact.
		{"V1 from 0 to 2^63-1", func(s *irisSite) {
			s.create("a", most)
			s.do("POST "+at("a")+"/up", "").RefusedWith(409, "overflow")
			s.value("a", most)
			s.down("a", most, most)
			s.down("a", 1, 0)
			s.up("a", most, most)
			s.do("POST /v1/semaphores", `{"name":"b","permits":9223372036854775808}`).RefusedWith(400, "invalid-request", "field=permits")
		}},
		{"V2 GetValue and SetValue", func(s *irisSite) {
			s.create("a", 3)
			for _, v := range []int64{7, 0, most, 1} {
				s.do("PUT "+at("a")+"/value", fmt.Sprintf(`{"value":%d}`, v)).Is(200, fmt.Sprintf("value=%d", v))
				s.value("a", v)
			}
			s.do("PUT "+at("a")+"/value", `{"value":-1}`).RefusedWith(400, "invalid-request", "field=value")
			s.value("a", 1)
		}},
		{"V3 SetValue serves the waiters", func(s *irisSite) {
			s.create("a", 0)
			job := s.job()
			s.add(job, "a", 4, 0, 4)
			down := s.blocked("a", 2, "10m")
			s.do("PUT "+at("a")+"/value", `{"value":4}`).Is(200, "value=0")
			s.waits(down)
			s.do("PUT "+at("a")+"/value", `{"value":5}`).Is(200, "value=3")
			s.granted(down, 2)
			s.waitMany(job, "0s", "a 4")
		}},
		// Documented for amounts from 1 to 2^31-1. Larger ones work here too, which no
		// program there can have relied on being refused.
		{"V4 Increment", func(s *irisSite) {
			s.create("a", 0)
			s.up("a", 1, 1)
			s.up("a", 1<<31-1, 1<<31)
			s.up("a", 1<<40, 1<<40+1<<31)
			for _, amount := range []string{"0", "-1", "1.5", `"1"`} {
				s.do("POST "+at("a")+"/up", `{"count":`+amount+`}`).RefusedWith(400, "invalid-request", "field=count")
			}
			s.value("a", 1<<40+1<<31)
		}},
	})
}
