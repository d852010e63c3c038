package cluster

import (
	"context"
	"sync"
	"time"
)

// flightPatience is how long a reign that ends waits for Raft's answers about its
// last entries, so that few goroutines outlive it.
const flightPatience = time.Second

// reign is one node's leadership in one term, once it is established: its
// proposer, its ticker and its courier run.
type reign struct {
	term     uint64
	clock    *clock
	proposer *proposer
	ticker   *ticker
	courier  *courier

	over    context.CancelCauseFunc
	ended   <-chan struct{} // closed when it is to end
	running sync.WaitGroup  // proposer, ticker and courier
}

// startReign lets a proposer take commands.
func startReign(p *proposer, m *machine, c *courier) *reign {
	ctx, over := context.WithCancelCause(context.Background())
	r := &reign{
		term: p.term, clock: p.clock, proposer: p, ticker: newTicker(m, p), courier: c,
		over: over, ended: ctx.Done(),
	}
	r.running.Go(func() { p.run(ctx) })
	r.running.Go(func() { r.ticker.run(ctx) })
	r.running.Go(func() { r.courier.run(ctx) })
	return r
}

// stop ends the reign: when it returns, no further entry is made.
func (r *reign) stop() {
	r.over(errReignOver)
	r.running.Wait()
}

// isOver reports whether the reign is to end, so that its clock does not count.
func (r *reign) isOver() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// landed waits until Raft has answered for all entries, but not for long.
func (r *reign) landed() {
	landed := make(chan struct{})
	go func() {
		r.proposer.flying.Wait()
		close(landed)
	}()
	timer := time.NewTimer(flightPatience)
	defer timer.Stop()
	select {
	case <-landed:
	case <-timer.C:
	}
}
