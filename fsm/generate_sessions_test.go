package fsm

import "math"

// Random renewals, restores and lists.

func (g *generator) renew() Command {
	var c Renew
	for range oneOf(g, []int{1, 2, 3, 1, 1, 2, 4, 0}) {
		c.Renewals = append(c.Renewals, Renewal{Session: g.session(), TTLMS: g.ttl()})
	}
	if c.Renewals == nil {
		c.Renewals = []Renewal{}
	}
	return c
}

func (g *generator) restore() Command {
	c := RestoreSession{Session: uint64(g.below(8)), TTLMS: g.life(), Metadata: oneOf(g, drawnPairs)}
	if g.chance(4) {
		c.Session = math.MaxUint64
	} else if len(g.m.ended) > 0 && g.chance(2) {
		c.Session = oneOf(g, g.m.ended).id
	}
	if len(g.m.revoked) > 0 && g.chance(3) { // of a revoked lease
		v := oneOf(g, g.m.revoked)
		for _, s := range g.m.semaphores {
			if c.Session = v.session; s.epoch == v.epoch {
				c.Leases = []Want{{s.name, 1, v.group}}
			}
		}
		c.Slots = g.slotsOf(c.Leases)
		return c
	}
	if s := g.m.session(c.Session); s != nil && g.chance(2) { // its own leases
		for _, l := range g.m.leasesOf(s) {
			c.Leases = append(c.Leases, Want{l.semaphore.name, l.count, l.in.group})
		}
	} else if !g.chance(4) {
		c.Leases = g.wants()
	}
	c.Slots = g.slotsOf(c.Leases)
	return c
}

// many draws a request for a list of semaphores, sometimes a repeat of an earlier request of the session.
func (g *generator) many() Command {
	c := AcquireMany{Session: g.session(), Wants: g.wants(), Mode: oneOf(g, drawnModes), Try: g.chance(6), HeadStartMS: g.headStart()}
	if c.Mode == All && !g.chance(6) {
		c.Wants = g.onePool(c.Wants)
	}
	if g.chance(3) {
		var lists []AcquireMany
		for _, r := range g.m.requests {
			if r.list != nil {
				lists = append(lists, AcquireMany{Session: r.session.id, Wants: r.list.wants, Mode: r.list.mode})
			}
		}
		for _, l := range g.m.leases {
			if l.list != nil {
				lists = append(lists, AcquireMany{Session: l.session.id, Wants: l.list.wants, Mode: l.list.mode})
			}
		}
		if len(lists) > 0 {
			c = oneOf(g, lists)
		}
	}
	return c
}
