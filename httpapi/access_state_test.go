package httpapi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/httpapi/internal/apitest"
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
