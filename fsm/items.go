package fsm

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/tidwall/btree"
)

// itemTerms are what open-holder sets for a session and its items. They are immutable.
type itemTerms struct {
	about   string // opaque to the machine
	deletes bool   // the end of the session deletes its items; otherwise it releases them
	delayMS int64  // how long after the session's end no session may acquire its items
	made    uint64 // the number of the change that opened it
}

// bytes returns the bytes of the terms that count against maxItemBytes.
func (t *itemTerms) bytes() int64 { return int64(len(t.about)) + itemOverhead }

func (i *item) bytes() int64 { return int64(len(i.name)+len(i.value)) + itemOverhead }

// validAbout reports whether a session may have this text: UTF-8 of up to 8 KiB.
func validAbout(about string) bool {
	return len(about) <= MaxAboutBytes && utf8.ValidString(about)
}

// validItem reports whether a name and a value are valid for an item. The value may have any bytes.
func validItem(name, value string) bool { return ValidName(name) && len(value) <= MaxValueBytes }

// nextChange returns the number of the next change of items. A command, or the end of a session, uses one number for
// all items that it changes.
func (m *Machine) nextChange() uint64 {
	m.changes++
	m.itemChange = m.changes
	return m.changes
}

// jumpChanges makes the counter of changes skip numbers. From then on, every index is at least the last skipped number,
// which tells a reader that saw changes of a lost state that the state was replaced.
func (m *Machine) jumpChanges(by uint64) {
	m.changes += by
	if by > 0 {
		m.itemChange, m.sessionChange, m.jumped = m.changes, m.changes, m.changes
	}
}

// delayOf returns for how long no session may acquire the item with this name, in milliseconds.
func (m *Machine) delayOf(name string) int64 {
	r, ok := m.itemNames.Get(name)
	if !ok {
		if r, ok = m.tombstoneOf[name]; !ok {
			return 0
		}
	}
	return max(0, m.items.at(r).delayMS-m.nowMS)
}

// hasVersion reports whether an item has the version that a command expects. If not, result is the refusal. An absent
// item has version 0.
func (i *item) hasVersion(expected Change[uint64], result *Result) bool {
	switch {
	case !expected.Given || expected.Value == i.version:
		return true
	case i.version != 0:
		*result = differs(RuleVersion, i.version)
	default:
		*result = differs(RuleAbsent, 0)
	}
	return false
}

// differs refuses a command because an item does not meet a condition of the command.
func differs(rule Rule, version uint64) Result {
	return Result{Code: ItemDiffers, Rule: rule, Version: version}
}

// roomForItems reports whether there is room for more bytes of items, for another item if another is set, and for
// change in the caller's share. It never refuses a change without growth.
func (m *Machine) roomForItems(another bool, bytes int64, change owned, result *Result) bool {
	if another && !within(int64(m.items.live), maxItems, RuleItems, result) ||
		bytes > 0 && !within(m.itemBytes+bytes-1, maxItemBytes, RuleItemBytes, result) {
		return false
	}
	has := m.owned[m.caller.Owner]
	return m.withinShare(has.items, change.items, maxItems, RuleOwnerItems, result) &&
		m.withinShare(has.itemBytes, change.itemBytes, maxItemBytes, RuleOwnerItemBytes, result)
}

// itemOf returns the count of an item for its owner, negative if sign is -1.
func itemOf(i *item, sign int64) owned { return owned{items: sign, itemBytes: sign * i.bytes()} }

// changeItem sets the value and flags of an item, or creates it. holder returns the session that holds the item after
// the change, and may refuse. before is the item before the change, with version 0 if absent.
func (m *Machine) changeItem(set item, cause Cause, holder func(before *item, result *Result) (ref, bool)) (result Result) {
	if !validItem(set.name, set.value) {
		return Result{Code: Malformed}
	}
	var before item
	if r, exists := m.itemNames.Get(set.name); exists {
		before = *m.items.at(r)
	}
	var ok bool
	if set.holder, ok = holder(&before, &result); ok {
		m.setItem(set, cause, &result)
	}
	return result
}

// setItem makes the change for changeItem. If value, flags and holder stay the same, it writes no record and uses no
// number. Without room, result is the refusal; otherwise it has the version and the number of locks after the change.
func (m *Machine) setItem(set item, cause Cause, result *Result) {
	r, exists := m.itemNames.Get(set.name)
	if !exists {
		r = m.tombstoneOf[set.name]
	}
	var before item
	if r != 0 {
		before = *m.items.at(r)
	}
	result.Found, result.Created = exists, !exists
	if exists && before.value == set.value && before.flags == set.flags && before.holder == set.holder {
		result.Version, result.Locks = before.version, before.locks
		return
	}
	more := set.bytes()
	if r != 0 {
		more -= before.bytes()
	}
	var change owned
	if set.owner = before.owner; !exists || more > 0 {
		set.owner, change = m.caller.Owner, itemOf(&set, 1)
		if r != 0 && before.owner == set.owner {
			change = owned{itemBytes: more}
		}
	}
	if !m.roomForItems(r == 0, more, change, result) {
		result.Found, result.Created = false, false
		return
	}
	set.created, set.locks, set.delayMS, set.inSession = before.created, before.locks, before.delayMS, before.inSession
	set.version = m.nextChange()
	if !exists {
		set.created = set.version
	}
	if set.holder != 0 && before.holder == 0 {
		set.locks++
	}
	switch {
	case r == 0:
		r = m.items.add(item{})
	case before.tombstone:
		m.unfileTombstone(&before)
		fallthrough
	default:
		m.count(before.owner, itemOf(&before, -1))
	}
	m.count(set.owner, itemOf(&set, 1))
	*m.items.mut(r) = set
	if !exists {
		m.itemNames.Set(set.name, r)
	}
	m.itemBytes += more
	m.moveItem(r, before.holder, set.holder)
	m.emit(Effect{Kind: EffectItemChanged, Item: set.name, Version: set.version, Session: m.sessionID(set.holder), Cause: cause})
	result.Version, result.Locks = set.version, set.locks
}

// moveItem moves an item from the list of one session to the list of another session; 0 is no session.
func (m *Machine) moveItem(r, from, to ref) {
	if from == to {
		return
	}
	if from != 0 {
		m.sessions.mut(from).items.unlink(r, m.itemInSession)
	}
	if to != 0 {
		m.sessions.mut(to).items.push(r, m.itemInSession)
	}
}

func (m *Machine) itemInSession(r ref) *links { return &m.items.mut(r).inSession }

// deleteItem removes an item, as the change with this number. If the item's delay still runs, a tombstone keeps its
// name and delay, because no session may acquire a new item of that name before the delay ends.
func (m *Machine) deleteItem(r ref, number uint64, cause Cause) {
	gone := *m.items.at(r)
	m.moveItem(r, gone.holder, 0)
	m.itemNames.Delete(gone.name)
	m.rememberDelete(gone.name, number)
	m.emit(Effect{Kind: EffectItemDeleted, Item: gone.name, Version: number, Session: m.sessionID(gone.holder), Cause: cause})
	m.itemBytes -= gone.bytes()
	m.count(gone.owner, itemOf(&gone, -1))
	if gone.delayMS <= m.nowMS {
		m.items.remove(r)
		return
	}
	left := item{name: gone.name, created: gone.created, delayMS: gone.delayMS, owner: gone.owner, tombstone: true}
	m.itemBytes += left.bytes()
	m.count(left.owner, itemOf(&left, 1))
	*m.items.mut(r) = left
	m.fileTombstone(r)
}

// releaseItems releases or deletes the items of an ending session, the oldest first, as one change. No session may
// acquire such an item until its delay has passed.
func (m *Machine) releaseItems(r ref, cause Cause) {
	s := *m.sessions.at(r)
	number := m.changes + 1
	m.changes = number
	terms := s.itemTerms
	if terms != nil {
		m.sessionChange = number
		m.itemBytes -= terms.bytes()
		m.count(s.owner, owned{itemBytes: -terms.bytes()})
	} else {
		terms = &itemTerms{}
	}
	for _, held := range m.itemsOf(&s) {
		m.itemChange = number
		m.done.ended++
		if terms.delayMS > 0 {
			m.items.mut(held).delayMS = m.nowMS + terms.delayMS
		}
		if terms.deletes {
			m.deleteItem(held, number, cause)
			continue
		}
		m.moveItem(held, r, 0)
		i := m.items.mut(held)
		i.holder, i.version = 0, number
		m.emit(Effect{Kind: EffectItemChanged, Item: i.name, Version: number, Cause: cause})
	}
}

// itemsOf returns the items that a session holds, the oldest first. It sorts them because the list is in the order of
// the acquires, which a snapshot does not contain.
func (m *Machine) itemsOf(s *session) []ref {
	var held []ref
	for r := s.items.first; r != 0; r = m.items.at(r).inSession.next {
		held = append(held, r)
	}
	slices.SortFunc(held, func(a, b ref) int { return cmp.Compare(m.items.at(a).created, m.items.at(b).created) })
	return held
}

// tombstone is a deleted item whose delay still runs. Tombstones are sorted by the end of their delay.
type tombstone struct {
	delayMS int64
	created uint64 // unique
	item    ref
}

func newTombstones() *btree.BTreeG[tombstone] {
	return btree.NewBTreeGOptions(func(a, b tombstone) bool {
		return cmp.Or(cmp.Compare(a.delayMS, b.delayMS), cmp.Compare(a.created, b.created)) < 0
	}, btree.Options{NoLocks: true})
}

func (m *Machine) fileTombstone(r ref) {
	i := m.items.at(r)
	m.tombstoneOf[i.name] = r
	m.tombstones.Set(tombstone{i.delayMS, i.created, r})
}

func (m *Machine) unfileTombstone(i *item) {
	delete(m.tombstoneOf, i.name)
	m.tombstones.Delete(tombstone{delayMS: i.delayMS, created: i.created})
}

// dropTombstones removes the tombstones whose delay is over, up to maxTombstonesDropped.
func (m *Machine) dropTombstones() {
	for n := 0; n < maxTombstonesDropped && m.tombstonesDue(); n++ {
		first, _ := m.tombstones.Min()
		gone := *m.items.at(first.item)
		m.unfileTombstone(&gone)
		m.itemBytes -= gone.bytes()
		m.count(gone.owner, itemOf(&gone, -1))
		m.items.remove(first.item)
	}
}

// moveItemTimes applies move to each cluster time in items and folders.
func (m *Machine) moveItemTimes(move func(*int64)) {
	changeEach(&m.items, func(i *item) {
		if i.delayMS != 0 {
			move(&i.delayMS)
		}
	})
	changeEach(&m.folders, func(f *folder) { move(&f.atMS) })
	m.tombstones.Clear()
	for r, i := range m.items.all() {
		if i.tombstone {
			m.fileTombstone(r)
		}
	}
}
