//go:build unix

package fsm

import "fmt"

// tick moves cluster time.
func (l *loader) tick(stampMS int64) {
	l.flush()
	l.apply(EncodeEntry(stampMS, nil))
}

// windows makes n semaphores of which each has a hundred returns.
func (l *loader) windows(n int) {
	for i := range n {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 1 << 40, Settings: SettingsChange{WindowMS: Change[int64]{true, 100_000}}})
	}
	for second := range 100 {
		l.tick(int64(second) * 1_000)
		for i := range n {
			l.add(Down{Name: nameOf(i), Count: 1})
		}
	}
}

// groupsOfWindow makes a semaphore of which each of n groups has a return.
func (l *loader) groupsOfWindow(n int) {
	l.add(CreateSemaphore{Name: nameOf(0), Permits: int64(n), Settings: SettingsChange{Groups: Change[Grouping]{true, ByRequest}, WindowMS: Change[int64]{true, 10_000}}})
	for i := range n {
		l.add(Down{Name: nameOf(0), Count: 1, Group: fmt.Sprint("group ", i)})
	}
}

// worstOfReturns has the operations on returns and slots.
func worstOfReturns() []worstCase {
	slots := SettingsChange{Slots: Change[bool]{true, true}}
	return []worstCase{
		{name: "set/100-returns-each", stampMS: 99_000, fill: func(l *loader) { l.windows(EntryWeight) },
			command: func(i int) Command { return SetValue{Name: nameOf(i), Value: 5} }},
		{name: "down/refused-behind-returns", refusal: Unavailable, fill: func(l *loader) { l.groupsOfWindow(sized(100_000)) },
			command: func(i int) Command { return Down{Name: nameOf(0), Count: 1 << 30, Group: fmt.Sprint("new ", i)} }},
		{name: "tick/100000-returns", commands: -1, stampMS: 20_000, fill: func(l *loader) { l.groupsOfWindow(sized(100_000)) }},
		{name: "acquire-once/1024-slots", fill: func(l *loader) { l.add(CreateSemaphore{Name: nameOf(0), Permits: maxSlots, Settings: slots}) },
			command: func(i int) Command {
				return AcquireOnce{Session: uint64(i) + 1, Name: nameOf(0), Count: maxLeaseSlots, TTLMS: 30_000}
			}},
		{name: "expire/1024-leases-of-1024-slots", commands: -1, stampMS: 60_000, fill: func(l *loader) {
			l.add(CreateSemaphore{Name: nameOf(0), Permits: maxSlots, Settings: slots})
			for i := range EntryWeight {
				l.add(AcquireOnce{Session: uint64(i) + 1, Name: nameOf(0), Count: maxLeaseSlots, TTLMS: 30_000})
			}
		}},
	}
}
