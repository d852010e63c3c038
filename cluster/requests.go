package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// requests knows every command that is under way at this node: its own callers',
// and those that other nodes have forwarded to it. A request is registered
// before it is sent and gets its outcome from whichever comes first: the local
// machine, which applies its id, or the leader's reply. Safe for concurrent use.
//
// When a reply is lost, the local machine settles the matter: the id is applied,
// or a reign entry of a later term is, without the id before it. Then it never
// will be: entries are applied only in the term that they were proposed in, and
// terms only rise along the log.
type requests struct {
	origin   uint64 // drawn at each boot, so that ids are never used twice
	sequence atomic.Uint64
	waits    *waits
	pulse    *pulse // nil: the process is never suspended
	times    stretch

	mu     sync.Mutex
	own    map[uint64]*request // by sequence
	places places              // of own
	large  largeSessions
	guests map[fsm.RequestID]guest
	reign  uint64 // the highest term of a reign entry that was applied

	appliedIndex uint64 // of the last entry that was delivered
	streams      uint64 // how many this node has opened to leaders
	fences       []streamFence
}

// request is one command of a caller of this node.
type request struct {
	id   fsm.RequestID
	data []byte // as fsm.EncodeCommand made it
	load load
	// listener waits for the place of a Waiting result; nil if nobody would listen.
	listener *listener
	outcome  chan outcome    // the last one that was not read yet
	caller   context.Context // ends when the caller is gone; nil: it never is

	// Guarded by requests.mu.
	state  requestState
	term   uint64    // in which it was sent last
	stream uint64    // on which, then; 0: to this node's own proposer
	sentAt time.Time // then
	late   int       // how often a leader has refused it as too old
	hidden bool      // a restore may have hidden its id since
	tried  bool      // some leader has refused it
}

// requestState is where a request is.
type requestState uint8

const (
	requestHeld    requestState = iota // with this node; nothing of it can be in the log
	requestSent                        // the leader may have it
	requestSettled                     // it has its outcome, or nobody waits for it
)

// outcome is how a request came back: with a result, or with an error. Only
// errRefused lets it be sent again.
type outcome struct {
	result fsm.Result
	index  uint64 // of its entry
	nowMS  int64  // cluster time at its entry
	err    error
	open   bool // with an error: it may have been applied, or may yet be
}

// guest is who forwarded a command to this node. answer is called in the apply
// goroutine, with requests.mu held.
type guest interface {
	answer(result *fsm.Result, index uint64, nowMS int64)
}

func newRequests(limit int, w *waits) *requests {
	return &requests{
		origin: drawID(),
		places: places{commands: limit, bytes: queueBytes},
		waits:  w,
		own:    map[uint64]*request{},
		guests: map[fsm.RequestID]guest{},
	}
}

// drawID answers a random number above 0.
func drawID() uint64 {
	var drawn [8]byte
	_, _ = rand.Read(drawn[:]) // never fails
	return binary.BigEndian.Uint64(drawn[:]) | 1
}

// build encodes a command under an id of its own, in a frame.
func (r *requests) build(command fsm.Command, frame fsm.Envelope) *request {
	id := fsm.RequestID{Origin: r.origin, Sequence: r.sequence.Add(1)}
	frame.Request = id
	data := frame.Encode(command)
	return &request{
		id: id, data: data, outcome: make(chan outcome, 1),
		load: load{class: classOf(command.Op()), weight: r.large.cost(command), bytes: len(data)},
	}
}

// add registers requests; it answers how many there was room for, the first ones.
func (r *requests) add(reqs []*request) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, q := range reqs {
		if !r.places.take(q.load) {
			return i
		}
		r.own[q.id.Sequence] = q
	}
	return len(reqs)
}

// forget takes a request out. The caller holds mu.
func (r *requests) forget(q *request) {
	if _, known := r.own[q.id.Sequence]; known {
		delete(r.own, q.id.Sequence)
		r.places.leave(q.load)
	}
}

// markSent notes that requests are about to leave for the leader of a term, on a
// stream or, with 0, for this node's own proposer. It returns those that still
// should: the callers of the others are gone. ok is false when this node already
// knows of a later reign, or has opened a later stream: no evidence would come any
// more, so the requests must not leave this way.
func (r *requests) markSent(reqs []*request, term, stream uint64) (live []*request, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if term < r.reign || stream > 0 && stream != r.streams {
		return nil, false
	}
	now := time.Now()
	live = make([]*request, 0, len(reqs))
	for _, q := range reqs {
		if q.state == requestHeld && !q.gone() {
			q.state, q.term, q.stream, q.sentAt, q.hidden = requestSent, term, stream, now, false
			live = append(live, q)
		}
	}
	return live, true
}

// unmark takes markSent back: the requests did not leave after all.
func (r *requests) unmark(reqs []*request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range reqs {
		if q.state == requestSent {
			q.state, q.tried = requestHeld, true
		}
	}
}

// gone reports whether the request's caller has hung up.
func (q *request) gone() bool { return q.caller != nil && q.caller.Err() != nil }

// wanted reports whether a request that was sent still has a caller.
func (r *requests) wanted(q *request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.state == requestSent && !q.gone()
}

// refuse tells a request that is held, or is now again, to be sent anew. The
// caller holds mu.
func (q *request) refuse() {
	q.state, q.tried = requestHeld, true
	q.post(outcome{err: errRefused})
}

// post puts an outcome where its caller finds it, in place of one that was not
// read yet. The caller holds mu.
func (q *request) post(got outcome) {
	select {
	case <-q.outcome:
	default:
	}
	q.outcome <- got
}

// returned tells requests that no leader has got them.
func (r *requests) returned(reqs []*request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range reqs {
		if q.state == requestHeld {
			q.refuse()
		}
	}
}

// failed tells that a request which was sent in a term, on a stream or with 0 to this
// node's own proposer, was certainly not applied. errRefused and errLate let it be
// sent again; any other error is its end. It changes nothing about a request that has
// been sent again since: that one may be in the log.
func (r *requests) failed(q *request, term, stream uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.state != requestSent || q.term != term || q.stream != stream {
		return
	}
	switch err {
	case errLate:
		q.late++
		q.refuse()
	case errRefused:
		q.refuse()
	default:
		r.settle(q, outcome{err: err})
	}
}

// reply settles a request by a leader's reply with a result, or with an error
// that says that what came on that stream was not applied in that term.
func (r *requests) reply(sequence, term, stream uint64, got outcome) {
	r.mu.Lock()
	q := r.own[sequence]
	if q != nil && got.err == nil {
		r.settle(q, got)
	}
	r.mu.Unlock()
	if q != nil && got.err != nil {
		r.failed(q, term, stream, got.err)
	}
}

// settle ends a request. One that waits is listened for from this very moment,
// so that its conclusion can't slip through. The caller holds mu.
func (r *requests) settle(q *request, got outcome) {
	r.forget(q)
	q.state = requestSettled
	if got.err == nil && got.result.Code == fsm.Waiting && q.listener != nil {
		r.waits.listen(q.listener, &got.result)
	}
	q.post(got)
}

// drop forgets a request whose caller gives up. It answers where the request
// was; when it is settled, its outcome is there to be read.
func (r *requests) drop(q *request) requestState {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := q.state
	q.state = requestSettled
	r.forget(q)
	return was
}

// peek answers where a request is and since when.
func (r *requests) peek(q *request) (state requestState, sentAt time.Time, tried bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return q.state, q.sentAt, q.tried
}

// live answers those requests that still wait to be sent.
func (r *requests) live(reqs []*request) []*request {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := reqs[:0]
	for _, q := range reqs {
		if q.state == requestHeld {
			kept = append(kept, q)
		}
	}
	return kept
}
