package fsm

// ItemDelete removes an item, held or not. It starts no delay; a running delay continues.
//
// Codes: OK (Found: it existed, with the Version of the delete), Malformed, ItemDiffers
// (RuleVersion, with the Version).
type ItemDelete struct {
	Name    string
	Version Change[uint64] // the expected version; ignored if the item does not exist
}

// Op is OpItemDelete.
func (ItemDelete) Op() Op            { return OpItemDelete }
func (c ItemDelete) names() []string { return []string{c.Name} }
func (ItemDelete) session() uint64   { return 0 }

func (c ItemDelete) encode(e *encoder) {
	e.string(c.Name)
	encodeChange(e, c.Version, (*encoder).uint)
}

func decodeItemDelete(d *decoder) Command {
	return ItemDelete{Name: d.Text(), Version: decodeChange(d, (*decoder).Uint)}
}

func (c ItemDelete) apply(m *Machine) Result {
	if !ValidName(c.Name) {
		return Result{Code: Malformed}
	}
	r, exists := m.itemNames.Get(c.Name)
	if !exists {
		return Result{Code: OK}
	}
	var result Result
	if !m.items.at(r).hasVersion(c.Version, &result) {
		return result
	}
	number := m.nextChange()
	m.deleteItem(r, number, CauseDeleted)
	return Result{Code: OK, Found: true, Version: number}
}
