package cluster

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// batchCommands bounds what nodes send each other at once.
	batchCommands = 1024
	// entriesInFlight is how many entries may be on their way at once. With two,
	// followers store one while the leader stores the next; more only makes the
	// batches smaller.
	entriesInFlight = 2
	// enqueueTimeout is how long Raft's main loop may take to accept an entry.
	enqueueTimeout = 2 * time.Second
)

// applier is the part of Raft that a proposer needs.
type applier interface {
	Apply(entry []byte, timeout time.Duration) raft.ApplyFuture
}

// proposal is a command on its way into the log. Its result comes from the
// machine, by its request id; a proposer only tells that it was not applied.
type proposal interface {
	command() []byte
	load() load
	// failed tells that the command is certainly not in the log, or, with
	// errOpen, that nobody can tell yet. It must not block.
	failed(err error)
}

// proposer puts commands into the log during one reign: whatever waits goes into
// one entry, within its bounds, in the order that queue makes. Alone, a command leaves at once; under load, what comes while
// entries are in flight shares the next one. Nothing waits on a timer.
//
// One goroutine, run, logs the entries; one for each entry in flight waits for
// its future. All methods are safe for concurrent use.
type proposer struct {
	term  uint64
	clock *clock
	raft  applier
	// refuses returns why a command is not taken now, or nil. It must not block.
	refuses func(command []byte) error
	pulse   *pulse // holds entries up after a suspension of the process
	// refused is told that Raft did not take an entry though the reign goes on.
	refused func()

	slots  chan struct{} // one for each entry in flight
	flying sync.WaitGroup

	mu       sync.Mutex
	queue    queue
	ticks    []chan tickDone // who wait for an entry stamped from now on
	closed   bool
	lastLog  time.Time // when the last entry was made
	wakeable chan struct{}
}

// tickDone tells that an entry is applied, or why it was not.
type tickDone struct {
	index uint64
	err   error
}

func newProposer(term uint64, c *clock, r applier, limit int) *proposer {
	return &proposer{
		term:     term,
		clock:    c,
		raft:     r,
		queue:    queue{places: places{commands: limit, bytes: queueBytes}},
		refuses:  func([]byte) error { return nil },
		refused:  func() {},
		slots:    make(chan struct{}, entriesInFlight),
		lastLog:  time.Now(),
		wakeable: make(chan struct{}, 1),
	}
}

// enqueue takes commands, those of a class in their order, and fails those that it
// refuses for what they are or has no room for. It returns errRefused, and has then
// failed none, once the reign is over.
func (p *proposer) enqueue(proposals []proposal) error {
	refused, err := p.admit(proposals)
	for _, r := range refused {
		r.proposal.failed(r.err)
	}
	return err
}

// refusedProposal is a proposal that is not taken, and why.
type refusedProposal struct {
	proposal proposal
	err      error
}

// admit puts proposals into the queue and returns those that are refused. Behind
// one that has no room, no other of its class is taken: what comes together may be
// a list.
func (p *proposer) admit(proposals []proposal) (refused []refusedProposal, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errRefused
	}
	defer p.wake()
	var full [classes]bool
	for _, q := range proposals {
		in := q.load().class
		if why := p.refuses(q.command()); why != nil {
			refused = append(refused, refusedProposal{q, why})
		} else if full[in] = full[in] || !p.queue.add(q); full[in] {
			refused = append(refused, refusedProposal{q, ErrOverloaded})
		}
	}
	return refused, nil
}

// tick blocks until an entry that was stamped after the call is applied, and
// answers its index. It logs an empty one if no command comes along.
func (p *proposer) tick(ctx context.Context) (index uint64, err error) {
	done := make(chan tickDone, 1)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return 0, errRefused
	}
	p.ticks = append(p.ticks, done)
	p.wake()
	p.mu.Unlock()
	select {
	case d := <-done:
		return d.index, d.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// wake makes run look. The caller holds mu.
func (p *proposer) wake() {
	signal(p.wakeable)
}

// idleFor answers how long ago the last entry was made.
func (p *proposer) idleFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.lastLog)
}

// waiting answers how many commands wait.
func (p *proposer) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.len()
}

// run logs entries until ctx ends, and then refuses what still waits. When it
// returns, this reign makes no further entry.
func (p *proposer) run(ctx context.Context) {
	defer p.close()
	for {
		select {
		case <-p.wakeable:
		case <-ctx.Done():
			return
		}
		for p.logNext(ctx) {
		}
	}
}

// logNext logs one entry, once there is a slot, if there is anything to log.
func (p *proposer) logNext(ctx context.Context) bool {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	// The callers that the last entry answered are about to run and to send their
	// next commands: let them, or the first one would get an entry of its own.
	runtime.Gosched()
	p.pulse.settle(ctx.Done())
	b, ok := p.take()
	if !ok {
		<-p.slots
		return false
	}
	if b.fit(); b.empty() {
		<-p.slots
		return true
	}
	p.flying.Add(1)
	p.clock.leaves()
	future := p.raft.Apply(encodeEntry(p.term, p.clock.stamp(), b.data), enqueueTimeout)
	go p.finish(future, b)
	return true
}

// batch is what shares one entry.
type batch struct {
	proposals []proposal
	data      [][]byte
	ticks     []chan tickDone
}

// take answers the next batch; ok is false when nothing waits.
func (p *proposer) take() (b batch, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue.len() == 0 && len(p.ticks) == 0 {
		return batch{}, false
	}
	b.proposals = p.queue.cut()
	b.data = make([][]byte, len(b.proposals))
	for i, q := range b.proposals {
		b.data[i] = q.command()
	}
	b.ticks, p.ticks = p.ticks, nil
	p.lastLog = time.Now()
	return b, true
}

// finish waits for an entry's future, which Raft may never answer while it shuts
// down: nobody else waits for this goroutine without a limit.
func (p *proposer) finish(future raft.ApplyFuture, b batch) {
	err := future.Error()
	if err == nil {
		err, _ = future.Response().(error)
	}
	p.clock.returns()
	<-p.slots
	done := tickDone{err: err}
	if err == nil {
		done.index = future.Index()
	}
	for _, waiting := range b.ticks {
		waiting <- done
	}
	if err != nil {
		p.fail(b, err)
	}
	p.flying.Done()
}

// fail tells a batch that its entry failed.
func (p *proposer) fail(b batch, err error) {
	verdict := errOpen
	if notApplied(err) {
		verdict = errRefused
		p.refused() // first, so that what comes back is not sent here at once
	}
	for _, q := range b.proposals {
		q.failed(verdict)
	}
}

// surrender takes all commands out of the queue and returns them: they are certainly
// not in the log. What comes later is taken.
func (p *proposer) surrender() []proposal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.empty()
}

// close refuses what waits and whatever still comes.
func (p *proposer) close() {
	p.mu.Lock()
	queue, ticks := p.queue.empty(), p.ticks
	p.ticks, p.closed = nil, true
	p.mu.Unlock()
	for _, q := range queue {
		q.failed(errRefused)
	}
	for _, waiting := range ticks {
		waiting <- tickDone{err: errRefused}
	}
}
