package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The model's items: one list of all that there is, one of all deletes.

type modelItem struct {
	name, value             string
	flags                   uint64
	holder                  *modelSession
	locks, created, version uint64
	delayMS                 int64 // 0: no delay
	shade                   bool
}

// modelTerms are the terms of a session that open-holder opened.
type modelTerms struct {
	about   string
	deletes bool
	delayMS int64
	made    uint64
}

type modelDelete struct {
	name   string
	number uint64
	atMS   int64
}

// modelItems are the items of the model, in the order of their making, and what belongs to them.
type modelItems struct {
	list    []*modelItem
	deletes []modelDelete

	changes, item, session, jumped uint64 // the numbers of the last changes
}

func (m *model) skipChanges(by uint64) {
	i := &m.items
	i.changes += by
	i.item, i.session, i.jumped = i.changes, i.changes, i.changes
}

// item is one that lives, shadeOf one that is deleted.
func (m *model) item(name string) *modelItem { return m.itemOrShade(name, false) }

func (m *model) itemOrShade(name string, shade bool) *modelItem {
	for _, i := range m.items.list {
		if i.name == name && i.shade == shade {
			return i
		}
	}
	return nil
}

// forgetItems drops tombstones whose delay is over, and the deletes of folders without one in ten minutes.
func (m *model) forgetItems() {
	m.items.list = slices.DeleteFunc(m.items.list, func(i *modelItem) bool { return i.shade && i.delayMS <= m.nowMS })
	newest := map[string]int64{}
	for _, d := range m.items.deletes {
		newest[modelFolder(d.name)] = d.atMS
	}
	m.items.deletes = slices.DeleteFunc(m.items.deletes, func(d modelDelete) bool {
		return newest[modelFolder(d.name)]+600_000 <= m.nowMS
	})
}

func modelFolder(name string) string {
	parts := strings.SplitAfter(name, "/")
	return strings.Join(parts[:len(parts)-1], "")
}

func (m *model) heldBy(s *modelSession) (held []*modelItem) {
	for _, i := range m.items.list {
		if i.holder == s {
			held = append(held, i)
		}
	}
	return held
}

func (m *model) openHolder(c OpenHolder) Result {
	if c.Session == 0 || badTime(c.TTLMS) || c.DelayMS < 0 || c.DelayMS > 60_000 || len(c.About) > 8192 || strings.ToValidUTF8(c.About, "") != c.About {
		return Result{Code: Malformed}
	}
	if refusal := m.roomToOpen(c.Session); refusal != nil {
		return *refusal
	}
	m.items.changes++
	m.items.session = m.items.changes
	s := m.open(modelSession{id: c.Session, ttlMS: c.TTLMS, deadlineMS: m.nowMS + c.TTLMS,
		terms: &modelTerms{c.About, c.DeleteItems, c.DelayMS, m.items.changes}})
	m.endIfDue(s)
	result := m.of(s, Result{Code: OK, Created: true, Version: m.items.changes})
	m.serveAndEnd()
	return result
}

func badItem(name, value string) bool { return !ValidName(name) || len(value) > 512<<10 }

// write is the end of each operation that writes an item.
func (m *model) write(name, value string, flags uint64, holder *modelSession, cause Cause) Result {
	i := m.item(name)
	if i != nil && i.value == value && i.flags == flags && i.holder == holder {
		return Result{Code: OK, Found: true, Version: i.version, Locks: i.locks}
	}
	m.items.changes++
	m.items.item = m.items.changes
	result := Result{Code: OK, Found: i != nil, Created: i == nil, Version: m.items.changes}
	if i == nil {
		i = &modelItem{name: name, created: m.items.changes}
		if shade := m.itemOrShade(name, true); shade != nil {
			i.delayMS = shade.delayMS
			m.items.list = slices.DeleteFunc(m.items.list, func(other *modelItem) bool { return other == shade })
		}
		m.items.list = append(m.items.list, i)
	}
	if holder != nil && i.holder == nil {
		i.locks++
	}
	i.value, i.flags, i.holder, i.version = value, flags, holder, m.items.changes
	result.Locks = i.locks
	e := Effect{Kind: EffectItemChanged, Item: name, Version: i.version, Cause: cause}
	if holder != nil {
		e.Session = holder.id
	}
	m.effect(e)
	return result
}

func (m *model) itemPut(c ItemPut) Result {
	if badItem(c.Name, c.Value) {
		return Result{Code: Malformed}
	}
	i := m.item(c.Name)
	switch {
	case i == nil && c.Version.Given && c.Version.Value != 0:
		return Result{Code: ItemDiffers, Rule: RuleAbsent}
	case i != nil && c.Version.Given && c.Version.Value != i.version:
		return Result{Code: ItemDiffers, Rule: RuleVersion, Version: i.version}
	case i == nil:
		return m.write(c.Name, c.Value, c.Flags, nil, CauseNone)
	}
	return m.write(c.Name, c.Value, c.Flags, i.holder, CauseNone)
}

func (m *model) itemAcquire(c ItemAcquire) Result {
	if badItem(c.Name, c.Value) {
		return Result{Code: Malformed}
	}
	for _, i := range m.items.list {
		if i.name == c.Name && i.delayMS > m.nowMS {
			return Result{Code: ItemDiffers, Rule: RuleDelay, Refusal: &Refusal{DelayMS: i.delayMS - m.nowMS}}
		}
	}
	owner := m.found(c.Session)
	if owner == nil {
		return m.noSession(c.Session)
	}
	if i := m.item(c.Name); i != nil && i.holder != nil && i.holder != owner {
		return Result{Code: ItemDiffers, Rule: RuleHeld, Version: i.version}
	}
	return m.goOn(owner, m.of(owner, m.write(c.Name, c.Value, c.Flags, owner, CauseNone)))
}

func (m *model) itemRelease(c ItemRelease) Result {
	if badItem(c.Name, c.Value) {
		return Result{Code: Malformed}
	}
	i := m.item(c.Name)
	if i == nil {
		return Result{Code: ItemDiffers, Rule: RuleAbsent}
	}
	if owner := m.found(c.Session); owner == nil || i.holder != owner {
		return Result{Code: ItemDiffers, Rule: RuleNotHolder, Version: i.version}
	}
	result := m.write(c.Name, c.Value, c.Flags, nil, CauseEnded)
	result.Session = c.Session
	return result
}

// remove takes an item away, by a change that has its number already.
func (m *model) remove(i *modelItem, cause Cause) {
	e := Effect{Kind: EffectItemDeleted, Item: i.name, Version: m.items.changes, Cause: cause}
	if i.holder != nil {
		e.Session = i.holder.id
	}
	m.effect(e)
	m.items.deletes = append(m.items.deletes, modelDelete{i.name, m.items.changes, m.nowMS})
	if i.delayMS > m.nowMS {
		*i = modelItem{name: i.name, created: i.created, delayMS: i.delayMS, shade: true}
		return
	}
	m.items.list = slices.DeleteFunc(m.items.list, func(other *modelItem) bool { return other == i })
}

func (m *model) itemDelete(c ItemDelete) Result {
	if !ValidName(c.Name) {
		return Result{Code: Malformed}
	}
	i := m.item(c.Name)
	switch {
	case i == nil:
		return Result{Code: OK}
	case c.Version.Given && c.Version.Value != i.version:
		return Result{Code: ItemDiffers, Rule: RuleVersion, Version: i.version}
	}
	m.items.changes++
	m.items.item = m.items.changes
	m.remove(i, CauseDeleted)
	return Result{Code: OK, Found: true, Version: m.items.changes}
}

func (m *model) itemDeleteAll(c ItemDeleteAll) Result {
	if c.Prefix != "" && !ValidName(c.Prefix) {
		return Result{Code: Malformed}
	}
	below := m.itemsBelow(c.Prefix)
	if len(below) == 0 {
		return Result{Code: OK}
	}
	m.items.changes++
	m.items.item = m.items.changes
	for _, i := range below[:min(len(below), 8192)] {
		m.remove(i, CauseDeleted)
	}
	return Result{Code: OK, Value: int64(min(len(below), 8192)), Version: m.items.changes, More: len(below) > 8192}
}

// itemsBelow are the items with a prefix, by name.
func (m *model) itemsBelow(prefix string) (found []*modelItem) {
	for _, i := range m.items.list {
		if !i.shade && strings.HasPrefix(i.name, prefix) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b *modelItem) int { return cmp.Compare(a.name, b.name) })
	return found
}

// endItems is what the end of a session does to its items.
func (m *model) endItems(s *modelSession, cause Cause) {
	held := m.heldBy(s)
	if len(held) == 0 && s.terms == nil {
		return
	}
	m.items.changes++
	on := modelTerms{}
	if s.terms != nil {
		on = *s.terms
		m.items.session = m.items.changes
	}
	for _, i := range held {
		m.items.item = m.items.changes
		m.done.ended++
		if on.delayMS > 0 {
			i.delayMS = m.nowMS + on.delayMS
		}
		if on.deletes {
			m.remove(i, cause)
			continue
		}
		i.holder, i.version = nil, m.items.changes
		m.effect(Effect{Kind: EffectItemChanged, Item: i.name, Version: i.version, Cause: cause})
	}
}

// drawnPrefixes are those whose lists and indexes are compared.
var drawnPrefixes = []string{"", "p", "p/", "p/.", "p/q", "p/q/", "p/q/c", "x", "a", "z/"}

// itemIndex is the number that a reader of one name, or of all below a prefix, waits behind.
func (m *model) itemIndex(found []*modelItem, deleted func(name string) bool) uint64 {
	index := m.items.jumped
	for _, i := range found {
		index = max(index, i.version)
	}
	for _, d := range m.items.deletes {
		if deleted(d.name) {
			index = max(index, d.number)
		}
	}
	return index
}

// itemsDiffer compares all that readers see of items.
func (m *model) itemsDiffer(machine *Machine) error {
	shades, bytes := 0, 0
	for _, i := range m.items.list {
		bytes += 96 + len(i.name) + len(i.value)
		if i.shade {
			shades++
		}
	}
	for _, s := range m.sessions {
		var names []string
		for _, i := range m.heldBy(s) {
			names = append(names, i.name)
		}
		if err := same("items of a session", machine.HeldItems(s.id), names); err != nil {
			return err
		}
		view, ok := machine.Holder(s.id)
		if t := s.terms; t != nil {
			bytes += 96 + len(t.about)
			if err := same("a holder", view, HolderView{t.about, t.deletes, t.delayMS, t.made}); err != nil {
				return err
			}
		}
		if ok != (s.terms != nil) {
			return fmt.Errorf("session %d was opened by open-holder: %v", s.id, ok)
		}
	}
	counts := machine.ItemCounts()
	if got, want := fmt.Sprint(counts.Items, counts.Shades, counts.Bytes), fmt.Sprint(len(m.items.list)-shades, shades, bytes); got != want {
		return fmt.Errorf("items, shades and bytes are %s, the model has %s", got, want)
	}
	if got, want := [...]uint64{machine.changes, machine.itemChange, machine.HoldersIndex(), machine.jumped}, [...]uint64{m.items.changes, m.items.item, m.items.session, m.items.jumped}; got != want {
		return fmt.Errorf("the last changes are %d, the model has %d", got, want)
	}
	for _, prefix := range drawnPrefixes {
		var want []ItemView
		for _, i := range m.itemsBelow(prefix) {
			want = append(want, m.itemView(i))
		}
		if err := same("items below "+prefix, itemsBelow(machine, prefix), want); err != nil {
			return err
		}
		index := m.itemIndex(m.itemsBelow(prefix), func(name string) bool { return strings.HasPrefix(name, prefix) })
		if prefix == "" {
			index = m.items.item
		}
		if got := machine.ItemsIndex(prefix); got != index {
			return fmt.Errorf("the index below %q is %d, the model has %d", prefix, got, index)
		}
	}
	for _, name := range drawnItems {
		i := m.item(name)
		view, ok := machine.Item(name)
		single := []*modelItem{}
		if i != nil {
			single = append(single, i)
			if err := same("item "+name, view, m.itemView(i)); err != nil {
				return err
			}
		}
		index := m.itemIndex(single, func(other string) bool { return other == name && i == nil })
		if got := machine.ItemIndex(name); ok != (i != nil) || got != index {
			return fmt.Errorf("item %q exists: %v, index %d; the model has %d", name, ok, got, index)
		}
	}
	return nil
}

func itemsBelow(machine *Machine, prefix string) (found []ItemView) {
	for v := range machine.ItemsAfter(prefix, "") {
		found = append(found, v)
	}
	return found
}

func (m *model) itemView(i *modelItem) ItemView {
	view := ItemView{Name: i.name, Value: i.value, Flags: i.flags, Locks: i.locks, Created: i.created, Version: i.version}
	if i.holder != nil {
		view.Session = i.holder.id
	}
	if i.delayMS > m.nowMS {
		view.DelayMS = i.delayMS
	}
	return view
}
