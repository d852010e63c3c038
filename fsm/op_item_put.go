package fsm

// ItemPut sets the value and the flags of an item, or creates the item. A session that holds
// the item keeps it. If value and flags are as before, the version stays.
//
// Codes: OK (Version, Locks; Created or Found), Malformed, ItemDiffers (RuleVersion, with the
// Version; RuleAbsent), LimitReached (RuleItems, RuleItemBytes).
type ItemPut struct {
	Name    string
	Value   string // any bytes, up to 512 KiB
	Flags   uint64
	Version Change[uint64] // the expected version; 0: the item must not exist
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
	set := item{name: c.Name, value: c.Value, flags: c.Flags}
	return m.changeItem(set, CauseNone, func(before *item, result *Result) (ref, bool) {
		return before.holder, before.hasVersion(c.Version, result)
	})
}
