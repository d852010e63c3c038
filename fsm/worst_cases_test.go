//go:build unix

package fsm

import "slices"

// full makes n semaphores and takes their only permit. Session 1 is open.
func (l *loader) full(n int) {
	l.add(OpenSession{Session: 1, TTLMS: MaxTTLMS})
	for i := range n {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 1})
		l.add(Down{Name: nameOf(i), Count: 1})
	}
}

// open opens sessions from 1 to n.
func (l *loader) open(n int) {
	for i := range n {
		l.add(OpenSession{Session: uint64(i) + 1, TTLMS: MaxTTLMS})
	}
}

// openMore opens sessions from 2 to n, where session 1 is open.
func (l *loader) openMore(n int) {
	for i := 1; i < n; i++ {
		l.add(OpenSession{Session: uint64(i) + 1, TTLMS: MaxTTLMS})
	}
}

// free makes n semaphores with more permits than any case takes.
func (l *loader) free(n int) {
	for i := range n {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 1 << 40})
	}
}

// levels lets session 1 hold n semaphores with levels, and makes more below them.
func (l *loader) levels(n int) {
	l.open(1)
	for i := range n + EntryWeight {
		level := int32(-i)
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 1, Level: &level})
	}
	for i := range n {
		l.add(Acquire{Session: 1, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
	}
}

// wants lists 64 semaphores, from the first-th on.
func wants(first int) []Want {
	list := make([]Want, MaxMembers)
	for i := range list {
		list[i] = Want{Semaphore: nameOf(first + i), Count: 1}
	}
	return list
}

// worstCases are the rows of BenchmarkWorstApply.
func worstCases() []worstCase {
	return slices.Concat(worstTaking(), worstGiving())
}

// worstTaking are the operations that ask for permits, or for time.
func worstTaking() []worstCase {
	return []worstCase{
		{name: "open", command: func(i int) Command {
			return OpenSession{Session: uint64(i) + 1, TTLMS: 30_000}
		}},
		{name: "renew", fill: func(l *loader) { l.open(EntryWeight) }, command: func(i int) Command {
			return Renew{Renewals: []Renewal{{Session: uint64(i) + 1, TTLMS: 30_000}}}
		}},
		{name: "renew/together", fill: func(l *loader) { l.open(EntryWeight) }, command: func(int) Command {
			c := Renew{}
			for i := range EntryWeight {
				c.Renewals = append(c.Renewals, Renewal{Session: uint64(i) + 1, TTLMS: 30_000})
			}
			return c
		}},
		{name: "acquire/granted", fill: func(l *loader) { l.open(EntryWeight); l.free(1) }, command: func(i int) Command {
			return Acquire{Session: uint64(i) + 1, Name: nameOf(0), Count: 1, TTLMS: 30_000}
		}},
		{name: "acquire/waiting", fill: func(l *loader) { l.full(1); l.openMore(90_000); l.line(90_000) }, command: func(i int) Command {
			return AcquireOnce{Name: nameOf(0), Count: 1, TTLMS: 30_000, WaitMS: 30_000, Session: uint64(i) + 1_000_000}
		}},
		{name: "acquire/levels", fill: func(l *loader) { l.levels(3_000) }, command: func(i int) Command {
			return Acquire{Session: 1, Name: nameOf(3_000 + i), Count: 1, TTLMS: KeepTTL}
		}},
		{name: "acquire-many/all-waiting", fill: func(l *loader) { l.full(64); l.openMore(EntryWeight) }, command: func(i int) Command {
			return AcquireMany{Session: uint64(i) + 1, Wants: wants(0), Mode: All}
		}},
		{name: "acquire-many/any-waiting", fill: func(l *loader) { l.full(64); l.openMore(EntryWeight) }, command: func(i int) Command {
			return AcquireMany{Session: uint64(i) + 1, Wants: wants(0), Mode: Any}
		}},
		{name: "acquire-many/one-session", fill: func(l *loader) { l.full(64 * 16); l.manyOfOne(15) }, commands: 1, command: func(int) Command {
			return AcquireMany{Session: 1, Wants: wants(64 * 15), Mode: Any}
		}},
		{name: "acquire-many/granted", fill: func(l *loader) { l.free(64); l.open(EntryWeight) }, command: func(i int) Command {
			return AcquireMany{Session: uint64(i) + 1, Wants: wants(0), Mode: All}
		}},
		{name: "restore", fill: func(l *loader) { l.free(64) }, command: func(i int) Command {
			return RestoreSession{Session: uint64(i) + 1, TTLMS: 30_000, Leases: wants(0)}
		}},
		{name: "down", fill: func(l *loader) { l.free(1) }, command: func(int) Command {
			return Down{Name: nameOf(0), Count: 1}
		}},
	}
}

// line lets sessions from 2 to n wait for the first semaphore.
func (l *loader) line(n int) {
	for i := 1; i < n; i++ {
		l.add(Acquire{Session: uint64(i) + 1, Name: nameOf(0), Count: 1, TTLMS: KeepTTL})
	}
}

// holders opens n sessions that hold each of so many semaphores.
func (l *loader) holders(n, semaphores int) {
	l.open(n)
	for i := range n {
		for j := range semaphores {
			l.add(Acquire{Session: uint64(i) + 1, Name: nameOf(j), Count: 1, TTLMS: KeepTTL})
		}
	}
}

// lists opens n sessions whose wait lists have 64 entries that are ready.
func (l *loader) lists(n int) {
	l.open(n)
	for i := range n {
		for j := range 64 {
			l.add(ListAdd{Session: uint64(i) + 1, Name: nameOf(j), Count: 1})
		}
	}
}

// manyOfOne lets session 1 wait with n requests for any of 64 semaphores each:
// for all of them, the leases that they reserve would be too many.
func (l *loader) manyOfOne(n int) {
	for i := range n {
		l.add(AcquireMany{Session: 1, Wants: wants(64 * i), Mode: Any})
	}
}

// worstGiving are the operations that give permits back, or take semaphores away.
func worstGiving() []worstCase {
	return []worstCase{
		{name: "release/serves-next", fill: func(l *loader) { l.full(1); l.openMore(4096); l.line(4096); l.add(Up{Name: nameOf(0), Count: 1}) },
			command: func(i int) Command { return Release{Session: uint64(i) + 2, Name: nameOf(0)} }},
		{name: "release/withdraws-64", fill: func(l *loader) {
			l.full(64)
			l.openMore(EntryWeight)
			for i := range EntryWeight {
				l.add(AcquireMany{Session: uint64(i) + 1, Wants: wants(0), Mode: All})
			}
		}, command: func(i int) Command { return Release{Session: uint64(i) + 1, Name: nameOf(0)} }},
		{name: "end/4096-leases", fill: func(l *loader) { l.free(4096); l.holders(100, 4096) }, commands: 100,
			command: func(i int) Command { return EndSession{Session: uint64(i) + 1} }},
		{name: "end/16-waits-of-64", fill: func(l *loader) { l.full(64 * 16); l.manyOfOne(16) }, commands: 1,
			command: func(int) Command { return EndSession{Session: 1} }},
		{name: "expire/16-waits-of-64", fill: func(l *loader) {
			l.full(64 * 16)
			l.manyOfOne(16)
			l.add(Renew{Renewals: []Renewal{{Session: 1, TTLMS: 10_000}}})
		}, commands: -1, stampMS: 20_000},
		{name: "delete/100000-leases", fill: func(l *loader) { l.free(1); l.open(100_000); l.line(100_000) }, commands: 1,
			command: func(int) Command { return DeleteSemaphore{Name: nameOf(0)} }},
		{name: "delete/100000-waiting", fill: func(l *loader) { l.full(1); l.openMore(100_000); l.line(100_000) }, commands: 1,
			command: func(int) Command { return DeleteSemaphore{Name: nameOf(0)} }},
		{name: "put/100000-never", fill: func(l *loader) { l.full(1); l.openMore(100_000); l.line(100_000) }, commands: 1,
			command: func(int) Command { return PutSemaphore{Name: nameOf(0), Permits: Change[int64]{Given: true}} }},
		{name: "list-deliver/64", fill: func(l *loader) { l.free(64); l.lists(EntryWeight) },
			command: func(i int) Command { return ListDeliver{Session: uint64(i) + 1} }},
		{name: "up/serves-100000", fill: func(l *loader) { l.full(1); l.openMore(100_000); l.line(100_000) }, commands: 1,
			command: func(int) Command { return Up{Name: nameOf(0), Count: 1 << 30} }},
	}
}
