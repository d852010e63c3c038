package fsm

import "strings"

// ItemDeleteAll removes up to 8,192 items whose names begin with a prefix, in the order of their names and as one
// change. The caller repeats it for the rest.
//
// Codes: OK (Value: how many; Version: of the delete, if any; More: others are left), Malformed.
type ItemDeleteAll struct {
	Prefix string // the beginning of the names; empty: all items
}

// Op is OpItemDeleteAll.
func (ItemDeleteAll) Op() Op            { return OpItemDeleteAll }
func (c ItemDeleteAll) names() []string { return []string{c.Prefix} }
func (ItemDeleteAll) session() uint64   { return 0 }
func (ItemDeleteAll) weight() int       { return EntryWeight } // 8,192 items take about the time of a full entry

func (c ItemDeleteAll) encode(e *encoder) { e.string(c.Prefix) }

func decodeItemDeleteAll(d *decoder) Command { return ItemDeleteAll{Prefix: d.Text()} }

func (c ItemDeleteAll) apply(m *Machine) Result {
	if c.Prefix != "" && !ValidName(c.Prefix) {
		return Result{Code: Malformed}
	}
	var result Result
	var found []ref
	m.itemNames.Ascend(c.Prefix, func(name string, r ref) bool {
		if !strings.HasPrefix(name, c.Prefix) {
			return false
		}
		if result.More = len(found) == maxDeletedAtOnce; !result.More {
			found = append(found, r)
		}
		return !result.More
	})
	if len(found) == 0 {
		return result
	}
	result.Value, result.Version = int64(len(found)), m.nextChange()
	for _, r := range found {
		m.deleteItem(r, result.Version, CauseDeleted)
	}
	return result
}
