package fsm

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// brokenState is a sound machine, and finds the records that a test breaks.
type brokenState struct{ *Machine }

// soundState returns the snapshot of a machine with every kind of record.
func soundState(t *testing.T) []byte {
	l := &stampedLog{t: t, m: manyRecords(t)}
	l.stamp = l.m.nowMS
	l.do("waits", Acquire{Session: 6, Name: "a", Count: 1, TTLMS: KeepTTL})
	l.do("", AcquireMany{Session: 4, Wants: []Want{{Semaphore: "a", Count: 1}, {Semaphore: "b", Count: 1}}, Mode: All})
	l.do("", AcquireOnce{Name: "b", Count: 1, TTLMS: MaxTTLMS, WaitMS: MaxTTLMS, Session: 200})
	l.do("holds", AcquireOnce{Name: "c", Count: 1, TTLMS: MaxTTLMS, Session: 201})
	for _, id := range []uint64{2, 3, 4} {
		l.do("", Acquire{Session: id, Name: "c", Count: 1, TTLMS: KeepTTL})
	}
	l.do("", RevokeLease{Session: 2, Name: "c"}, Acquire{Session: 1, Name: "c", Count: 2, TTLMS: KeepTTL})
	l.do("", OpenHolder{Session: 11, TTLMS: MaxTTLMS, DelayMS: 60_000})
	l.m.Apply(l.m.Index()+1, EncodeEntry(l.stamp, [][]byte{Envelope{Owner: "o"}.Encode(OpenSession{Session: 12, TTLMS: MaxTTLMS})}))
	return snapshotOf(t, l.m.Freeze())
}

func (b brokenState) semaphore(name string) *semaphore { return b.semaphores.mut(b.byName[name]) }

func (b brokenState) session(id uint64) *session { return b.sessions.mut(b.sessionOf(id)) }

func (b brokenState) lease(id uint64, name string) *lease {
	r, _ := b.leaseOf(b.sessionOf(id), target(b.byName[name]))
	return b.leases.mut(r)
}

// request returns the only request of a session.
func (b brokenState) request(id uint64) *request { return b.requests.mut(b.session(id).requests.first) }

func (b brokenState) entry(id uint64) *listEntry { return b.entries.mut(b.session(id).entries.first) }

func (b brokenState) key(text string) *key { return b.keys.mut(b.byKey[keyName{text: text}]) }

func (b brokenState) item(name string) *item {
	r, _ := b.itemNames.Get(name)
	return b.items.mut(r)
}

// notice returns the first notice of a semaphore.
func (b brokenState) notice(name string) *notice {
	return b.notices.mut(b.semaphore(name).notices.first)
}

func (b brokenState) folder(text string) *folder {
	r, _ := b.byFolder.Get(text)
	return b.folders.mut(r)
}

func (b brokenState) shaded(name string) *item { return b.items.mut(b.tombstoneOf[name]) }

// brokenInvariant is a way to break an invariant, and what check must say of it.
type brokenInvariant struct {
	finding string
	breaks  func(b brokenState)
}

// brokenInvariants are about semaphores, sessions and what they have.
var brokenInvariants = []brokenInvariant{
	{"tokens beyond", func(b brokenState) { b.tokens = maxToken + 1 }},
	{"cluster time before the beginning", func(b brokenState) { b.nowMS = -1 }},
	{"index of names and semaphores differ", func(b brokenState) { b.names.Delete("a") }},
	{"index of names and semaphores differ", func(b brokenState) { b.semaphores.add(semaphore{}) }},
	{"index of ids and sessions differ", func(b brokenState) { b.bySession.Delete(9) }},
	{"expiry index and sessions differ", func(b brokenState) { b.deadlines.due.length-- }},
	{"index of keys or ended sessions differs", func(b brokenState) { delete(b.byKey, keyName{text: "key a"}) }},
	{"index of keys or ended sessions differs", func(b brokenState) { delete(b.byEnded, 7) }},
	{"a command left work undone", func(b brokenState) { b.touched = []target{1} }},
	{"a command left work undone", func(b brokenState) { b.noticeChecks = []ref{1} }},
	{"a command left work undone", func(b brokenState) { b.endNow = []uint64{1} }},
	{`semaphore "A" is filed wrongly`, func(b brokenState) { b.semaphore("a").name = "A" }},
	{`semaphore "" is filed wrongly`, func(b brokenState) {
		s := b.semaphore("a")
		s.name = ""
		b.byName[""] = b.byName["a"]
		delete(b.byName, "a")
	}},
	{"what is left to end of it", func(b brokenState) { b.semaphore("a").hasImpossible = true }},
	{"what is left to end of it", func(b brokenState) { b.unswept.Set(b.semaphore("a").epoch, b.byName["a"]) }},
	{"was never given", func(b brokenState) { b.semaphore("a").epoch = 0 }},
	{"was never given", func(b brokenState) { b.semaphore("a").epoch = b.epochs + 1 }},
	{"counters out of range", func(b brokenState) { b.semaphore("a").permits = -1 }},
	{"counters out of range", func(b brokenState) { b.semaphore("a").offset = 1<<63 - 1 }},
	{"modified in the future", func(b brokenState) { b.semaphore("a").modified = b.index + 1 }},
	{"a lease of another semaphore among its", func(b brokenState) { b.lease(1, "a").semaphore = b.byName["c"] }},
	{"its leases sum to", func(b brokenState) { b.semaphore("c").held++ }},
	{"its leases sum to", func(b brokenState) { b.semaphore("c").holders.size++ }},
	{"its leases sum to", func(b brokenState) { b.lease(2, "c").endCause = 0 }},
	{"an empty line is kept", func(b brokenState) { b.semaphore("c").line = &line{order: newWaiters()} }},
	{"is in the line and not in its request", func(b brokenState) { b.request(6).place = 99 }},
	{"is in the line and not in its request", func(b brokenState) { b.request(6).members = nil }},
	{"fits and was left behind", func(b brokenState) { b.semaphore("a").permits++ }},
	{"session 99 is filed wrongly", func(b brokenState) { b.session(9).id = 99 }},
	{"its deadline is filed wrongly", func(b brokenState) { b.session(9).deadlineMS++ }},
	{"its deadline is filed wrongly", func(b brokenState) { b.deadlines.due.at(b.deadlines.indexOf(b.sessionOf(9))).id++ }},
	{"outlived its last lease or request", func(b brokenState) { b.session(9).oneShot = true }},
	{"ttl out of range", func(b brokenState) { b.session(9).ttlMS = -1 }},
	{"ttl out of range", func(b brokenState) { b.session(9).ttlMS = MaxTTLMS + 1 }},
	{"its own request does not wait", func(b brokenState) { b.session(200).first = 99 }},
	{"its own request does not wait", func(b brokenState) { b.session(200).oneShot = false }},
	{"its leases are out of order", func(b brokenState) { b.lease(3, "c").session = b.sessionOf(9) }},
	{"its leases are out of order", func(b brokenState) { b.lease(1, "b").token = b.lease(1, "a").token }},
	{"its requests are out of order", func(b brokenState) { b.request(6).session = b.sessionOf(9) }},
	{"its counts differ from its records", func(b brokenState) { b.session(9).leases.size++ }},
	{"its counts differ from its records", func(b brokenState) { b.session(9).requests.size++ }},
	{"its counts differ from its records", func(b brokenState) { b.session(9).reserved++ }},
	{"its counts differ from its records", func(b brokenState) { b.session(9).members++ }},
	{"its counts differ from its records", func(b brokenState) { b.session(9).keys++ }},
	{"its token was never given", func(b brokenState) { b.tokens = 1 }},
	{"the index of leases has one that is over", func(b brokenState) { b.byLease[leaseKey{b.sessionOf(9), target(b.byName["a"])}] = 1 }},
	{"is not in its line", func(b brokenState) { b.semaphore("b").line.remove(waiter{rank: b.request(200).rank()}) }},
	{"a key waits for it that does not know it", func(b brokenState) { b.key("waits").place++ }},
	{"a waiting request without its session", func(b brokenState) { b.reserved++ }},
	{"a waiting request without its session", func(b brokenState) { b.requests.add(request{}) }},
	{"its list is filed wrongly", func(b brokenState) { clear(b.byList) }},
	{"does not know what it waits for", func(b brokenState) { delete(b.byWait, leaseKey{b.sessionOf(6), target(b.byName["a"])}) }},
	{"is not filed under its count", func(b brokenState) {
		places, _ := b.semaphore("a").line.asked.byCount.Get(1)
		places.Delete(b.request(6).place)
	}},
	{"index of waiting requests and requests", func(b brokenState) { b.members++ }},
	{"index of waiting requests and requests", func(b brokenState) { b.byList[listKey{1, 1}] = 1 }},
	{"index of waiting requests and requests", func(b brokenState) { b.byWait[leaseKey{99, 99}] = 1 }},
	{"index of waiting requests and requests", func(b brokenState) { delete(b.byPlace, b.request(5).place) }},
	{`key "waits" is filed wrongly`, func(b brokenState) { b.key("waits").reserved = 0 }},
	{`key "waits" is filed wrongly`, func(b brokenState) { b.key("waits").order = b.orders + 1 }},
	{`key "key a" is filed wrongly`, func(b brokenState) { b.key("key a").reserved = -1 }},
	{`key "key a" is filed wrongly`, func(b brokenState) { b.key("key a").reserved = 1 }},
	{"ends with a session that does not know", func(b brokenState) { b.key("holds").session = 9 }},
	{"ends with a session that does not know", func(b brokenState) { b.key("holds").session = 99 }},
	{"waits for nothing", func(b brokenState) { b.request(6).keys = nil; b.session(6).keys-- }},
	{"waits for nothing", func(b brokenState) { b.key("waits").session = 9 }},
	{"the keys' bytes are counted wrongly", func(b brokenState) { b.keyBytes++ }},
	{"the marks and their index differ", func(b brokenState) { b.marked[[16]byte{1}] = struct{}{} }},
	{"the marks and their index differ", func(b brokenState) { b.marks.push(mark{}) }},
	{"the memory of revoked leases", func(b brokenState) { clear(b.byRevoked) }},
	{"the memory of revoked leases", func(b brokenState) { b.revokedOrder[0].size-- }},
	{"too many ended sessions", func(b brokenState) { b.endedByKind[1].order.size-- }},
	{"lives and is remembered as ended", func(b brokenState) { r := b.byEnded[7]; b.ended.mut(r).id = 9; delete(b.byEnded, 7); b.byEnded[9] = r }},
	{"the records of an owner", func(b brokenState) { clear(b.owned) }},
	{"the records of an owner", func(b brokenState) { b.owned["p"] = owned{keys: 1} }},
	{"its wait list is out of order", func(b brokenState) { b.entry(5).order = b.orders + 1 }},
	{"its wait list is out of order", func(b brokenState) { b.entry(5).order = 0 }},
	{"its wait list is out of order", func(b brokenState) { b.entry(5).session = b.sessionOf(9) }},
	{"an entry of a wait list without", func(b brokenState) { b.entries.add(listEntry{}) }},
	{"an entry of a wait list without", func(b brokenState) { b.byEntry[leaseKey{99, 99}] = 1 }},
	{"still has something", func(b brokenState) { b.entry(5).semaphore = 0 }},
	{"still has something", func(b brokenState) { b.entry(4).semaphore = 0 }},
	{`"b": it is filed wrongly`, func(b brokenState) { b.entry(5).epoch++ }},
	{`"b": it is filed wrongly`, func(b brokenState) { delete(b.byEntry, leaseKey{b.sessionOf(5), target(b.byName["b"])}) }},
	{"its grant is out of range", func(b brokenState) { b.entry(4).granted = -1 }},
	{"its grant is out of range", func(b brokenState) { b.entry(4).token = 0 }},
	{"what waits for it does not know it", func(b brokenState) { b.request(5).listEntry = 0 }},
	{"its grant is out of range", func(b brokenState) { b.entry(4).granted = 0 }},
	{"is filed wrongly", func(b brokenState) { b.notice("a").place++ }},
	{"is filed wrongly", func(b brokenState) {
		b.notice("b").place = b.places + 1
		b.byNotice[b.places+1] = b.semaphore("b").notices.first
	}},
	{"is filed wrongly", func(b brokenState) { b.lease(1, "a").count, b.semaphore("a").held = 0, 0; b.semaphore("a").permits = 0 }},
	{"should be due", func(b brokenState) { b.notice("a").semaphore = b.byName["c"] }},
	{"the notices that end by time", func(b brokenState) { b.timedNotices.size-- }},
	{"a notice without its semaphore", func(b brokenState) { b.semaphore("a").notices.size++ }},
	{"a notice without its semaphore", func(b brokenState) { b.notices.add(notice{}) }},
	{"there without need, or missing", func(b brokenState) { b.holdersBy[b.byName["a"]] = &holderIndex{} }},
}

// brokenItems are about items, their tombstones and the folders of deleted ones.
var brokenItems = []brokenInvariant{
	{"a change that was never numbered", func(b brokenState) { b.changes = b.itemChange - 1 }},
	{"a change that was never numbered", func(b brokenState) { b.sessionChange = b.changes + 1 }},
	{"a change that was never numbered", func(b brokenState) { b.jumped = b.changes + 1 }},
	{"lists an item that it does not hold", func(b brokenState) { b.item("p").holder = b.sessionOf(9) }},
	{"the terms of its items are out of range", func(b brokenState) { b.session(11).itemTerms = &itemTerms{made: b.changes + 1} }},
	{"the terms of its items are out of range", func(b brokenState) { b.session(11).itemTerms = &itemTerms{made: 0} }},
	{"the terms of its items are out of range", func(b brokenState) { b.session(11).itemTerms = &itemTerms{made: 1, delayMS: -1} }},
	{"the terms of its items are out of range", func(b brokenState) { b.session(11).itemTerms = &itemTerms{made: 1, delayMS: MaxItemDelayMS + 1} }},
	{"the terms of its items are out of range", func(b brokenState) { b.session(11).itemTerms = &itemTerms{made: 1, about: "\xff"} }},
	{"an item is held by a session that does not list it", func(b brokenState) { b.item("p/1/free").holder, b.item("p/1/free").locks = b.sessionOf(9), 1 }},
	{"the bytes of items are counted wrongly", func(b brokenState) { b.itemBytes++ }},
	{"the indexes of items and the items differ", func(b brokenState) { b.tombstones.Set(tombstone{delayMS: 1, created: 99}) }},
	{"the indexes of items and the items differ", func(b brokenState) { b.tombstoneOf["x"] = 1 }},
	{"out of range", func(b brokenState) { b.item("p").created = 0 }},
	{"out of range", func(b brokenState) { b.item("p").delayMS = -1 }},
	{"out of range", func(b brokenState) { b.item("p").name = "\xff" }},
	{"its tombstone is filed wrongly", func(b brokenState) { b.shaded("p/1").created = b.changes + 1 }},
	{"its tombstone is filed wrongly", func(b brokenState) { b.tombstoneOf["p/1"]++ }},
	{"its tombstone is filed wrongly", func(b brokenState) { b.itemNames.Set("p/1", b.tombstoneOf["p/1"]) }},
	{"its tombstone is more than a delay", func(b brokenState) { b.shaded("p/1").flags = 1 }},
	{`item "p": filed wrongly`, func(b brokenState) { b.itemNames.Set("p", 1) }},
	{"made by change", func(b brokenState) { b.item("p").version = b.itemChange + 1 }},
	{"made by change", func(b brokenState) { b.item("p").created = b.item("p").version + 1 }},
	{"held, and not acquired", func(b brokenState) { b.item("p").locks = 0 }},
	{"held, and not acquired", func(b brokenState) { b.item("p").delayMS = b.nowMS + 1 }},
	{"of deleted items is filed wrongly", func(b brokenState) { b.byFolder.Delete("p/1/") }},
	{"of deleted items is filed wrongly", func(b brokenState) { b.folder("p/1/").order = b.orders + 1 }},
	{"of deleted items is filed wrongly", func(b brokenState) { b.folder("p/2/").order = b.folder("p/1/").order }},
	{"of deleted items is filed wrongly", func(b brokenState) { b.folder("p/2/").atMS = b.folder("p/1/").atMS - 1 }},
	{"has 0 deleted items", func(b brokenState) { b.folder("p/1/").names = nil }},
	{"deleted items", func(b brokenState) { b.folder("p/1/").names = make([]deletedName, maxFolderNames+1) }},
	{"has 1 deleted items", func(b brokenState) { b.folder("p/1/").names = []deletedName{{"p/1/gone", b.itemChange + 1}} }},
	{"the delete of", func(b brokenState) { b.folder("p/1/").folded = b.itemChange }},
	{"the delete of", func(b brokenState) { b.folder("p/1/").names = []deletedName{{"p/1/gone", 0}} }},
	{"the delete of", func(b brokenState) { b.folder("p/1/").names = []deletedName{{"q", 1}} }},
	{"the delete of", func(b brokenState) { b.folder("p/1/").names = []deletedName{{"p/1/x/gone", 1}} }},
	{"the delete of", func(b brokenState) { b.folder("p/1/").names = []deletedName{{"p/1/gone", 1}, {"p/1/gone", 2}} }},
	{"the deleted items and their indexes differ", func(b brokenState) { b.folderOrder.size++ }},
	{"the deleted items and their indexes differ", func(b brokenState) { b.byFolder.Set("z/", 1) }},
	{"the deleted items and their indexes differ", func(b brokenState) { b.deletedNames++ }},
}

// TestCheckFindsWhatIsBroken breaks each invariant of a sound machine. Without it a check that
// finds nothing would not be noticed, and the tests that rely on check would hold nothing.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	snapshot := soundState(t)
	for i, broken := range slices.Concat(brokenInvariants, brokenItems) {
		m, err := Restore(bytes.NewReader(snapshot))
		if err != nil {
			t.Fatal(err)
		}
		broken.breaks(brokenState{m})
		if err := m.check(); err == nil || !strings.Contains(err.Error(), broken.finding) {
			t.Errorf("way %d, %q: check finds %v", i+1, broken.finding, err)
		}
	}
}

// TestCheckFindsABrokenIndexOfHolders does the same for the index of a long list of leases.
func TestCheckFindsABrokenIndexOfHolders(t *testing.T) {
	for _, broken := range []struct {
		finding string
		breaks  func(m *Machine, r ref, s *semaphore)
	}{
		{"missing", func(m *Machine, r ref, _ *semaphore) { delete(m.holdersBy, r) }},
		{"without need", func(m *Machine, _ ref, _ *semaphore) { m.holdersBy[m.byName["few"]] = &holderIndex{} }},
		{"not in the order of their tokens", func(m *Machine, _ ref, s *semaphore) { m.leases.mut(s.holders.first).token = m.tokens }},
		{"not in the order of their tokens", func(m *Machine, _ ref, s *semaphore) {
			first := m.leases.mut(s.holders.first)
			first.token = m.leases.at(first.inSemaphore.next).token
		}},
		{"another lease for a token", func(m *Machine, r ref, s *semaphore) {
			m.holdersBy[r].byToken.Set(m.leases.at(s.holders.first).token, s.holders.last)
		}},
		{"too few", func(m *Machine, r ref, s *semaphore) { m.holdersBy[r].byToken.Clear() }},
		{"a lease that is gone", func(m *Machine, r ref, _ *semaphore) { m.holdersBy[r].byToken.Set(m.tokens+1, 1) }},
	} {
		l := &stampedLog{t: t, m: New()}
		l.do("", CreateSemaphore{Name: "many", Permits: 3 * holderStride}, CreateSemaphore{Name: "few", Permits: holderStride})
		for id := range uint64(3 * holderStride) {
			l.do("", AcquireOnce{Name: "many", Count: 1, TTLMS: MaxTTLMS, Session: id + 1})
		}
		if err := l.m.check(); err != nil {
			t.Fatal(err)
		}
		r := l.m.byName["many"]
		broken.breaks(l.m, r, l.m.semaphores.mut(r))
		if err := l.m.check(); err == nil || !strings.Contains(err.Error(), broken.finding) {
			t.Errorf("%q: check finds %v", broken.finding, err)
		}
	}
}
