package fsm

import "strings"

// ItemView is an item as readers see it.
type ItemView struct {
	Name    string
	Value   string // any bytes
	Flags   uint64
	Session uint64 // that holds it, or 0
	Locks   uint64 // how often a session acquired it while no session held it
	Created uint64 // the number of the change that made it
	Version uint64 // the number of its last change
	DelayMS int64  // in cluster time, until when no session acquires it; 0: now
}

// HolderView is what open-holder gave a session.
type HolderView struct {
	About       string
	DeleteItems bool   // its end deletes its items, instead of releasing them
	DelayMS     int64  // how long no session acquires the items after the end
	Made        uint64 // the number of the change that opened it
}

// Item returns one item by name.
func (m *Machine) Item(name string) (ItemView, bool) {
	r, ok := m.itemNames.Get(name)
	if !ok {
		return ItemView{}, false
	}
	return m.viewItem(r), true
}

func (m *Machine) viewItem(r ref) ItemView {
	i := m.items.at(r)
	view := ItemView{Name: i.name, Value: i.value, Flags: i.flags, Session: m.sessionID(i.holder), Locks: i.locks,
		Created: i.created, Version: i.version}
	if i.delayMS > m.nowMS {
		view.DelayMS = i.delayMS
	}
	return view
}

// ItemsAfter returns the items in the order of their names: those that begin with prefix and
// come after the given name; of an empty one, from the first.
func (m *Machine) ItemsAfter(prefix, after string) func(yield func(ItemView) bool) {
	return func(yield func(ItemView) bool) {
		m.itemNames.Ascend(max(prefix, after), func(name string, r ref) bool {
			if !strings.HasPrefix(name, prefix) {
				return false
			}
			return name == after || yield(m.viewItem(r))
		})
	}
}

// ItemIndex returns the number of the last change of the item of a name, also if that was its
// delete. Changes of other names do not move it, but for one case: of deletes that are not
// remembered one by one, the index of a name without an item is the highest in its folder. 0
// is no change that is remembered.
func (m *Machine) ItemIndex(name string) uint64 {
	if r, ok := m.itemNames.Get(name); ok {
		return max(m.items.at(r).version, m.jumped)
	}
	return max(m.deletedAt(name), m.jumped)
}

// ItemsIndex returns the number of the last change of all items whose names begin with prefix,
// also if that was a delete, as ItemIndex. It looks at each of these items, and at the folders
// below prefix in which an item was deleted; for the empty prefix at neither.
func (m *Machine) ItemsIndex(prefix string) uint64 {
	if prefix == "" {
		return m.itemChange
	}
	index, from := m.DeletesIndex(prefix, "")
	for from != "" {
		var more uint64
		more, from = m.DeletesIndex(prefix, from)
		index = max(index, more)
	}
	m.itemNames.Ascend(prefix, func(name string, r ref) bool {
		if !strings.HasPrefix(name, prefix) {
			return false
		}
		index = max(index, m.items.at(r).version)
		return true
	})
	return index
}

// DeletesIndex returns a part of ItemsIndex that does not come from the items that there are: that of 10,000 folders
// at most, from the one that is named. An empty from begins with the first one; next names the one to go on with, and is
// empty after the last.
func (m *Machine) DeletesIndex(prefix, from string) (index uint64, next string) {
	index, next = m.deletedBelow(prefix, from)
	return max(index, m.jumped), next
}

// HoldersIndex returns the number of the last open or end of a session that open-holder
// opened, 0 if there was none.
func (m *Machine) HoldersIndex() uint64 { return m.sessionChange }

// Holder returns what open-holder gave a session; ok is false if it did not open it.
func (m *Machine) Holder(session uint64) (view HolderView, ok bool) {
	r, lives := m.bySession.Get(session)
	if !lives || m.sessions.at(r).terms == nil {
		return HolderView{}, false
	}
	on := m.sessions.at(r).terms
	return HolderView{About: on.about, DeleteItems: on.deletes, DelayMS: on.delayMS, Made: on.made}, true
}

// HeldItems returns the names of the items that a session holds, the one that was made first
// first.
func (m *Machine) HeldItems(session uint64) (names []string) {
	r, lives := m.bySession.Get(session)
	if !lives {
		return nil
	}
	for _, held := range m.itemsOf(m.sessions.at(r)) {
		names = append(names, m.items.at(held).name)
	}
	return names
}

// ItemsView shows how much room items take, with the limits.
type ItemsView struct {
	Items            int64
	Shades           int64 // deleted items whose delay runs
	MostItems        int64 // of both
	Bytes, MostBytes int64
	Deletes, Folders int64 // deletes that are remembered by name, and their folders
}

// ItemCounts returns how much room items take.
func (m *Machine) ItemCounts() ItemsView {
	return ItemsView{Items: int64(m.itemNames.Len()), Shades: int64(len(m.byShade)), MostItems: maxItems,
		Bytes: m.itemBytes, MostBytes: maxItemBytes, Deletes: int64(m.deletedNames), Folders: int64(m.folders.live)}
}
