package fsm

import "strings"

// Random commands about items: names in few folders, of which some are also semaphores.

var (
	drawnItems  = []string{"a", "x", "p/.lock", "p/1", "p/2", "p/q/c", "p/q/d"}
	drawnValues = []string{"", "one", "two", "\x00\xff"}
	drawnDelays = []int64{0, 1000, 15_000, 60_000, 100, 60_000, 15_000, 1000}
	itemOps     = []Op{
		OpItemAcquire, OpItemAcquire, OpItemAcquire, OpItemAcquire, OpItemAcquire, OpOpenHolder, OpOpenHolder,
		OpItemPut, OpItemPut, OpItemPut, OpItemRelease, OpItemRelease, OpItemDelete, OpItemDelete, OpItemDeleteAll,
		OpEndSession,
	}
)

// aboutItems reports whether an operation is about items and their holders.
func aboutItems(op Op) bool { return op >= OpOpenHolder && op <= OpItemDeleteAll }

func (g *generator) item() string {
	if g.chance(80) {
		return oneOf(g, badNames)
	}
	return oneOf(g, drawnItems)
}

// expected draws the version that a command names: usually no version, else the item's, 0 or another one.
func (g *generator) expected(name string) (expected Change[uint64]) {
	if g.chance(2) {
		return expected
	}
	expected = Change[uint64]{true, oneOf(g, []uint64{0, 0, 0, g.m.items.changes, 1 << 63})}
	if i := g.m.item(name); i != nil && !g.chance(3) {
		expected.Value = i.version
	}
	return expected
}

func (g *generator) ofItem(op Op) Command {
	name, value, flags := g.item(), oneOf(g, drawnValues), oneOf(g, []uint64{0, 0, 7, 1 << 63})
	sessionID := g.session()
	if g.chance(2) { // that holds it
		if i := g.m.item(name); i != nil && i.holder != nil {
			sessionID = i.holder.id
		}
	}
	switch op {
	case OpOpenHolder:
		c := OpenHolder{Session: g.fresh() % 7, TTLMS: g.life(), About: oneOf(g, []string{"", "about\n", "é"}),
			DeleteItems: g.chance(2), DelayMS: oneOf(g, drawnDelays)}
		if g.chance(30) {
			c.About, c.DelayMS = oneOf(g, []string{"\xff", strings.Repeat("x", 8193), ""}), oneOf(g, []int64{-1, 60_001})
		}
		return c
	case OpItemPut:
		return ItemPut{Name: name, Value: value, Flags: flags, Version: g.expected(name)}
	case OpItemAcquire:
		return ItemAcquire{Name: name, Value: value, Flags: flags, Session: sessionID}
	case OpItemRelease:
		return ItemRelease{Name: name, Value: value, Flags: flags, Session: sessionID}
	case OpItemDelete:
		return ItemDelete{Name: name, Version: g.expected(name)}
	}
	return ItemDeleteAll{Prefix: oneOf(g, append([]string{"\xff", "p", "p/"}, drawnPrefixes...))}
}
