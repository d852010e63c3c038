package fsm

import "slices"

// The records of a snapshot; writer and reader are next to each other. Records refer to other records by permanent
// names (epochs, session ids, names of keys), not by refs.

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
	e.buf = append(e.buf, s.cluster[:]...)
	e.uint(s.changes)
	e.uint(s.itemChange)
	e.uint(s.sessionChange)
	e.uint(s.jumped)
	if s.turns != 0 {
		e.uint(s.turns)
	}
}

func (d *decoder) state() state {
	s := state{index: d.Uint(), term: d.Uint(), leader: d.Text(), nowMS: d.Int(), tokens: d.Uint(),
		places: d.Uint(), epochs: d.Uint(), orders: d.Uint(), limits: d.limits()}
	copy(s.hash[:], d.Bytes(uint64(len(s.hash))))
	s.feature = d.feature
	copy(s.cluster[:], d.Bytes(uint64(len(s.cluster))))
	s.changes, s.itemChange, s.sessionChange, s.jumped = d.Uint(), d.Uint(), d.Uint(), d.Uint()
	if len(d.Rest) > 0 {
		s.turns = d.Uint()
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
	e.uint(s.version)
	e.bool(s.deleted)
	e.bool(s.hasImpossible)
	e.string(s.owner)
}

func (d *decoder) semaphore() semaphore {
	return semaphore{name: d.Text(), epoch: d.Uint(), permits: d.Int(), offset: d.Int(), held: d.Int(), level: d.level(),
		metadata: d.pairs(), modified: d.Uint(), version: d.Uint(), deleted: d.Bool(), hasImpossible: d.Bool(), owner: d.Text()}
}

// hasSettings reports whether a semaphore has members that most semaphores lack.
func (s *semaphore) hasSettings() bool {
	return s.settings != nil || s.passed != 0 || s.sweep != nil || s.forgotten != 0
}

func (e *encoder) semaphoreSettingsOf(s *semaphore) {
	e.uint(s.epoch)
	settings := s.settingsOrZero()
	e.settings(&settings)
	e.uint(uint64(s.passed))
	e.bool(s.sweep != nil)
	if s.sweep != nil {
		e.string(*s.sweep)
	}
	e.uint(s.forgotten)
}

// settingsOf reads the settings of a semaphore, which follow its epoch.
func (d *decoder) settingsOf(s *semaphore) {
	s.settings = d.settings().record()
	passed := d.Uint()
	if s.passed = uint16(passed); passed > passedAtMost {
		d.Fail()
	}
	if d.Bool() {
		from := d.Text()
		s.sweep = &from
	}
	s.forgotten = d.Uint()
	if !s.hasSettings() {
		d.Fail()
	}
}

func (e *encoder) lane(l *lane, epoch uint64) {
	e.uint(epoch)
	e.string(l.group)
	e.int(l.limit)
	e.bool(l.hasOwnLimit)
	if l.hasOwnLimit {
		e.string(l.owner)
	}
	e.uint(l.turn)
}

func (b *builder) readLaneRecord(d *decoder) lane {
	l := lane{semaphore: b.semaphore(d), group: d.Text(), limit: d.Int(), hasOwnLimit: d.Bool()}
	if l.hasOwnLimit {
		l.owner = d.Text()
	}
	l.turn = d.Uint()
	return l
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
	e.string(s.owner)
	e.itemTerms(s.itemTerms)
}

// itemTerms appends the item terms of a session, or one byte if open-holder did not open it.
func (e *encoder) itemTerms(t *itemTerms) {
	e.bool(t != nil)
	if t != nil {
		e.string(t.about)
		e.bool(t.deletes)
		e.int(t.delayMS)
		e.uint(t.made)
	}
}

func (d *decoder) itemTerms() *itemTerms {
	if !d.Bool() {
		return nil
	}
	return &itemTerms{about: d.Text(), deletes: d.Bool(), delayMS: d.Int(), made: d.Uint()}
}

func (d *decoder) session() session {
	s := session{id: d.Uint(), ttlMS: d.Int(), deadlineMS: d.Int(), metadata: d.pairs(), oneShot: d.Bool(),
		keep: d.Bool(), leased: d.Bool(), first: d.Uint(), delivered: d.Uint()}
	s.owner, s.itemTerms = d.Text(), d.itemTerms()
	return s
}

// endOfLease reads the cause for which a lease was revoked.
func (d *decoder) endOfLease() Cause {
	cause := Cause(d.Byte())
	if cause != 0 && !revokes(cause) {
		d.Fail()
	}
	return cause
}

func (f *Frozen) encodeLease(e *encoder, l *lease) {
	e.uint(f.sessions.at(l.session).id)
	e.uint(f.semaphores.at(l.semaphore).epoch)
	e.int(l.count)
	e.uint(l.token)
	e.int(l.grantedMS)
	e.uint(l.listHash)
	e.byte(byte(l.endCause))
	e.string(l.reason)
	if l.lane != 0 || l.endsMS != 0 || l.dueMS != 0 || l.slots != nil {
		f.encodeLane(e, l.lane)
		e.int(l.endsMS)
		e.int(l.dueMS)
		e.slotRuns(l.slots.all())
	}
}

// encodeLane appends the group of a record, or that the record has no group.
func (f *Frozen) encodeLane(e *encoder, lane ref) {
	e.bool(lane != 0)
	if lane != 0 {
		e.string(f.lanes.at(lane).group)
	}
}

func (b *builder) readLane(d *decoder, semaphore ref) ref {
	if !d.Bool() {
		return 0
	}
	return b.lane(d, semaphore)
}

func (f *Frozen) encodeReturn(e *encoder, t *timedReturn) {
	e.uint(t.order)
	e.uint(f.semaphores.at(t.semaphore).epoch)
	f.encodeLane(e, t.lane)
	e.string(t.owner)
	e.int(t.count)
	e.int(t.dueMS)
	e.bool(t.spent)
	e.slotRuns(t.slots.all())
	e.bool(t.lost != nil)
	if t.lost != nil {
		e.uint(t.lost.token)
		e.uint(t.lost.session)
		e.int(t.lost.atMS)
		e.pairs(t.lost.metadata)
	}
}

func (b *builder) timedReturn(d *decoder) timedReturn {
	t := timedReturn{order: d.Uint(), semaphore: b.semaphore(d)}
	t.lane = b.readLane(d, t.semaphore)
	t.owner, t.count, t.dueMS, t.spent, t.slots = d.Text(), d.Int(), d.Int(), d.Bool(), newSlotList(d.slotRuns()) // state: as it was written
	if d.Bool() {
		t.lost = &lostHold{token: d.Uint(), session: d.Uint(), atMS: d.Int(), metadata: d.pairs()} // state: as it was written
	}
	return t
}

func (b *builder) lease(d *decoder) lease {
	l := lease{session: b.session(d), semaphore: b.semaphore(d), count: d.Int(), token: d.Uint(),
		grantedMS: d.Int(), listHash: d.Uint(), endCause: d.endOfLease(), reason: d.Text()}
	if len(d.Rest) > 0 {
		l.lane = b.readLane(d, l.semaphore)
		l.endsMS, l.dueMS, l.slots = d.Int(), d.Int(), newSlotList(d.slotRuns()) // state: as it was written
	}
	return l
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
	e.bool(r.isDown)
	e.bool(r.partial)
	e.uint(r.listHash)
	e.int(r.enqueuedMS)
	if r.listEntry == 0 {
		e.uint(0)
	} else {
		e.uint(f.entries.at(r.listEntry).order)
	}
	if grouped := slices.ContainsFunc(r.members, func(w member) bool { return w.lane != 0 }); grouped || r.rankMS != r.enqueuedMS || r.spends != 0 {
		e.int(r.enqueuedMS - r.rankMS)
		e.byte(r.spends)
		for _, want := range r.members {
			f.encodeLane(e, want.lane)
		}
	}
}

func (b *builder) request(d *decoder) request {
	r := request{place: d.Uint(), session: b.session(d), members: make([]member, d.Count(2))}
	for i := range r.members {
		r.members[i] = member{semaphore: b.semaphore(d), count: d.Int()}
	}
	r.mode, r.isDown, r.partial = Mode(d.Byte()), d.Bool(), d.Bool()
	r.listHash, r.enqueuedMS = d.Uint(), d.Int()
	if order := d.Uint(); order != 0 {
		r.listEntry = b.entryByOrder[order]
		if r.listEntry == 0 {
			d.Fail()
		}
	}
	r.rankMS = r.enqueuedMS
	if len(d.Rest) > 0 {
		r.rankMS -= d.Int()
		r.spends = d.Byte()
		for i := range r.members {
			r.members[i].lane = b.readLane(d, r.members[i].semaphore)
		}
	}
	r.keys = b.keysByPlace[r.place] // in the order in which the keys joined the request
	delete(b.keysByPlace, r.place)
	return r
}

func (f *Frozen) encodeListEntry(e *encoder, w *listEntry) {
	e.uint(w.order)
	e.uint(f.sessions.at(w.session).id)
	e.bool(w.semaphore != 0)
	e.string(w.name)
	e.uint(w.epoch)
	e.int(w.granted)
	e.uint(w.token)
	if w.group != "" || w.lane != 0 || w.spent != 0 {
		e.bool(w.lane != 0)
		e.string(w.group)
		e.int(w.spent)
	}
}

func (b *builder) listEntry(d *decoder) listEntry {
	w := listEntry{order: d.Uint(), session: b.session(d)}
	exists := d.Bool()
	w.name, w.epoch, w.granted, w.token = d.Text(), d.Uint(), d.Int(), d.Uint()
	if exists {
		if w.semaphore = b.semaphoreByEpoch[w.epoch]; w.semaphore == 0 {
			d.Fail()
		}
	}
	if len(d.Rest) > 0 {
		grouped := d.Bool()
		w.group = d.Text()
		w.spent = d.Int()
		if grouped {
			w.lane = b.laneOf(d, w.semaphore, w.group)
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
	e.int(n.endsMS)
	e.string(n.owner)
	e.groupName(n.group)
}

func (b *builder) notice(d *decoder) notice {
	n := notice{place: d.Uint()}
	exists := d.Bool()
	n.name, n.epoch, n.url, n.count = d.Text(), d.Uint(), d.Text(), d.Int()
	n.due, n.dueMS = d.Bool(), d.Int()
	n.endsMS = d.Int()
	n.owner = d.Text()
	n.group = d.groupName()
	if exists {
		if n.semaphore = b.semaphoreByEpoch[n.epoch]; n.semaphore == 0 {
			d.Fail()
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
	e.string(g.owner)
}

func (d *decoder) ended() ended {
	return ended{id: d.Uint(), order: d.Uint(), atMS: d.Int(), cause: Cause(d.Byte()), reason: d.Text(), owner: d.Text()}
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
	e.string(k.owner)
}

func (e *encoder) mark(v *mark) {
	e.buf = append(e.buf, v.hash[:]...)
	e.int(v.atMS)
}

func (d *decoder) mark() (v mark) {
	copy(v.hash[:], d.Bytes(uint64(len(v.hash))))
	v.atMS = d.Int()
	return v
}

func (d *decoder) key() key {
	k := key{keyName: keyName{text: d.Text()}, order: d.Uint(), atMS: d.Int()}
	copy(k.fingerprint[:], d.Bytes(uint64(len(k.fingerprint))))
	k.place, k.session, k.result, k.reserved, k.owner = d.Uint(), d.Uint(), d.Text(), d.Int(), d.Text()
	return k
}

func (e *encoder) revoked(v *revoked) {
	e.uint(v.session)
	e.uint(v.epoch)
	e.uint(v.order)
	e.int(v.atMS)
	e.byte(byte(v.cause))
	e.string(v.reason)
	e.groupName(v.group)
}

func (f *Frozen) encodeItem(e *encoder, i *item) {
	e.string(i.name)
	e.uint(i.created)
	e.int(i.delayMS)
	e.string(i.owner)
	e.bool(i.tombstone)
	if i.tombstone {
		return
	}
	e.string(i.value)
	e.uint(i.flags)
	e.uint(i.locks)
	e.uint(i.version)
	e.bool(i.holder != 0)
	if i.holder != 0 {
		e.uint(f.sessions.at(i.holder).id)
	}
}

func (b *builder) item(d *decoder) item {
	i := item{name: d.Text(), created: d.Uint(), delayMS: d.Int(), owner: d.Text(), tombstone: d.Bool()}
	if i.tombstone {
		return i
	}
	i.value, i.flags, i.locks, i.version = d.Text(), d.Uint(), d.Uint(), d.Uint()
	if d.Bool() {
		i.holder = b.session(d)
	}
	return i
}

// folder appends the names of a folder without their common start.
func (e *encoder) folder(f *folder) {
	e.string(f.text)
	e.uint(f.order)
	e.int(f.atMS)
	e.uint(f.folded)
	e.uint(uint64(len(f.names)))
	for _, v := range f.names {
		e.string(v.name[len(f.text):])
		e.uint(v.number)
	}
}

func (d *decoder) folder() folder {
	f := folder{text: d.Text(), order: d.Uint(), atMS: d.Int(), folded: d.Uint(), names: make([]deletedName, d.Count(2))}
	for i := range f.names {
		f.names[i] = deletedName{f.text + d.Text(), d.Uint()}
	}
	return f
}
