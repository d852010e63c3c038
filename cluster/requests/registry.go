package requests

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// Registry has the requests and waits of this node. A request is registered before it is sent.
//
// When a reply is lost, the local machine shows the outcome. If it applies the request's id, the command was applied.
// If it first applies an entry of a later term, or the entry that a fence names, the command will never be applied:
// entries are applied only in the term in which they were proposed, terms only rise along the log, and a fenced stream
// adds no entry.
//
// One lock guards the requests and the waits: a request with a Waiting result must be settled in the same step in which
// its caller begins to listen. Otherwise the caller could miss the end of the wait.
type Registry struct {
	origin   uint64 // drawn at each boot, so that ids are never used twice
	sequence atomic.Uint64
	replica  *replica.Replica
	large    largeSessions
	outgoing deliveries // effects of the entry being applied, for other nodes; only the apply goroutine uses it

	mu           sync.Mutex
	requests     map[uint64]*Request // of this node's callers, by sequence
	places       lead.Places         // of requests
	forwarded    map[fsm.RequestID]Forwarded
	waits        waits
	term         uint64 // the highest term whose first entry was applied
	appliedIndex uint64 // index of the last applied entry
	restoredAt   uint64 // index of the last snapshot: waits that began at or below it may have ended unseen
	streams      uint64 // the number of streams that this node has opened to leaders
	fences       []Fence
}

// Request is one command of a caller of this node. Its exported fields never change.
type Request struct {
	ID       fsm.RequestID
	Data     []byte // encoded by fsm.Envelope
	Load     lead.Load
	Listener *Listener // gets the conclusion if the result is Waiting; nil if the caller would not listen
	// Settled gets the outcome. After a refusal that is not final, the request may be sent again; the next outcome then
	// replaces the refusal if the caller has not read it yet.
	Settled chan *Settlement

	// Guarded by Registry.mu.
	caller context.Context // ends when the caller is gone
	state  State
	term   uint64    // in which it was sent last
	stream uint64    // on which it was sent last; 0: to this node's own proposer
	sentAt time.Time // when it was sent last, by this node's clock
	late   int       // how often a leader has refused it as too old
	hidden bool      // a snapshot has replaced entries since it was sent: its entry may be among them, so terms and fences don't prove it lost
	tried  bool      // a leader has refused it
}

// State is the progress of a request.
type State uint8

// The states of a request.
const (
	Held    State = iota // with this node; it can't be in the log
	Sent                 // the leader may have it
	Settled              // it has its outcome, or its caller has given up
)

// Settlement is the outcome of a request: a result, or a verdict.
type Settlement struct {
	outcome.Verdict
	Result fsm.Result
	Index  uint64 // of its entry
	NowMS  int64  // cluster time at its entry
}

// New returns a registry with room for limit requests of this node's callers.
func New(limit int, r *replica.Replica) *Registry {
	return &Registry{
		origin:    rand.Uint64() | 1, // not 0
		replica:   r,
		large:     largeSessions{replica: r},
		places:    lead.NewPlaces(limit),
		requests:  map[uint64]*Request{},
		forwarded: map[fsm.RequestID]Forwarded{},
		waits:     newWaits(),
	}
}

// Origin returns the origin of the ids of this node's requests.
func (r *Registry) Origin() uint64 { return r.origin }

// Build encodes a command under a new id, with frame as its envelope. The listener may be nil.
func (r *Registry) Build(command fsm.Command, frame fsm.Envelope, class lead.Class, l *Listener) *Request {
	id := fsm.RequestID{Origin: r.origin, Sequence: r.sequence.Add(1)}
	frame.Request = id
	data := frame.Encode(command)
	return &Request{
		ID: id, Data: data, Listener: l, Settled: make(chan *Settlement, 1),
		Load: lead.Load{Class: class, Weight: r.large.cost(command), Bytes: len(data)},
	}
}

// Cost returns the weight of a command that another node has forwarded.
func (r *Registry) Cost(command fsm.Command) int { return r.large.cost(command) }

// Add registers requests, whose caller waits until ctx ends. It registers the first requests for which there is room,
// and returns their number.
func (r *Registry) Add(ctx context.Context, reqs []*Request) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range reqs {
		if !r.places.Take(q.Load) {
			return i
		}
		q.caller = ctx
		r.requests[q.ID.Sequence] = q
	}
	return len(reqs)
}

// Count returns how many requests are in a state: Held or Sent.
func (r *Registry) Count(state State) (count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.requests {
		if q.state == state {
			count++
		}
	}
	return count
}

// forget removes a request. The caller holds mu.
func (r *Registry) forget(q *Request) {
	if _, known := r.requests[q.ID.Sequence]; known {
		delete(r.requests, q.ID.Sequence)
		r.places.Leave(q.Load)
	}
}

// MarkSent marks requests as sent, just before they leave for the leader of a term: on a stream or, with stream 0, to
// this node's own proposer. It returns the live requests, whose callers still wait. ok is false when this node already
// knows a later term or has opened a later stream. The requests must then not leave, because their loss would go
// unnoticed: terms and fences prove only the loss of requests sent before them.
func (r *Registry) MarkSent(reqs []*Request, term, stream uint64) (live []*Request, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if term < r.term || stream > 0 && stream != r.streams {
		return nil, false
	}
	now := time.Now()
	live = make([]*Request, 0, len(reqs))
	for _, q := range reqs {
		if q.state == Held && q.caller.Err() == nil {
			q.state, q.term, q.stream, q.sentAt, q.hidden = Sent, term, stream, now, false
			live = append(live, q)
		}
	}
	return live, true
}

// Unmark undoes MarkSent for requests that did not leave.
func (r *Registry) Unmark(reqs []*Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range reqs {
		if q.state == Sent {
			q.state, q.tried = Held, true
		}
	}
}

// Wanted reports whether a request that was sent still has a caller.
func (r *Registry) Wanted(q *Request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.state == Sent && q.caller.Err() == nil
}

// refuse returns a request that has no entry to Held, so that it is sent again. The caller of refuse holds mu.
func (q *Request) refuse() {
	q.state, q.tried = Held, true
	q.post(&Settlement{Verdict: outcome.Verdict{Fate: outcome.Refused}})
}

// post gives an outcome to the caller. It replaces an outcome that the caller has not read yet. The caller holds mu.
func (q *Request) post(s *Settlement) {
	select {
	case <-q.Settled:
	default:
	}
	q.Settled <- s
}

// RefuseHeld refuses requests that no leader has (Held).
func (r *Registry) RefuseHeld(reqs []*Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range reqs {
		if q.state == Held {
			q.refuse()
		}
	}
}

// Reply settles a request by a leader's reply: a result, or an error, which says that the command was not applied in
// that term and from that stream.
func (r *Registry) Reply(sequence, term, stream uint64, s *Settlement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch q := r.requests[sequence]; {
	case q == nil:
	case s.Fate == outcome.Applied:
		r.complete(q, s)
	default:
		r.fail(q, term, stream, s.Verdict)
	}
}

// Failed reports that a request was certainly not applied after it was sent, in a term on a stream. Stream 0 is the
// proposer of this node. Failed ignores a request that has been sent again since: the later copy may be in the log.
func (r *Registry) Failed(q *Request, term, stream uint64, v outcome.Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(q, term, stream, v)
}

// fail does the work of Failed. The caller holds mu.
func (r *Registry) fail(q *Request, term, stream uint64, v outcome.Verdict) {
	if q.state != Sent || q.term != term || q.stream != stream {
		return
	}
	if v.Fate == outcome.Late {
		q.late++
	}
	if v.Retryable() {
		q.refuse()
	} else {
		r.complete(q, &Settlement{Verdict: v})
	}
}

// complete ends a request. If the request waits, its listener listens from this moment, so that it cannot miss the end
// of the wait. The caller holds mu.
func (r *Registry) complete(q *Request, s *Settlement) {
	r.forget(q)
	q.state = Settled
	if s.Fate == outcome.Applied && s.Result.Code == fsm.Waiting && q.Listener != nil {
		r.waits.listen(q.Listener, &s.Result, s.Index)
	}
	q.post(s)
}

// Applied implements [replica.Sink]. It settles the requests whose commands an entry has applied, and the
// waits that the entry has ended. It refuses the requests that the first entry of a term, or a fence, shows to be lost.
func (r *Registry) Applied(entry *fsm.Applied) {
	r.large.updateFrom(entry)
	r.completeEntry(entry)
	for i := range r.outgoing {
		r.outgoing[i].stream.Deliver(&r.outgoing[i])
	}
	clear(r.outgoing) // so that the entry's results can be freed
	r.outgoing = r.outgoing[:0]
}

// completeEntry does the work of Applied that needs the lock. It gathers the deliveries.
func (r *Registry) completeEntry(entry *fsm.Applied) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.requests)+len(r.forwarded) > 0 {
		for i := range entry.Commands {
			r.completeCommand(&entry.Commands[i], entry)
		}
	}
	if entry.Term > r.term {
		r.term = entry.Term
		r.refuseBefore(entry.Term)
	}
	r.appliedIndex = entry.Index
	if len(r.fences) > 0 {
		r.refuseFenced()
	}
	for i := range entry.Conclusions {
		c := &entry.Conclusions[i]
		r.waits.conclude(c.Place, Conclusion{Result: c.Result, Index: entry.Index, NowMS: entry.NowMS})
		for s := range r.waits.release(c.Place) {
			d := r.outgoing.forStream(s, entry)
			d.Conclusions = append(d.Conclusions, ForwardedConclusion{c.Place, &c.Result})
		}
	}
}

// completeCommand settles one request by its id. The caller holds mu.
func (r *Registry) completeCommand(c *fsm.AppliedCommand, entry *fsm.Applied) {
	if c.Request.Origin == r.origin {
		if q := r.requests[c.Request.Sequence]; q != nil {
			r.complete(q, &Settlement{Result: c.Result, Index: entry.Index, NowMS: entry.NowMS})
		}
		return
	}
	f, known := r.forwarded[c.Request]
	if !known {
		return
	}
	delete(r.forwarded, c.Request)
	if f.Listens && c.Result.Code == fsm.Waiting {
		r.waits.watch(c.Result.Place, f.Stream)
	}
	d := r.outgoing.forStream(f.Stream, entry)
	d.Results = append(d.Results, ForwardedResult{c.Request.Sequence, &c.Result})
}

// refuseBefore refuses the requests that were sent in terms before this one: they will never be applied. The caller
// holds mu.
func (r *Registry) refuseBefore(term uint64) {
	for _, q := range r.requests {
		if q.state == Sent && q.term < term && !q.hidden {
			q.refuse()
		}
	}
}

// SnapshotRestored implements [replica.Sink]. The machine has jumped over entries, so this node has missed ids and ends
// of waits. SnapshotRestored ends the waits that the state shows as finished.
func (r *Registry) SnapshotRestored(state *fsm.Machine, index uint64) {
	r.large.resetTo(state)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term = max(r.term, state.Term())
	for _, q := range r.requests {
		if q.state == Sent {
			q.hidden = true
		}
	}
	r.appliedIndex = max(r.appliedIndex, state.Index())
	r.refuseFenced()
	r.restoredAt = index
	r.waits.resolveFromSnapshot(state, index)
}

// Drop removes a request whose caller gives up. It returns the previous state of the request; if that is Settled, the
// outcome can still be read.
func (r *Registry) Drop(q *Request) State {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := q.state
	q.state = Settled
	r.forget(q)
	return before
}

// Progress returns the state of a request, when it was sent last, and whether a leader has refused it.
func (r *Registry) Progress(q *Request) (state State, sentAt time.Time, tried bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.state, q.sentAt, q.tried
}

// StillHeld returns the requests that still wait to be sent.
func (r *Registry) StillHeld(reqs []*Request) []*Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := reqs[:0]
	for _, q := range reqs {
		if q.state == Held {
			live = append(live, q)
		}
	}
	return live
}

// TimesLate returns how often a leader has refused a request as too old.
func (r *Registry) TimesLate(q *Request) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.late
}

// largeRecords is the smallest number of records of a session in largeSessions.
const largeRecords = 64

// largeSessions has the sizes of sessions with many records, so that a leader puts few of their ends, and of their
// acquires, into one entry. It copies the sizes from the state, since a caller that proposes a command must not wait
// for an entry that is being applied. The sizes are as of the last entry. Safe for concurrent use.
type largeSessions struct {
	replica *replica.Replica
	sizes   sync.Map // fsm.SessionSize by session id
}

// updateFrom updates the sizes after an entry, in the apply goroutine.
func (l *largeSessions) updateFrom(entry *fsm.Applied) {
	l.replica.View(func(state *fsm.Machine) {
		for i := range entry.Commands {
			id := entry.Commands[i].Result.Session
			if id == 0 || entry.Commands[i].Op.Opens() { // a new session is small
				continue
			}
			if size := state.SessionSize(id); size.Records >= largeRecords {
				l.sizes.Store(id, size)
			} else {
				l.sizes.Delete(id)
			}
		}
	})
	for i := range entry.Effects {
		if entry.Effects[i].Kind == fsm.EffectSessionEnded {
			l.sizes.Delete(entry.Effects[i].Session)
		}
	}
}

// resetTo replaces all sizes by the sizes in a state that came from a snapshot, in the apply
// goroutine.
func (l *largeSessions) resetTo(state *fsm.Machine) {
	l.sizes.Clear()
	state.LargeSessions(largeRecords, func(id uint64, size fsm.SessionSize) { l.sizes.Store(id, size) })
}

// cost returns the weight of a command in an entry.
func (l *largeSessions) cost(c fsm.Command) int {
	var size fsm.SessionSize
	if session := fsm.CostlySession(c); session != 0 {
		if stored, ok := l.sizes.Load(session); ok {
			size = stored.(fsm.SessionSize)
		}
	}
	return fsm.Cost(c, size)
}
