package fsm

import (
	"math"
	"slices"
)

// Random slots, in a third of the sequences: few, so that they meet, seldom as many as there may be.

var (
	slotPermits = []int64{2, 3, 4, 3, 6, 5, 130, 3, 2000, 4, mostSlots, mostSlots - 1}
	slotCounts  = []int64{1, 2, 1, 3, 64, 2, 63, 128, 1, 1024, 1025, 2}
	slotOps     = []Op{OpRestoreSession, OpRestoreSession, OpRestoreSession, OpResizeLease, OpResizeLease, OpResizeLease, OpRelease, OpPutSemaphore,
		OpUp, OpDown, OpAcquire, OpAcquireOnce, OpAcquireOnce, OpRevokeLease, OpEndSession}
)

// chooseSlots makes a third of the sequences use slots.
func (g *generator) chooseSlots() {
	if g.slots = g.chance(3); g.slots {
		g.ops = slices.Concat(g.ops, slotOps)
	}
}

// permits draws the permits of a new semaphore that names slots, or leaves those that were drawn.
func (g *generator) permits(drawn int64, settings SettingsChange) int64 {
	if !settings.Slots.Value || g.chance(3) {
		return drawn
	}
	if g.chance(60) {
		return mostSlots + 1
	}
	return oneOf(g, slotPermits)
}

// slotted adds to the settings of a new semaphore, seldom so that they are refused.
func (g *generator) slotted(c SettingsChange) SettingsChange {
	if excludes := c.WindowMS.Value != 0 || c.Family; g.slots && !g.chance(4) && (!excludes || g.chance(20)) {
		c.Slots = given(true)
	}
	return c
}

// otherSlots changes settings.
func (g *generator) otherSlots(c SettingsChange) SettingsChange {
	switch {
	case !g.slots:
	case c.WindowMS.Value != 0 || c.Family:
		c.Slots = maybe(g, g.chance(10))
	case g.chance(3):
		c.Slots = given(!g.chance(3))
		c.WindowMS = given[int64](0)
	}
	return c
}

// slotsOf draws the slots that a restore names for its leases: usually free ones, seldom taken ones, others than it
// needs, or slots of a semaphore that has none.
func (g *generator) slotsOf(leases []Want) (lists [][]uint32) {
	for _, want := range leases {
		var list []uint32
		s := g.m.semaphore(want.Semaphore)
		if !g.slots || s == nil || !s.settings.Slots && !g.chance(10) || want.Count > 2000 || g.chance(20) {
			lists = append(lists, nil)
			continue
		}
		taken, slot := g.m.named(s), uint32(g.below(4))
		if g.chance(8) {
			taken = nil
		}
		for int64(len(list)) < want.Count {
			if !taken[slot] {
				list = append(list, slot)
			}
			slot += oneOf(g, []uint32{1, 1, 1, 2})
		}
		if len(list) > 0 && g.chance(12) {
			list[0] = oneOf(g, []uint32{list[len(list)-1], mostSlots - 1, mostSlots, math.MaxUint32})
		}
		slices.Reverse(list)
		lists = append(lists, list)
	}
	return lists
}
