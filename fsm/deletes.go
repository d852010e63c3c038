package fsm

import (
	"slices"
	"strings"
)

// A reader that asks for changes since a number must also see deletes. So the machine remembers for a while which
// change deleted which name. A folder (the text of a name up to its last slash) has its last deletes by name, and only
// the highest number of its earlier deletes.

// folderOf returns the folder of a name, with the slash at its end.
func folderOf(name string) string { return name[:strings.LastIndexByte(name, '/')+1] }

// last returns the number of the last delete in a folder.
func (f *folder) last() uint64 { return f.names[len(f.names)-1].number }

// rememberDelete records that a change deleted an item. Beyond the bounds it forgets the
// folders whose last delete is the oldest.
func (m *Machine) rememberDelete(name string, number uint64) {
	text := folderOf(name)
	r, known := m.byFolder.Get(text)
	if known {
		m.folderOrder.unlink(r, m.folderInOrder)
	} else {
		r = m.folders.add(folder{text: text})
		m.byFolder.Set(text, r)
	}
	f := m.folders.mut(r)
	names := f.names
	m.deletedNames -= len(names)
	if at := slices.IndexFunc(names, func(d deletedName) bool { return d.name == name }); at >= 0 {
		names = slices.Concat(names[:at], names[at+1:])
	} else if len(names) == maxFolderNames {
		f.folded, names = names[0].number, names[1:]
	}
	f.names = append(names, deletedName{name, number}) // appends behind the part of the array that a frozen copy uses
	m.orders++
	f.order, f.atMS = m.orders, m.nowMS
	m.linkFolder(r)
	for m.folders.live > maxFolders || m.deletedNames > maxDeletedNames {
		m.forgetFolder(m.folderOrder.first)
	}
}

// linkFolder puts a folder at the end of the order in which folders are forgotten, and counts its names.
func (m *Machine) linkFolder(r ref) {
	m.folderOrder.push(r, m.folderInOrder)
	m.deletedNames += len(m.folders.at(r).names)
}

func (m *Machine) folderInOrder(r ref) *links { return &m.folders.mut(r).inOrder }

func (m *Machine) forgetFolder(r ref) {
	f := *m.folders.at(r)
	m.deletedNames -= len(f.names)
	m.byFolder.Delete(f.text)
	m.folderOrder.unlink(r, m.folderInOrder)
	m.folders.remove(r)
}

// deletedIn returns the number of the last delete, in one folder, of a name that begins with prefix. If the folder
// remembers no such name, it returns the number of the last forgotten delete, whose name may begin with prefix.
func (m *Machine) deletedIn(text, prefix string) uint64 {
	r, ok := m.byFolder.Get(text)
	if !ok {
		return 0
	}
	f := m.folders.at(r)
	for _, d := range slices.Backward(f.names) {
		if strings.HasPrefix(d.name, prefix) {
			return d.number
		}
	}
	return f.folded
}

// deletedAt returns the number of the last delete of a name; for a forgotten name, see deletedIn.
func (m *Machine) deletedAt(name string) uint64 {
	r, ok := m.byFolder.Get(folderOf(name))
	if !ok {
		return 0
	}
	f := m.folders.at(r)
	for _, d := range f.names {
		if d.name == name {
			return d.number
		}
	}
	return f.folded
}

// folderLooks bounds the folders that one call of deletedBelow reads.
const folderLooks = 10_000

// deletedBelow returns the number of the last delete of a name that begins with prefix, as deletedIn does. It reads up
// to folderLooks folders, starting at the folder from. next is the folder to continue with, or empty.
func (m *Machine) deletedBelow(prefix, from string) (number uint64, next string) {
	looks := 0
	m.byFolder.Ascend(max(prefix, from), func(text string, r ref) bool {
		if !strings.HasPrefix(text, prefix) {
			return false
		}
		if looks++; looks > folderLooks {
			next = text
			return false
		}
		number = max(number, m.folders.at(r).last())
		return true
	})
	if text := folderOf(prefix); text != prefix && from == "" {
		number = max(number, m.deletedIn(text, prefix))
	}
	return number, next
}
