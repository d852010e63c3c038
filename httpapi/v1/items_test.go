package v1_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/test/apitest"
)

func TestItems(t *testing.T) {
	a := apitest.New(t)
	made := a.Do("PUT /v1/items/svc%2Fleader", `{"value":"n1:8080","flags":18446744073709551615}`).
		Is(201, "name=svc/leader", "version=1", "locks=0", "created=true", "session=absent", "expires_in_ms=absent")
	if made.Header.Get("Location") != "/v1/items/svc%2Fleader" {
		t.Errorf("Location %q", made.Header.Get("Location"))
	}
	a.Do("GET /v1/items/svc%2Fleader", "").Is(200, "name=svc/leader", "value=n1:8080", "value_base64=absent", "flags=18446744073709551615",
		"session=null", "locks=0", "created=1", "version=1", "delay_ms=absent", "index=1")
	a.Do("PUT /v1/items/svc%2Fleader", `{"value":"n1:8080","flags":18446744073709551615}`).Is(200, "version=1", "created=false") // nothing differs
	a.Do("PUT /v1/items/svc%2Fleader", `{"value_base64":"//4="}`).Is(200, "version=2")
	a.Do("GET /v1/items/svc%2Fleader", "").Is(200, "value=absent", "value_base64=//4=", "flags=0", "created=1", "index=2")
	a.Do("PUT /v1/items/svc%2Fleader", `{"value_base64":"YQ==","if_version":2}`).Is(200, "version=3")
	a.Do("GET /v1/items/svc%2Fleader", "").Is(200, "value=a")
	a.Do("PUT /v1/items/svc%2Fleader", `{"value":"","if_version":2}`).RefusedWith(409, "item-differs", "rule=version", "version=3", "item=svc/leader", "semaphore=absent")
	a.Do("PUT /v1/items/svc%2Fleader", `{"value":"","if_version":0}`).RefusedWith(409, "item-differs", "rule=version", "version=3")
	a.Do("PUT /v1/items/other", `{"value":"","if_version":7}`).RefusedWith(409, "item-differs", "rule=absent", "version=absent", "item=other")
	a.Do("PUT /v1/items/other", `{"value":"","if_version":0}`).Is(201)
	a.Do("DELETE /v1/items/svc%2Fleader?if_version=2", "").RefusedWith(409, "item-differs", "rule=version", "version=3", "item=svc/leader")
	a.Do("DELETE /v1/items/svc%2Fleader?if_version=3", "").Is(204)
	a.Do("DELETE /v1/items/svc%2Fleader", "").Is(204) // twice
	a.Do("GET /v1/items/svc%2Fleader", "").RefusedWith(404, "unknown-item", "item=svc/leader", "index=5")
	a.Do("GET /v1/items/never", "").RefusedWith(404, "unknown-item", "index=0")
}

func TestItemOfSession(t *testing.T) {
	a := apitest.New(t)
	first, second := a.Open("1m"), a.Open("1h")
	acquire := func(session, more string) apitest.Reply {
		return a.Do("PUT /v1/items/leader", `{"value":"by `+session+`","session":"`+session+`"`+more+`}`)
	}
	acquire(first, "").Is(201, "session="+first, "expires_in_ms=60000", "locks=1", "version=1", "created=true")
	acquire(first, "").Is(200, "locks=1", "version=1", "created=false") // twice
	acquire(second, "").RefusedWith(409, "item-differs", "rule=held", "version=1", "item=leader")
	acquire(second, `,"release":true`).RefusedWith(409, "item-differs", "rule=not-holder", "version=1")
	acquire("7", "").RefusedWith(404, "unknown-session", "item=leader", "session=7")
	a.Do("PUT /v1/items/leader", `{"value":"by an operator"}`).Is(200, "version=2", "session=absent")
	a.Do("GET /v1/items/leader", "").Is(200, "session="+first, "value=by an operator")
	a.Do("GET /v1/sessions/"+first, "").Is(200, "items.length=1", "items.0=leader", "about=absent", "on_end_items=absent")
	a.Do("GET /v1/sessions/"+second, "").Is(200, "items.length=0")
	acquire(first, `,"release":true`).Is(200, "version=3", "locks=1", "session=absent")
	acquire(first, `,"release":true`).RefusedWith(409, "item-differs", "rule=not-holder", "version=3")
	a.Do("PUT /v1/items/none", `{"value":"","release":true,"session":"`+first+`"}`).RefusedWith(409, "item-differs", "rule=absent")
	acquire(second, `,"release":false`).Is(200, "locks=2", "version=4", "session="+second)
	a.Must(204, "DELETE /v1/sessions/"+second, "")
	a.Do("GET /v1/items/leader", "").Is(200, "session=null", "version=5", "value=by "+second) // its end releases
}

func TestSessionOnTerms(t *testing.T) {
	a := apitest.New(t)
	opened := a.Do("POST /v1/sessions", `{"ttl":"1m","about":"sh -c \u0001","on_end_items":"delete","item_delay":"15s"}`).
		Is(201, "about=sh -c \u0001", "on_end_items=delete", "item_delay_ms=15000", "ttl_ms=60000", "items=[]")
	id := opened.Member("session")
	a.Do("GET /v1/sessions/"+id, "").Is(200, "about=sh -c \u0001", "on_end_items=delete", "item_delay_ms=15000")
	a.Must(201, "PUT /v1/items/leader", `{"value":"v","session":"`+id+`"}`)
	a.Must(204, "DELETE /v1/sessions/"+id, "")
	a.Do("GET /v1/items/leader", "").RefusedWith(404, "unknown-item")
	a.Node.Advance(5000)
	other := a.Do("POST /v1/sessions", `{"ttl":"1m","item_delay":1500}`).Is(201, "about=absent", "on_end_items=release", "item_delay_ms=1500").Member("session")
	a.Do("PUT /v1/items/leader", `{"value":"w","session":"`+other+`"}`).RefusedWith(409, "item-differs", "rule=delay", "delay_ms=10000", "version=absent")
	a.Do("PUT /v1/items/leader", `{"value":"w"}`).Is(201) // no session acquires it: anybody may write it
	a.Do("GET /v1/items/leader", "").Is(200, "delay_ms=10000")
	a.Node.Advance(10_000)
	a.Do("PUT /v1/items/leader", `{"value":"w","session":"`+other+`"}`).Is(200, "locks=1")
	a.Do("GET /v1/items/leader", "").Is(200, "delay_ms=absent")
	a.Do("POST /v1/sessions", `{"ttl":"1m","about":"x","metadata":{"a":"b"}}`).RefusedWith(400, "invalid-request", "field=about")
	a.Do("POST /v1/sessions", `{"ttl":"1m","item_delay":"1s","on_end":"keep"}`).RefusedWith(400, "invalid-request", "field=item_delay")
	a.Do("POST /v1/sessions", `{"ttl":"1m","item_delay":"61s"}`).RefusedWith(400, "invalid-request", "field=item_delay")
	a.Do("POST /v1/sessions", `{"ttl":"1m","on_end_items":"keep"}`).RefusedWith(400, "invalid-request", "field=on_end_items")
	a.Do("POST /v1/sessions", `{"ttl":"1m","about":"`+strings.Repeat("a", 8193)+`"}`).RefusedWith(400, "invalid-request", "field=about")
	a.Do("POST /v1/sessions", `{"ttl":"1m","about":"`+strings.Repeat("a", 8192)+`"}`).Is(201)
}

func TestItemsMalformed(t *testing.T) {
	a := apitest.New(t)
	for body, field := range map[string]string{
		``: "value", `{}`: "value", `{"flags":1}`: "value", `{"value":7}`: "value", `{"value":null}`: "value",
		`{"value":"a","value_base64":"YQ=="}`: "value_base64", `{"value_base64":"YQ"}`: "value_base64", `{"value_base64":"Y===="}`: "value_base64",
		`{"value_base64":"YR=="}`: "value_base64", `{"value_base64":"_w=="}`: "value_base64", `{"value_base64":"YWFh\n"}`: "value_base64", `{"value_base64":7}`: "value_base64",
		`{"value":"a","flags":-1}`: "flags", `{"value":"a","flags":"1"}`: "flags", `{"value":"a","flags":18446744073709551616}`: "flags",
		`{"value":"a","if_version":-1}`: "if_version", `{"value":"a","if_version":"1"}`: "if_version", `{"value":"a","if_version":1,"session":"7"}`: "if_version",
		`{"value":"a","release":true}`: "session", `{"value":"a","release":1}`: "release", `{"value":"a","session":7}`: "session", `{"value":"a","ttl":1}`: "ttl",
		`{"value":"a","item":"b"}`: "item",
	} {
		a.Do("PUT /v1/items/leader", body).RefusedWith(400, "invalid-request", "field="+field)
	}
	a.Do("PUT /v1/items/%00", `{"value":"a"}`).RefusedWith(400, "invalid-request", "field=name")
	a.Do("GET /v1/items/%00", "").RefusedWith(400, "invalid-request", "field=name")
	a.Do("PUT /v1/items/leader?if_version=1", `{"value":"a"}`).RefusedWith(400, "invalid-request", "field=if_version")
	a.Do("DELETE /v1/items/leader?if_version=x", "").RefusedWith(400, "invalid-request", "field=if_version")
	a.Do("PUT /v1/semaphores/db/value", `{"value":"7"}`).RefusedWith(400, "invalid-request", "field=value")
	if len(a.Node.Calls) != 0 {
		t.Errorf("%d calls were made", len(a.Node.Calls))
	}
}

// The largest value fits as base64, whatever --max-body is; one byte more is refused with a
// sentence, and a body beyond a value's with 413.
func TestLargeItems(t *testing.T) {
	a := apitest.New(t, func(cfg *apitest.Config) { cfg.Exchange.BodyBytes = 4096 })
	largest := strings.Repeat("\xff", 512<<10)
	encoded := base64.StdEncoding.EncodeToString([]byte(largest))
	a.Do("PUT /v1/items/a", `{"value_base64":"`+encoded+`"}`).Is(201)
	a.Do("GET /v1/items/a", "").Is(200, "value_base64="+encoded)
	a.Do("PUT /v1/items/a", `{"value":"`+strings.Repeat("a", 512<<10)+`"}`).Is(200)
	a.Do("PUT /v1/items/a", `{"value":"`+strings.Repeat("a", 512<<10+1)+`"}`).RefusedWith(400, "invalid-request", "field=value")
	a.Do("PUT /v1/items/a", `{"value":"`+strings.Repeat("a", 1<<20)+`"}`).RefusedWith(413, "too-large", "limit=1048576")
	a.Do("PUT /v1/semaphores/db", `{"metadata":{"a":"`+strings.Repeat("a", 4096)+`"}}`).RefusedWith(413, "too-large", "limit=4096")
	if got := a.Gauge("signalbox_http_body_bytes"); got != 0 {
		t.Errorf("%d bytes of bodies are held", got)
	}
}

func TestItemKeys(t *testing.T) {
	a := apitest.New(t)
	const key = "Idempotency-Key: 0123456789abcdef"
	a.Do("PUT /v1/items/a", `{"value":"1"}`, key).Is(201, "version=1")
	a.Must(200, "PUT /v1/items/a", `{"value":"2"}`)
	if got := a.Do("PUT /v1/items/a", `{"value":"1"}`, key).Is(201, "version=1"); got.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("a repeat is not marked: %v", got.Header)
	}
	a.Do("GET /v1/items/a", "").Is(200, "value=2")
	a.Do("PUT /v1/items/a", `{"value":"3"}`, key).RefusedWith(422, "key-reused", "item=a")
	session := a.Open("1m")
	acquire := `{"value":"1","session":"` + session + `"}`
	a.Do("PUT /v1/items/b", acquire, "Idempotency-Key: 0123456789abcdeg").Is(201, "expires_in_ms=60000")
	a.Do("PUT /v1/items/b", acquire, "Idempotency-Key: 0123456789abcdeg").Is(201, "expires_in_ms=60000")
	a.Must(204, "DELETE /v1/sessions/"+session, "")
	a.Do("PUT /v1/items/b", acquire, "Idempotency-Key: 0123456789abcdeg").RefusedWith(410, "over", "item=b")
}

func TestItemsInABatch(t *testing.T) {
	a := apitest.New(t)
	session := a.Open("1m")
	a.Do("POST /v1/batch", `{"operations":[{"op":"item-put","item":"a","value":"1"},{"op":"item-put","item":"a","value_base64":"/w==","if_version":1,"flags":3},
		{"op":"item-put","item":"a","value":"x","if_version":1},{"item":"b","value":"v","session":"`+session+`","op":"item-acquire"},
		{"op":"item-release","item":"b","session":"`+session+`","value":"w"},{"op":"item-delete","item":"a","if_version":9},{"op":"item-delete","item":"a"},
		{"op":"item-put","item":"a","value":1},{"op":"item-put","item":"a"},{"op":"item-put","value":"1"},{"op":"item-put","item":"a","value":"1","session":"7"},
		{"op":"set","semaphore":"a","value":"1"},{"op":"item-release","item":"a","value":"1","release":true}]}`).
		Is(200, "results.0.status=201", "results.0.body.version=1", "results.0.body.created=true", "results.1.status=200", "results.1.body.version=2",
			"results.2.status=409", "results.2.body.code=item-differs", "results.2.body.version=2", "results.2.body.item=a",
			"results.3.status=201", "results.3.body.session="+session, "results.3.body.locks=1", "results.4.status=200", "results.4.body.version=4",
			"results.5.status=409", "results.6.status=204", "results.7.body.field=value", "results.8.body.field=value", "results.9.body.field=item",
			"results.10.body.field=session", "results.11.body.field=value", "results.12.body.field=release")
	a.Do("GET /v1/items/a", "").RefusedWith(404, "unknown-item")
	a.Do("GET /v1/items/b", "").Is(200, "value=w", "session=null")
}

// candidate stands for election: it acquires the item with its name, or waits until that is
// worth another try. It reports the name of whoever leads as soon as that is another one.
type candidate struct {
	*apitest.API
	name, session string
}

func (c candidate) lead() {
	index := "0"
	for {
		got := c.Do("PUT /v1/items/svc%2Fleader", `{"value":"`+c.name+`","session":"`+c.session+`"}`)
		if got.Status < 300 {
			return
		}
		if got.Status != 409 || got.Member("rule") != "held" {
			c.Errorf("%s: %d %s", c.name, got.Status, got.Text)
			return
		}
		for held := true; held; {
			got := c.Do("GET /v1/items/svc%2Fleader?wait=1m&index="+index, "").Is(200)
			index, held = got.Member("index"), got.Member("session") != "null"
		}
	}
}

// Two sessions elect a leader over three nodes: one leads until its session expires, and then
// the other one, which hears of it at another node. Whoever looks reads who leads.
func TestLeaderElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := apitest.NewCluster(t)
		on := func(i int) *apitest.API { return &apitest.API{T: t, Handler: site.APIs[site.IDs[i]]} }
		first, second := candidate{on(0), "one", on(0).Open("10s")}, candidate{on(1), "two", on(1).Open("1h")}
		first.lead()
		on(2).Do("GET /v1/items/svc%2Fleader", "").Is(200, "value=one", "session="+first.session)
		began, elected := time.Now(), make(chan time.Duration, 1)
		go func() {
			second.lead()
			elected <- time.Since(began)
		}()
		time.Sleep(9 * time.Second) // virtual
		on(2).Do("GET /v1/items/svc%2Fleader", "").Is(200, "value=one")
		if took := <-elected; took < 9*time.Second || took > 15*time.Second {
			t.Errorf("elected after %v: the session of the other one lives for 10 s", took)
		}
		on(2).Do("GET /v1/items/svc%2Fleader", "").Is(200, "value=two", "session="+second.session, "locks=2")
		on(2).Do("GET /v1/sessions/"+second.session, "").Is(200, "items.0=svc/leader")
		on(0).Do("PUT /v1/items/svc%2Fleader", `{"value":"one","session":"`+first.session+`"}`).RefusedWith(410, "expired-session", fmt.Sprint("session=", first.session))
	})
}
