package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/client/cells"
)

// consulID is the id of a session as Consul's clients see it.
func consulID(id uint64) string {
	return fmt.Sprintf("5369676e-616c-626f-%04x-%012x", id>>48, id&(1<<48-1))
}

// routed is a request and the number of the cell to which it goes; 0 means that it is refused with other-cell.
type routed struct {
	cell       int
	line, body string
	headers    []string
}

func (c routed) check(s *site) {
	a := s.ask(c.line, c.body, c.headers...)
	if c.cell > 0 {
		a.cameTo(c.cell)
	} else {
		a.is(409, `"code":"other-cell"`, `"type":"/problems/other-cell"`, `"instance":"/requests/`).cameTo()
	}
}

// TestRequestsGoToTheirCell: each route of the native API goes to a cell by name or by session, or is refused (0).
func TestRequestsGoToTheirCell(t *testing.T) {
	s := newSite(t)
	first, two := fmt.Sprint(cells.IDsPerCell+5), fmt.Sprint(2*cells.IDsPerCell+5)
	for _, c := range []routed{
		{1, "GET /v1/semaphores/db", "", nil},
		{1, "GET /v1/semaphores/eu", "", nil},
		{2, "GET /v1/semaphores/eu%2Fdb", "", nil},
		{2, "GET /v1/semaphores/%65u%2Fdb?holders=0", "", nil},
		{3, "GET /v1/semaphores/eu%2Fparis%2Fdb", "", nil},
		{3, "POST /v1/semaphores/us%2Fdb/leases", `{"ttl":"1m"}`, nil},
		{2, "POST /v1/semaphores", `{"permits":1,"name":"eu/x"}`, nil},
		{1, "POST /v1/semaphores", `{"permits":1,"name":"eu/x"`, nil},
		{2, "GET /v1/semaphores?prefix=eu/b", "", nil},
		{2, "DELETE /v1/semaphores/eu%2Fdb/holders/" + two, "", nil},
		{0, "DELETE /v1/semaphores/eu%2Fdb/holders/" + first, "", nil},
		{2, "GET /v1/items/eu%2Fa", "", nil},
		{2, "GET /v1/items?prefix=eu/a", "", nil},
		{0, "GET /v1/items", "", nil},
		{2, "PUT /v1/items/eu%2Fa", `{"value":"x"}`, nil},
		{0, "PUT /v1/items/eu%2Fa", `{"value":"x","session":"` + first + `"}`, nil},
		{2, "PUT /v1/items/eu%2Fa", `{"value":"x","session":"` + two + `"}`, nil},
		{1, "POST /v1/sessions", `{"ttl":"1m"}`, nil},
		{2, "PUT /v1/sessions/" + two, "", nil},
		{1, "GET /v1/sessions/" + first, "", nil},
		{0, "GET /v1/sessions/5", "", nil},
		{1, "GET /v1/sessions/who", "", nil},
		{2, "PUT /v1/sessions/" + two + "/leases/eu%2Fdb", "", nil},
		{2, "PUT /v1/sessions/5/leases/eu%2Fdb", "", nil},
		{0, "PUT /v1/sessions/" + first + "/leases/eu%2Fdb", "", nil},
		{2, "PUT /v1/sessions/" + two + "/waitlist/eu%2Fwait", "", nil},
		{2, "POST /v1/sessions/" + two + "/waitlist/wait", "", nil},
		{2, "POST /v1/sessions/" + two + "/acquire", `{"mode":"all","semaphores":[{"name":"eu/a"},{"name":"eu/b"}]}`, nil},
		{0, "POST /v1/sessions/" + two + "/acquire", `{"mode":"all","semaphores":[{"name":"eu/a"},{"name":"us/b"}]}`, nil},
		{0, "POST /v1/sessions/" + first + "/acquire", `{"mode":"all","semaphores":[{"name":"eu/a"}]}`, nil},
		{3, "POST /v1/sessions/77/restore", `{"ttl":"1m","leases":[{"name":"us/a"}]}`, nil},
		{0, "GET /v1/cluster", "", nil},
		{0, "GET /v1/snapshot", "", nil},
		{0, "PUT /v1/cluster/tokens", `{"above":1}`, nil},
		{0, "GET /metrics", "", nil},
		{0, "GET /ui/", "", nil},
		{1, "PATCH /v1/semaphores", "", nil},
		{1, "GET /v1/openapi.json", "", nil},
		{1, "GET /elsewhere", "", nil},
		{2, "HEAD /v1/events?name=eu/a&name=eu/b&last=1", "", nil},
		{0, "GET /v1/events?session=5", "", nil},
		// chosen: what grants or counts no permit may name the names of other cells, as while a prefix moves
		{3, "GET /cells/3/v1/cluster", "", nil},
		{3, "PUT /cells/3/v1/cluster/tokens", `{"above":1}`, nil},
		{3, "POST /cells/3/v1/sessions", `{"ttl":"1m"}`, nil},
		{3, "PUT /cells/3/v1/sessions/" + first, "", nil},
		{3, "GET /cells/3/v1/semaphores/eu%2Fdb", "", nil},
		{3, "PUT /cells/3/v1/semaphores/eu%2Fdb", `{"permits":1}`, nil},
		{3, "PATCH /cells/3/v1/semaphores/eu%2Fdb", `{"paused":"moves"}`, nil},
		{3, "POST /cells/3/v1/semaphores", `{"permits":1,"name":"eu/x"}`, nil},
		{3, "PUT /cells/3/v1/semaphores/eu%2Fdb/value", `{"value":1}`, nil},
		{3, "DELETE /cells/3/v1/sessions/" + first + "/leases/eu%2Fdb", "", nil},
		{3, "DELETE /cells/3/v1/semaphores/eu%2Fdb", "", nil},
		{3, "POST /cells/3/v1/semaphores/us%2Fdb/leases", `{"ttl":"1m"}`, nil},
		{0, "POST /cells/3/v1/semaphores/eu%2Fdb/leases", `{"ttl":"1m"}`, nil},
		{0, "POST /cells/3/v1/semaphores/eu%2Fdb/down", "", nil},
		{0, "POST /cells/3/v1/semaphores/eu%2Fdb/up", "", nil},
		{0, "PUT /cells/3/v1/sessions/" + first + "/leases/eu%2Fdb", "", nil},
		{0, "PATCH /cells/3/v1/sessions/" + first + "/leases/eu%2Fdb", `{"count":2}`, nil},
		{0, "PUT /cells/3/v1/sessions/" + first + "/waitlist/eu%2Fdb", "", nil},
		{0, "POST /cells/3/v1/sessions/" + first + "/acquire", `{"mode":"any","semaphores":[{"name":"us/a"},{"name":"eu/a"}]}`, nil},
		{0, "POST /cells/3/v1/sessions/77/restore", `{"ttl":"1m","leases":[{"name":"eu/a"}]}`, nil},
		{0, "PUT /cells/3/v1/items/eu%2Fa", `{"value":"x"}`, nil},
		{0, "PUT /cells/3/v1/kv/eu/key", "x", nil},
		{0, "POST /cells/3/semaphore/down", "name=eu%2Fr", []string{"Content-Type: application/x-www-form-urlencoded"}},
	} {
		c.check(s)
	}
	s.ask("GET /cells/9/v1/cluster", "").is(404, "unknown-route").cameTo()
	s.ask("GET /readyz", "").is(200, "Ok").cameTo()
}

// TestDialectsGoToTheirCell: the routes of the dialects go to their cells, in each form of body that the dialects
// accept.
func TestDialectsGoToTheirCell(t *testing.T) {
	s := newSite(t)
	first, two := fmt.Sprint(cells.IDsPerCell+5), fmt.Sprint(2*cells.IDsPerCell+5)
	const form, js = "Content-Type: application/x-www-form-urlencoded", "Content-Type: application/json"
	for _, c := range []routed{
		// Node-RED
		{2, "POST /semaphore", `{"name":"eu/r","value":1}`, []string{js}},
		{2, "POST /semaphore/up", "name=eu%2Fr", []string{form}},
		{3, "POST /semaphore/down", "name=eu%2Fr&name=us/r", []string{form}},
		{2, "POST /semaphore/up", "name=eu%2Fr", []string{"Content-Type: Application/X-WWW-Form-Urlencoded; charset=utf-8"}},
		{2, "POST /semaphore/up", `{"name":"eu/r"}`, []string{form}},
		{2, "GET /semaphore/value/eu%2Fr", "", nil},
		{2, "DELETE /semaphore/eu%2Fr", "", nil},
		// throttle
		{1, "POST /new_peer", `{"expires_in":"1m"}`, []string{js}},
		{2, "PUT /peers/" + two, `{"expires_in":"1m"}`, []string{js}},
		{2, "PUT /peers/+00" + two + "/eu%2Fr", "1", []string{js}},
		{0, "PUT /peers/" + first + "/eu%2Fr", "1", []string{js}},
		{0, "PUT /peers/+0" + first + "/eu%2Fr", "1", []string{js}},
		{2, "DELETE /peers/" + two + "/eu%2Fr", "", nil},
		{2, "GET /peers/" + two + "/is_acquired", "", nil},
		{2, "GET /remainder?semaphore=eu/r", "", nil},
		{0, "GET /peers/", "", nil},
		{2, "POST /restore", `{"expires_in":"1m","peer_id":` + two + `,"acquired":{"eu/r":1}}`, []string{js}},
		{0, "POST /restore", `{"expires_in":"1m","peer_id":` + two + `,"acquired":{"eu/r":1,"us/r":1}}`, []string{js}},
		// Consul
		{1, "PUT /v1/session/create", "", nil},
		{2, "PUT /v1/session/renew/" + strings.ToUpper(consulID(2*cells.IDsPerCell+5)), "", nil},
		{0, "PUT /v1/session/renew/" + consulID(5), "", nil},
		{1, "PUT /v1/session/renew/adf4238a-882b-9ddc-4a9d-5b6758e4159e", "", nil},
		{0, "GET /v1/session/list", "", nil},
		{2, "PUT /v1/kv/eu/key", "x", nil},
		{2, "PUT /v1/kv/eu/key?acquire=" + consulID(2*cells.IDsPerCell+5), "x", nil},
		{0, "PUT /v1/kv/eu/key?acquire=" + consulID(cells.IDsPerCell+5), "x", nil},
		{0, "GET /v1/kv/eu/?recurse", "", nil},
		{2, "GET /v1/kv/eu/key?recurse", "", nil},
		{1, "GET /v1/agent/self", "", nil},
		// FleetLock and Terraform
		{2, "POST /v1/pre-reboot", `{"client_params":{"id":"m","group":"eu-west"}}`, []string{"fleet-lock-protocol: true"}},
		{2, "POST /v1/pre-reboot", `{"Client_Params":{"Group":"eu-west"},"client_params":{"id":"m"}}`, []string{"fleet-lock-protocol: true"}},
		{1, "POST /v1/steady-state", `{"client_params":{"id":"m","group":"us"}}`, []string{"fleet-lock-protocol: true"}},
		{2, "GET /terraform/eu/prod", "", nil},
		{1, "LOCK /terraform/us/prod", `{"ID":"1"}`, nil},
	} {
		c.check(s)
	}
}

// TestRefusalsNameBoth: a refusal has both names, or the name and the session, as members for programs. Its text says
// what to do.
func TestRefusalsNameBoth(t *testing.T) {
	s := newSite(t)
	two := fmt.Sprint(2*cells.IDsPerCell + 5)
	s.ask("POST /v1/sessions/"+two+"/acquire", `{"mode":"any","semaphores":[{"name":"eu/a"},{"name":"us/b"}]}`).
		is(409, `"names":["eu/a","us/b"]`, `\"eu/a\" is of cell 2, and \"us/b\" of cell 3`)
	s.ask("PUT /v1/sessions/"+two+"/leases/db", "").is(409, `"names":["db"]`, `"session":"`+two+`"`, "POST /cells/1/v1/sessions")
	s.ask("GET /v1/items?prefix=e", "").is(409, `"names":["e","eu/`)
	s.ask("GET /v1/snapshot", "").is(409, "one of 1, 2, 3")
	if a := s.ask("HEAD /v1/snapshot", ""); a.status != 409 || a.body != "" {
		t.Errorf("HEAD: %d %q", a.status, a.body)
	}
}

// TestOneCellHasEverything: if a file has one cell, no request is refused. So a cluster may begin with such a file.
func TestOneCellHasEverything(t *testing.T) {
	s := &site{T: t, cells: map[int]*cellOfTest{4: newCell(t, 4)}}
	s.list = []cells.Cell{{Number: 4, Prefixes: []string{""}, Nodes: []string{s.cells[4].URL}}}
	s.start()
	s.ask("GET /v1/cluster", "").is(200, `"leader"`)
	s.ask("POST /v1/sessions/77/restore", `{"ttl":"1m","leases":[]}`).is(200)
	s.ask("GET /v1/sessions/77", "").is(200)
	s.ask("GET /v1/items", "").is(200)
}

// TestDialectsWork: a client of each dialect works through the proxy, in a cell other than the first.
func TestDialectsWork(t *testing.T) {
	s := newSite(t)
	s.ask("PUT /v1/semaphores/db", `{"permits":1}`).is(201)
	js := "Content-Type: application/json"
	peer := s.ask("POST /new_peer", `{"expires_in":"1m"}`, js).is(200).body
	s.ask("PUT /peers/"+peer+"/db", "1", js).is(200)
	s.ask("GET /remainder?semaphore=db", "").is(200, "0")
	s.ask("DELETE /peers/"+peer, "").is(200, "Peer released")

	s.ask("POST /semaphore", `{"name":"eu/r","value":1}`, js).is(200)
	s.ask("POST /semaphore/down", "name=eu%2Fr", "Content-Type: application/x-www-form-urlencoded").is(200, `{"name":"eu/r","value":0}`)

	session := s.ask("PUT /cells/2/v1/session/create", `{"TTL":"15s"}`).is(200).member("ID")
	s.ask("PUT /v1/kv/eu/lock?acquire="+session, "me").is(200, "true")
	s.ask("PUT /v1/session/renew/"+session, "").is(200, session)
	s.ask("GET /v1/kv/eu/lock", "").is(200, session)

	s.ask("PUT /v1/semaphores/fleetlock%2Feu-west", `{"permits":1}`).is(201)
	s.ask("POST /v1/pre-reboot", `{"client_params":{"id":"m","group":"eu-west"}}`, "fleet-lock-protocol: true").is(200)
	s.askAt(s.cells[2].URL, "GET /v1/semaphores/fleetlock%2Feu-west", "").is(200, `"held":1`)

	s.ask("POST /terraform/eu/prod", `{"version":4,"serial":1}`).is(200)
	s.ask("GET /terraform/eu/prod", "").is(200, `"serial":1`)
	s.askAt(s.cells[2].URL, "GET /v1/items?prefix=terraform/eu/prod", "").is(200, `"name":"terraform/eu/prod"`)
}
