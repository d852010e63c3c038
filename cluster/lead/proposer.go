package lead

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// entriesInFlight bounds the entries that are proposed and not yet applied. The proposer logs a second entry beside
	// the first only if the waiting commands fill it, or the first takes longer than flightPatience, see awaitFlight.
	entriesInFlight = 2
	flightPatience  = 10 * time.Millisecond
	// queuePatience is how long an acquire that joins a queue waits for another command once no entry is in flight. At
	// most patientCommands such commands wait, see gather.
	queuePatience   = 2 * time.Millisecond
	patientCommands = 16
	// enqueueTimeout is how long Raft's main loop may take to accept an entry.
	enqueueTimeout = 2 * time.Second
)

// Admission decides which commands a leader accepts. No method blocks; all are safe for concurrent use.
type Admission interface {
	// Refuses returns why the leader must not accept a command now, or nil.
	Refuses(command []byte) error
	// RaftRefused is called when Raft has refused an entry although the term continues.
	RaftRefused(term uint64)
}

// Proposal is a command on its way into the log. The machine gives its result, by its request id; a term reports only
// that it was not applied, or that its outcome is unknown. No method blocks. In forward, localCommand and
// forwardedCommand implement Proposal.
type Proposal interface {
	// Command returns the command as fsm.Envelope.Encode made it.
	Command() []byte
	Load() Load
	// WhyWithdrawn returns why the command must no longer be logged, or Applied if it may be logged.
	WhyWithdrawn() outcome.Verdict
	// Failed reports that the command is certainly not applied, or that its outcome is unknown. The verdict is never
	// Applied.
	Failed(v outcome.Verdict)
}

// Tracer learns which commands with a trace context a leader has committed. tracing.Tracing of httpapi implements it.
// Safe for concurrent use.
type Tracer interface {
	// Committed reports that an entry with a command of this trace context (see fsm.Envelope) left at a moment and is
	// now committed and applied here. It must not block. It is called once for neighbouring commands with the same
	// context.
	Committed(trace string, left time.Time, term, index uint64)
}

// proposer puts commands into the log during one term. It puts all commands that wait into one entry, within the bounds
// of an entry, in the order that queue makes. If no entry is in flight, a command is logged at once. Commands that come
// while an entry is in flight share the next entry: see awaitFlight. An acquire that joins a queue is delayed briefly,
// to share the entry of a release: see gather.
//
// One goroutine, run, logs the entries; each entry in flight has a goroutine that waits for its future. All methods are
// safe for concurrent use.
type proposer struct {
	term      uint64
	clock     *clock
	raft      Raft
	admission Admission
	joins     func(command []byte) bool // replica.Replica.JoinsQueue
	pulse     *Pulse                    // delays entries after the process was suspended
	tracer    Tracer                    // may be nil

	slots         chan struct{} // one for each entry in flight, and one for the next entry
	inFlight      sync.WaitGroup
	news          wake.Signal // run must check its conditions again
	flightChanged wake.Signal // an entry was applied, or the waiting commands fill an entry, see awaitFlight

	mu      sync.Mutex
	queue   queue
	ticks   []chan tickDone // callers that wait for an entry with a later stamp
	closed  bool
	lastLog time.Time // when the last entry was made
}

// tickDone is the index of an applied entry, or the reason why it was not applied.
type tickDone struct {
	index uint64
	err   error
}

func newProposer(term uint64, c *clock, r Raft, limit int, a Admission, joins func(command []byte) bool, p *Pulse, t Tracer) *proposer {
	return &proposer{
		term:          term,
		clock:         c,
		raft:          r,
		admission:     a,
		joins:         joins,
		pulse:         p,
		tracer:        t,
		slots:         make(chan struct{}, entriesInFlight),
		news:          wake.NewSignal(),
		flightChanged: wake.NewSignal(),
		queue:         queue{places: NewPlaces(limit)},
		lastLog:       time.Now(),
	}
}

// Propose adds commands to the queue, where commands of one class keep their order. It fails the commands that the
// admission refuses, and those without room. Once the term is over, it returns false and has failed no command.
func (p *proposer) Propose(proposals []Proposal) (taken bool) {
	refused, taken := p.admit(proposals)
	for _, r := range refused {
		r.proposal.Failed(outcome.Failed.Because(r.err))
	}
	return taken
}

// refusedProposal is a refused proposal, with the reason.
type refusedProposal struct {
	proposal Proposal
	err      error
}

// admit adds proposals to the queue and returns the refused proposals. Once one proposal has no room, it refuses the
// rest of its class as well: they may be a list, which must not have a gap.
func (p *proposer) admit(proposals []Proposal) (refused []refusedProposal, taken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false
	}
	defer p.news.Set()
	var full [classes]bool
	for _, q := range proposals {
		in := q.Load().Class
		if why := p.admission.Refuses(q.Command()); why != nil {
			refused = append(refused, refusedProposal{q, why})
		} else if full[in] = full[in] || !p.queue.add(q); full[in] {
			refused = append(refused, refusedProposal{q, outcome.ErrOverloaded})
		}
	}
	if p.queue.fills() {
		p.flightChanged.Set()
	}
	return refused, true
}

// ProposeTick blocks until an entry that was stamped after the call is applied, and returns its index. The entry is
// empty if no command waits.
func (p *proposer) ProposeTick(ctx context.Context) (index uint64, err error) {
	done := make(chan tickDone, 1)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return 0, raftlib.ErrTermOver
	}
	p.ticks = append(p.ticks, done)
	p.news.Set()
	p.mu.Unlock()
	select {
	case d := <-done:
		return d.index, d.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// IdleFor returns how long ago the last entry was made.
func (p *proposer) IdleFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.lastLog)
}

// Waiting returns how many commands wait for the log.
func (p *proposer) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.len()
}

// run logs entries until ctx ends, and then refuses the commands that still wait. After it returns, this term makes no
// further entry.
func (p *proposer) run(ctx context.Context) {
	defer p.close()
	for wake.Until(ctx, p.news) == nil {
		for p.logNext(ctx) {
		}
	}
}

// logNext waits for a slot and logs one entry, if there is a command or a tick for it.
func (p *proposer) logNext(ctx context.Context) bool {
	if p.idle() {
		return false // the next command must wait for the entry in flight too
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if !p.awaitFlight(ctx) {
		<-p.slots
		return false
	}
	// The callers of the last entry's commands are about to send their next commands. We let these goroutines run
	// first, so that the first of these commands does not leave alone, in a separate entry.
	runtime.Gosched()
	p.pulse.WaitResumed(ctx.Done())
	if !p.gather(ctx) {
		<-p.slots
		return false
	}
	b := p.nextBatch()
	if b.dropStale(); b.empty() {
		<-p.slots
		return true
	}
	p.log(b)
	return true
}

// log logs a batch as one entry of Raft.
func (p *proposer) log(b batch) {
	p.inFlight.Add(1)
	b.proposedAt = time.Now()
	p.mu.Lock()
	p.lastLog = b.proposedAt
	p.mu.Unlock()
	p.clock.entryProposed()
	future := p.raft.Apply(replica.EncodeTermEntry(p.term, p.clock.stamp(), b.commands()), enqueueTimeout)
	go p.finish(future, b)
}

// idle reports whether no command and no tick waits.
func (p *proposer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.len() == 0 && len(p.ticks) == 0
}

// awaitFlight waits for the entry in flight, so that commands that come until then share the next entry. It reports
// whether the term continues. It returns early in two cases: flightPatience after that entry was made, or when the
// waiting commands fill an entry. Otherwise a slow link or large entries would limit the log to one entry for each
// round trip.
func (p *proposer) awaitFlight(ctx context.Context) bool {
	for {
		rest := p.restOfFlight()
		if rest <= 0 {
			return true
		}
		select {
		case <-p.flightChanged:
		case <-time.After(rest):
		case <-ctx.Done():
			return false
		}
	}
}

// restOfFlight returns how much longer the waiting commands wait for the entry in flight.
func (p *proposer) restOfFlight() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.slots) == 1 || p.queue.fills() { // 1: no entry is in flight, the slot is for the next entry
		return 0
	}
	return time.Until(p.lastLog.Add(flightPatience))
}

// gather delays the next entry by up to queuePatience while at most patientCommands commands wait, and all of them are
// acquires that join queues. For example, when clients pass a lease around, the last holder asks again just as the new
// holder releases. If the acquire had a separate entry, the release would have to wait for another commit. gather
// returns false if the term ends.
func (p *proposer) gather(ctx context.Context) bool {
	if !p.patient() {
		return true
	}
	timer := time.NewTimer(queuePatience)
	defer timer.Stop()
	for {
		select {
		case <-p.news:
			runtime.Gosched()
			if !p.patient() {
				return true
			}
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// patient reports whether a few commands wait for the log, and all of them join queues.
func (p *proposer) patient() bool {
	p.mu.Lock()
	waiting := p.queue.lines[ClassSingle].waiting
	few := len(waiting) > 0 && len(waiting) <= patientCommands && len(waiting) == p.queue.len() && len(p.ticks) == 0
	if few {
		waiting = slices.Clone(waiting)
	}
	p.mu.Unlock()
	return few && !slices.ContainsFunc(waiting, func(q Proposal) bool { return !p.joins(q.Command()) })
}

// nextBatch returns the next batch.
func (p *proposer) nextBatch() (b batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.proposals = p.queue.cut()
	b.ticks, p.ticks = p.ticks, nil
	return b
}

// finish waits for the future of an entry. While Raft shuts down, it may never complete the future, so every wait for
// this goroutine has a limit.
func (p *proposer) finish(future raft.ApplyFuture, b batch) {
	err := future.Error()
	if err == nil {
		err, _ = future.Response().(error)
	}
	p.clock.entryFinished()
	<-p.slots
	p.flightChanged.Set()
	done := tickDone{err: err}
	if err == nil {
		done.index = future.Index()
	}
	for _, waiting := range b.ticks {
		waiting <- done
	}
	if err != nil {
		p.fail(b, err)
	} else if p.tracer != nil {
		p.trace(b, done.index)
	}
	p.inFlight.Done()
}

// trace reports the trace contexts of a batch whose entry is applied.
func (p *proposer) trace(b batch, index uint64) {
	last := ""
	for _, q := range b.proposals {
		if trace := fsm.TraceOf(q.Command()); trace != last {
			if last = trace; trace != "" {
				p.tracer.Committed(trace, b.proposedAt, p.term, index)
			}
		}
	}
}

// fail fails the commands of a batch that Raft did not apply.
func (p *proposer) fail(b batch, err error) {
	verdict := outcome.OfEntry(err)
	if verdict.Retryable() {
		p.admission.RaftRefused(p.term) // first, so that what comes back isn't sent here at once
	}
	for _, q := range b.proposals {
		q.Failed(verdict)
	}
}

// GiveBack refuses the commands that wait for the log: they are certainly not in it. The proposer still accepts later
// commands.
func (p *proposer) GiveBack() {
	p.mu.Lock()
	waiting := p.queue.empty()
	p.mu.Unlock()
	for _, q := range waiting {
		q.Failed(outcome.Verdict{Fate: outcome.Refused})
	}
}

// close refuses the commands and ticks that wait, and all later ones.
func (p *proposer) close() {
	p.mu.Lock()
	ticks := p.ticks
	p.ticks, p.closed = nil, true
	p.mu.Unlock()
	p.GiveBack()
	for _, waiting := range ticks {
		waiting <- tickDone{err: raftlib.ErrTermOver}
	}
}

// batch is the commands and ticks that share one entry.
type batch struct {
	proposals  []Proposal
	ticks      []chan tickDone
	proposedAt time.Time // when Raft got its entry
}

// dropStale removes the commands that must no longer be logged. It runs just before the batch becomes an entry, so that
// a command withdrawn before a call of ProposeTick is neither in the entry of that tick nor in a later entry.
func (b *batch) dropStale() {
	b.proposals = slices.DeleteFunc(b.proposals, func(q Proposal) bool {
		v := q.WhyWithdrawn()
		if v.Fate != outcome.Applied {
			q.Failed(v)
		}
		return v.Fate != outcome.Applied
	})
}

// commands returns the commands of a batch.
func (b *batch) commands() (data [][]byte) {
	for _, q := range b.proposals {
		data = append(data, q.Command())
	}
	return data
}

// empty reports whether the batch has neither commands nor ticks.
func (b *batch) empty() bool { return len(b.proposals) == 0 && len(b.ticks) == 0 }
