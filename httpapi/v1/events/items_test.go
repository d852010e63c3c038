package events_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/signalbox/signalbox/test/apitest"
)

// Events tell which item was changed and how, who holds it and why it was released; they never contain its value. The
// filters take names of items like names of semaphores.
func TestEventsOfItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := apitest.New(t)
		all := watchEvents(t, a.Handler, "?since=0")
		named, below, bySession := watchEvents(t, a.Handler, "?since=0&name=b/1"), watchEvents(t, a.Handler, "?since=0&prefix=b/"), watchEvents(t, a.Handler, "?since=0&session=1001")
		a.Must(201, "POST /v1/sessions", `{"ttl":"30s","about":"s3cret"}`)
		a.Must(201, "PUT /v1/items/b%2F1", `{"value":"s3cret","session":"1001"}`)
		a.Must(200, "PUT /v1/items/b%2F1", `{"value":"s3cret too","session":"1001","release":true}`)
		a.Must(201, "PUT /v1/items/b%2F2", `{"value":"s3cret","session":"1001"}`)
		a.Must(201, "PUT /v1/items/c", `{"value":"s3cret"}`)
		a.Must(200, "PUT /v1/items/c", `{"value":"s3cret"}`) // no difference
		a.Must(204, "DELETE /v1/items/c", "")
		a.Node.Advance(30_000)
		synctest.Wait()
		all.is("1.1 session-opened", "2.1 item-changed", "3.1 item-changed", "4.1 item-changed", "5.1 item-changed", "7.1 item-deleted", "8.1 item-changed", "8.2 session-ended")
		named.is("2.1 item-changed", "3.1 item-changed")
		below.is("2.1 item-changed", "3.1 item-changed", "4.1 item-changed", "8.1 item-changed")
		bySession.is("1.1 session-opened", "2.1 item-changed", "4.1 item-changed", "8.2 session-ended")
		events, _ := all.told()
		for i, want := range map[int]string{
			1: `{"index":2,"cluster_time_ms":0,"item":"b/1","session":"1001","version":2}`,
			2: `{"index":3,"cluster_time_ms":0,"item":"b/1","version":3,"cause":"released"}`,
			4: `{"index":5,"cluster_time_ms":0,"item":"c","version":5}`,
			5: `{"index":7,"cluster_time_ms":0,"item":"c","version":6,"cause":"deleted"}`,
			6: `{"index":8,"cluster_time_ms":30000,"item":"b/2","version":7,"cause":"expired"}`,
		} {
			if i >= len(events) || events[i].data != want {
				t.Errorf("event %d: %+v\nwant %s", i, events[i], want)
			}
		}
		for _, e := range events {
			if strings.Contains(e.data, "s3cret") {
				t.Errorf("an event has a value: %s", e.data)
			}
		}
		for _, w := range []*watching{all, named, below, bySession} {
			w.stop()
		}
	})
}

// A stream of one group has the events of that group alone, and a family has no number of permits.
func TestEventsOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := apitest.New(t)
		a.Must(201, "PUT /v1/semaphores/branches", `{"permits":null,"groups":"request","per_group":1}`)
		a.Must(200, "PUT /v1/semaphores/branches/groups/b", `{"limit":2}`)
		a.Must(201, "POST /v1/sessions", `{"ttl":"1h"}`)
		a.Must(200, "PUT /v1/sessions/1001/leases/branches?group=a", "")
		a.Must(200, "PUT /v1/sessions/1001/leases/branches?group=b", "")
		a.Must(200, "PUT /v1/sessions/1001/leases/branches", "")
		for query, want := range map[string][]string{"?since=0&group=b": {"2.1 group-changed", "5.1 granted"}, "?since=0&group=": {"6.1 granted"}} {
			w := watchEvents(t, a.Handler, query)
			synctest.Wait()
			w.is(want...)
			w.stop()
		}
		w := watchEvents(t, a.Handler, "?since=0&name=branches")
		synctest.Wait()
		events, _ := w.told()
		for i, want := range []string{
			`{"index":1,"cluster_time_ms":0,"semaphore":"branches","epoch":1,"permits":null,"offset":0,"level":null,"metadata":{},"groups":"request","per_group":1}`,
			`{"index":2,"cluster_time_ms":0,"semaphore":"branches","group":"b","epoch":1,"limit":2}`,
			`{"index":4,"cluster_time_ms":0,"semaphore":"branches","group":"a","epoch":1,"session":"1001","token":1,"count":1}`,
		} {
			if events[i].data != want {
				t.Errorf("event %d: %s\nwant %s", i, events[i].data, want)
			}
		}
		w.stop()
	})
}
