package fsm

import (
	"math"
	"slices"
	"strings"
)

// Random settings, groups and head starts, in half of the sequences: few groups, so that requests
// meet in their lines, and small limits.

var (
	drawnGroups     = []string{"", "x", "ci", "y"}
	badGroups       = []string{"line\nfeed", strings.Repeat("x", MaxGroupBytes+1), "other"}
	drawnHeadStarts = []int64{0, 0, 0, 1, 10, 100, 1000, 30_000}
	drawnLimits     = []int64{1, 2, 1, 3, NoLimit, NoLimit, 0, 2}
	busyOps         = []Op{
		OpAcquire, OpAcquire, OpAcquire, OpAcquire, OpAcquire, OpAcquire, OpAcquireMany, OpAcquireMany, OpAcquireMany, OpAcquireMany,
		OpAcquireMany, OpAcquireMany, OpAcquireOnce, OpAcquireOnce, OpRelease, OpRelease, OpRelease, OpRelease, OpRelease, OpResizeLease,
		OpListAdd, OpDown, OpUp, OpSetValue, OpGroupPut, OpPutSemaphore, OpEndSession, OpOpenSession,
	}
	groupOps = []Op{OpGroupPut, OpGroupPut, OpGroupPut, OpPutSemaphore, OpPutSemaphore, OpAcquire, OpAcquireMany, OpAcquireOnce}
)

// chooseGroups makes half of the sequences use groups, by two to four names. Half of these are
// busy: sessions that last wait in the lines of each kind, and little is refused.
func (g *generator) chooseGroups() {
	g.groups, g.busy = nil, false
	if !g.chance(2) {
		return
	}
	g.groups = drawnGroups[:2+g.below(3)]
	g.ops = append(slices.Clone(g.ops), groupOps...)
	if g.busy = g.chance(2); g.busy {
		g.ops, g.bounds = busyOps, []OwnerLimits{{}}
	}
}

// busySetup makes a semaphore of each kind, and sessions.
func (g *generator) busySetup() (commands []Command) {
	kinds := []SettingsChange{{}, {Groups: given(ByRequest)}, {Groups: given(ByRequest), Family: true, PerGroup: given[int64](1)}, g.kind()}
	for i, kind := range kinds {
		kind.HeadStartMS = maybe[int64](g, 1000)
		if g.chance(4) {
			kind.MaxWaiting, kind.DropOldest = given(int64(1+g.below(3))), given(!g.chance(3))
		}
		settings := g.slotted(g.returning(kind))
		commands = append(commands, CreateSemaphore{Name: drawnNames[i], Permits: g.permits(oneOf(g, []int64{1, 2, 3}), settings), Settings: settings})
	}
	for id := range uint64(6) {
		commands = append(commands, OpenSession{Session: id + 1, TTLMS: 600_000})
	}
	return commands
}

func given[T any](value T) Change[T] { return Change[T]{true, value} }

// maybe is a change half of the time.
func maybe[T any](g *generator, value T) (c Change[T]) {
	if g.chance(2) {
		c = given(value)
	}
	return c
}

// group draws the group that a command about a semaphore names.
func (g *generator) group(name string) string {
	if len(g.groups) == 0 {
		return ""
	}
	if g.chance(60) {
		return oneOf(g, badGroups)
	}
	if s := g.m.semaphore(name); (s == nil || !s.grouped()) && !g.chance(20) {
		return ""
	}
	return oneOf(g, g.groups)
}

func (g *generator) headStart() int64 {
	switch {
	case len(g.groups) == 0:
		return 0
	case g.chance(60):
		return oneOf(g, wildTimes)
	}
	return oneOf(g, drawnHeadStarts)
}

// kind draws what makes a plain semaphore, a pool or a family.
func (g *generator) kind() (c SettingsChange) {
	if len(g.groups) == 0 {
		return c
	}
	groups := given(oneOf(g, []Grouping{ByRequest, ByRequest, ByRequest, ByOwner}))
	switch g.below(8) {
	case 0, 1:
		c.Groups, c.Family, c.PerGroup = groups, true, given(oneOf(g, []int64{1, 2, 1, 3}))
	case 2, 3, 4:
		c.Groups = groups
		c.PerGroup = maybe(g, oneOf(g, []int64{1, 2, 2, 3}))
	}
	if g.chance(3) {
		c.HeadStartMS = given(oneOf(g, drawnHeadStarts))
	}
	if g.chance(4) {
		c.MaxWaiting = given(int64(1 + g.below(3)))
		c.DropOldest = given(g.chance(2))
	}
	return c
}

// settings draws a change of settings, seldom one that is refused.
func (g *generator) settings() (c SettingsChange) {
	if len(g.groups) == 0 || g.chance(3) {
		return c
	}
	switch g.below(10) {
	case 0:
		return g.kind()
	case 1: // plain again
		return SettingsChange{Groups: given(NoGroups), PerGroup: given[int64](0)}
	case 2, 3:
		c.PerGroup = given(oneOf(g, []int64{1, 2, 3, 0}))
	case 4, 5:
		c.Paused = given(oneOf(g, []string{"", "disk", "", "night"}))
	case 6:
		c.MaxWaiting = given(int64(g.below(4)))
		c.DropOldest = maybe(g, g.chance(2))
	case 7:
		c.HeadStartMS = given(oneOf(g, drawnHeadStarts))
	case 8:
		c.Family = true
	default:
		c.PerGroup, c.HeadStartMS = maybe[int64](g, -1), maybe[int64](g, MaxHeadStartMS+1)
		c.Paused, c.MaxWaiting = maybe(g, "bad\nreason"), maybe[int64](g, MaxWaitingLimit+1)
	}
	return c
}

func (g *generator) groupPut() Command {
	name := g.name()
	c := GroupPut{Name: name, Group: g.group(name), Limit: oneOf(g, drawnLimits), Epoch: g.epoch()}
	if g.chance(40) {
		c.Limit = oneOf(g, []int64{NoLimit - 1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1})
	}
	return c
}

// onePool drops the second pool of a list, and the further ones, since an "all" may have one only.
func (g *generator) onePool(wants []Want) (kept []Want) {
	pools := 0
	for _, w := range wants {
		if s := g.m.semaphore(w.Semaphore); s != nil && s.pool() {
			pools++
			if pools > 1 {
				continue
			}
		}
		kept = append(kept, w)
	}
	return kept
}
