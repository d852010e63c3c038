//go:build unix

package fsm

import "fmt"

// crowdedPool makes a pool of so many permits, whose leases expire at 20 s, and so many groups that wait for it.
func (l *loader) crowdedPool(groups, leases int) {
	l.add(CreateSemaphore{Name: "pool", Permits: int64(leases), Settings: SettingsChange{Groups: Change[Grouping]{true, ByRequest}}})
	l.add(OpenSession{Session: 1, TTLMS: 20_000})
	for i := range leases {
		l.add(Acquire{Session: 1, Name: "pool", Count: 1, TTLMS: KeepTTL, Group: fmt.Sprint("holder ", i)})
	}
	for i := range groups {
		l.add(AcquireOnce{Session: uint64(i) + 2, Name: "pool", Count: 1, TTLMS: 30_000, WaitMS: MaxTTLMS, Group: fmt.Sprint("group ", i)})
	}
}

// manyGroups makes a family of so many groups, each with a lease.
func (l *loader) manyGroups(n int) {
	l.add(CreateSemaphore{Name: "family", Settings: SettingsChange{Groups: Change[Grouping]{true, ByRequest}, Family: true, PerGroup: Change[int64]{true, 1}}})
	const each = 4_000
	l.open(n/each + 1)
	for i := range n {
		l.add(Acquire{Session: uint64(i/each) + 1, Name: "family", Count: 1, TTLMS: KeepTTL, Group: fmt.Sprint("group ", i)})
	}
}

// lines makes n semaphores with a permit that is free, of two, and a pool without a free permit. Requests for
// them may have head starts.
func (l *loader) lines(n int) {
	early := Change[int64]{true, 60_000}
	l.add(CreateSemaphore{Name: "pool", Permits: 1, Settings: SettingsChange{Groups: Change[Grouping]{true, ByRequest}, HeadStartMS: early}})
	l.add(Down{Name: "pool", Count: 1})
	for i := range n {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 2, Settings: SettingsChange{HeadStartMS: early}})
		l.add(Down{Name: nameOf(i), Count: 1})
	}
}

// pooled lists so many semaphores, from the first-th on, and the pool.
func pooled(first, n int) (list []Want) {
	for i := range n {
		list = append(list, Want{Semaphore: nameOf(first + i), Count: 1})
	}
	return append(list, Want{Semaphore: "pool", Count: 1})
}

// standing lets n lists wait for the pool, each with so many other lines.
func (l *loader) standing(n, lines int) {
	l.lines(n * lines)
	l.open(n)
	for i := range n {
		l.add(AcquireMany{Session: uint64(i) + 1, Mode: All, Wants: pooled(i*lines, lines)})
	}
}

// blocked lets n lists of 64 semaphores wait: each for another one, whose lease expires at 20 s, and for the same 63
// others. ready says that these are free.
func (l *loader) blocked(n int, settings SettingsChange, ready bool) {
	l.free(MaxMembers - 1)
	if !ready {
		l.add(CreateSemaphore{Name: nameOf(MaxMembers - 1), Permits: 1})
		l.add(Down{Name: nameOf(MaxMembers - 1), Count: 1})
	}
	l.add(OpenSession{Session: 1, TTLMS: 20_000})
	for i := range n {
		l.add(CreateSemaphore{Name: fmt.Sprint("own-", i), Permits: 1, Settings: settings})
		l.add(Acquire{Session: 1, Name: fmt.Sprint("own-", i), Count: 1, TTLMS: KeepTTL})
	}
	l.openMore(n + 1)
	for i := range n {
		list := append([]Want{{Semaphore: fmt.Sprint("own-", i), Count: 1}}, wants(0)[:MaxMembers-1]...)
		if !ready {
			list[MaxMembers-1].Semaphore = nameOf(MaxMembers - 1)
		}
		l.add(AcquireMany{Session: uint64(i) + 2, Mode: All, Wants: list})
	}
}

// resting is as blocked, with leases that have ended and rest until 20 s.
func (l *loader) resting(n int, ready bool) {
	l.blocked(n, SettingsChange{CooldownMS: Change[int64]{true, 20_000}}, ready)
	l.add(EndSession{Session: 1})
}

// worstOfGroups has the operations on groups, on lists that stand in pools, and on returns with lists behind them.
func worstOfGroups() []worstCase {
	return []worstCase{
		{name: "expire/2048-leases-of-a-pool-of-100000-groups", commands: -1, stampMS: 20_000,
			fill: func(l *loader) { l.crowdedPool(sized(100_000), 2048) }},
		{name: "put/per-group-of-1000000-groups", commands: 1, fill: func(l *loader) { l.manyGroups(sized(1_000_000)) },
			command: func(int) Command {
				return PutSemaphore{Name: "family", Settings: SettingsChange{PerGroup: Change[int64]{true, 2}}}
			}},
		{name: "acquire/1024-head-starts-before-lists-of-64", fill: func(l *loader) { l.standing(EntryWeight, MaxMembers-1); l.openLate(EntryWeight) },
			command: func(i int) Command {
				return Acquire{Session: uint64(i) + 1_000_000, Name: nameOf(i * (MaxMembers - 1)), Count: 2, TTLMS: KeepTTL, HeadStartMS: 60_000}
			}},
		{name: "acquire-many/16-head-starts-before-1008-lists", fill: func(l *loader) { l.standing(EntryWeight, 1); l.openLate(EntryWeight) },
			command: func(i int) Command {
				return AcquireMany{Session: uint64(i) + 1_000_000, Mode: All, Wants: pooled(i*(MaxMembers-1), MaxMembers-1), HeadStartMS: 60_000}
			}, commands: EntryWeight / MaxMembers},
		{name: "expire/32-head-starts-before-2016-lists", commands: -1, stampMS: 20_000, fill: func(l *loader) {
			l.standing(32*(MaxMembers-1), 1)
			for i := range 32 {
				l.add(OpenSession{Session: uint64(i) + 1_000_000, TTLMS: 20_000})
				l.add(AcquireMany{Session: uint64(i) + 1_000_000, Mode: All, Wants: pooled(i*(MaxMembers-1), MaxMembers-1), HeadStartMS: 60_000})
			}
		}},
		{name: "expire/2048-leases-before-lists-of-64", commands: -1, stampMS: 20_000, fill: func(l *loader) {
			l.lines(2048 * (MaxMembers - 1))
			l.add(OpenSession{Session: 1, TTLMS: 20_000})
			for i := range 2048 {
				l.add(Acquire{Session: 1, Name: nameOf(i * (MaxMembers - 1)), Count: 1, TTLMS: KeepTTL})
			}
			l.openMore(2049)
			for i := range 2048 {
				l.add(AcquireMany{Session: uint64(i) + 2, Mode: All, Wants: pooled(i*(MaxMembers-1), MaxMembers-1)})
			}
		}},
		{name: "tick/2048-returns-with-lists-of-64", commands: -1, stampMS: 20_000, fill: func(l *loader) { l.resting(2048, true) }},
		{name: "tick/2048-returns-with-lists-of-64-that-go-on-waiting", commands: -1, stampMS: 20_000, fill: func(l *loader) { l.resting(2048, false) }},
		{name: "restore/slots", fill: func(l *loader) {
			l.add(CreateSemaphore{Name: nameOf(0), Permits: maxSlots, Settings: SettingsChange{Slots: Change[bool]{true, true}}})
		}, command: func(i int) Command {
			named := make([]uint32, maxLeaseSlots)
			for k := range named {
				named[k] = uint32(i*maxLeaseSlots + k*643%maxLeaseSlots)
			}
			return RestoreSession{Session: uint64(i) + 1, TTLMS: 30_000, Leases: []Want{{Semaphore: nameOf(0), Count: maxLeaseSlots}}, Slots: [][]uint32{named}}
		}},
	}
}

// openLate opens n sessions.
func (l *loader) openLate(n int) {
	for i := range n {
		l.add(OpenSession{Session: uint64(i) + 1_000_000, TTLMS: MaxTTLMS})
	}
}
