package fsm

import (
	"errors"
	"fmt"
	"strings"
)

// checkItems: items and tombstones are filed by their names, a held item is in the list of its session, and no change
// has a number above the counter.
func (m *Machine) checkItems() error {
	if max(m.itemChange, m.sessionChange, m.jumped) > m.changes {
		return errors.New("a change that was never numbered")
	}
	held, bytes := 0, int64(0)
	for r, i := range m.items.all() {
		bytes += i.bytes()
		if i.holder != 0 {
			held++
		}
		if err := m.checkItem(r, i); err != nil {
			return fmt.Errorf("item %q: %w", i.name, err)
		}
	}
	for r, s := range m.sessions.all() {
		for i := s.items.first; i != 0; i = m.items.at(i).inSession.next {
			if held--; m.items.at(i).holder != r {
				return fmt.Errorf("session %d lists an item that it does not hold", s.id)
			}
		}
		if t := s.itemTerms; t != nil {
			bytes += t.bytes()
			if t.made == 0 || t.made > m.changes || !validAbout(t.about) || t.delayMS < 0 || t.delayMS > MaxItemDelayMS {
				return fmt.Errorf("session %d: the terms of its items are out of range", s.id)
			}
		}
	}
	switch {
	case held != 0:
		return errors.New("an item is held by a session that does not list it")
	case bytes != m.itemBytes:
		return errors.New("the bytes of items are counted wrongly")
	case m.itemNames.Len()+len(m.tombstoneOf) != m.items.live || m.tombstones.Len() != len(m.tombstoneOf):
		return errors.New("the indexes of items and the items differ")
	}
	return m.checkFolders()
}

func (m *Machine) checkItem(r ref, i *item) error {
	switch filed, _ := m.itemNames.Get(i.name); {
	case !validItem(i.name, i.value) || i.created == 0 || i.delayMS < 0:
		return errors.New("out of range")
	case i.tombstone:
		at, _ := m.tombstones.Get(tombstone{delayMS: i.delayMS, created: i.created})
		if m.tombstoneOf[i.name] != r || at.item != r || filed != 0 || i.created > m.changes {
			return errors.New("its tombstone is filed wrongly")
		}
		if *i != (item{name: i.name, created: i.created, delayMS: i.delayMS, owner: i.owner, tombstone: true}) || i.delayMS == 0 {
			return errors.New("its tombstone is more than a delay")
		}
	case filed != r:
		return errors.New("filed wrongly")
	case i.version < i.created || i.version > m.itemChange:
		return fmt.Errorf("version %d, made by change %d, was never given", i.version, i.created)
	case i.holder != 0 && (i.delayMS > m.nowMS || i.locks == 0):
		return errors.New("held, and not acquired, or during its delay")
	}
	return nil
}

// checkFolders: the names of a folder belong to it, occur once, and are in the order of their deletes.
func (m *Machine) checkFolders() error {
	names, order, atMS := 0, uint64(0), int64(0)
	for r := m.folderOrder.first; r != 0; r = m.folders.at(r).inOrder.next {
		f := m.folders.at(r)
		if filed, _ := m.byFolder.Get(f.text); filed != r || f.order <= order || f.order > m.orders || f.atMS < atMS {
			return fmt.Errorf("the folder %q of deleted items is filed wrongly", f.text)
		}
		order, atMS = f.order, f.atMS
		names += len(f.names)
		if len(f.names) == 0 || len(f.names) > maxFolderNames || f.last() > m.itemChange {
			return fmt.Errorf("the folder %q has %d deleted items", f.text, len(f.names))
		}
		last, seen := f.folded, map[string]bool{}
		for _, d := range f.names {
			if d.number < last || d.number == 0 || !strings.HasPrefix(d.name, f.text) || folderOf(d.name) != f.text || seen[d.name] {
				return fmt.Errorf("the delete of %q is filed wrongly", d.name)
			}
			last, seen[d.name] = d.number, true
		}
	}
	if m.folderOrder.length() != m.folders.live || m.byFolder.Len() != m.folders.live || names != m.deletedNames {
		return errors.New("the deleted items and their indexes differ")
	}
	if m.folders.live > maxFolders || m.deletedNames > maxDeletedNames {
		return errors.New("too many deleted items are remembered")
	}
	return nil
}
