package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// renewalDelay is how long a renewal may wait for others to share its entry: no
	// other command is as frequent, nor as patient.
	renewalDelay = 5 * time.Millisecond
	// renewalsTogether is how many make a command at once, without further delay.
	// A caller's own count is at most that, so a command stays below the 4,096
	// that the machine takes.
	renewalsTogether = 1024
)

// renewals gathers renewals of many callers into one command. Safe for
// concurrent use.
type renewals struct {
	// submit proposes a command and blocks for its reply.
	submit func(fsm.Renew) (Reply, error)

	mu       sync.Mutex
	gathered *renewalBatch // nil if no renewal waits
}

// renewalBatch is one command of several callers. done guards the outcome.
type renewalBatch struct {
	renewals []fsm.Renewal
	done     chan struct{}
	reply    Reply
	err      error
}

// renew blocks until the command that the renewals went into is applied, or ctx
// ends. The reply has only the caller's own results.
func (r *renewals) renew(ctx context.Context, mine []fsm.Renewal) (Reply, error) {
	b, first := r.join(mine)
	if err := wake.Until(ctx, b.done); err != nil {
		return Reply{}, err
	}
	if b.err != nil {
		return Reply{}, b.err
	}
	reply := b.reply
	if last := first + len(mine); last <= len(reply.Each) {
		reply.Each = reply.Each[first:last:last]
	}
	return reply, nil
}

// join adds renewals to the batch that gathers, and returns the first one's place in it.
func (r *renewals) join(mine []fsm.Renewal) (b *renewalBatch, first int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gathered == nil {
		fresh := &renewalBatch{done: make(chan struct{})}
		r.gathered = fresh
		time.AfterFunc(renewalDelay, func() { r.due(fresh) })
	}
	b = r.gathered
	first = len(b.renewals)
	b.renewals = append(b.renewals, mine...)
	if len(b.renewals) >= renewalsTogether {
		r.gathered = nil
		go r.send(b)
	}
	return b, first
}

// due sends a batch whose time has come, unless it was full before.
func (r *renewals) due(b *renewalBatch) {
	r.mu.Lock()
	waits := r.gathered == b
	if waits {
		r.gathered = nil
	}
	r.mu.Unlock()
	if waits {
		r.send(b)
	}
}

func (r *renewals) send(b *renewalBatch) {
	b.reply, b.err = r.submit(fsm.Renew{Renewals: b.renewals})
	close(b.done)
}
