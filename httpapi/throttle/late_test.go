package throttle

import (
	"context"
	"testing"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/apitest"
)

// slowRelease is a node on which an event happens after a release has arrived and before it is applied.
type slowRelease struct {
	*apitest.Node
	meanwhile func()
}

func (n *slowRelease) Do(ctx context.Context, call calls.Call) (*calls.Reply, error) {
	if _, ok := call.Command.(fsm.Release); ok && n.meanwhile != nil {
		meanwhile := n.meanwhile
		n.meanwhile = nil
		meanwhile()
	}
	return n.Node.Do(ctx, call)
}

// TestThrottleLateRelease: a release of throttle's clients names no token. Nevertheless, a release that is applied late
// does not end a lease that the peer has acquired since.
func TestThrottleLateRelease(t *testing.T) {
	node := &slowRelease{Node: apitest.NewNode()}
	handler := apitest.NewHandler(t, node, exactly)
	s := &apitest.Site{T: t, Handler: handler, Node: node}
	s.Semaphore("A", "1", "0")
	s.Peer("1", "1h")
	again := func() { // its client has given up, released through another node and acquired again
		s.Is(s.Ask("DELETE /peers/1/A", ""), "200 text Ok")
		s.Is(s.Ask("PUT /peers/1/A", "1"), "200 json 1")
	}
	s.Is(s.Ask("PUT /peers/1/A", "1"), "200 json 1")
	node.meanwhile = again
	s.Is(s.Ask("DELETE /peers/1/A", ""), "200 text Ok")
	s.Is(s.Ask("GET /remainder?semaphore=A", ""), "200 json 0")

	s.Is(s.Ask("DELETE /peers/1/A", ""), "200 text Ok")
	s.Is(s.Ask("GET /remainder?semaphore=A", ""), "200 json 1")
	node.meanwhile = again // a release without a lease ends no lease either
	s.Is(s.Ask("DELETE /peers/1/A", ""), "200 text Ok")
	s.Is(s.Ask("GET /remainder?semaphore=A", ""), "200 json 0")

	s.Peer("2", "1h")
	s.Is(s.Ask("PUT /peers/2/A", "1"), "202 json 2")
	node.meanwhile = func() { s.Is(s.Ask("DELETE /peers/1/A", ""), "200 text Ok") }
	s.Is(s.Ask("DELETE /peers/2/A", ""), "200 text Ok") // granted meanwhile: it is released
	s.Is(s.Ask("GET /remainder?semaphore=A", ""), "200 json 1")
}
