package peer

import (
	"fmt"
	"net"
	"time"
)

// seatSilence is how long the process that has a node id may be silent, at multiplier 1,
// until another one may take its place. A living process asks every other node in
// rounds. A round waits at most 1 s for replies; the next begins at most 0.6 s later. So its
// longest silence is 1.6 s.
const seatSilence = 2 * time.Second

// seat is the process that has a node id, as far as this node has met it. The port's
// mu guards it.
type seat struct {
	Hello
	from string // its address, as seen here
	// confirmed is set once this node has called the member's own address and found
	// this process there. Before that a process that called first may be a copy.
	confirmed bool
	conns     int // open streams with it
}

// sit gives the process at the other end of a stream the seat of its node id. If another
// process with this id is alive, the later of the two is refused. Which one is later is
// settled by calling the member's own address.
func (p *Port) sit(conn *portConn, remote Hello) (Refusal, string) {
	if remote.Standing == StandingEmpty {
		return 0, "" // it has no place in the cluster yet
	}
	p.mu.Lock()
	if _, open := p.conns[conn]; !open { // a seat for it would never be given back
		p.mu.Unlock()
		return RefusedKind, net.ErrClosed.Error()
	}
	now := p.seats[remote.Node]
	var former []*portConn
	if now != nil && !now.SameProcess(&remote) {
		if (now.confirmed || conn.accepted) && p.alive(now) {
			p.mu.Unlock()
			return RefusedIncarnation, describeSeats(&remote, conn.RemoteAddr().String(), now)
		}
		for other := range p.conns {
			if other.seat == now {
				former = append(former, other)
			}
		}
		now = nil
	}
	if now == nil {
		now = &seat{Hello: remote, from: conn.RemoteAddr().String()}
		p.seats[remote.Node] = now
	}
	conn.seat = now
	now.conns++
	now.confirmed = now.confirmed || !conn.accepted
	p.mu.Unlock()
	for _, other := range former {
		_ = other.Close() // only ends it
	}
	return 0, ""
}

// alive reports whether bytes of a process came lately on a stream that the process has not ended. The process may have
// ended a moment ago and been started again: its idle streams, which have no reader, must not keep the next process out.
// The caller holds mu.
func (p *Port) alive(s *seat) bool {
	for conn := range p.conns {
		if conn.seat != s || p.age()-time.Duration(conn.heard.Load()) >= p.config.Times.Of(seatSilence) {
			continue
		}
		if raw, ok := conn.raw.(Ender); !ok || !raw.Ended() {
			return true
		}
	}
	return false
}

// leave gives a closed stream's place back. The caller holds mu.
func (p *Port) leave(conn *portConn) {
	s := conn.seat
	if s == nil {
		return
	}
	conn.seat = nil
	if s.conns--; s.conns == 0 && p.seats[s.Node] == s {
		delete(p.seats, s.Node)
	}
}

// Taken describes the process that has the node id of a hello, if it is alive and not
// the one that sent the hello.
func (p *Port) Taken(remote Hello, from string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.seats[remote.Node]
	if now == nil || now.SameProcess(&remote) || !p.alive(now) {
		return "", false
	}
	return describeSeats(&remote, from, now), true
}

func describeSeats(later *Hello, from string, first *seat) string {
	return fmt.Sprintf("node id %q is in use: the process with folder %v at %s (from %s) is alive, so that the one with folder %v at %s (from %s) is refused",
		later.Node, first.Folder, first.Address, first.from, later.Folder, later.Address, from)
}
