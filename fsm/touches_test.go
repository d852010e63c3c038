//go:build unix

package fsm

import (
	"testing"
	"unsafe"
)

// touches returns how many records of the machine's tables do looks up.
func touches(m *Machine, do func()) int {
	count := 0
	set := func(touches *int) {
		m.semaphores.touches, m.sessions.touches, m.leases.touches, m.requests.touches = touches, touches, touches, touches
		m.entries.touches, m.notices.touches, m.ended.touches, m.keys.touches = touches, touches, touches, touches
		m.items.touches, m.folders.touches = touches, touches
	}
	set(&count)
	do()
	set(nil)
	return count
}

// touchCase is a state, a command, and the most records that the command may touch.
type touchCase struct {
	name    string
	fill    func(*loader)
	key     string
	command Command
	most    int
	code    Code
}

func touchCases() []touchCase {
	level := int32(7)
	waits := func(l *loader) { // 127 requests of 64 members, without any that can be served
		limits := DefaultLimits()
		limits.SessionWaiting = 1 << 20
		l.add(StartTerm{Term: 1, Limits: limits})
		l.full(64 * 129)
		l.manyOfOne(127)
	}
	return []touchCase{
		{"acquire-many beside 8,128 members that wait", waits, "",
			AcquireMany{Session: 1, Wants: wants(64 * 128), Mode: Any}, 64 * 20, Waiting},
		{"the same again", waits, "", AcquireMany{Session: 1, Wants: wants(64 * 126), Mode: Any}, 20, Waiting},
		{"acquire beside 8,128 members that wait", waits, "",
			Acquire{Session: 1, Name: nameOf(64 * 128), Count: 1, TTLMS: KeepTTL}, 40, Waiting},
		{"acquire with a key", waits, "the key",
			Acquire{Session: 1, Name: nameOf(64 * 128), Count: 1, TTLMS: KeepTTL}, 60, Waiting},
		{"acquire-many with levels, beside 4,000 leases", func(l *loader) {
			l.open(1)
			for i := range 4000 {
				l.add(CreateSemaphore{Name: nameOf(i), Permits: 1})
				l.add(Acquire{Session: 1, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
			}
			for i := range 64 {
				l.add(CreateSemaphore{Name: nameOf(4000 + i), Permits: 1, Level: &level})
			}
		}, "", AcquireMany{Session: 1, Wants: wants(4000), Mode: All}, 3*4000 + 64*40, OK},
		{"put of permits, with a line of 50,000", func(l *loader) {
			l.open(50_001)
			l.add(CreateSemaphore{Name: nameOf(0), Permits: 5})
			l.add(Down{Name: nameOf(0), Count: 5})
			l.line(50_001)
		}, "", PutSemaphore{Name: nameOf(0), Permits: Change[int64]{true, 4}}, 20, OK},
		{"delete of a semaphore with 20,000 leases", func(l *loader) { l.free(1); l.open(20_000); l.line(20_000) }, "",
			DeleteSemaphore{Name: nameOf(0)}, 20 * 2048, OK},
		{"delete of a semaphore with 20,000 waiters", func(l *loader) { l.full(1); l.openMore(20_000); l.line(20_000) }, "",
			DeleteSemaphore{Name: nameOf(0)}, 20 * 2048, OK},
		{"up that serves 20,000", func(l *loader) { l.full(1); l.openMore(20_000); l.line(20_000) }, "",
			Up{Name: nameOf(0), Count: 20_000}, 50 * 2048, OK},
		{"release of a request for 64 behind the heads of their lines", func(l *loader) {
			l.full(64)
			l.openMore(3)
			l.add(AcquireMany{Session: 2, Wants: wants(0), Mode: All})
			l.add(AcquireMany{Session: 3, Wants: wants(0), Mode: Any})
		}, "", Release{Session: 3, Name: nameOf(0)}, 64*5 + 20, OK},
		{"put that 20,000 waiters don't fit into", func(l *loader) { l.full(1); l.openMore(20_000); l.line(20_000) }, "",
			PutSemaphore{Name: nameOf(0), Permits: Change[int64]{Given: true}}, 20 * 2048, OK},
	}
}

// TestCommandsTouchFewRecords: the records that a command looks at depend on its list and
// its changes, not on other records beside them.
func TestCommandsTouchFewRecords(t *testing.T) {
	for _, c := range touchCases() {
		t.Run(c.name, func(t *testing.T) {
			l := &loader{m: New()}
			c.fill(l)
			l.flush()
			entry := EncodeEntry(0, [][]byte{Envelope{Key: c.key}.Encode(c.command)})
			var applied *Applied
			touched := touches(l.m, func() { applied = l.apply(entry) })
			if code := applied.Commands[0].Result.Code; code != c.code {
				t.Fatalf("%v, want %v", code, c.code)
			}
			t.Logf("%d records", touched)
			if touched > c.most {
				t.Errorf("it touched %d records, the bound is %d", touched, c.most)
			}
		})
	}
}

// TestHeadsLeftOverAreNotWalkedThrough: an entry looks at the heads that it grants, and not
// at all heads that are left over.
func TestHeadsLeftOverAreNotWalkedThrough(t *testing.T) {
	const lines, served = 10_000, 16
	l := &loader{m: New()}
	l.open(2)
	l.add(Renew{Renewals: []Renewal{{1, 1000}}})
	limits := DefaultLimits()
	limits.SessionLeases, limits.SessionWaiting = lines, lines
	l.add(StartTerm{Term: 1, Limits: limits})
	for i := range lines {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 1})
		l.add(Acquire{Session: 1, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
		l.add(Acquire{Session: 2, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
	}
	l.flush()
	l.m.budget.served = served
	applied := l.apply(EncodeEntry(1000, nil))
	if !applied.MoreDue || l.m.unserved.Len() < lines/2 {
		t.Fatalf("%d heads are left over", l.m.unserved.Len())
	}
	for i := range 5 {
		first := l.m.tokens
		if touched := touches(l.m, func() { applied = l.apply(EncodeEntry(1000, nil)) }); touched > 60*served {
			t.Errorf("entry %d touched %d records", i, touched)
		}
		if granted := l.m.tokens - first; granted != served {
			t.Errorf("entry %d granted %d", i, granted)
		}
	}
	l.apply(EncodeEntry(1000, encodeAll(plain(EndSession{Session: 2}))))
	if l.m.unserved.Len() != 0 || l.m.MoreDue() {
		t.Errorf("%d heads are left over after the end of their session", l.m.unserved.Len())
	}
}

// TestHeadsThatCantBeGrantedAreNotLeftOver: while an earlier line takes the budget, a mass
// expiry frees too few permits for the heads of many lines. No later entry looks at all of
// these heads.
func TestHeadsThatCantBeGrantedAreNotLeftOver(t *testing.T) {
	const lines, due, served = 4000, 200, 16
	l := &loader{m: New()}
	l.full(1)
	l.openMore(due + 1)
	l.line(due + 1)
	for i := range lines {
		name, sessionID := nameOf(i+1), uint64(3*i)+1_000_000
		l.add(CreateSemaphore{Name: name, Permits: 2})
		l.add(AcquireOnce{Name: name, Count: 1, TTLMS: MaxTTLMS, Session: sessionID})
		l.add(AcquireOnce{Name: name, Count: 1, TTLMS: 1000, Session: sessionID + 1})
		l.add(AcquireOnce{Name: name, Count: 2, TTLMS: 1000, WaitMS: MaxTTLMS, Session: sessionID + 2})
	}
	l.flush()
	l.m.budget.served = served
	applied := l.apply(EncodeEntry(0, encodeAll(plain(Up{Name: nameOf(0), Count: due}))))
	for entry := 0; applied.MoreDue; entry++ {
		expires := l.m.sessions.live
		touched := touches(l.m, func() { applied = l.apply(EncodeEntry(1000, nil)) })
		expires -= l.m.sessions.live
		if bound := 60*served + 40*expires; touched > bound {
			t.Errorf("entry %d touched %d records, beside %d sessions that expired", entry, touched, expires)
		}
	}
	if _, sessions, _, waiting := l.m.Counts(); sessions != 1+due+2*lines || waiting != lines {
		t.Errorf("%d sessions and %d requests are left", sessions, waiting)
	}
}

// fullEntry is a state, the commands of a full entry, and the most records that the entry
// may touch.
type fullEntry struct {
	worstCase
	most int
}

func fullEntries() []fullEntry {
	const requests = 100
	waits := func(l *loader) { l.full(64); l.openMore(EntryWeight) }
	list := func(i int) Command { return AcquireMany{Session: uint64(i) + 1, Wants: wants(0), Mode: All} }
	return []fullEntry{
		{worstCase{name: "releases of requests for which 1,024 keys wait", unowned: true, commands: requests,
			fill:    func(l *loader) { l.full(4); l.keyed(requests * maxRequestKeys) },
			command: func(i int) Command { return Release{Session: uint64(i/4) + 2, Name: nameOf(i % 4)} }}, 150_000},
		{worstCase{name: "lists asked for again after a delete, 1,024 keys for each", unowned: true, commands: 2 + requests,
			fill: func(l *loader) { l.full(1); l.keyedLists(requests * maxRequestKeys) }, command: again}, 150_000},
		{worstCase{name: "ups that serve requests for which 1,024 keys wait", commands: 4,
			fill:    func(l *loader) { l.full(4); l.keyed(requests * maxRequestKeys) },
			command: func(i int) Command { return Up{Name: nameOf(i), Count: 1 << 30} }}, 20_000},
		{worstCase{name: "removals of 64 entries of one name", fill: func(l *loader) { l.namesakes(EntryWeight) },
			command: func(i int) Command { return ListRemove{Session: uint64(i) + 1, Name: nameOf(0)} }}, 150_000},
		{worstCase{name: "deliveries of 64 entries", fill: func(l *loader) { l.free(64); l.lists(EntryWeight) },
			command: func(i int) Command { return ListDeliver{Session: uint64(i) + 1} }}, 130_000},
		{worstCase{name: "deliveries of 64 entries that wait for more", fill: func(l *loader) { l.waitingLists(256) }, commands: 256,
			command: func(i int) Command { return ListDeliver{Session: uint64(i) + 1} }}, 200_000},
		{worstCase{name: "releases of requests for 64 semaphores", command: func(i int) Command {
			return Release{Session: uint64(i) + 1, Name: nameOf(0)}
		}, fill: func(l *loader) {
			waits(l)
			for i := range EntryWeight {
				l.add(list(i))
			}
		}}, 200_000},
		{worstCase{name: "lists of 64 semaphores", fill: waits, command: list}, 15_000},
		{worstCase{name: "restores of 64 leases", fill: func(l *loader) { l.free(64) }, command: func(i int) Command {
			return RestoreSession{Session: uint64(i) + 1, TTLMS: 30_000, Leases: wants(0)}
		}}, 21_000},
		{worstCase{name: "renewals of 1,024 sessions", fill: func(l *loader) { l.open(EntryWeight) }, command: func(int) Command {
			c := Renew{}
			for i := range EntryWeight {
				c.Renewals = append(c.Renewals, Renewal{Session: uint64(i) + 1, TTLMS: 30_000})
			}
			return c
		}}, 30_000},
		{worstCase{name: "renewals that end 4,096 sessions of 4 leases", commands: 4,
			fill: func(l *loader) { l.free(4); l.holders(4*EntryWeight, 4) }, command: func(i int) Command {
				c := Renew{}
				for k := range EntryWeight {
					c.Renewals = append(c.Renewals, Renewal{Session: uint64(i*EntryWeight+k) + 1, TTLMS: 0})
				}
				return c
			}}, 80_000},
		{worstCase{name: "a mass expiry with a session that has as much as any limits allow", commands: -1, stampMS: 20_000,
			fill: func(l *loader) { l.largest(1, 10_060); l.behind(20_000) }}, 220_000},
		{worstCase{name: "ends of 1,000 notices", fill: func(l *loader) { l.notices(100) }, commands: 10, command: func(i int) Command {
			c := NoticeDone{}
			for k := range 1000 {
				c.IDs = append(c.IDs, uint64(1000*i+k)+1)
			}
			return c
		}}, 15_000},
		{worstCase{name: "revocations that end a session with 1,024 keys", unowned: true, fill: func(l *loader) { l.oneShots(16, maxRequestKeys) },
			commands: 16, command: func(i int) Command {
				return RevokeLease{Session: uint64(i) + 2, Name: nameOf(2 + i)}
			}}, 15_000},
		{worstCase{name: "a delete of all items", fill: func(l *loader) { l.open(1); l.items(30_000) },
			command: func(int) Command { return ItemDeleteAll{} }}, 12 * maxDeletedAtOnce},
		{worstCase{name: "ends of sessions with 4,096 items", fill: func(l *loader) { l.itemHolders(3) }, commands: 3,
			command: func(i int) Command { return EndSession{Session: uint64(i) + 1} }}, 40 * maxSessionItems},
		{worstCase{name: "a tick with 20,480 shades that are due", fill: func(l *loader) { l.shades(5 * maxSessionItems) },
			commands: -1, stampMS: 2_000}, 4 * maxTombstonesDropped},
	}
}

// TestFullEntriesTouchFewRecords: an entry that a leader fills with commands which touch
// more than one record each stays bounded, whatever the state.
func TestFullEntriesTouchFewRecords(t *testing.T) {
	for _, w := range fullEntries() {
		t.Run(w.name, func(t *testing.T) {
			l := &loader{m: New()}
			w.fill(l)
			l.flush()
			entry, commands := w.entry(l.m)
			var applied *Applied
			touched := touches(l.m, func() { applied = l.apply(entry) })
			for i := range applied.Commands {
				if code := applied.Commands[i].Result.Code; code != OK && code != Waiting {
					t.Fatalf("command %d: %v", i, code)
				}
			}
			t.Logf("%d commands, %d records", commands, touched)
			if touched > w.most {
				t.Errorf("an entry of %d commands touched %d records, the bound is %d", commands, touched, w.most)
			}
		})
	}
}

// TestAnEntryAfterACopyCopiesLittle: the first entry of a mass expiry after a snapshot
// has begun changes records on many pages, and copies each of these pages.
func TestAnEntryAfterACopyCopiesLittle(t *testing.T) {
	const sessions, most = 120_000, 40 << 20
	l := &loader{m: New()}
	l.behind(sessions)
	l.flush()
	l.m.Freeze()
	l.apply(EncodeEntry(20_000, nil))
	copied := ownBytes(&l.m.semaphores) + ownBytes(&l.m.sessions) + ownBytes(&l.m.leases) +
		ownBytes(&l.m.requests) + ownBytes(&l.m.keys) + ownBytes(&l.m.ended)
	t.Logf("%d KiB", copied>>10)
	if copied > most {
		t.Errorf("an entry copied %d KiB, the bound is %d KiB", copied>>10, most>>10)
	}
}

// ownBytes returns the size of the pages that a table has not shared with its last copy.
func ownBytes[T any](t *table[T]) (bytes int) {
	for _, p := range t.pages {
		if p != nil && p.generation == t.generation {
			bytes += int(unsafe.Sizeof(*p))
		}
	}
	return bytes
}
