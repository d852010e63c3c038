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
	DelayMS int64  // the cluster time before which no session may acquire it; 0: no delay
}

// HolderView has the terms of a session that open-holder opened.
type HolderView struct {
	About       string
	DeleteItems bool   // its end deletes its items; otherwise it releases them
	DelayMS     int64  // how long after the end no session may acquire the items
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

// ItemsAfter returns the items whose names begin with prefix and come after a name, in the order of names. An empty
// name starts at the first item.
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

// ItemIndex returns the number of the last change or delete of an item; 0: no change is remembered. Changes of other
// names do not move it, with one exception: if the delete of the name is forgotten, the index is the number of the last
// forgotten delete in its folder.
func (m *Machine) ItemIndex(name string) uint64 {
	if r, ok := m.itemNames.Get(name); ok {
		return max(m.items.at(r).version, m.jumped)
	}
	return max(m.deletedAt(name), m.jumped)
}

// ItemsIndex returns the highest ItemIndex of the names that begin with prefix. It reads each of these items, and the
// folders below prefix in which an item was deleted. For the empty prefix it reads one counter.
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

// DeletesIndex returns the part of ItemsIndex that comes from deleted items. It reads up to 10,000 folders, starting at
// the folder from (empty: the first). next is the folder to continue with, and is empty after the last folder.
func (m *Machine) DeletesIndex(prefix, from string) (index uint64, next string) {
	index, next = m.deletedBelow(prefix, from)
	return max(index, m.jumped), next
}

// Holder returns the terms of a living session; ok is false unless open-holder opened it.
func (m *Machine) Holder(sessionID uint64) (view HolderView, ok bool) {
	r, ok := m.bySession.Get(sessionID)
	if !ok || m.sessions.at(r).itemTerms == nil {
		return HolderView{}, false
	}
	terms := m.sessions.at(r).itemTerms
	return HolderView{About: terms.about, DeleteItems: terms.deletes, DelayMS: terms.delayMS, Made: terms.made}, true
}

// HeldItems returns the names of the items that a session holds, the oldest item first.
func (m *Machine) HeldItems(sessionID uint64) (names []string) {
	r, ok := m.bySession.Get(sessionID)
	if !ok {
		return nil
	}
	for _, held := range m.itemsOf(m.sessions.at(r)) {
		names = append(names, m.items.at(held).name)
	}
	return names
}

// ItemsView shows how many items and bytes are in use, and the limits.
type ItemsView struct {
	Items            int64
	Shades           int64 // deleted items whose delay still runs
	MostItems        int64 // the limit of Items and Shades together
	Bytes, MostBytes int64
	Deletes, Folders int64 // deletes that are remembered by name, and their folders
}

// ItemCounts returns how many items and bytes are in use.
func (m *Machine) ItemCounts() ItemsView {
	return ItemsView{Items: int64(m.itemNames.Len()), Shades: int64(len(m.tombstoneOf)), MostItems: maxItems,
		Bytes: m.itemBytes, MostBytes: maxItemBytes, Deletes: int64(m.deletedNames), Folders: int64(m.folders.live)}
}
