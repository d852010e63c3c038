package consul_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/consul"
	"github.com/signalbox/signalbox/test/apitest"
)

// checks lists faulty parts of a request in the order in which a node checks for them: a part of the query with a fault,
// and the refusal.
var checks = []struct{ query, want string }{
	{"stale&consistent", "400 text Cannot specify ?stale with ?consistent, conflicting semantics."},
	{"max_stale=abc", `400 text Invalid max_stale value "abc"`},
	{"wait=abc", "400 text Invalid wait time"},
	{"index=abc", "400 text Invalid index"},
	{"ns=x", `400 text Invalid query parameter: "ns" - Namespaces are a Consul Enterprise feature`},
	{"partition=x", `400 text Invalid query parameter: "partition" - Partitions are a Consul Enterprise feature`},
	{"acquire=b", "" /* with cas */},
	{"flags=-1", `500 text strconv.ParseUint: parsing "-1": invalid syntax`},
	{"cas=18446744073709551616", `500 text strconv.ParseUint: parsing "18446744073709551616": value out of range`},
	{"dc=dc2", "500 text No path to datacenter"},
}

// TestOrderOfChecks sends a PUT with all faults, then without the first fault, and so on.
func TestOrderOfChecks(t *testing.T) {
	inEachConsul(t, func(s *apitest.Site) {
		for i := range checks {
			var members []string
			for _, c := range checks[i:] {
				members = append(members, c.query)
			}
			query := strings.Join(members, "&")
			want := checks[i].want
			if want == "" {
				values, err := url.ParseQuery(query)
				if err != nil {
					s.Fatal(err)
				}
				want = `400 text Conflicting flags: ` + values.Encode() + `\n`
			}
			s.Is(s.Ask("PUT /v1/kv/a?"+query, ""), want)
			if i != 6 && i != 7 { // a delete has no acquire and no flags
				s.Is(s.Ask("DELETE /v1/kv/a?"+query, ""), want)
			}
			if i != 6 && i != 7 && i != 8 {
				for _, line := range []string{"GET /v1/kv/a", "GET /v1/session/info/a", "GET /v1/session/list", "GET /v1/session/node/a", "GET /v1/catalog/nodes",
					"GET /v1/health/node/a", "GET /v1/status/leader", "GET /v1/status/peers", "PUT /v1/session/renew/a"} {
					s.Is(s.Ask(line+"?"+query, ""), want)
				}
			}
			if i > 3 && i != 6 && i != 7 && i != 8 {
				for _, line := range []string{"PUT /v1/session/create", "PUT /v1/session/destroy/a"} {
					s.Is(s.Ask(line+"?stale&consistent&wait=abc&index=abc&"+query, ""), want)
				}
			}
		}
		s.Is(s.Ask("DELETE /v1/kv/a?cas=x&recurse&dc=x", ""), `400 text Conflicting flags: cas=x&dc=x&recurse=\n`)
		s.Is(s.Ask("DELETE /v1/kv/a?cas=x&dc=x", ""), `500 text strconv.ParseUint: parsing "x": invalid syntax`)
		s.Is(s.Ask("GET /v1/kv/a?keys", ""), "404 bare") // no write was made
	})
}

// TestHeaders: each reply to a GET has these headers, and no other reply has them.
func TestHeaders(t *testing.T) {
	s, node := onConsul(t)
	id := open(s, `{}`)
	s.Is(s.Ask("PUT /v1/kv/a", "<b>"), yes)
	for _, c := range []struct{ line, index, contact, leader string }{
		{"GET /v1/kv/a", "2", "0", "true"}, {"GET /v1/kv/a?consistent", "2", "0", "true"}, {"GET /v1/kv/a?stale", "2", "42", "true"},
		{"GET /v1/kv/b", "1", "0", "true"}, {"GET /v1/kv/?recurse", "2", "0", "true"}, {"GET /v1/kv/b?recurse&stale", "1", "42", "true"},
		{"GET /v1/session/info/" + id, "1", "0", "true"}, {"GET /v1/session/list?stale", "1", "42", "true"}, {"GET /v1/session/node/x", "1", "0", "true"},
		{"GET /v1/catalog/nodes", "1", "42", "true"}, {"GET /v1/health/node/x?index=1", "1", "42", "true"}, {"GET /v1/catalog/nodes?consistent", "1", "42", "true"},
		{"PUT /v1/kv/a?cas=2", "", "", ""}, {"DELETE /v1/kv/a", "", "", ""}, {"GET /v1/kv/a?index=x", "", "", ""}, {"GET /v1/agent/self", "", "", ""},
		{"PUT /v1/session/renew/" + id, "", "", ""}, {"PUT /v1/session/renew/x", "", "", ""}, {"GET /v1/kv/a?dc=x", "", "", ""},
	} {
		got := s.Ask(c.line, "")
		if got.Header("X-Consul-Index") != c.index || got.Header("X-Consul-LastContact") != c.contact || got.Header("X-Consul-KnownLeader") != c.leader {
			t.Errorf("%s: index %q, contact %q, leader %q", c.line, got.Header("X-Consul-Index"), got.Header("X-Consul-LastContact"), got.Header("X-Consul-KnownLeader"))
		}
	}
	node.Set(func() { node.StatusNow.Leader, node.Fail = "", outcome.ErrNoLeader })
	for line, index := range map[string]string{"GET /v1/kv/a?stale": "4", "GET /v1/catalog/nodes": "1", "GET /v1/health/node/n1": "1"} {
		if got := s.Ask(line, ""); got.Header("X-Consul-KnownLeader") != "false" || got.Header("X-Consul-LastContact") != "42" || got.Header("X-Consul-Index") != index {
			t.Errorf("%s without a leader: %q, contact %q, index %q", line, got.Header("X-Consul-KnownLeader"), got.Header("X-Consul-LastContact"), got.Header("X-Consul-Index"))
		}
	}
	s.Is(s.Ask("GET /v1/kv/a?stale", ""), "404 bare")
	got := s.Ask("GET /v1/kv/a", "")
	if s.Is(got, "500 text No cluster leader"); got.Header("X-Consul-Index") != "" {
		t.Errorf("an error with index %s", got.Header("X-Consul-Index"))
	}
	node.Set(func() { node.Fail = nil })
	s.Is(s.Ask("PUT /v1/kv/a", "<b>"), yes)
	got = s.Ask("GET /v1/kv/a?raw", "")
	if s.Is(got, "200 raw <b>"); got.Header("X-Content-Type-Options") != "nosniff" || got.Header("Content-Security-Policy") != "sandbox" {
		t.Error("a raw value may run as a page")
	}
}

// requests has one request for each route that asks the cluster.
var requests = map[string]string{
	"PUT /v1/session/create": `{}`, "PUT /v1/session/renew/5369676e-616c-626f-0000-000000000007": ``, "PUT /v1/session/destroy/5369676e-616c-626f-0000-000000000007": ``,
	"GET /v1/session/list": ``, "GET /v1/session/info/a": ``, "GET /v1/session/node/n1": ``, "GET /v1/kv/a": ``, "GET /v1/kv/a?recurse": ``, "PUT /v1/kv/a": `x`,
	"PUT /v1/kv/a?cas=0": `x`, "PUT /v1/kv/a?acquire=x": `x`, "PUT /v1/kv/a?release=x": `x`, "DELETE /v1/kv/a": ``, "DELETE /v1/kv/a?recurse": ``,
}

// TestTroubles: a failure that is no fault of the client is 500, a sentence and Retry-After.
func TestTroubles(t *testing.T) {
	s, node := onConsul(t)
	for _, c := range []struct {
		err   error
		again string
	}{
		{outcome.ErrNoLeader, "1"}, {outcome.ErrNotApplied, "1"}, {outcome.ErrDraining, "1"}, {outcome.ErrStorageFull, "10"}, {outcome.ErrSplitState, "10"},
		{outcome.ErrOverloaded, "1"}, {outcome.ErrOutcomeUnknown, "1"}, {outcome.ErrBehind, "1"}, {outcome.ErrBelowLevel, "1"}, {errors.New("secret of the inside"), ""},
	} {
		node.Set(func() { node.Fail = c.err })
		for line, body := range requests {
			got := s.Ask(line, body)
			if got.Status != 500 || got.ContentType != "text/plain; charset=utf-8" || got.Header("Retry-After") != c.again || got.Body == "" || strings.ContainsAny(got.Body, "\n") ||
				strings.Contains(got.Body, "secret") {
				t.Errorf("%v: %s: %s, Retry-After %q", c.err, line, got, got.Header("Retry-After"))
			}
		}
	}
	s.Is(s.Ask("GET /v1/agent/self?pretty", ""), "200 json "+strings.ReplaceAll(selfPretty, "\n", `\n`))
	node.Set(func() { node.Fail, node.Panics = nil, true })
	s.Is(s.Ask("PUT /v1/kv/a", ""), "500 text This node could not handle the request. Its log says more.")
}

// TestLimits: if a limit of the machine is reached, the status is 500 too. A list has a largest size.
func TestLimits(t *testing.T) {
	s, _ := onConsul(t)
	id := open(s, `{}`)
	const most = 4096 // of one session
	for i := range most {
		s.Is(s.Ask(fmt.Sprintf("PUT /v1/kv/held/%d?acquire=%s", i, id), ""), yes)
	}
	got := s.Ask("PUT /v1/kv/held/more?acquire="+id, "")
	if s.Is(got, "500 text The session holds as many items as a session may: 4,096. The request had no effect."); got.Header("Retry-After") != "1" {
		t.Errorf("Retry-After %q", got.Header("Retry-After"))
	}
	for i := range 49 { // in base64 more than 32 MiB
		s.Is(s.Ask(fmt.Sprintf("PUT /v1/kv/large/%d", i), strings.Repeat("x", 512<<10)), yes)
	}
	s.Is(s.Ask("GET /v1/kv/large?recurse", ""), "500 text The list has more than 32 MiB. Ask for a longer prefix, or for the keys alone.")
	if got := s.Ask("GET /v1/kv/large?keys", ""); got.Status != 200 {
		t.Errorf("%s", got)
	}
	if got := s.Ask("GET /v1/kv/large/1?recurse", ""); len(shownPairs(s, got)) != 11 {
		t.Errorf("%d bytes", len(got.Body))
	}
}

// TestReplyMemory: a list is refused while unread replies leave no room for it.
func TestReplyMemory(t *testing.T) {
	s, _ := onConsul(t, func(cfg *apitest.Config) { cfg.Exchange.ReplyMemory = 2 << 20 })
	for i := range 4 {
		s.Is(s.Ask(fmt.Sprintf("PUT /v1/kv/%d", i), strings.Repeat("x", 512<<10)), yes)
		got := s.Ask("GET /v1/kv/?recurse", "")
		if fits := i < 3; fits != (got.Status == 200) || !fits && got.Header("Retry-After") != "1" {
			t.Errorf("%d keys: %.200s, Retry-After %q", i+1, got, got.Header("Retry-After"))
		}
	}
}

// TestValues: a value has any bytes, up to 512 KiB, whatever --max-body is.
func TestValues(t *testing.T) {
	small := func(cfg *apitest.Config) { cfg.Exchange.BodyBytes = 100 }
	inEachConsul(t, func(s *apitest.Site) {
		for name, value := range map[string]string{
			"none": "", "a byte": "\x00", "no text": "\xff\xfe", "a form": "a=b&c=d", "JSON": `{"a":1}`, "lines": "a\nb\n", "largest": strings.Repeat("x", 512<<10),
		} {
			s.Is(s.Ask("PUT /v1/kv/v", value, "Content-Type: application/x-www-form-urlencoded", "Content-Encoding: gzip"), yes)
			if got := keyOf(s, "v"); string(got.Value) != value {
				s.Errorf("%s: %d bytes came back", name, len(got.Value))
			}
			if got := s.Ask("GET /v1/kv/v?raw", ""); got.Body != value {
				s.Errorf("%s: %d bytes came back raw", name, len(got.Body))
			}
		}
		s.Is(s.Ask("PUT /v1/kv/v", strings.Repeat("x", 512<<10)), yes)
		if got := s.Ask("GET /v1/kv/v", ""); !strings.Contains(got.Body, `"Value":"`+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 512<<10)))) {
			t.Error("the value is not in base64")
		}
		for _, query := range []string{"", "?cas=0&dc=x", "?acquire="} {
			s.Is(s.Ask("PUT /v1/kv/v"+query, strings.Repeat("x", 524289)), "413 text Request body(524289 bytes) too large, max size: 524288 bytes.")
		}
		s.Is(s.Ask("PUT /v1/session/create", `{"Name":"`+strings.Repeat("x", 100)+`"}`), "413 text A body of this route has up to 100 bytes.")
	}, small)
}

const selfPretty = `{
    "Config": {
        "Datacenter": "dc1",
        "PrimaryDatacenter": "dc1",
        "NodeName": "n1",
        "NodeID": "",
        "Revision": "",
        "Server": true,
        "Version": "1.2.3"
    },
    "Member": {
        "Name": "n1",
        "Addr": "n1",
        "Port": 8711,
        "Tags": {},
        "Status": 1
    },
    "Meta": {}
}
`

// TestNoLeader: the replies of a node that knows no leader.
func TestNoLeader(t *testing.T) {
	s, node := onConsul(t)
	node.Set(func() { node.StatusNow = cluster.Status{Node: "n1"} })
	s.Is(s.Ask("GET /v1/status/leader", ""), `200 json ""`)
	s.Is(s.Ask("GET /v1/status/peers", ""), `200 json []`)
}

// TestOptions: a linger is a percentage.
func TestOptions(t *testing.T) {
	for _, percent := range []int{-1, 101} {
		if _, err := consul.New(nil, consul.Config{LingerPercent: percent}); err == nil {
			t.Errorf("a linger of %d is taken", percent)
		}
	}
}

// TestManyKeys: a delete of more keys than one step deletes, and a list of more than one page.
func TestManyKeys(t *testing.T) {
	s, node := onConsul(t)
	const keys = 8192 + 1000
	for i := range keys {
		s.Do(fsm.ItemPut{Name: fmt.Sprintf("p/%05d", i)})
	}
	s.Do(fsm.ItemPut{Name: "q"})
	got := s.Ask("GET /v1/kv/p/?recurse", "")
	if pairs := shownPairs(s, got); len(pairs) != keys || pairs[0].Key != "p/00000" || pairs[keys-1].Key != fmt.Sprintf("p/%05d", keys-1) || got.Header("X-Consul-Index") != fmt.Sprint(keys) {
		t.Errorf("%d keys, index %s", len(pairs), got.Header("X-Consul-Index"))
	}
	s.Is(s.Ask("GET /v1/kv/p/?keys&separator=0", ""), `200 json ["p/0"]`)
	node.Set(func() { node.Calls = nil })
	s.Is(s.Ask("DELETE /v1/kv/p?recurse", ""), yes)
	s.Is(s.Ask("GET /v1/kv/?keys", ""), `200 json ["q"]`)
	if len(node.Calls) != 2 {
		t.Errorf("deleted in %d steps", len(node.Calls))
	}
}
