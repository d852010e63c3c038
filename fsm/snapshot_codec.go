package fsm

// The records of a snapshot, each written and read side by side. Refs are
// written as what they name for ever: epochs, session ids, key names.

func (e *encoder) state(s *state) {
	e.uint(s.index)
	e.uint(s.term)
	e.string(s.leader)
	e.int(s.nowMS)
	e.uint(s.tokens)
	e.uint(s.places)
	e.uint(s.epochs)
	e.uint(s.orders)
	e.limits(s.limits)
	e.buf = append(e.buf, s.hash[:]...)
	if e.feature >= 1 {
		e.buf = append(e.buf, s.cluster[:]...)
	}
}

func (d *decoder) state() state {
	s := state{index: d.uint(), term: d.uint(), leader: d.string(), nowMS: d.int(), tokens: d.uint(),
		places: d.uint(), epochs: d.uint(), orders: d.uint(), limits: d.limits()}
	copy(s.hash[:], d.bytes(uint64(len(s.hash))))
	s.feature = d.feature
	if d.feature >= 1 {
		copy(s.cluster[:], d.bytes(uint64(len(s.cluster))))
	}
	return s
}

func (e *encoder) semaphore(s *semaphore) {
	e.string(s.name)
	e.uint(s.epoch)
	e.int(s.permits)
	e.int(s.offset)
	e.int(s.held)
	e.level(s.level)
	e.pairs(s.metadata)
	e.uint(s.modified)
	if e.feature >= 1 {
		e.uint(s.version)
		e.bool(s.deleted)
		e.bool(s.shrunk)
	}
}

func (d *decoder) semaphore() semaphore {
	s := semaphore{name: d.string(), epoch: d.uint(), permits: d.int(), offset: d.int(), held: d.int(),
		level: d.level(), metadata: d.pairs(), modified: d.uint()}
	if d.feature >= 1 {
		s.version, s.deleted, s.shrunk = d.uint(), d.bool(), d.bool()
	}
	return s
}

func (e *encoder) session(s *session) {
	e.uint(s.id)
	e.int(s.ttlMS)
	e.int(s.deadlineMS)
	e.pairs(s.metadata)
	e.bool(s.oneShot)
	e.bool(s.keep)
	e.bool(s.leased)
	e.uint(s.first)
	e.uint(s.delivered)
	if e.feature >= 1 {
		e.string(s.owner)
	}
}

func (d *decoder) session() session {
	s := session{id: d.uint(), ttlMS: d.int(), deadlineMS: d.int(), metadata: d.pairs(), oneShot: d.bool(),
		keep: d.bool(), leased: d.bool(), first: d.uint(), delivered: d.uint()}
	if d.feature >= 1 {
		s.owner = d.string()
	}
	return s
}

func (f *Frozen) encodeLease(e *encoder, l *lease) {
	e.uint(f.sessions.at(l.session).id)
	e.uint(f.semaphores.at(l.semaphore).epoch)
	e.int(l.count)
	e.uint(l.token)
	e.int(l.grantedMS)
	e.uint(l.group)
	e.bool(l.revoked)
	e.string(l.reason)
}

func (b *builder) lease(d *decoder) lease {
	return lease{session: b.session(d), semaphore: b.semaphore(d), count: d.int(), token: d.uint(),
		grantedMS: d.int(), group: d.uint(), revoked: d.bool(), reason: d.string()}
}

func (f *Frozen) encodeRequest(e *encoder, r *request) {
	e.uint(r.place)
	e.uint(f.sessions.at(r.session).id)
	e.uint(uint64(len(r.members)))
	for _, want := range r.members {
		e.uint(f.semaphores.at(want.semaphore).epoch)
		e.int(want.count)
	}
	e.byte(byte(r.mode))
	e.bool(r.unowned)
	e.bool(r.partial)
	e.uint(r.group)
	e.int(r.enqueuedMS)
	if r.entry == 0 {
		e.uint(0)
	} else {
		e.uint(f.entries.at(r.entry).order)
	}
}

func (b *builder) request(d *decoder) request {
	r := request{place: d.uint(), session: b.session(d), members: make([]member, d.count(2))}
	for i := range r.members {
		r.members[i] = member{b.semaphore(d), d.int()}
	}
	r.mode, r.unowned, r.partial = Mode(d.byte()), d.bool(), d.bool()
	r.group, r.enqueuedMS = d.uint(), d.int()
	if order := d.uint(); order != 0 {
		r.entry = b.orders[order]
		if r.entry == 0 {
			d.fail()
		}
	}
	r.keys = b.pending[r.place] // they stand in the order in which they came to wait
	delete(b.pending, r.place)
	return r
}

func (f *Frozen) encodeEntry(e *encoder, w *entry) {
	e.uint(w.order)
	e.uint(f.sessions.at(w.session).id)
	e.bool(w.semaphore != 0)
	e.string(w.name)
	e.uint(w.epoch)
	e.int(w.granted)
	e.uint(w.token)
}

func (b *builder) entry(d *decoder) entry {
	w := entry{order: d.uint(), session: b.session(d)}
	exists := d.bool()
	w.name, w.epoch, w.granted, w.token = d.string(), d.uint(), d.int(), d.uint()
	if exists {
		if w.semaphore = b.epochs[w.epoch]; w.semaphore == 0 {
			d.fail()
		}
	}
	return w
}

func (e *encoder) notice(n *notice) {
	e.uint(n.place)
	e.bool(n.semaphore != 0)
	e.string(n.name)
	e.uint(n.epoch)
	e.string(n.url)
	e.int(n.count)
	e.bool(n.due)
	e.int(n.dueMS)
	if e.feature >= 1 {
		e.int(n.endsMS)
	}
}

func (b *builder) notice(d *decoder) notice {
	n := notice{place: d.uint()}
	exists := d.bool()
	n.name, n.epoch, n.url, n.count = d.string(), d.uint(), d.string(), d.int()
	n.due, n.dueMS = d.bool(), d.int()
	if d.feature >= 1 {
		n.endsMS = d.int()
	}
	if exists {
		if n.semaphore = b.epochs[n.epoch]; n.semaphore == 0 {
			d.fail()
		}
	}
	return n
}

func (e *encoder) ended(g *ended) {
	e.uint(g.id)
	e.uint(g.order)
	e.int(g.atMS)
	e.byte(byte(g.cause))
	e.string(g.reason)
	if e.feature >= 1 {
		e.string(g.owner)
	}
}

func (d *decoder) ended() ended {
	g := ended{id: d.uint(), order: d.uint(), atMS: d.int(), cause: Cause(d.byte()), reason: d.string()}
	if d.feature >= 1 {
		g.owner = d.string()
	}
	return g
}

func (e *encoder) key(k *key) {
	e.string(k.text)
	e.uint(k.order)
	e.int(k.atMS)
	e.buf = append(e.buf, k.fingerprint[:]...)
	e.uint(k.place)
	e.uint(k.session)
	e.string(k.result)
	e.int(k.reserved)
	if e.feature >= 1 {
		e.string(k.owner)
	}
}

func (e *encoder) mark(v *mark) {
	e.buf = append(e.buf, v.hash[:]...)
	e.int(v.atMS)
}

func (d *decoder) mark() (v mark) {
	copy(v.hash[:], d.bytes(uint64(len(v.hash))))
	v.atMS = d.int()
	return v
}

func (d *decoder) key() key {
	k := key{keyName: keyName{text: d.string()}, order: d.uint(), atMS: d.int()}
	copy(k.fingerprint[:], d.bytes(uint64(len(k.fingerprint))))
	k.place, k.session, k.result, k.reserved = d.uint(), d.uint(), d.string(), d.int()
	if d.feature >= 1 {
		k.owner = d.string()
	}
	return k
}
