package events_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/httpapi/exchange"
	"github.com/signalbox/signalbox/test/apitest"
)

// eventsRun is a run of random clients on three real nodes. One further client follows the events, and moves from node
// to node.
type eventsRun struct {
	*testing.T
	*apitest.Cluster
	random   *rand.Rand
	sessions []string
	seen     map[string]bool // of sessions
	waits    int             // under way
	ended    chan int
	looks    []look
	follower *watching
	got      []toldEvent
	last     string // its Last-Event-ID
	moves    int
}

// look is a reply to a GET, which the events up to its index must explain.
type look struct {
	kind, name      string
	reply           apitest.Reply
	index           int64
	earliest, final int64 // its cluster time is between
}

var eventsNames = []string{"a", "b/1", `c"`, "lvl1", "lvl2"}

func (r *eventsRun) api() *apitest.API {
	return &apitest.API{T: r.T, Handler: r.APIs[r.IDs[r.random.IntN(len(r.IDs))]]}
}

// send sends a request to a node, and records the session in its reply.
func (r *eventsRun) send(line, body string) {
	got := r.api().Do(line, body)
	if got.Status >= 500 || got.Status == 400 {
		r.Fatalf("%s %s: %d %s", line, body, got.Status, got.Text)
	}
	r.note(got)
}

func (r *eventsRun) note(got apitest.Reply) {
	if id := got.Member("session"); id != "absent" && id != "" && !r.seen[id] {
		r.seen[id] = true
		r.sessions = append(r.sessions, id)
	}
}

// sendWaiting sends a request in the background, since it may wait.
func (r *eventsRun) sendWaiting(ctx context.Context, line, body string) {
	method, target, _ := strings.Cut(line, " ")
	api := r.api()
	r.waits++
	go func() {
		request := httptest.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
		w := httptest.NewRecorder()
		api.Handler.ServeHTTP(w, request)
		r.ended <- w.Code
	}()
}

func (r *eventsRun) name() string {
	return strings.ReplaceAll(exchange.SemaphorePath(r.plain()), "/v1/semaphores/", "")
}

func (r *eventsRun) plain() string { return eventsNames[r.random.IntN(len(eventsNames))] }

func (r *eventsRun) session() string {
	if len(r.sessions) == 0 {
		return "1"
	}
	return r.sessions[max(0, len(r.sessions)-1-r.random.IntN(12))]
}

// step makes one random request.
func (r *eventsRun) step(ctx context.Context) {
	name, session, n := r.name(), r.session(), r.random.IntN(3)
	path := "/v1/sessions/" + session
	switch r.random.IntN(26) {
	case 0:
		r.send("PUT /v1/semaphores/"+name, fmt.Sprintf(`{"permits":%d,"metadata":{"n":"%d"}}`, n+1, n))
	case 1:
		r.send("PUT /v1/semaphores/lvl"+fmt.Sprint(n%2+1), fmt.Sprintf(`{"permits":2,"level":%d}`, n))
	case 2:
		if n == 0 {
			r.send("DELETE /v1/semaphores/"+name, "")
		}
	case 3, 4:
		r.send("POST /v1/sessions", fmt.Sprintf(`{"ttl":"%ds","metadata":{"host":"w%d"}}`, 2+8*n, n))
	case 5:
		r.send("PUT "+path, fmt.Sprintf(`{"ttl":"%ds"}`, 5+n))
	case 6:
		if n == 0 {
			r.send("DELETE "+path, "")
		} else if n == 1 {
			r.send("POST "+path+"/revoke", `{"reason":"drill"}`)
		}
	case 7, 8, 9, 10:
		r.send("PUT "+path+"/leases/"+name, fmt.Sprintf(`{"count":%d}`, n+1))
	case 11:
		r.send("PUT "+path+"/leases/"+name+"?try=true", `{"ttl":"9s"}`)
	case 12, 13:
		r.send("DELETE "+path+"/leases/"+name, "")
	case 14:
		r.send("PATCH "+path+"/leases/"+name, `{"count":1}`)
	case 15:
		r.send("DELETE /v1/semaphores/"+name+"/holders/"+session+"?reason=slow", "")
	case 16:
		r.send("POST "+path+"/acquire", fmt.Sprintf(`{"semaphores":[{"name":"a"},{"name":"b/1","count":%d}],"mode":"%s"}`, n+1, []string{"all", "any", "any"}[n]))
	case 17:
		r.send("POST /v1/semaphores/"+name+"/up", fmt.Sprintf(`{"count":%d}`, n+1))
	case 18:
		r.send("PUT /v1/semaphores/"+name+"/value", fmt.Sprintf(`{"value":%d}`, n))
	case 19:
		r.sendWaiting(ctx, "POST /v1/semaphores/"+name+"/down", fmt.Sprintf(`{"count":%d,"wait":"%ds","partial":%v}`, n+1, n*3, n == 1))
	case 20:
		r.sendWaiting(ctx, "POST /v1/semaphores/"+name+"/leases", fmt.Sprintf(`{"ttl":"%ds","wait":"4s","metadata":{"o":"1"}}`, n+1))
	case 21:
		r.send("POST /v1/sessions/"+fmt.Sprint(70+n)+"/restore", fmt.Sprintf(`{"ttl":"6s","leases":[{"name":%s,"count":2}]}`, exchange.AppendText(nil, r.plain())))
	case 22, 23:
		r.send("PUT "+path+"/waitlist/"+name, fmt.Sprintf(`{"count":%d}`, n+1))
	case 24:
		r.send("DELETE "+path+"/waitlist/"+name, "")
	case 25:
		r.send("POST "+path+"/waitlist/wait", "")
	}
}

// look reads from a random node, and records the reply, which explain explains later.
func (r *eventsRun) look(kind, name string) {
	l := look{kind: kind, name: name, earliest: r.clusterTime()}
	path := exchange.SemaphorePath(name) + "?holders=1000&waiters=1000"
	if kind == "session" {
		path = "/v1/sessions/" + name
	}
	l.reply = r.api().Do("GET "+path, "")
	l.final = r.clusterTime()
	if _, err := fmt.Sscan(l.reply.Header.Get(exchange.HeaderIndex), &l.index); err != nil {
		r.Fatal(err)
	}
	r.looks = append(r.looks, l)
}

func (r *eventsRun) clusterTime() int64 {
	reading, err := r.Nodes[r.IDs[0]].Read(context.Background(), calls.Consistency{})
	if err != nil {
		r.Fatal(err)
	}
	return reading.NowMS
}

// move moves the follower to another node. It resumes there after the last event that it has processed, which may be
// earlier than the last event that it has received, even in the same entry.
func (r *eventsRun) move() {
	r.follower.stop()
	events, last := r.follower.told()
	r.got, r.last = append(r.got, events...), last
	if undone := r.random.IntN(4); undone > 0 && len(r.got) > undone {
		r.got = r.got[:len(r.got)-undone]
		r.last = r.got[len(r.got)-1].id
	}
	r.moves++
	r.follower = watchEvents(r.T, r.APIs[r.IDs[r.moves%len(r.IDs)]], "", "Last-Event-ID: "+r.last)
}

// explain compares every look with the model at its index.
func (r *eventsRun) explain() {
	r.Helper()
	slices.SortStableFunc(r.looks, func(a, b look) int { return cmp.Compare(a.index, b.index) })
	m, events := newEventsModel(), r.got
	for _, l := range r.looks {
		for len(events) > 0 && events[0].number("index") <= l.index {
			m.apply(events[0])
			events = events[1:]
		}
		m.living()
		want, right := "", false
		for now := l.earliest; now <= l.final && !right; now++ {
			if l.kind == "session" {
				want = canonical(m.session(l.name, now))
			} else {
				want = canonical(m.semaphore(l.name, now))
			}
			right = shown(l.reply) == want
		}
		if !right {
			r.Fatalf("%s %s at index %d: GET shows\n%s\nthe events tell\n%s", l.kind, l.name, l.index, shown(l.reply), want)
		}
	}
}

// TestEventsRebuildTheState: clients run random operations through all nodes. A client that follows events from node to
// node misses no event, gets no event twice, and can compute what the API shows at each index.
func TestEventsRebuildTheState(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			r := &eventsRun{T: t, Cluster: apitest.NewCluster(t), random: rand.New(rand.NewPCG(seed, 7)),
				seen: map[string]bool{}, ended: make(chan int, 1000)}
			ctx, hangUp := context.WithCancel(context.Background())
			r.follower = watchEvents(t, r.APIs[r.IDs[0]], "?since=0")
			whole := watchEvents(t, r.APIs[r.IDs[2]], "?since=0")
			for i := range 1200 {
				r.step(ctx)
				if i%7 == 0 {
					r.look("semaphore", r.plain())
					r.look("session", r.session())
				}
				if i%40 == 20 {
					r.move()
				}
				if i%500 == 250 {
					r.api().Must(200, "POST /v1/cluster/leader", "")
				}
				time.Sleep(time.Duration(r.random.IntN(150)) * time.Millisecond) // virtual: things expire
			}
			for _, name := range eventsNames {
				r.look("semaphore", name)
			}
			for id := range r.seen {
				r.look("session", id)
			}
			time.Sleep(time.Second) // virtual: so that all has come
			synctest.Wait()
			r.move()
			synctest.Wait()
			whole.stop()
			r.follower.stop()
			events, _ := r.follower.told()
			r.got = append(r.got, events...)
			all, _ := whole.told()
			all, r.got = r.explaining(all), r.explaining(r.got)
			r.same(all)
			r.explain()
			hangUp()
			for range r.waits {
				<-r.ended
			}
			t.Logf("seed %d: %d events, %d looks, %d moves", seed, len(all), len(r.looks), r.moves)
			if len(all) < 500 || r.moves < 10 {
				t.Error("nothing was shown")
			}
		})
	}
}

// explaining keeps the events up to the index of the last look. Later events may not have come to every node when the
// streams were ended.
func (r *eventsRun) explaining(events []toldEvent) (kept []toldEvent) {
	last := int64(0)
	for _, l := range r.looks {
		last = max(last, l.index)
	}
	for _, e := range events {
		if e.number("index") <= last {
			kept = append(kept, e)
		}
	}
	return kept
}

// same compares the events of the moving follower with the events of a follower that stayed at one node. It also checks
// that ids rise.
func (r *eventsRun) same(all []toldEvent) {
	r.Helper()
	if len(all) != len(r.got) {
		r.Fatalf("%d events on the way, %d for one that stayed", len(r.got), len(all))
	}
	before := replica.EventID{}
	for i, e := range all {
		if e.id != r.got[i].id || e.name != r.got[i].name || e.data != r.got[i].data {
			r.Fatalf("event %d is %+v on the way, %+v for one that stayed", i, r.got[i], e)
		}
		var id replica.EventID
		if n, err := fmt.Sscanf(e.id, "%d.%d", &id.Index, &id.Ordinal); n != 2 || err != nil || id.Index < before.Index || id.Index == before.Index && id.Ordinal <= before.Ordinal {
			r.Fatalf("event %s after %v", e.id, before)
		}
		before = id
	}
}
