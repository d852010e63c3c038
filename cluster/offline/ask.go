package offline

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// patience multiplies the time-out for the reply of a node, so that a slow reply does not count as silence.
const patience wake.Stretch = 3

// Asked is the result of asking a node for its state.
type Asked struct {
	probe.Peer
	// Silent is set if no process accepted the connection, or if the node has an empty folder. Such a node does not
	// prevent a recovery.
	Silent bool
	Found  string // describes the result in a sentence
}

// ask asks nodes for their state in the name of the folder's node, which does not run.
func (c Config) ask(ctx context.Context, facts *FolderReport, incarnation uint64, nodes []probe.Peer) ([]Asked, error) {
	as := &absent{hello: peer.Hello{
		Standing: peer.StandingBound, Incarnation: incarnation, Node: facts.Node, Address: c.address(facts.Node),
	}}
	if _, err := hex.Decode(as.hello.Folder[:], []byte(facts.ID)); err != nil {
		return nil, err
	}
	cluster, err := fsm.ParseClusterID(facts.Cluster)
	if err != nil {
		return nil, err
	}
	as.hello.Cluster = peer.ID(cluster)
	port, err := peer.OpenPort(peer.Config{
		Network: dialOnly{c.Network}, Bind: "nowhere:0", Advertise: as.hello.Address, Identity: as, Times: patience,
		Security: c.Security, Logger: hclog.NewNullLogger(),
	})
	if err != nil {
		return nil, err
	}
	dial := func(ctx context.Context, id, address string) (net.Conn, error) {
		return port.DialNode(ctx, peer.StreamProbe, address, id)
	}
	calls := probe.NewCalls(dial, facts.Node, patience, func() *probe.StateHash { return nil })
	var results []Asked
	for _, p := range calls.AskAll(ctx, nodes) {
		results = append(results, judgeReply(facts.Node, p))
	}
	return results, errors.Join(ctx.Err(), port.Close())
}

// judgeReply decides whether a node prevents a recovery of node self.
func judgeReply(self string, p probe.Asked) Asked {
	var unreached *unreachedError
	a := p.Answer
	switch {
	case errors.As(p.Err, &unreached):
		return Asked{p.Peer, true, unreached.Error()}
	case p.Err != nil:
		return Asked{p.Peer, false, "a process takes connections there: " + strings.TrimPrefix(p.Err.Error(), probe.ErrUnreached.Error()+": ")}
	case p.ID == self:
		return Asked{p.Peer, false, "another process runs as this node, with folder " + a.Folder}
	case a.State == probe.Empty:
		return Asked{p.Peer, true, "it runs with an empty folder"}
	}
	return Asked{p.Peer, false, fmt.Sprintf("it runs, in term %d of cluster %s, with entries up to %d at least and %s",
		a.Term, cmp.Or(a.Cluster, "without an id"), max(a.Commit, a.Applied), leaderText(a.Leader))}
}

func leaderText(leader string) string {
	if leader == "" {
		return "no leader"
	}
	return "leader " + leader
}

// absent is the identity of a node that only asks, because it does not run. It implements [peer.Identity].
type absent struct{ hello peer.Hello }

// Hello implements [peer.Identity].
func (a *absent) Hello(kind peer.StreamKind, target string) peer.Hello {
	hello := a.hello
	hello.Kind, hello.Target = kind, target
	return hello
}

func (a *absent) Known(string) string { return "" }

// Receive implements [peer.Identity]. It is never called because the port does not listen.
func (a *absent) Receive(*peer.Hello, string) (peer.Refusal, string) {
	return peer.RefusedKind, "this node does not run"
}

// Accept implements [peer.Identity]. It accepts every node, so that Asked describes the node that replied.
func (a *absent) Accept(peer.StreamKind, string, peer.ID, *peer.Hello, string) (peer.Refusal, string) {
	return 0, ""
}

func (a *absent) Admits(string) bool { return false }

func (a *absent) Called(string, peer.Refusal, *peer.Hello) {}

// dialOnly is a network that can dial but not listen. judgeReply recognises its errors by their type.
type dialOnly struct{ peer.Network }

type unreachedError struct{ cause error }

func (e *unreachedError) Error() string { return e.cause.Error() }
func (e *unreachedError) Unwrap() error { return e.cause }

func (d dialOnly) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := d.Network.Dial(ctx, address)
	if err != nil {
		return nil, &unreachedError{err}
	}
	return conn, nil
}

func (d dialOnly) Listen(string) (net.Listener, error) {
	return &noListener{end: make(chan struct{})}, nil
}

type noListener struct {
	closing sync.Once
	end     chan struct{}
}

// Accept implements [net.Listener]. It blocks until Close.
func (l *noListener) Accept() (net.Conn, error) {
	<-l.end
	return nil, net.ErrClosed
}

func (l *noListener) Close() error {
	l.closing.Do(func() { close(l.end) })
	return nil
}

func (l *noListener) Addr() net.Addr { return &net.TCPAddr{} }
