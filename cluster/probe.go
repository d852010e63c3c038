package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// probeIdleTimeout is how long a probe stream may stay without a question.
	probeIdleTimeout = 30 * time.Second
	// probeWriteTimeout bounds the writing of one reply.
	probeWriteTimeout = 5 * time.Second
	// probeServeTimeout bounds the work on one request: a change of membership
	// waits for a majority, and for the new member.
	probeServeTimeout = 10 * time.Second
	// probeCallTimeout bounds the waiting for that, on the other side.
	probeCallTimeout = probeServeTimeout + 2*time.Second
	// probeAskTimeout bounds one question that is answered from memory.
	probeAskTimeout = time.Second
)

// callErrors are the errors that keep their meaning on the way from one node to
// another.
var callErrors = map[string]error{
	"not-leader":    errNotEstablished,
	"no-leader":     ErrNoLeader,
	"draining":      ErrDraining,
	"not-member":    errNotMember,
	"catching-up":   ErrCatchingUp,
	"last-voter":    ErrLastVoter,
	"no-target":     ErrNoTarget,
	"invalid":       ErrMemberInvalid,
	"unknown-call":  errUnknownCall,
	"level-unknown": ErrLevelUnknown,
	"changed":       errConfigurationChanged,
	"alive":         errMemberAlive,
}

// errUnreached says that a request was not sent at all.
var errUnreached = errors.New("the node could not be reached")

// errUnknownCall is the answer to a kind of request that this program doesn't
// know, or can't serve yet.
var errUnknownCall = errors.New("a request that this node can't serve")

// peerCalls asks and answers on the peer port's probe streams: what one node has
// to tell another beside Raft's messages and forwarded commands. It works from
// the moment the port listens, with or without Raft. Safe for concurrent use.
type peerCalls struct {
	port *PeerPort
	self string
	log  hclog.Logger
	// answer describes this node to one that asks.
	answer func(q probeRequest) probeAnswer
	// latest returns the last state hash of this node. nil: there is none.
	latest func() *stateHash
	// serve does anything but probeAsk. Its error goes to the asking node. nil: nothing
	// is served but questions.
	serve func(ctx context.Context, q probeRequest) (probeReply, error)
	// stopping ends what is being served. nil: nothing does.
	stopping context.Context
	times    stretch
}

// state returns the last state hash of this node, or nil.
func (c *peerCalls) state() *stateHash {
	if c.latest == nil {
		return nil
	}
	return c.latest()
}

// open makes the port answer.
func (c *peerCalls) open() { c.port.Handle(StreamProbe, c.handle) }

// handle answers one request after another.
func (c *peerCalls) handle(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		_ = conn.SetDeadline(time.Now().Add(probeIdleTimeout)) // a failure shows in the read
		var q probeRequest
		err := readProbe(conn, &q)
		if err == nil {
			q.by, q.origin = peerOf(conn), conn.RemoteAddr().String()
			reply := c.reply(q)
			_ = conn.SetDeadline(time.Now().Add(probeWriteTimeout))
			err = writeProbe(conn, reply)
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, context.DeadlineExceeded) {
				c.log.Debug("a probe stream ends", "from", conn.RemoteAddr(), "error", err)
			}
			return
		}
	}
}

// reply does what a request asks for.
func (c *peerCalls) reply(q probeRequest) probeReply {
	if q.Kind == probeAsk {
		answer := c.answer(q)
		return probeReply{Answer: &answer}
	}
	parent := c.stopping
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, probeServeTimeout)
	defer cancel()
	reply, err := probeReply{}, errUnknownCall
	if c.serve != nil {
		reply, err = c.serve(ctx, q)
	}
	if err == nil {
		return reply
	}
	reply = probeReply{Code: "failed", Error: err.Error()}
	for code, known := range callErrors {
		if errors.Is(err, known) {
			reply.Code = code
		}
	}
	return reply
}

// call sends one request on a connection of its own and blocks for the reply, at
// most until ctx ends.
func (c *peerCalls) call(ctx context.Context, address string, q probeRequest) (probeReply, error) {
	link := probeLink{calls: c, address: address}
	defer link.close()
	return link.call(ctx, q)
}

// ask asks the node at an address how it is, within a second.
func (c *peerCalls) ask(ctx context.Context, id, address string) (probeAnswer, error) {
	link := probeLink{calls: c, id: id, address: address}
	defer link.close()
	return link.ask(ctx, id)
}

// probeLink is a probe stream that stays open between requests. One goroutine may
// use it at a time.
type probeLink struct {
	calls   *peerCalls
	id      string // of the node that is meant; "": the member known at that address
	address string
	conn    net.Conn // nil: to be dialled
}

// ask asks how the node is, within a second. It fails if another node than id
// answers: an address in a list is wrong then.
func (l *probeLink) ask(ctx context.Context, id string) (probeAnswer, error) {
	return l.askAt(ctx, id, l.calls.state())
}

// askAt is ask, and has the node compare a state hash of this one.
func (l *probeLink) askAt(ctx context.Context, id string, state *stateHash) (probeAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, l.calls.times.of(probeAskTimeout))
	defer cancel()
	reply, err := l.call(ctx, probeRequest{Kind: probeAsk, State: state})
	switch {
	case err != nil:
		return probeAnswer{}, err
	case reply.Answer == nil:
		return probeAnswer{}, fmt.Errorf("no answer in the reply: %w", errProbeMalformed)
	case reply.Answer.Node != id:
		return probeAnswer{}, fmt.Errorf("at %s answers node %q, not %q", l.address, reply.Answer.Node, id)
	}
	return *reply.Answer, nil
}

// call sends one request and blocks for its reply, at most until ctx ends. After
// an error the next call dials anew.
func (l *probeLink) call(ctx context.Context, q probeRequest) (probeReply, error) {
	q.From = l.calls.self
	reply, err := l.exchange(ctx, q)
	if err != nil {
		l.close()
		return probeReply{}, err
	}
	if reply.Code != "" {
		return probeReply{}, remoteError(reply)
	}
	return reply, nil
}

func (l *probeLink) exchange(ctx context.Context, q probeRequest) (reply probeReply, err error) {
	if l.conn == nil {
		if l.id == "" {
			l.conn, err = l.calls.port.Dial(ctx, StreamProbe, l.address)
		} else {
			l.conn, err = l.calls.port.dialNode(ctx, StreamProbe, l.address, l.id)
		}
		if err != nil {
			return probeReply{}, fmt.Errorf("%w: %w", errUnreached, err)
		}
	}
	conn := l.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err := writeProbe(conn, q); err != nil {
		return probeReply{}, err
	}
	if err := readProbe(conn, &reply); err != nil {
		return probeReply{}, err
	}
	return reply, nil
}

func (l *probeLink) close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// remoteError is an error as another node told it.
func remoteError(reply probeReply) error {
	if known, ok := callErrors[reply.Code]; ok {
		if known.Error() == reply.Error {
			return known
		}
		return &toldError{text: reply.Error, kind: known}
	}
	return &toldError{text: reply.Error, kind: errRemote}
}

// errRemote is an error of another node that has no meaning of its own here.
var errRemote = errors.New("the other node failed")

// toldError has another node's text and a meaning that errors.Is finds.
type toldError struct {
	text string
	kind error
}

func (e *toldError) Error() string { return e.text }
func (e *toldError) Unwrap() error { return e.kind }
