package peer

import (
	"fmt"
	"net"
	"time"
)

// seatSilence is how long the process with a node id may be silent, at multiplier 1, before another process may replace
// it. A living process asks every other node in rounds. A round waits at most 1 s for replies, and the next begins at
// most 0.6 s later, so its longest silence is 1.6 s.
const seatSilence = 2 * time.Second

// seat is the process that uses a node id, as far as this node has had streams with it. The port's mu guards it.
type seat struct {
	Hello
	from string // the address of its end of the first stream
	// confirmed is set once this node has dialled the member's own address and found this process there. Before that,
	// the process may be a copy that called first.
	confirmed bool
	conns     int // open streams with it
}

// sit makes the process at the other end of a stream the process of its node id. If another process with this id is
// alive, one of the two is refused: the process that called first stays, unless this node dials the member's own
// address and finds the other process there.
func (p *Port) sit(conn *portConn, remote Hello) (Refusal, string) {
	if remote.Standing == StandingEmpty {
		return 0, "" // it does not act as its node id yet
	}
	p.mu.Lock()
	if _, open := p.conns[conn]; !open { // a seat for a closed stream would never be freed
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
		_ = other.Close() // the error does not matter
	}
	return 0, ""
}

// alive reports whether the process has sent bytes lately. The caller holds mu.
func (p *Port) alive(s *seat) bool {
	for conn := range p.conns {
		if conn.seat == s && p.age()-time.Duration(conn.heard.Load()) < p.config.Times.Of(seatSilence) {
			return true
		}
	}
	return false
}

// leave removes a closed stream from its seat, and the seat with its last stream. The caller holds mu.
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

// Taken describes the process that uses the node id of a hello. It returns false if there is no living process with
// that id, or if that process has sent the hello.
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
