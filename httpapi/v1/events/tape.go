package events

import (
	"sync"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/access"
)

// tapeBytes bounds the encoded events that are kept: some 90,000 events of the usual size. A stream that is further
// behind encodes its events again.
const tapeBytes = 16 << 20

// eventCache has the latest entries in encoded form. So each event is encoded once for all streams, and the owner of its
// session is looked up once. It is safe for concurrent use.
type eventCache struct {
	view   func(func(*fsm.Machine))
	tokens bool // some callers may not see each session's id

	encoding sync.Mutex // held while an entry is encoded

	mu      sync.Mutex
	entries map[*fsm.Effect]*encodedEntry // by the first effect in the history
	order   []*fsm.Effect                 // oldest first
	bytes   int
}

// encodedEntry is the events of an entry. It never changes.
type encodedEntry struct {
	events []event
	bytes  int
}

// event is one event of an entry.
type event struct {
	name    string // of a semaphore or an item; "": the event is of a session alone
	group   string // of the semaphore
	grouped bool   // it is of one group, which may be the empty one
	session uint64
	renewal bool
	owner   string // of the session
	owned   bool   // the owner is known: the session lives, or its end is remembered
	text    []byte
	masked  []byte // text without the session's id, for callers who may not see it; nil: all may
}

// shownTo returns the text of an event for an identity that may read it.
func (e *event) shownTo(id *access.Identity) []byte {
	if e.masked != nil && !id.SeesID(e.owner) {
		return e.masked
	}
	return e.text
}

// mayRead reports whether an identity may read an event. The name of the semaphore or item decides. If the event has no
// name, the owner of its session decides.
func (e *event) mayRead(id *access.Identity) bool {
	switch {
	case id.Scope == access.Admin:
		return true
	case e.name != "":
		return id.Sees(e.name)
	}
	return e.owned && id.FindsSession(e.owner)
}

// encoded returns entries of the history in encoded form. If several streams need an entry at the same time, the first
// encodes it and the others wait.
func (t *eventCache) encoded(entries []replica.EventEntry) []*encodedEntry {
	found := make([]*encodedEntry, len(entries))
	for i := range entries {
		first := &entries[i].Effects[0]
		if found[i] = t.entry(first); found[i] != nil {
			continue
		}
		t.encoding.Lock()
		if found[i] = t.entry(first); found[i] == nil {
			found[i] = t.encodeEntry(&entries[i])
			t.addEntry(first, found[i])
		}
		t.encoding.Unlock()
	}
	return found
}

// entry returns an entry that was encoded before, or nil.
func (t *eventCache) entry(first *fsm.Effect) *encodedEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[first]
}

// addEntry adds an entry, and drops the oldest entries beyond the bound.
func (t *eventCache) addEntry(first *fsm.Effect, entry *encodedEntry) {
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
	e := event{name: nameOf(effect), group: effect.DetailsOrZero().Group, grouped: ofOneGroup(effect.Kind), session: effect.Session,
		renewal: effect.Kind == fsm.EffectSessionRenewed}
	if e.session != 0 {
		e.owner, e.owned = m.OwnerOf(e.session)
	}
	return e
}

// ofOneGroup reports whether events of a kind are of one group of a semaphore.
func ofOneGroup(kind fsm.EffectKind) bool {
	switch kind {
	case fsm.EffectGranted, fsm.EffectReleased, fsm.EffectWaiting, fsm.EffectWithdrawn, fsm.EffectListReady, fsm.EffectGroupChanged,
		fsm.EffectReturned, fsm.EffectLost, fsm.EffectFreed, fsm.EffectSettled:
		return true
	}
	return false
}

func (t *eventCache) encodeEntry(entry *replica.EventEntry) *encodedEntry {
	all := &encodedEntry{events: make([]event, len(entry.Effects))}
	t.view(func(m *fsm.Machine) {
		for i := range entry.Effects {
			all.events[i] = describe(m, &entry.Effects[i])
		}
	})
	for i := range entry.Effects {
		shown, to := entry.Effects[i], &all.events[i]
		to.text = encode(entry, entry.Before+i+1, &shown)
		if shown.Session = 0; t.tokens && to.owned && to.owner == "" {
			to.masked = encode(entry, entry.Before+i+1, &shown)
		}
		all.bytes += len(to.text) + len(to.masked)
	}
	return all
}
