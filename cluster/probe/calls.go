package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// ServeTimeout bounds the work on one request. For example, to add a member, the leader waits for a majority, and
	// then until the member has caught up.
	ServeTimeout = 10 * time.Second
	// CallTimeout bounds how long the asking node waits for the reply.
	CallTimeout = ServeTimeout + 2*time.Second
	// askTimeout bounds one Ask, to which a node replies from memory.
	askTimeout = time.Second
)

// The errors of a request, besides the errors of package outcome. Compare them with errors.Is.
var (
	// ErrUnreached: the request was not sent.
	ErrUnreached = errors.New("the node could not be reached")
	// ErrUnknownCall: the other node does not know this kind of request, or can't serve it.
	ErrUnknownCall = errors.New("a request that this node can't serve")
	// ErrNotMember refuses a node that asks to be admitted again but is not a member.
	ErrNotMember = errors.New("not a member of this cluster")
	// ErrMemberAlive refuses a node that asks to be admitted again while another process with its id is alive.
	ErrMemberAlive = errors.New("the member with that id is alive")
)

// codes are the errors that one node can send to another, where errors.Is then finds them. A code is never reused.
var codes = map[string]error{
	"not-leader":    outcome.ErrNotLeader,
	"no-leader":     outcome.ErrNoLeader,
	"draining":      outcome.ErrDraining,
	"not-member":    ErrNotMember,
	"catching-up":   outcome.ErrCatchingUp,
	"last-voter":    outcome.ErrLastVoter,
	"no-target":     outcome.ErrNoTarget,
	"invalid":       outcome.ErrMemberInvalid,
	"unknown-call":  ErrUnknownCall,
	"level-unknown": outcome.ErrLevelUnknown,
	"changed":       outcome.ErrConfigurationChanged,
	"alive":         ErrMemberAlive,

	"outcome-unknown": outcome.ErrOutcomeUnknown,
}

// codeOf returns the code of an error in a reply. Errors without a code, for example a deadline or a disk error, become
// "outcome-unknown" because the request may have taken effect.
func codeOf(err error) string {
	found := "outcome-unknown"
	for code, known := range codes {
		if errors.Is(err, known) {
			found = code
		}
	}
	return found
}

// Dial opens a probe stream to the node with that id at that address. With id "" it expects the member that has the
// address in the configuration. Dial blocks until the other node has accepted or refused the stream, or ctx ends.
type Dial func(ctx context.Context, id, address string) (net.Conn, error)

// Calls sends questions and requests to other nodes. Safe for concurrent use.
type Calls struct {
	dial   Dial
	self   string
	times  wake.Stretch
	latest func() *StateHash
}

// NewCalls returns the calls of node self. Each Ask carries the hash from latest (nil before the first entry), so that
// the other node replies with its hash at the same index.
func NewCalls(dial Dial, self string, times wake.Stretch, latest func() *StateHash) *Calls {
	return &Calls{dial: dial, self: self, times: times, latest: latest}
}

// Call sends one request to the member at an address, on a new connection, and blocks until the reply or the end of
// ctx. It sets q.From. After ErrUnreached the request was not carried out. After outcome.ErrOutcomeUnknown it may have
// been carried out.
func (c *Calls) Call(ctx context.Context, address string, q Request) (Reply, error) {
	l := link{calls: c, address: address}
	defer l.close()
	return l.call(ctx, q)
}

// Ask asks the node with that id at that address for its state, and waits up to a second. It fails if another node has
// the address.
func (c *Calls) Ask(ctx context.Context, id, address string) (Answer, error) {
	return c.AskAt(ctx, id, address, c.latest())
}

// Peer is a node to ask.
type Peer struct {
	ID      string
	Address string // host:port, as other nodes dial it
}

// Asked is a node's description of itself, or the error if it could not be asked.
type Asked struct {
	Peer
	Answer Answer
	Err    error
}

// AskAll asks several nodes at the same time, and waits up to a second. It returns the results in the order of peers.
func (c *Calls) AskAll(ctx context.Context, peers []Peer) []Asked {
	return wake.AtOnce(peers, func(p Peer) Asked {
		answer, err := c.Ask(ctx, p.ID, p.Address)
		return Asked{p, answer, err}
	})
}

// AskAt is Ask with state instead of this node's latest hash.
func (c *Calls) AskAt(ctx context.Context, id, address string, state *StateHash) (Answer, error) {
	l := link{calls: c, id: id, address: address}
	defer l.close()
	return l.ask(ctx, state)
}

// link is a stream to one node, kept open between requests. Only one goroutine may use it at a time.
type link struct {
	calls   *Calls
	id      string // "": the member that has the address in the configuration
	address string
	conn    net.Conn // nil: the next call dials
}

// ask sends an Ask request on this stream, with state as the hash to compare.
func (l *link) ask(ctx context.Context, state *StateHash) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, l.calls.times.Of(askTimeout))
	defer cancel()
	reply, err := l.call(ctx, Request{Kind: Ask, State: state})
	switch {
	case err != nil:
		return Answer{}, err
	case reply.Answer == nil:
		return Answer{}, fmt.Errorf("no content in the reply: %w", ErrMalformed)
	case reply.Answer.Node != l.id:
		return Answer{}, fmt.Errorf("the node at %s is %q, not %q", l.address, reply.Answer.Node, l.id)
	}
	return *reply.Answer, nil
}

// call sends one request and blocks until the reply or the end of ctx. After an error, the next call dials again.
func (l *link) call(ctx context.Context, q Request) (Reply, error) {
	q.From = l.calls.self
	reply, err := l.exchange(ctx, q)
	if err != nil {
		l.close()
		return Reply{}, err
	}
	if reply.Code != "" {
		return Reply{}, remoteError(reply)
	}
	return reply, nil
}

func (l *link) exchange(ctx context.Context, q Request) (reply Reply, err error) {
	if l.conn == nil {
		l.conn, err = l.calls.dial(ctx, l.id, l.address)
		if err != nil {
			l.conn = nil // else l.conn could be an interface that is not nil but holds a nil pointer
			return Reply{}, fmt.Errorf("%w: %w", ErrUnreached, err)
		}
	}
	conn := l.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err = write(conn, q); err == nil {
		err = read(conn, &reply)
	}
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w", outcome.ErrOutcomeUnknown, err)
	}
	return reply, nil
}

func (l *link) close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// remoteError returns the error in another node's reply.
func remoteError(reply Reply) error {
	fate, ok := codes[reply.Code]
	switch {
	case !ok:
		return &distantError{text: reply.Error, kind: outcome.ErrOutcomeUnknown}
	case fate.Error() == reply.Error:
		return fate
	}
	return &distantError{text: reply.Error, kind: fate}
}

// distantError is an error from another node: its text, and the error that errors.Is recognises.
type distantError struct {
	text string
	kind error
}

func (e *distantError) Error() string { return e.text }
func (e *distantError) Unwrap() error { return e.kind }
