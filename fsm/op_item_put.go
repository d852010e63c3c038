package fsm

// ItemPut replaces the value and the flags of an item, and makes it if there is none. A session
// that holds it goes on with that. If nothing differs, nothing changes and the version stays.
//
// Codes: OK (Version, Locks; Created or Found), Malformed, ItemDiffers (RuleVersion, with the
// Version; RuleAbsent), LimitReached (RuleItems, RuleItemBytes).
type ItemPut struct {
	Name    string
	Value   string // any bytes, up to 512 KiB
	Flags   uint64
	Version Change[uint64] // expected; 0: there is no such item
}

// Op is OpItemPut.
func (ItemPut) Op() Op            { return OpItemPut }
func (c ItemPut) names() []string { return []string{c.Name} }
func (ItemPut) session() uint64   { return 0 }

func (c ItemPut) encode(e *encoder) {
	e.string(c.Name)
	e.string(c.Value)
	e.uint(c.Flags)
	encodeChange(e, c.Version, (*encoder).uint)
}

func decodeItemPut(d *decoder) Command {
	return ItemPut{Name: d.Text(), Value: d.Text(), Flags: d.Uint(), Version: decodeChange(d, (*decoder).Uint)}
}

func (c ItemPut) apply(m *Machine) Result {
	if !validItem(c.Name, c.Value) {
		return Result{Code: Malformed}
	}
	var result Result
	if !m.itemIs(c.Name, c.Version, &result) {
		return result
	}
	set := item{name: c.Name, value: c.Value, flags: c.Flags}
	if r, exists := m.itemNames.Get(c.Name); exists {
		set.holder = m.items.at(r).holder
	}
	m.setItem(set, CauseNone, &result)
	return result
}
