package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/test/apitest"
)

// A node on loopback, with one name of the operator's.
func withHosts(listed ...string) func(*apitest.Config) {
	return func(cfg *apitest.Config) {
		cfg.HTTP.Hosts = listed
		withNodeRED(cfg)
		withThrottle(cfg)
	}
}

func doHost(a *apitest.API, line, body, host string, headers ...string) apitest.Reply {
	a.Helper()
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = host
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return a.Send(r)
}

func TestWrongHost(t *testing.T) {
	a := apitest.New(t, withHosts("127.0.0.1", "sb.example", "10.0.0.7"))
	a.Must(201, "PUT http://localhost/v1/semaphores/db", `{"permits":1}`)
	before := a.Node.State(t)
	for _, host := range []string{"localhost", "localhost:8701", "LOCALHOST:80", "localhost.", "127.0.0.1:8701", "127.0.0.1", "127.9.9.9", "[::1]:8701",
		"[::1]", "sb.example", "Sb.Example.:443", "10.0.0.7:8701", "[::ffff:10.0.0.7]:80", "[::ffff:127.0.0.1]", ""} {
		doHost(a, "GET /v1/semaphores/db", "", host).Is(200)
	}
	for _, host := range []string{"evil.example", "evil.example:8701", "localhost.evil.example", "evil.example.", "127.0.0.1.evil.example", "x.sb.example",
		"10.0.0.8", "0.0.0.0", "[::]:8701", "[fe80::1]", "localhost:8701:8701", "127.1", "2130706433", "*", ".", " "} {
		for _, line := range []string{"GET /v1/semaphores/db", "DELETE /v1/semaphores/db", "PUT /v1/semaphores/new", "GET /v1/events", "GET /livez",
			"GET /metrics", "GET /nothing", "BREW /v1/semaphores", "OPTIONS /v1/semaphores"} {
			doHost(a, line, `{"permits":1}`, host).RefusedWith(421, "wrong-host")
		}
		for _, line := range []string{"POST /semaphore", "GET /semaphore/value/db", "POST /new_peer", "GET /peers/", "GET /"} {
			got := doHost(a, line, `{"name":"new","value":1}`, host, "Content-Type: application/json").Is(421)
			if !strings.Contains(got.Text, "--allow-host") || strings.HasPrefix(got.Text, "{") {
				t.Errorf("%s to %q is told %q", line, host, got.Text)
			}
		}
	}
	if after := a.Node.State(t); after != before {
		t.Errorf("the state changed:\n%s\n%s", before, after)
	}
}

// On all of a machine's addresses every address is the node's own, a name is not.
func TestHostsOfAllInterfaces(t *testing.T) {
	a := apitest.New(t, withHosts("0.0.0.0", "n1"))
	for host, status := range map[string]int{"n1:8701": 200, "192.0.2.1:8701": 200, "[2001:db8::1]:8701": 200, "localhost": 200, "evil.example": 421, "n2:8701": 421} {
		doHost(a, "GET /version", "", host).Is(status)
	}
	for _, listed := range [][]string{nil, {"*"}, {"127.0.0.1", "*"}} {
		doHost(apitest.New(t, withHosts(listed...)), "GET /version", "", "evil.example").Is(200)
	}
}

// TestOtherCellIsRefused: a node refuses what is for another cell on every route, and changes no state. A node without a
// number takes all.
func TestOtherCellIsRefused(t *testing.T) {
	a := apitest.New(t, func(cfg *apitest.Config) { cfg.HTTP.Cell = 2 })
	a.Do("PUT /v1/semaphores/db", `{"permits":1}`, "X-Signalbox-Cell: 2").Is(201)
	before := a.Node.State(t)
	for _, line := range []string{"PUT /v1/semaphores/new", "DELETE /v1/semaphores/db", "GET /v1/semaphores/db", "GET /v1/events", "GET /livez"} {
		got := a.Do(line, `{"permits":1}`, "X-Signalbox-Cell: 1").RefusedWith(421, "wrong-host")
		if got.Header.Get("X-Signalbox-Cell") != "2" || !strings.Contains(got.Text, "This node is of cell 2") {
			t.Errorf("%s: %v %s", line, got.Header, got.Text)
		}
	}
	if after := a.Node.State(t); after != before {
		t.Errorf("the state changed:\n%s\n%s", before, after)
	}
	apitest.New(t).Do("PUT /v1/semaphores/db", `{"permits":1}`, "X-Signalbox-Cell: 1").Is(201)
}
