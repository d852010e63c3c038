package calls

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// renewalDelay is how long a renewal may wait for others to share its entry. No other command is so frequent, and
	// no other caller can wait so easily.
	renewalDelay = 5 * time.Millisecond
	// renewalsTogether is the number of renewals that are sent at once, without further delay. A caller has at most
	// this many, so a command stays below the 4,096 that the machine accepts.
	renewalsTogether = 1024
)

// renewals gathers the renewals of many callers of one owner into one command, because a command acts for one owner.
// Safe for concurrent use.
type renewals struct {
	// submit proposes a command for an owner and blocks for its reply.
	submit func(owner string, renew fsm.Renew) (Reply, error)

	mu       sync.Mutex
	gathered map[string]*renewalBatch // by owner; the batches that wait
}

func newRenewals(submit func(owner string, renew fsm.Renew) (Reply, error)) *renewals {
	return &renewals{submit: submit, gathered: map[string]*renewalBatch{}}
}

// renewalBatch is one command of several callers. done guards the outcome.
type renewalBatch struct {
	owner    string
	renewals []fsm.Renewal
	done     chan struct{}
	reply    Reply
	err      error
}

// renew blocks until the command with these renewals is applied, or ctx ends. The reply has only the results of this
// caller.
func (r *renewals) renew(ctx context.Context, owner string, mine []fsm.Renewal) (*Reply, error) {
	b, first := r.join(owner, mine)
	if err := wake.Until(ctx, b.done); err != nil {
		return &Reply{}, err
	}
	if b.err != nil {
		return &Reply{}, b.err
	}
	reply := partOf(&b.reply, first, len(mine))
	return &reply, nil
}

// partOf returns a copy of the reply with count of its results, from first on.
func partOf(all *Reply, first, count int) Reply {
	part := *all
	if last := first + count; last <= len(part.Each) {
		part.Each = part.Each[first:last:last]
	}
	return part
}

// join adds renewals to the waiting batch of an owner, and returns the index of the first of them.
func (r *renewals) join(owner string, mine []fsm.Renewal) (b *renewalBatch, first int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gathered[owner] == nil {
		fresh := &renewalBatch{owner: owner, done: make(chan struct{})}
		r.gathered[owner] = fresh
		time.AfterFunc(renewalDelay, func() { r.sendWaiting(fresh) })
	}
	b = r.gathered[owner]
	first = len(b.renewals)
	b.renewals = append(b.renewals, mine...)
	if len(b.renewals) >= renewalsTogether {
		delete(r.gathered, owner)
		go r.send(b)
	}
	return b, first
}

// sendWaiting sends a batch after renewalDelay, unless it was full earlier.
func (r *renewals) sendWaiting(b *renewalBatch) {
	r.mu.Lock()
	waits := r.gathered[b.owner] == b
	if waits {
		delete(r.gathered, b.owner)
	}
	r.mu.Unlock()
	if waits {
		r.send(b)
	}
}

// areRenewals reports whether a list consists of renewals of one owner that may share their command with others. Such a
// list has the priority of renewals, not the low priority of lists: a client with many sessions must not lose them
// because it renews them together.
func areRenewals(list []Call) bool {
	for i := range list {
		if len(list[i].renewals()) != 1 || list[i].Owner != list[0].Owner {
			return false
		}
	}
	return len(list) > 0
}

// renewMany does the work of DoMany for a list of renewals. Renewals in one command share its error.
func (e *Executor) renewMany(ctx context.Context, list []Call, replies []Reply, errs []error) {
	var failed error
	for first := 0; first < len(list); first += renewalsTogether {
		last := min(len(list), first+renewalsTogether)
		if failed != nil {
			failed = outcome.ErrNotTried
		}
		var mine []fsm.Renewal
		for i := first; i < last; i++ {
			mine = append(mine, list[i].renewals()...)
		}
		all := &Reply{}
		if failed == nil {
			all, failed = e.renewals.renew(ctx, list[0].Owner, mine)
		}
		for i := first; i < last; i++ {
			replies[i], errs[i] = partOf(all, i-first, 1), failed
		}
	}
}

func (r *renewals) send(b *renewalBatch) {
	b.reply, b.err = r.submit(b.owner, fsm.Renew{Renewals: b.renewals})
	close(b.done)
}
