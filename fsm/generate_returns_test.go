package fsm

import (
	"math"
	"slices"
)

// Random windows, cooldowns, lost holds and longest holds, in half of the sequences: short ones, so
// that what is granted comes back within the sequence.

var (
	drawnWindows   = []int64{100, 1000, 1050, 100, 1001, 1000, 30_000, 2000}
	drawnCooldowns = []int64{1, 10, 100, 15, 1000, 100}
	drawnOnLost    = []int64{0, Quarantine, 100, 1, Quarantine, 1000}
	drawnMaxHolds  = []int64{1000, 1001, 1000, 2000}
	drawnSettled   = []int64{0, 1, 2, 1, 3, 0, 1 << 53, 1<<53 + 1, -1}
	returnSteps    = []int64{0, 0, 0, 1, 1, 10, 10, 50, 100, 100, 500, 990, 1000, 1000, 1500, -1}
	returnOps      = []Op{OpFreeLost, OpFreeLost, OpFreeLost, OpResizeLease, OpResizeLease, OpResizeLease, OpDown, OpSetValue, OpPutSemaphore,
		OpEndSession, OpRestoreSession, OpAcquireOnce}
)

// chooseReturns makes half of the sequences use returns: 1 is windows, 2 is what rests or is lost, 3 is
// both. Half of these are busy, see chooseGroups.
func (g *generator) chooseReturns() {
	g.returns = max(0, g.below(6)-2)
	switch {
	case g.returns == 0:
		return
	case g.chance(2):
		g.busy, g.ops, g.bounds = true, busyOps, []OwnerLimits{{}}
		if g.groups == nil {
			g.groups = drawnGroups[:2]
		}
	}
	g.ops = slices.Concat(g.ops, returnOps)
}

// returning adds to the settings of a new semaphore.
func (g *generator) returning(c SettingsChange) SettingsChange {
	switch {
	case g.returns == 0 || g.chance(4):
	case g.returns == 1 || g.returns == 3 && g.chance(2):
		c.WindowMS = given(oneOf(g, drawnWindows))
	default:
		c.CooldownMS = maybe(g, oneOf(g, drawnCooldowns))
		c.OnLostMS = maybe(g, oneOf(g, drawnOnLost))
		c.MaxHoldMS = maybe(g, oneOf(g, drawnMaxHolds))
	}
	return c
}

// otherReturns changes settings, seldom so that they are refused.
func (g *generator) otherReturns(c SettingsChange) SettingsChange {
	switch {
	case g.returns == 0 || g.chance(3):
	case g.chance(8):
		c.WindowMS = given(oneOf(g, []int64{MinWindowMS - 1, MaxWindowMS + 1, 1000}))
		c.CooldownMS = maybe(g, oneOf(g, []int64{-1, MaxCooldownMS + 1, 100}))
		c.OnLostMS = maybe(g, oneOf(g, []int64{-2, MaxCooldownMS + 1, Quarantine}))
		c.MaxHoldMS = maybe(g, oneOf(g, []int64{MinHoldMS - 1, MaxTTLMS + 1, 1000}))
	case g.chance(3):
		c.WindowMS = given[int64](0)
		c = g.returning(c)
	case g.chance(2):
		c = g.returning(SettingsChange{WindowMS: given[int64](0), CooldownMS: given[int64](0), OnLostMS: given[int64](0), MaxHoldMS: given[int64](0)})
	default:
		c.CooldownMS, c.OnLostMS, c.MaxHoldMS = given[int64](0), given[int64](0), given[int64](0)
		c.WindowMS = given(oneOf(g, drawnWindows))
	}
	return c
}

// settled draws what a receipt is settled to.
func (g *generator) settled(l *modelLease, count int64) int64 {
	if l.dueMS == 0 || g.chance(4) {
		return count
	}
	if g.chance(4) {
		return l.count
	}
	return oneOf(g, drawnSettled)
}

func (g *generator) freeLost() Command {
	c := FreeLost{Name: g.name(), Token: oneOf(g, []uint64{g.m.tokens, 1, 0, math.MaxUint64}), Reason: oneOf(g, reasons), Epoch: g.epoch()}
	var lost []*modelReturn
	for _, t := range g.m.returns {
		if t.lost != nil {
			lost = append(lost, t)
		}
	}
	if len(lost) > 0 && !g.chance(4) {
		t := oneOf(g, lost)
		c.Name, c.Token = t.semaphore.name, t.lost.token
	}
	return c
}
