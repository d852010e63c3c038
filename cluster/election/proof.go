package election

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"
)

const (
	// firstDoubt is how long after the first proof against a process a second proof is not believed.
	firstDoubt = 30 * time.Second
	// proofLasts is how long a proof counts for the election that follows it, in the same term.
	proofLasts = time.Second
	// dialTimeout bounds one dial with its handshake. A refused connection takes far less.
	dialTimeout = 200 * time.Millisecond
)

// dialPauses are the pauses before the dials. The kernel closes the sockets of a process one after the other, so the
// listener may stay open for a moment after a stream has ended.
var dialPauses = []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond}

// Process is one process of a member; each restart has another incarnation. The zero value is no process.
type Process struct {
	Node        string `json:"node"`
	Incarnation uint64 `json:"incarnation"`
}

// Leader is a process that leads, or led, in a term. The zero value is no leader.
type Leader struct {
	Process
	Term uint64 `json:"term"`
}

// proofs finds out whether processes have ended, and remembers the last dead process
// of each member. Safe for concurrent use.
type proofs struct {
	identify func(ctx context.Context, node string) (incarnation uint64, err error)

	mu   sync.Mutex
	dead map[string]death // by node id
}

// death is the record of a process that was found dead.
type death struct {
	incarnation uint64
	term        uint64 // the term in which it led
	at          time.Time
	doubt       time.Duration // how long after at no further proof is believed
}

// isDead reports whether the process of a leader has ended. It blocks for 0.9 s at most.
func (p *proofs) isDead(ctx context.Context, leader Leader) bool {
	if known, doubted := p.recall(leader); known || doubted {
		return known
	}
	for _, pause := range dialPauses {
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return false
			}
		}
		if p.gone(ctx, leader.Process) {
			p.remember(leader)
			return true
		}
	}
	return false
}

// gone reports whether a process has ended: its machine refuses a connection to its peer port, or the member's next
// process accepts the connection.
func (p *proofs) gone(ctx context.Context, process Process) bool {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	incarnation, err := p.identify(ctx, process.Node)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	return incarnation != process.Incarnation
}

// recall reports whether the leader was found dead just now, and whether another proof against it
// would not be believed.
func (p *proofs) recall(leader Leader) (known, doubted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, found := p.dead[leader.Node]
	if !found || last.incarnation != leader.Incarnation {
		return false, false
	}
	age := time.Since(last.at)
	return age < proofLasts && leader.Term == last.term, age < last.doubt
}

// remember records that a leader was found dead.
func (p *proofs) remember(leader Leader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := death{incarnation: leader.Incarnation, term: leader.Term, at: time.Now(), doubt: firstDoubt}
	if last := p.dead[leader.Node]; last.incarnation == leader.Incarnation && last.doubt > 0 {
		if time.Since(last.at) < proofLasts {
			return // another check found it at the same time
		}
		next.doubt = 2 * last.doubt
	}
	p.dead[leader.Node] = next
}
