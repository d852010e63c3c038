package httpapi

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// A node on loopback, with one name of the operator's.
func withHosts(listed ...string) func(*Config) {
	return func(cfg *Config) {
		cfg.Hosts, cfg.NodeRED, cfg.Throttle = listed, &NodeRED{}, &Throttle{}
	}
}

func (a *testAPI) doHost(line, body, host string, headers ...string) reply {
	a.Helper()
	method, target, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = host
	for _, h := range headers {
		name, of, _ := strings.Cut(h, ": ")
		r.Header.Add(name, of)
	}
	return a.send(r)
}

func TestWrongHost(t *testing.T) {
	a := newTestAPI(t, withHosts("127.0.0.1", "sb.example", "10.0.0.7"))
	a.must(201, "PUT http://localhost/v1/semaphores/db", `{"permits":1}`)
	before := a.node.state(t)
	for _, host := range []string{"localhost", "localhost:8701", "LOCALHOST:80", "localhost.", "127.0.0.1:8701", "127.0.0.1", "127.9.9.9", "[::1]:8701",
		"[::1]", "sb.example", "Sb.Example.:443", "10.0.0.7:8701", "[::ffff:10.0.0.7]:80", "[::ffff:127.0.0.1]", ""} {
		a.doHost("GET /v1/semaphores/db", "", host).is(200)
	}
	for _, host := range []string{"evil.example", "evil.example:8701", "localhost.evil.example", "evil.example.", "127.0.0.1.evil.example", "x.sb.example",
		"10.0.0.8", "0.0.0.0", "[::]:8701", "[fe80::1]", "localhost:8701:8701", "127.1", "2130706433", "*", ".", " "} {
		for _, line := range []string{"GET /v1/semaphores/db", "DELETE /v1/semaphores/db", "PUT /v1/semaphores/new", "GET /v1/events", "GET /livez",
			"GET /metrics", "GET /nothing", "BREW /v1/semaphores", "OPTIONS /v1/semaphores"} {
			a.doHost(line, `{"permits":1}`, host).refusedWith(421, "wrong-host")
		}
		for _, line := range []string{"POST /semaphore", "GET /semaphore/value/db", "POST /new_peer", "GET /peers/", "GET /"} {
			got := a.doHost(line, `{"name":"new","value":1}`, host, "Content-Type: application/json").is(421)
			if !strings.Contains(got.text, "--allow-host") || strings.HasPrefix(got.text, "{") {
				t.Errorf("%s to %q is told %q", line, host, got.text)
			}
		}
	}
	if after := a.node.state(t); after != before {
		t.Errorf("the state changed:\n%s\n%s", before, after)
	}
}

// On all of a machine's addresses every address is the node's own, a name is not.
func TestHostsOfAllInterfaces(t *testing.T) {
	a := newTestAPI(t, withHosts("0.0.0.0", "n1"))
	for host, status := range map[string]int{"n1:8701": 200, "192.0.2.1:8701": 200, "[2001:db8::1]:8701": 200, "localhost": 200, "evil.example": 421, "n2:8701": 421} {
		a.doHost("GET /version", "", host).is(status)
	}
	for _, listed := range [][]string{nil, {"*"}, {"127.0.0.1", "*"}} {
		newTestAPI(t, withHosts(listed...)).doHost("GET /version", "", "evil.example").is(200)
	}
}

// A browser says how the page that sends a request relates to this node, also where
// it names no origin.
func TestForeignSite(t *testing.T) {
	a := newTestAPI(t, withHosts(), func(cfg *Config) { cfg.CORS = []string{"https://app.example"} })
	a.must(201, "PUT /v1/semaphores/db", `{"permits":9}`)
	before := a.node.state(t)
	for _, site := range []string{"cross-site", "same-site", "nonsense", ""} {
		for _, line := range []string{"PUT /v1/semaphores/db", "POST /v1/semaphores/db/up", "DELETE /v1/semaphores/db", "POST /v1/batch", "DELETE /v1/cluster/members/n1"} {
			a.do(line, "{}", "Sec-Fetch-Site: "+site).refusedWith(403, "forbidden")
		}
		a.do("POST /semaphore/up", `{"name":"db"}`, "Sec-Fetch-Site: "+site, "Content-Type: application/json").is(403)
		a.do("DELETE /peers/7", "", "Sec-Fetch-Site: "+site).is(403)
		a.do("GET /v1/semaphores/db", "", "Sec-Fetch-Site: "+site).is(200)
	}
	if after := a.node.state(t); after != before {
		t.Errorf("the state changed:\n%s\n%s", before, after)
	}
	a.do("POST /v1/semaphores/db/up", "", "Sec-Fetch-Site: same-origin", "Origin: http://example.com").is(200)
	a.do("POST /v1/semaphores/db/up", "", "Sec-Fetch-Site: none").is(200)
	a.do("POST /v1/semaphores/db/up", "", "Sec-Fetch-Site: cross-site", "Origin: https://app.example").is(200)
	a.do("POST /v1/semaphores/db/up", "", "Sec-Fetch-Site: cross-site", "Origin: http://example.com").refusedWith(403, "forbidden")
}
