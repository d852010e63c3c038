package cluster

import (
	"fmt"
	"time"
)

// seatSilence is how long the process that has a node id may send nothing until
// another one may take its place. A process that is alive asks all others twice a
// second how they are.
const seatSilence = 2 * time.Second

// seat is the process that has a node id, as far as this node has met it. Guarded
// by the port's mu.
type seat struct {
	hello
	from string // its address, as seen here
	// confirmed is set once this node has called the member's own address and found
	// this process there. Before that a process that called first may be a copy.
	confirmed bool
	conns     int // open streams with it
}

// sit gives the process at the other end of a stream the seat of its node id, or
// refuses it because another process with that id is alive: of two the later is
// refused. Two nodes that have met them in different orders agree as soon as they
// have called the member's address.
func (p *PeerPort) sit(conn *peerConn, theirs hello) (refusal, string) {
	if theirs.standing == standingEmpty {
		return 0, "" // it has no place in the cluster yet: see readmit
	}
	p.mu.Lock()
	if p.conns == nil {
		p.mu.Unlock()
		return refusedKind, errPeerPortClosed.Error()
	}
	now := p.seats[theirs.node]
	var ended []*peerConn
	if now != nil && !now.sameProcess(&theirs) {
		if (now.confirmed || conn.accepted) && p.alive(now) {
			p.mu.Unlock()
			return refusedIncarnation, describeSeats(&theirs, conn.RemoteAddr().String(), now)
		}
		for other := range p.conns {
			if other.seat == now {
				ended = append(ended, other)
			}
		}
		now = nil
	}
	if now == nil {
		now = &seat{hello: theirs, from: conn.RemoteAddr().String()}
		p.seats[theirs.node] = now
	}
	if _, open := p.conns[conn]; open {
		conn.seat = now
		now.conns++
	}
	now.confirmed = now.confirmed || !conn.accepted
	p.mu.Unlock()
	for _, other := range ended {
		_ = other.Close() // only ends it
	}
	return 0, ""
}

// alive reports whether a process has sent something lately. The caller holds mu.
func (p *PeerPort) alive(s *seat) bool {
	for conn := range p.conns {
		if conn.seat == s && p.age()-time.Duration(conn.heard.Load()) < seatSilence {
			return true
		}
	}
	return false
}

// leave gives a closed stream's place back. The caller holds mu.
func (p *PeerPort) leave(conn *peerConn) {
	s := conn.seat
	if s == nil {
		return
	}
	conn.seat = nil
	if s.conns--; s.conns == 0 && p.seats[s.node] == s {
		delete(p.seats, s.node)
	}
}

// taken describes the living process that has a node id, if it is another one than
// that of the hello.
func (p *PeerPort) taken(theirs hello, from string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.seats[theirs.node]
	if now == nil || now.sameProcess(&theirs) || !p.alive(now) {
		return "", false
	}
	return describeSeats(&theirs, from, now), true
}

// age is how long the port is open, on a clock that never jumps.
func (p *PeerPort) age() time.Duration { return time.Since(p.opened) }

func describeSeats(later *hello, from string, first *seat) string {
	return fmt.Sprintf("node id %q is in use: the process with folder %v at %s (from %s) is alive, so that the one with folder %v at %s (from %s) is refused",
		later.node, first.folder, first.address, first.from, later.folder, later.address, from)
}
