package peer

import (
	"fmt"
	"net"
	"time"
)

// processSilence is how long a process must be silent, at multiplier 1, before another process may take over its node
// id. A living process sends probes at least every 1.6 s: a round waits for replies for at most 1 s, and the next round
// begins at most 0.6 s later.
const processSilence = 2 * time.Second

// process is the process that uses a node id, as this node knows it from open streams. The port's mu guards it.
type process struct {
	Hello
	from string // the remote address of its first stream
	// confirmed is set once this node has dialled the member's address and reached this process. Until then, the
	// process may be a copy that called first.
	confirmed bool
	conns     int // its open streams
}

// register records the remote process as the process that uses its node id. If another living process uses the id,
// register refuses the newer process, except if this node has dialled the member's address and reached the newer
// process there: then the earlier process is the copy.
func (p *Port) register(conn *portConn, remote Hello) (Refusal, string) {
	if remote.Standing == StandingEmpty {
		return 0, "" // a node with an empty folder does not act under its id yet
	}
	p.mu.Lock()
	if _, open := p.conns[conn]; !open { // the stream is closed already, so unregister would never remove the process
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
		_ = other.Close()
	}
	return 0, ""
}

// alive reports whether the process has recently sent bytes on a stream that is still open. A stream that the other
// side has ended does not count: the process may have restarted, and its next process must not be refused. The caller
// holds mu.
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

// unregister removes a closed stream from its process, and a process without streams from the port. The caller holds
// mu.
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

// AliveAs describes the living process that uses the node id of a hello. It returns false if there is no such process
// or if the hello came from it.
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
