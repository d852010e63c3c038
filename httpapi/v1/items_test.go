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

// The largest value fits as base64, whatever --max-body is. A value with a byte more is refused with a sentence; a body
// larger than any value needs is refused with 413.
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

// candidate takes part in an election. It acquires an item with its name as the value; while another session holds the
// item, it waits.
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

// Two sessions elect a leader over three nodes. The first leads until its session expires; then the second one, which
// waits at another node, leads. Every client can read who leads.
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
