package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
)

// heldBackups is a node whose backups begin, and go on when end is closed.
type heldBackups struct {
	*apitest.Node
	began, end chan struct{}
}

// Backup implements exchange.Node.
func (n *heldBackups) Backup(ctx context.Context) (*backup.Backup, error) {
	n.began <- struct{}{}
	<-n.end
	return n.Node.Backup(ctx)
}

// TestScopeIsCheckedBeforeTheState: a client that is no admin gets the same refusal for a
// member as for an unknown one, on a follower as on the leader, and while the node sends as
// many backups as it can.
func TestScopeIsCheckedBeforeTheState(t *testing.T) {
	node := &heldBackups{apitest.NewNode(), make(chan struct{}), make(chan struct{})}
	a := &apitest.API{T: t, Node: node.Node, Handler: apitest.NewHandler(t, node, withTokens(t, twoTeams...))}
	refused := func(line, body string) string {
		t.Helper()
		return strings.ReplaceAll(a.Do(line, body, as("all"), "X-Request-Id: same").RefusedWith(403, "forbidden").Text, "n2", "n9")
	}
	for _, leader := range []string{"n1", "n2"} {
		node.StatusNow.Leader = leader
		for _, c := range []struct{ line, body string }{{"DELETE /v1/cluster/members/n2", ""}, {"POST /v1/cluster/leader", `{"id":"n2"}`}} {
			line, body := strings.Replace(c.line, "n2", "n9", 1), strings.Replace(c.body, "n2", "n9", 1)
			if known, unknown := refused(c.line, c.body), refused(line, body); known != unknown {
				t.Errorf("%s of a member: %s\nof an unknown one: %s", c.line, known, unknown)
			}
			a.Do(line, body, as("root")).RefusedWith(404, "unknown-member")
		}
		refused("PUT /v1/snapshot?cluster="+apitest.ClusterID, "")
	}
	node.Fail = outcome.ErrNoTarget
	a.Do("PUT /v1/snapshot?cluster="+apitest.ClusterID, "", as("root")).RefusedWith(409, "not-leader")
	node.Fail = nil
	first, second := a.GoDo("GET /v1/snapshot", "", as("root")), a.GoDo("GET /v1/snapshot", "", as("root"))
	<-node.began
	<-node.began
	refused("GET /v1/snapshot", "")
	a.Do("GET /v1/snapshot", "", as("root")).RefusedWith(429, "limit-reached", "rule=backups")
	close(node.end)
	for _, reply := range []<-chan apitest.Reply{first, second} {
		if got := <-reply; got.Status != 200 {
			t.Errorf("a backup: %d %s", got.Status, got.Text)
		}
	}
}

// TestNoForeignSession: an identity that may not name a group keeps no machine of it from its
// slot, by no way that takes the id of a session, and takes no slot away. Of a slot that was taken before the cluster
// had tokens it knows the id too.
func TestNoForeignSession(t *testing.T) {
	for _, held := range []bool{false, true} {
		a := apitest.New(t, withTokens(t, accessClients...))
		a.Must(201, "PUT /v1/semaphores/fleetlock%2Fg", `{"permits":1}`, "Authorization: Bearer secret-admin")
		a.Must(201, "PUT /v1/semaphores/ci%2Fa", `{"permits":1}`, "Authorization: Bearer secret-admin")
		sum := sha256.Sum256([]byte("fleetlock/g/m"))
		id := binary.BigEndian.Uint64(sum[:]) | fsm.DerivedSessions
		if held {
			command := fsm.AcquireOnce{Session: id, Name: "fleetlock/g", Count: 1, TTLMS: fsm.MaxTTLMS}
			if reply, err := a.Node.Do(t.Context(), calls.Call{Command: command}); err != nil || reply.Code != fsm.OK {
				t.Fatal(reply.Code, err)
			}
		}
		before := a.Node.State(t)
		session := fmt.Sprint("/v1/sessions/", id)
		for line, body := range map[string]string{
			"POST " + session + "/restore":           `{"ttl":"1h","leases":[]}`,
			"POST " + session + "/restore ":          `{"ttl":"1h","leases":[{"name":"ci/a"}]}`,
			"POST /restore":                          fmt.Sprintf(`{"peer_id":%d,"expires_in":"1h","acquired":{"ci/a":1}}`, id),
			"PUT " + session:                         `{"ttl":0}`,
			"DELETE " + session:                      "",
			"PUT " + session + "/leases/ci%2Fa":      "",
			"PUT " + session + "/waitlist/ci%2Fa":    "",
			"POST " + session + "/waitlist/wait":     "",
			"POST " + session + "/acquire":           `{"mode":"all","semaphores":[{"name":"ci/a"}]}`,
			fmt.Sprintf("DELETE /peers/%d", id):      "",
			fmt.Sprintf("PUT /peers/%d/ci%%2Fa", id): "1",
			"POST /v1/steady-state":                  `{"client_params":{"id":"m","group":"g"}}`,
			"POST /v1/pre-reboot":                    `{"client_params":{"id":"m","group":"g"}}`,
			"PUT /v1/items/ci%2Fi":                   fmt.Sprintf(`{"value":"w","session":"%d"}`, id),
			"POST /v1/batch":                         fmt.Sprintf(`{"operations":[{"op":"renew","session":"%d"},{"op":"end","session":"%d"}]}`, id, id),
		} {
			got := a.Do(strings.TrimSpace(line), body, "fleet-lock-protocol: true", "Content-Type: application/json", "Authorization: Bearer secret-uses-ci")
			if got.Status != 403 && !strings.HasPrefix(line, "POST /v1/batch") || a.Node.State(t) != before {
				t.Errorf("%s: %s", line, got.Text)
			}
		}
		const route = "POST /v1/pre-reboot"
		if got := routeRights[route].ask(a, route, "", "Bearer secret-uses"); got.Code != 200 {
			t.Errorf("the machine's update, held %v: %s", held, got.Body)
		}
	}
}
