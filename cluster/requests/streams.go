package requests

import "github.com/signalbox/signalbox/fsm"

// Stream is the connection on which another node forwards commands of its callers to this leader.
type Stream interface {
	// Deliver takes the effects of one entry on the commands and waits of the stream. The apply goroutine calls it, so
	// it must not block. It must not keep the delivery.
	Deliver(d *Delivery)
}

// Forwarded is a command that another node has forwarded to this one.
type Forwarded struct {
	Stream  Stream
	Listens bool // the stream learns the end of the command's wait
}

// Delivery is the effect of one entry on the commands and waits of one stream. Replies
// come before ends, so that the origin learns a place before the end of its wait.
type Delivery struct {
	stream      Stream
	Index       uint64 // of the entry
	NowMS       int64  // cluster time at the entry
	Results     []ForwardedResult
	Conclusions []ForwardedConclusion
}

// ForwardedResult is the result of a forwarded command.
type ForwardedResult struct {
	Sequence uint64
	Result   *fsm.Result
}

// ForwardedConclusion is the end of a wait at a place.
type ForwardedConclusion struct {
	Place  uint64
	Result *fsm.Result
}

// deliveries gathers the effects of an entry by stream. It is a list and not a map, since there is only one stream for
// each other node.
type deliveries []Delivery

// forStream returns the delivery to a stream.
func (d *deliveries) forStream(s Stream, entry *fsm.Applied) *Delivery {
	for i := range *d {
		if (*d)[i].stream == s {
			return &(*d)[i]
		}
	}
	*d = append(*d, Delivery{stream: s, Index: entry.Index, NowMS: entry.NowMS})
	return &(*d)[len(*d)-1]
}

// AddForwarded registers a command that another node has forwarded. It is called before the command can be applied.
func (r *Registry) AddForwarded(id fsm.RequestID, f Forwarded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forwarded[id] = f
}

// RemoveForwarded removes a forwarded command, unless it has since come on another stream.
func (r *Registry) RemoveForwarded(id fsm.RequestID, s Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forwarded[id].Stream == s {
		delete(r.forwarded, id)
	}
}

// Fence is a leader's promise about the streams of this node before Stream: all entries with their commands are
// at or below Index.
type Fence struct {
	Term   uint64
	Stream uint64
	Index  uint64
}

// OpenStream returns the number of a new stream to the leader of a term. open says that commands of earlier streams
// have no outcome yet, so the leader must send a fence. From then on MarkSent refuses earlier streams.
func (r *Registry) OpenStream(term uint64) (number uint64, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams++
	for _, q := range r.requests {
		open = open || q.state == Sent && q.term == term && q.stream > 0
	}
	return r.streams, open
}

// AddFence records a leader's promise about earlier streams.
func (r *Registry) AddFence(f Fence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fences = append(r.fences, f)
	r.refuseFenced()
}

// refuseFenced refuses the commands that a fence shows to be lost, so that they are sent again. A fence at index i says
// that earlier streams add no entry after i. Once this node's machine has applied i, a command of those streams without
// a result was never logged. The caller holds mu.
func (r *Registry) refuseFenced() {
	ahead := r.fences[:0]
	for _, f := range r.fences {
		switch {
		case f.Term < r.term: // refuseBefore has already refused the commands
		case f.Index > r.appliedIndex:
			ahead = append(ahead, f)
		default:
			for _, q := range r.requests {
				if q.state == Sent && q.term == f.Term && 0 < q.stream && q.stream < f.Stream && !q.hidden {
					q.refuse()
				}
			}
		}
	}
	r.fences = ahead
}
