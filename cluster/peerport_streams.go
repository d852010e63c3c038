package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// Dial opens a stream of that kind to a peer's port: to the member that is known to
// have that address, if there is one, and to nobody else. The address may have a
// mark, see markAddress. It blocks until both sides have exchanged their preambles
// or ctx ends, and sets no deadline on what it returns. A refusal is a
// *refusedError.
func (p *PeerPort) Dial(ctx context.Context, kind StreamKind, address string) (net.Conn, error) {
	target := ""
	if p.identity.known != nil {
		target = p.identity.known(address)
	}
	return p.dialNode(ctx, kind, address, target)
}

// dialNode opens a stream to the node with that id; "" to any.
func (p *PeerPort) dialNode(ctx context.Context, kind StreamKind, marked, target string) (net.Conn, error) {
	address, mark := splitAddress(raft.ServerAddress(marked))
	raw, err := p.network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	conn := &peerConn{Conn: p.secure(raw, address), port: p, kind: kind}
	if err := p.track(conn); err != nil {
		_ = raw.Close()
		return nil, err
	}
	theirs, err := p.greet(ctx, conn, kind, target)
	if err == nil {
		var detail string
		reason := theirs.refusal
		if err = p.refusedBy(conn, theirs, address); err == nil {
			if reason, detail = p.identity.accept(kind, target, mark, &theirs, address); reason == 0 {
				reason, detail = p.sit(conn, theirs)
			}
			if reason != 0 {
				p.refusals.note(reason, detail, conn, kind)
				err = &refusedError{reason: reason, detail: detail, theirs: theirs}
			}
		}
		p.identity.neighbours.called(address, reason, &theirs)
	}
	if err == nil {
		conn.peer = theirs
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// greet sends this node's hello on a dialled stream and reads the other's.
func (p *PeerPort) greet(ctx context.Context, conn *peerConn, kind StreamKind, target string) (hello, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(preambleTimeout)
	}
	_ = conn.SetDeadline(deadline) // a failure shows in the write
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	ours := p.identity.hello(kind, target)
	_, err := conn.Write(ours.encode())
	if err != nil {
		return hello{}, err
	}
	theirs, err := readHello(conn)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return theirs, err
}

// refusedBy returns the error of a stream that the other node has refused.
func (p *PeerPort) refusedBy(conn *peerConn, theirs hello, address string) error {
	switch theirs.refusal {
	case 0:
		return nil
	case refusedVersion:
		theirs.detail = "no common version of the preamble with the node at " + address
	}
	if theirs.refusal != refusedKind {
		p.refusals.noteRemote(theirs.refusal, theirs.detail, conn)
	}
	return &refusedError{reason: theirs.refusal, detail: theirs.detail, remote: true, theirs: theirs}
}

// route reads the preamble of an accepted stream, replies to it, and hands the
// stream to its handler.
func (p *PeerPort) route(conn *peerConn) {
	defer p.running.Done()
	_ = conn.SetDeadline(time.Now().Add(preambleTimeout)) // a failure shows in the read
	theirs, err := readHello(conn)
	if err != nil {
		if errors.Is(err, io.EOF) && !errors.Is(err, errPreamble) {
			p.log.Debug("a connection ended before its preamble", "from", conn.RemoteAddr())
		} else {
			p.refusals.note(refusedMalformed, err.Error(), conn, 0)
		}
		_ = conn.Close()
		return
	}
	handler, reason, detail := p.judgeAccepted(conn, &theirs)
	reply := p.identity.hello(theirs.kind, theirs.node)
	reply.refusal, reply.detail = reason, detail
	_, err = conn.Write(reply.encode())
	if reason != 0 {
		p.refusals.note(reason, detail, conn, theirs.kind)
	} else if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if reason != 0 || err != nil {
		_ = conn.Close()
		return
	}
	handler(conn)
}

// judgeAccepted finds the handler of an accepted stream, or the reason to refuse it.
func (p *PeerPort) judgeAccepted(conn *peerConn, theirs *hello) (handler func(net.Conn), reason refusal, detail string) {
	from := conn.RemoteAddr().String()
	if theirs.refusal == refusedVersion {
		return nil, refusedVersion, "no common version of the preamble"
	}
	if reason, detail = p.identity.receive(theirs, from); reason == 0 {
		reason, detail = p.sit(conn, *theirs)
	} else if reason == refusedCluster && theirs.target == p.identity.node {
		p.identity.neighbours.calledBy(theirs, from)
	}
	if reason != 0 {
		return nil, reason, detail
	}
	conn.peer = *theirs
	if handler = p.claim(conn, theirs.kind); handler == nil {
		return nil, refusedKind, "streams of that kind are not taken now"
	}
	return handler, 0, ""
}

// peerOf returns the hello of the node at the other end of a stream of a port.
func peerOf(conn net.Conn) hello {
	if c, is := conn.(*peerConn); is {
		return c.peer
	}
	return hello{}
}

// refusedFor reports whether an error is a refusal for that reason.
func refusedFor(err error, reason refusal) bool {
	var refused *refusedError
	return errors.As(err, &refused) && refused.reason == reason
}
