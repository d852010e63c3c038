package peer

import (
	"fmt"
	"net"
	"time"
)

// processSilence is how long the process with a node id may be silent, at multiplier 1, before another process may
// replace it. A living process asks every other node in rounds. A round waits at most 1 s for replies, and the next
// begins at most 0.6 s later, so its longest silence is 1.6 s.
const processSilence = 2 * time.Second

// process is a process that uses a node id, as far as this node has had streams with it. The port's mu guards it.
type process struct {
	Hello
	from string // the address of its end of the first stream
	// confirmed is set once this node has dialled the member's own address and found this process there. Before that,
	// the process may be a copy that called first.
	confirmed bool
	conns     int // open streams with it
}

// register records the process at the other end of a stream as the process of its node id. If another process with this
// id is alive, it refuses one of the two: the process that called first stays, unless this node has dialled the
// member's own address and found the other process there.
func (p *Port) register(conn *portConn, remote Hello) (Refusal, string) {
	if remote.Standing == StandingEmpty {
		return 0, "" // it does not act as its node id yet
	}
	p.mu.Lock()
	if _, open := p.conns[conn]; !open { // a process without an open stream would never be removed
		p.mu.Unlock()
		return RefusedKind, net.ErrClosed.Error()
	}
	current := p.processes[remote.Node]
	var former []*portConn
	if current != nil && !current.SameProcess(&remote) {
		if (current.confirmed || conn.accepted) && p.alive(current) {
			p.mu.Unlock()
			return RefusedIncarnation, describeProcesses(&remote, conn.RemoteAddr().String(), current)
		}
		for other := range p.conns {
			if other.process == current {
				former = append(former, other)
			}
		}
		current = nil
	}
	if current == nil {
		current = &process{Hello: remote, from: conn.RemoteAddr().String()}
		p.processes[remote.Node] = current
	}
	conn.process = current
	current.conns++
	current.confirmed = current.confirmed || !conn.accepted
	p.mu.Unlock()
	for _, other := range former {
		_ = other.Close() // the error does not matter
	}
	return 0, ""
}

// alive reports whether the process has lately sent bytes on a stream that it has not ended. The process may have ended a
// moment ago and been started again: its idle streams, which have no reader, must not keep the next process out. The
// caller holds mu.
func (p *Port) alive(proc *process) bool {
	for conn := range p.conns {
		if conn.process != proc || p.age()-time.Duration(conn.readAt.Load()) >= p.config.Times.Of(processSilence) {
			continue
		}
		if raw, ok := conn.raw.(Ender); !ok || !raw.Ended() {
			return true
		}
	}
	return false
}

// unregister removes a closed stream from its process, and the process with its last stream. The caller holds mu.
func (p *Port) unregister(conn *portConn) {
	proc := conn.process
	if proc == nil {
		return
	}
	conn.process = nil
	if proc.conns--; proc.conns == 0 && p.processes[proc.Node] == proc {
		delete(p.processes, proc.Node)
	}
}

// AliveAs describes the process that uses the node id of a hello. It returns false if there is no living process with
// that id, or if that process has sent the hello.
func (p *Port) AliveAs(remote Hello, from string) (string, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	current := p.processes[remote.Node]
	if current == nil || current.SameProcess(&remote) || !p.alive(current) {
		return "", false
	}
	return describeProcesses(&remote, from, current), true
}

func describeProcesses(later *Hello, from string, first *process) string {
	return fmt.Sprintf("node id %q is in use: the process with folder %v at %s (from %s) is alive, so that the one with folder %v at %s (from %s) is refused",
		later.Node, first.Folder, first.Address, first.from, later.Folder, later.Address, from)
}
