package fsm

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// ledger keeps the books that an observer of results and effects can keep while all
// requests are partial ones: downs and wait lists. It has no queue; it only adds
// up.
type ledger struct {
	t       *rapid.T
	m       *Machine
	value   map[string]int64           // by semaphore
	place   map[string]uint64          // of the last grant to a waiting request
	waiting map[string]map[uint64]bool // the places in each line
	entries map[waitListKey]*ledgerEntry
	kept    map[uint64]bool // sessions with on_end keep
	names   []string
	index   uint64
}

type waitListKey struct {
	session uint64
	name    string
	epoch   uint64
}

type ledgerEntry struct {
	wanted  int64 // waits
	granted int64 // not yet delivered
	deleted bool
}

// TestPropertyListsAddUp: permits that are taken, delivered and given back add up to the
// permits that were put in. No session gets more than it requested, or gets it twice.
// Requests are served in order. No request waits while permits are available, nor after a
// delete.
func TestPropertyListsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &ledger{t: t, m: New(), value: map[string]int64{}, place: map[string]uint64{}, waiting: map[string]map[uint64]bool{},
			entries: map[waitListKey]*ledgerEntry{}, kept: map[uint64]bool{}, names: []string{"a", "b", "c"}}
		l.apply(StartTerm{Term: 1, Leader: "n1", Limits: DefaultLimits()})
		for i := range rapid.IntRange(20, 120).Draw(t, "steps") {
			l.step(uint64(i))
		}
		for name := range l.value { // every waiting request can be served
			l.apply(Up{Name: name, Count: 1 << 40})
		}
		for sessionID := uint64(1); sessionID <= 3; sessionID++ {
			l.apply(ListDeliver{Session: sessionID})
		}
	})
}

// step draws a command.
func (l *ledger) step(i uint64) {
	name := rapid.SampledFrom(l.names).Draw(l.t, "name")
	sessionID := rapid.Uint64Range(1, 3).Draw(l.t, "session")
	count := rapid.Int64Range(1, 6).Draw(l.t, "count")
	switch rapid.IntRange(0, 15).Draw(l.t, "command") {
	case 0:
		l.apply(CreateSemaphore{Name: name, Permits: count - 1})
	case 1:
		l.apply(OpenSession{Session: sessionID, TTLMS: MaxTTLMS, Keep: count > 4})
	case 2:
		l.apply(SetValue{Name: name, Value: count - 1})
	case 3:
		l.apply(ListRemove{Session: sessionID, Name: name})
	case 4:
		if count > 4 {
			l.apply(DeleteSemaphore{Name: name})
		} else if count > 2 {
			l.apply(EndSession{Session: sessionID})
		}
	case 5, 6, 7:
		l.apply(Up{Name: name, Count: count})
	case 8, 9:
		l.apply(Down{Name: name, Count: count, Partial: true, WaitMS: MaxTTLMS, Session: 1000 + i})
	case 10, 11:
		l.apply(ListDeliver{Session: sessionID})
	default:
		l.apply(ListAdd{Session: sessionID, Name: name, Count: count})
	}
}

// apply applies a command, books its results and compares.
func (l *ledger) apply(command Command) {
	l.index++
	applied := l.m.Apply(l.index, EncodeEntry(int64(l.index), [][]byte{Envelope{Request: RequestID{1, l.index}, Key: ""}.Encode(command)}))
	result := applied.Commands[0].Result
	if result.Code == OK {
		l.book(command, &result)
	}
	for _, e := range applied.Effects {
		l.see(e)
	}
	if deliver, ok := command.(ListDeliver); ok && result.Code == OK {
		l.delivered(deliver.Session, result.Completed)
	}
	for name, value := range l.value {
		s, _ := l.m.Semaphore(name)
		if s.Available != value || s.Available < 0 || s.Waiters != int64(len(l.waiting[name])) || s.Available > 0 && s.Waiters > 0 {
			l.t.Fatalf("%T: %q has %d and %d waiters; the ledger says %d and %d", command, name, s.Available, s.Waiters, value, len(l.waiting[name]))
		}
	}
	if err := l.m.check(); err != nil {
		l.t.Fatalf("%T: %v", command, err)
	}
}

// book enters the changes of a command itself, before other requests are served.
func (l *ledger) book(command Command, result *Result) {
	switch c := command.(type) {
	case CreateSemaphore:
		if result.Created {
			l.value[c.Name] = c.Permits
		}
	case OpenSession:
		l.kept[c.Session] = c.Keep
	case Up:
		l.value[c.Name] += c.Count
	case SetValue:
		l.value[c.Name] = c.Value
	case Down: // served at once
		if result.Granted < 1 || result.Granted > c.Count {
			l.t.Fatalf("%d granted of %d", result.Granted, c.Count)
		}
		l.value[c.Name] -= result.Granted
	case ListAdd:
		l.entry(waitListKey{c.Session, c.Name, result.Epoch}).wanted += c.Count
	case ListRemove:
		l.forget(func(k waitListKey) bool { return k.session == c.Session && k.name == c.Name }, true)
	}
}

func (l *ledger) entry(k waitListKey) *ledgerEntry {
	if l.entries[k] == nil {
		l.entries[k] = &ledgerEntry{}
	}
	return l.entries[k]
}

// forget removes entries. It books undelivered grants as given back if they are.
func (l *ledger) forget(which func(waitListKey) bool, back bool) {
	for k, e := range l.entries {
		if which(k) {
			if back && !e.deleted {
				l.value[k.name] += e.granted
			}
			delete(l.entries, k)
		}
	}
}

// see enters an effect.
func (l *ledger) see(e Effect) {
	switch e.Kind {
	case EffectWaiting:
		if l.waiting[e.Semaphore] == nil {
			l.waiting[e.Semaphore] = map[uint64]bool{}
		}
		l.waiting[e.Semaphore][e.Place] = true // occurs again when the request asks for more
	case EffectWithdrawn:
		delete(l.waiting[e.Semaphore], e.Place)
	case EffectGranted: // to a waiting request
		delete(l.waiting[e.Semaphore], e.Place)
		if e.Place <= l.place[e.Semaphore] {
			l.t.Fatalf("%q: place %d is served after %d", e.Semaphore, e.Place, l.place[e.Semaphore])
		}
		l.place[e.Semaphore] = e.Place
		if e.Token == 0 { // a down; EffectListReady has the grant of an entry
			l.value[e.Semaphore] -= e.Count
		}
	case EffectListReady:
		entry := l.entry(waitListKey{e.Session, e.Semaphore, e.Epoch})
		if e.Cause == CauseDeleted {
			*entry = ledgerEntry{deleted: true}
			return
		}
		if e.Count < 1 || e.Count > entry.wanted {
			l.t.Fatalf("%q: %d granted of %d wanted", e.Semaphore, e.Count, entry.wanted)
		}
		entry.wanted, entry.granted = 0, entry.granted+e.Count
		l.value[e.Semaphore] -= e.Count
	case EffectDeleted:
		if len(l.waiting[e.Semaphore]) != 0 {
			l.t.Fatalf("%q is deleted and %d wait", e.Semaphore, len(l.waiting[e.Semaphore]))
		}
		delete(l.value, e.Semaphore)
	case EffectSessionEnded:
		l.forget(func(k waitListKey) bool { return k.session == e.Session }, !l.kept[e.Session])
	}
}

// delivered checks a delivery: it has all grants not yet delivered, and no others.
func (l *ledger) delivered(sessionID uint64, completed []Completion) {
	var got, want []string
	for _, c := range completed {
		got = append(got, fmt.Sprintf("%s %d %d %v", c.Semaphore, c.Epoch, c.Granted, c.Deleted))
	}
	for k, e := range l.entries {
		if k.session == sessionID && (e.granted > 0 || e.deleted) {
			want = append(want, fmt.Sprintf("%s %d %d %v", k.name, k.epoch, e.granted, e.deleted))
			delete(l.entries, k)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		l.t.Fatalf("delivered %q, want %q", got, want)
	}
}
