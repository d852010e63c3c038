package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

const (
	// renewalDelay is how long a renewal may wait for others to share its entry:
	// nothing is as frequent, and none is as patient.
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
	gathered *renewalBatch // nil if none waits
	running  sync.WaitGroup
}

// renewalBatch is one command of several callers. done guards the outcome.
type renewalBatch struct {
	renewals []fsm.Renewal
	full     chan struct{} // closed when it shall go
	done     chan struct{}
	reply    Reply
	err      error
}

// renew blocks until the command that the renewals went into is applied, or ctx
// ends. The reply has only the caller's own results.
func (r *renewals) renew(ctx context.Context, mine []fsm.Renewal) (Reply, error) {
	b, first := r.join(mine)
	select {
	case <-b.done:
	case <-ctx.Done():
		return Reply{}, context.Cause(ctx)
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

// join adds renewals to the batch that gathers, and answers where they stand.
func (r *renewals) join(mine []fsm.Renewal) (b *renewalBatch, first int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gathered == nil {
		fresh := &renewalBatch{full: make(chan struct{}), done: make(chan struct{})}
		r.gathered = fresh
		r.running.Go(func() { r.run(fresh) })
	}
	b = r.gathered
	first = len(b.renewals)
	b.renewals = append(b.renewals, mine...)
	if len(b.renewals) >= renewalsTogether {
		r.gathered = nil
		close(b.full)
	}
	return b, first
}

// run sends a batch when it is full or its time has come.
func (r *renewals) run(b *renewalBatch) {
	timer := time.NewTimer(renewalDelay)
	defer timer.Stop()
	select {
	case <-b.full:
	case <-timer.C:
		r.mu.Lock()
		if r.gathered == b {
			r.gathered = nil
		}
		r.mu.Unlock()
	}
	b.reply, b.err = r.submit(fsm.Renew{Renewals: b.renewals})
	close(b.done)
}
