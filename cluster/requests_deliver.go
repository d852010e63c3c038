package cluster

import "github.com/signalbox/signalbox/fsm"

// deliver settles the requests that an entry applied, and those that a reign
// entry or a fence shows to be lost. It is called in the apply goroutine.
func (r *requests) deliver(applied *fsm.Applied) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.own)+len(r.guests) > 0 {
		for i := range applied.Commands {
			r.applied(&applied.Commands[i], applied)
		}
	}
	if applied.Term > r.reign {
		r.reign = applied.Term
		r.lost(applied.Term)
	}
	r.appliedIndex = applied.Index
	if len(r.fences) > 0 {
		r.passFences()
	}
}

// applied settles one request by its id. The caller holds mu.
func (r *requests) applied(c *fsm.AppliedCommand, in *fsm.Applied) {
	if c.Request.Origin == r.origin {
		if q := r.own[c.Request.Sequence]; q != nil {
			r.settle(q, outcome{result: c.Result, index: in.Index, nowMS: in.NowMS})
		}
		return
	}
	if g := r.guests[c.Request]; g != nil {
		delete(r.guests, c.Request)
		g.answer(&c.Result, in.Index, in.NowMS)
	}
}

// lost tells the requests sent in terms before this one that they were not
// applied and never will be. The caller holds mu.
func (r *requests) lost(term uint64) {
	for _, q := range r.own {
		if q.state == requestSent && q.term < term && !q.hidden {
			q.refuse()
		}
	}
}

// restored notes that the machine jumped: ids in what it jumped over were
// applied without this node seeing them.
func (r *requests) restored(state *fsm.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reign = max(r.reign, state.Term())
	for _, q := range r.own {
		if q.state == requestSent {
			q.hidden = true
		}
	}
	r.appliedIndex = max(r.appliedIndex, state.Index())
	r.passFences()
}

// host registers a command that another node has forwarded.
func (r *requests) host(id fsm.RequestID, g guest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guests[id] = g
}

// unhost forgets one, if it is still this guest's.
func (r *requests) unhost(id fsm.RequestID, g guest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guests[id] == g {
		delete(r.guests, id)
	}
}
