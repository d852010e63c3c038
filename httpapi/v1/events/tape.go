package events

import (
	"sync"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
)

// tapeBytes bounds the encoded events that are kept: some 90,000 of the usual ones. A stream that is further
// behind has its events encoded again.
const tapeBytes = 16 << 20

// tape has the latest entries as streams send them, so that an event is encoded, and the owner of its session looked
// up, once for all streams. It is safe for concurrent use.
type tape struct {
	view   func(func(*fsm.Machine))
	tokens bool // there are callers who may not see each session's id

	telling sync.Mutex // held while an entry is encoded

	mu      sync.Mutex
	entries map[*fsm.Effect]*told // by the first effect, which is where the history has it
	order   []*fsm.Effect         // in which they came
	bytes   int
}

// told is the events of an entry. It is not changed once made.
type told struct {
	events []event
	bytes  int
}

// event is an event as it is sent.
type event struct {
	name    string // of a semaphore or an item; "": the event is one of a session alone
	session uint64
	renewal bool
	owner   string // of the session
	owned   bool   // the session lives or its end is remembered, so that its owner is known
	text    []byte
	without []byte // the id of its session, for those who may not see that; nil: all may
}

// shownTo returns the text of an event that an identity may read.
func (e *event) shownTo(id *access.Identity) []byte {
	if e.without != nil && !id.SeesID(e.owner) {
		return e.without
	}
	return e.text
}

// mayRead reports whether an identity may read an event: one of a semaphore or of an item by its name, one of a
// session by its owner.
func (e *event) mayRead(id *access.Identity) bool {
	switch {
	case id.Scope == access.Admin:
		return true
	case e.name != "":
		return id.Sees(e.name)
	}
	return e.owned && id.FindsSession(e.owner)
}

// of returns entries of the history as they are told. Streams that need the same entry at the same time wait
// for the first of them to encode it.
func (t *tape) of(entries []replica.EventEntry) []*told {
	found := make([]*told, len(entries))
	for i := range entries {
		first := &entries[i].Effects[0]
		if found[i] = t.kept(first); found[i] != nil {
			continue
		}
		t.telling.Lock()
		if found[i] = t.kept(first); found[i] == nil {
			found[i] = t.tell(&entries[i])
			t.keep(first, found[i])
		}
		t.telling.Unlock()
	}
	return found
}

// kept returns an entry that was encoded before, or nil.
func (t *tape) kept(first *fsm.Effect) *told {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[first]
}

// keep adds an entry, and forgets the oldest ones beyond the bound.
func (t *tape) keep(first *fsm.Effect, entry *told) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries[first] = entry
	t.order = append(t.order, first)
	for t.bytes += entry.bytes; t.bytes > tapeBytes; t.order = t.order[1:] {
		t.bytes -= t.entries[t.order[0]].bytes
		delete(t.entries, t.order[0])
	}
}

// describe returns an event without its texts.
func describe(m *fsm.Machine, effect *fsm.Effect) event {
	e := event{name: nameOf(effect), session: effect.Session, renewal: effect.Kind == fsm.EffectSessionRenewed}
	if e.session != 0 {
		e.owner, e.owned = m.OwnerOf(e.session)
	}
	return e
}

// tell encodes the events of an entry.
func (t *tape) tell(entry *replica.EventEntry) *told {
	all := &told{events: make([]event, len(entry.Effects))}
	t.view(func(m *fsm.Machine) {
		for i := range entry.Effects {
			all.events[i] = describe(m, &entry.Effects[i])
		}
	})
	for i := range entry.Effects {
		shown, to := entry.Effects[i], &all.events[i]
		to.text = encode(entry, entry.Before+i+1, &shown)
		if shown.Session = 0; t.tokens && to.owned && to.owner == "" {
			to.without = encode(entry, entry.Before+i+1, &shown)
		}
		all.bytes += len(to.text) + len(to.without)
	}
	return all
}
