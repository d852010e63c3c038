package cluster

// streamFence is what a leader has said of the streams before one of this node's:
// whatever they brought into the log is at or below an index.
type streamFence struct {
	term   uint64
	stream uint64 // the commands of earlier ones are fenced
	index  uint64
}

// openStream answers the number of a new stream to the leader of a term, and whether
// commands of earlier ones have no outcome. From then on nothing is marked as sent on
// an earlier one.
func (r *requests) openStream(term uint64) (number uint64, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams++
	for _, q := range r.own {
		open = open || q.state == requestSent && q.term == term && q.stream > 0
	}
	return r.streams, open
}

// fence takes in what a leader says of earlier streams.
func (r *requests) fence(f streamFence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fences = append(r.fences, f)
	r.passFences()
}

// passFences has commands sent again that were not applied when the machine came to
// the fence behind them: all that is in the log of their streams was applied, and
// nothing more ever will be. The caller holds mu.
func (r *requests) passFences() {
	left := r.fences[:0]
	for _, f := range r.fences {
		switch {
		case f.term < r.reign: // lost has seen to them
		case f.index > r.appliedIndex:
			left = append(left, f)
		default:
			for _, q := range r.own {
				if q.state == requestSent && q.term == f.term && 0 < q.stream && q.stream < f.stream && !q.hidden {
					q.refuse()
				}
			}
		}
	}
	r.fences = left
}
