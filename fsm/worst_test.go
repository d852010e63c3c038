//go:build unix

package fsm

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// worstCase is one row of BenchmarkWorstApply: a state, and the commands of the
// worst entry for an operation within the default limits.
type worstCase struct {
	name string
	// fill makes the state, with the default limits in force and cluster time 0.
	fill func(*loader)
	// command returns the entry's i-th command. An entry takes as many as
	// EntryWeight and EntryBytes allow.
	command func(i int) Command
	// commands bounds the commands of the entry, where the state does not support more; 0:
	// EntryWeight, negative: no command.
	commands int
	// stampMS is the entry's stamp.
	stampMS int64
	// refusal is how the commands end if they are refused.
	refusal Code
	// unowned says that the state has no owners: an owner has half of the keys, and of the notices of a semaphore, at most.
	unowned bool
}

// worstOwner frames the commands of an identity with limits that are not reached.
var worstOwner = Envelope{Owner: strings.Repeat("o", MaxOwnerBytes), Limits: OwnerLimits{Sessions: 1 << 40, Leases: 1 << 40, Waiting: 1 << 40}}

func (w *worstCase) by() Envelope {
	if w.unowned {
		return Envelope{}
	}
	return worstOwner
}

// entry fills one entry with the commands of a case.
func (w *worstCase) entry(m *Machine) (entry []byte, commands int) {
	bound := w.commands
	if bound == 0 {
		bound = EntryWeight
	}
	var encoded [][]byte
	weight, bytes := 0, 0
	for i := range max(bound, 0) {
		c := w.command(i)
		by := w.by()
		by.Request = RequestID{1, uint64(i) + 1}
		data := by.Encode(c)
		cost := Cost(c, m.SessionSize(CostlySession(c)))
		if i > 0 && (weight+cost > EntryWeight || bytes+len(data) > EntryBytes) {
			break
		}
		weight, bytes = weight+cost, bytes+len(data)
		encoded = append(encoded, data)
	}
	return EncodeEntry(w.stampMS, encoded), len(encoded)
}

// BenchmarkWorstApply reports, for each operation, the time of the worst entry that a
// leader may fill with it within the default limits, and the worst of the entries without
// commands that follow while work is left over. A snapshot has begun just before the entry,
// so that the first change of each page copies the page.
//
//	go test ./fsm -run '^$' -bench WorstApply -benchtime 1x
func BenchmarkWorstApply(b *testing.B) {
	for _, w := range worstCases() {
		b.Run(w.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var worst, rest, cpu time.Duration
			commands, entries := 0, 0
			for range b.N {
				b.StopTimer()
				l := &loader{m: New(), check: func(applied *Applied) { must(b, applied, Unavailable) }, by: w.by()}
				l.add(StartTerm{Term: 1, Limits: DefaultLimits()})
				if w.fill != nil {
					w.fill(l)
				}
				l.flush()
				var entry []byte
				entry, commands = w.entry(l.m)
				frozen := l.m.Freeze()
				runtime.GC()
				b.StartTimer()
				start, used := time.Now(), thread(b)
				applied := l.apply(entry)
				worst, cpu = max(worst, time.Since(start)), max(cpu, thread(b)-used)
				must(b, applied, w.refusal)
				entries = 0
				for applied.MoreDue {
					start, used = time.Now(), thread(b)
					applied = l.apply(EncodeEntry(w.stampMS, nil))
					rest, cpu = max(rest, time.Since(start)), max(cpu, thread(b)-used)
					entries++
				}
				runtime.KeepAlive(frozen)
			}
			b.ReportMetric(float64(commands), "commands")
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
			b.ReportMetric(float64(cpu.Microseconds())/1000, "worst-cpu-ms")
			if entries > 0 {
				b.ReportMetric(float64(rest.Microseconds())/1000, "worst-rest-ms")
				b.ReportMetric(float64(entries), "rest-entries")
			}
		})
	}
}

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
	return slices.Concat(worstTaking(), worstGiving(), worstOfReturns(), worstOfGroups(), worstOfItems())
}

// worstTaking has the operations that request permits or extend sessions.
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
		{name: "acquire/waiting", fill: func(l *loader) { l.full(1); l.openMore(sized(90_000)); l.line(sized(90_000)) }, command: func(i int) Command {
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
		{name: "restore/living", fill: func(l *loader) {
			l.free(4096)
			l.holders(1, 4096)
			l.openMore(8000)
			l.line(8000)
			l.add(DeleteSemaphore{Name: nameOf(0)}) // its leases end in several entries
		}, command: func(int) Command { return RestoreSession{Session: 1, TTLMS: 30_000, Leases: wants(1)} }, refusal: SessionExists},
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

// waitingLists opens n sessions whose wait lists have 64 entries that are ready, and wait for more.
func (l *loader) waitingLists(n int) {
	for i := range 64 {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: int64(n)})
	}
	l.lists(n)
	for i := range n {
		for j := range 64 {
			l.add(ListAdd{Session: uint64(i) + 1, Name: nameOf(j), Count: 1})
		}
	}
}

// namesakes opens n sessions whose wait lists have 64 entries of one name: all but the
// last one of semaphores that are deleted.
func (l *loader) namesakes(n int) {
	l.open(n)
	for range 64 {
		l.add(CreateSemaphore{Name: nameOf(0), Permits: 1 << 40})
		for i := range n {
			l.add(ListAdd{Session: uint64(i) + 1, Name: nameOf(0), Count: 1})
		}
		l.add(DeleteSemaphore{Name: nameOf(0)})
	}
}

// manyOfOne lets session 1 wait with n requests for any of 64 semaphores each:
// for all of them, the leases that they reserve would be too many.
func (l *loader) manyOfOne(n int) {
	for i := range n {
		l.add(AcquireMany{Session: 1, Wants: wants(64 * i), Mode: Any})
	}
}

// crowdedKeys is about as many keys as may wait within the default limits.
const crowdedKeys = 260 * maxRequestKeys

// keyed lets n keys wait, as many for each request as may: sessions from 2 on wait for
// the first four semaphores.
func (l *loader) keyed(n int) {
	l.openMore(n/maxSessionKeys + 2)
	for i := range n {
		request := i / maxRequestKeys
		ask := Acquire{Session: uint64(request/4) + 2, Name: nameOf(request % 4), Count: 1, TTLMS: KeepTTL}
		l.addBy(Envelope{Key: fmt.Sprint("key ", i)}, ask)
	}
}

// oneShots makes n one-shot sessions, each with a lease and so many keys that wait
// for its requests.
func (l *loader) oneShots(n, keys int) {
	requests := keys / maxRequestKeys
	l.full(requests)
	for i := range n {
		name, sessionID := nameOf(requests+1+i), uint64(i)+2
		l.add(CreateSemaphore{Name: name, Permits: 1})
		l.add(AcquireOnce{Name: name, Count: 1, TTLMS: MaxTTLMS, Session: sessionID})
		for k := range keys {
			ask := Acquire{Session: sessionID, Name: nameOf(k / maxRequestKeys), Count: 1, TTLMS: KeepTTL}
			l.addBy(Envelope{Key: fmt.Sprint("key ", sessionID, " ", k)}, ask)
		}
	}
}

// notices makes n semaphores with as many notices as may wait for each.
func (l *loader) notices(n int) {
	for i := range n {
		l.add(CreateSemaphore{Name: nameOf(i)})
		for range maxNoticesHere {
			l.add(Down{Name: nameOf(i), Count: 1 << 40, Notice: "http://example.com/"})
		}
	}
}

// behind makes n semaphores with a lease that expires at 20 s, in no order of their
// making, and a keyed waiter behind each.
func (l *loader) behind(n int) {
	for i := range n {
		l.add(CreateSemaphore{Name: fmt.Sprint("behind-", i), Permits: 1})
	}
	for i := range n {
		ttl := 10_000 + int64(i)*7919%10_000
		l.add(AcquireOnce{Name: fmt.Sprint("behind-", i), Count: 1, TTLMS: ttl, Session: uint64(i) + 1_000_000})
	}
	for i := range n {
		ask := AcquireOnce{Name: fmt.Sprint("behind-", i), Count: 1, TTLMS: 30_000, WaitMS: 1_000_000, Session: uint64(n+i) + 1_000_000}
		l.addBy(Envelope{Key: fmt.Sprint("key behind ", i)}, ask)
	}
}

// keyedLists is as keyed, with a list of the first semaphore in each session.
func (l *loader) keyedLists(n int) {
	l.openMore(n/maxRequestKeys + 2)
	for i := range n {
		ask := AcquireMany{Session: uint64(i/maxRequestKeys) + 2, Wants: wants(0)[:1], Mode: All}
		l.addBy(Envelope{Key: fmt.Sprint("key ", i)}, ask)
	}
}

// again deletes the first semaphore, makes another one of that name, and asks for it with
// the lists of keyedLists.
func again(i int) Command {
	switch i {
	case 0:
		return DeleteSemaphore{Name: nameOf(0)}
	case 1:
		return CreateSemaphore{Name: nameOf(0), Permits: 1}
	}
	return AcquireMany{Session: uint64(i), Wants: wants(0)[:1], Mode: All}
}

// largest opens n sessions that have as much as any limits allow; the last one expires at lastMS.
func (l *loader) largest(n int, lastMS int64) {
	highest, limits := MaxLimits(), DefaultLimits()
	limits.SessionLeases, limits.SessionWaiting, limits.WaitList = highest.SessionLeases, highest.SessionWaiting, highest.WaitList
	l.add(StartTerm{Term: 2, Limits: limits})
	lists := int(highest.SessionWaiting)/MaxMembers - 1
	leases := int(highest.SessionLeases) - lists - 4 // those that the requests may become count too
	for i := range leases {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 1 << 20})
	}
	for i := leases; i < leases+lists*MaxMembers+4; i++ {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 1})
		l.add(Down{Name: nameOf(i), Count: 1})
	}
	for s := range uint64(n) {
		ttl := MaxTTLMS
		if s == uint64(n)-1 {
			ttl = lastMS
		}
		l.add(OpenSession{Session: s + 1, TTLMS: ttl})
	}
	for i := range leases { // side by side, so that no session's records are neighbours
		for s := range uint64(n) {
			l.add(Acquire{Session: s + 1, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
		}
	}
	for i := range int(highest.WaitList) {
		for s := range uint64(n) {
			l.add(ListAdd{Session: s + 1, Name: nameOf(i % leases), Count: 1})
		}
	}
	for i := range lists {
		for s := range uint64(n) {
			l.add(AcquireMany{Session: s + 1, Wants: wants(leases + i*MaxMembers), Mode: Any})
		}
	}
	for i := range maxSessionKeys {
		for s := range uint64(n) {
			ask := Acquire{Session: s + 1, Name: nameOf(leases + lists*MaxMembers + i/maxRequestKeys), Count: 1, TTLMS: KeepTTL}
			l.addBy(Envelope{Key: fmt.Sprint("key ", s, " ", i)}, ask)
		}
	}
}

// worstGiving has the operations that give permits back, or delete semaphores.
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
		{name: "release/1024-keys", unowned: true, fill: func(l *loader) { l.full(4); l.keyed(sized(crowdedKeys)) }, commands: sized(crowdedKeys) / maxRequestKeys,
			command: func(i int) Command { return Release{Session: uint64(i/4) + 2, Name: nameOf(i % 4)} }},
		{name: "revoke/1024-keys", unowned: true, fill: func(l *loader) { l.oneShots(16, 1024) },
			command: func(i int) Command { return RevokeLease{Session: uint64(i) + 2, Name: nameOf(2 + i)} }, commands: 16},
		{name: "revoke/4096-keys", unowned: true, fill: func(l *loader) { l.oneShots(4, 4096) },
			command: func(i int) Command { return RevokeLease{Session: uint64(i) + 2, Name: nameOf(5 + i)} }, commands: 4},
		{name: "end/4096-leases", fill: func(l *loader) { l.free(4096); l.holders(100, 4096) }, commands: 100,
			command: func(i int) Command { return EndSession{Session: uint64(i) + 1} }},
		{name: "end/16-waits-of-64", fill: func(l *loader) { l.full(64 * 16); l.manyOfOne(16) }, commands: 1,
			command: func(int) Command { return EndSession{Session: 1} }},
		{name: "expire/16-waits-of-64", fill: func(l *loader) {
			l.full(64 * 16)
			l.manyOfOne(16)
			l.add(Renew{Renewals: []Renewal{{Session: 1, TTLMS: 10_000}}})
		}, commands: -1, stampMS: 20_000},
		{name: "acquire-many/1024-keys-of-orphans", unowned: true, fill: func(l *loader) { l.full(1); l.keyedLists(sized(crowdedKeys)) },
			commands: 2 + sized(crowdedKeys)/maxRequestKeys, command: again},
		{name: "list-remove/64-of-one-name", fill: func(l *loader) { l.namesakes(EntryWeight) }, command: func(i int) Command {
			return ListRemove{Session: uint64(i) + 1, Name: nameOf(0)}
		}},
		{name: "largest-sessions", unowned: true, fill: func(l *loader) { l.largest(3, 20_000) }, commands: 2, stampMS: 20_000, command: func(i int) Command {
			if i == 0 {
				return Renew{Renewals: []Renewal{{Session: 1, TTLMS: 0}}}
			}
			return EndSession{Session: 2}
		}},
		{name: "expire/largest-behind", unowned: true, commands: -1, stampMS: 20_000, fill: func(l *loader) {
			l.largest(1, 10_060)
			l.behind(sized(120_000))
		}},
		{name: "expire/120000-keyed-behind", fill: func(l *loader) { l.behind(sized(120_000)) }, commands: -1, stampMS: 20_000},
		{name: "delete/10000-notices", unowned: true, fill: func(l *loader) { l.notices(100) }, commands: 100,
			command: func(i int) Command { return DeleteSemaphore{Name: nameOf(i)} }},
		{name: "up/100-notices", unowned: true, fill: func(l *loader) { l.notices(1) },
			command: func(int) Command { return Up{Name: nameOf(0), Count: 1} }},
		{name: "delete/100000-leases", fill: func(l *loader) { l.free(1); l.open(sized(100_000)); l.line(sized(100_000)) }, commands: 1,
			command: func(int) Command { return DeleteSemaphore{Name: nameOf(0)} }},
		{name: "delete/100000-waiting", fill: func(l *loader) { l.full(1); l.openMore(sized(100_000)); l.line(sized(100_000)) }, commands: 1,
			command: func(int) Command { return DeleteSemaphore{Name: nameOf(0)} }},
		{name: "put/100000-never", fill: func(l *loader) { l.full(1); l.openMore(sized(100_000)); l.line(sized(100_000)) }, commands: 1,
			command: func(int) Command { return PutSemaphore{Name: nameOf(0), Permits: Change[int64]{Given: true}} }},
		{name: "list-deliver/64", fill: func(l *loader) { l.free(64); l.lists(EntryWeight) },
			command: func(i int) Command { return ListDeliver{Session: uint64(i) + 1} }},
		{name: "list-deliver/64-waiting", fill: func(l *loader) { l.waitingLists(sized(256)) }, commands: sized(256),
			command: func(i int) Command { return ListDeliver{Session: uint64(i) + 1} }},
		{name: "up/serves-100000", fill: func(l *loader) { l.full(1); l.openMore(sized(100_000)); l.line(sized(100_000)) }, commands: 1,
			command: func(int) Command { return Up{Name: nameOf(0), Count: 1 << 30} }},
	}
}

// items lets session 1 hold the first of n items, as many as it may, and makes the others.
func (l *loader) items(n int) {
	for i := range n {
		if i < maxSessionItems {
			l.add(ItemAcquire{Name: itemName(i), Session: 1})
		} else {
			l.addBy(Envelope{Request: RequestID{1, 1}}, ItemPut{Name: itemName(i)}) // one owner may have half of them
		}
	}
}

func itemName(i int) string { return fmt.Sprintf("folder-%d/item-%07d", i%100, i) }

// itemHolders opens n sessions that end at 20 s and hold as many items as they may. The end deletes
// them, for a second.
func (l *loader) itemHolders(n int) {
	for s := range n {
		l.add(OpenHolder{Session: uint64(s) + 1, TTLMS: 20_000, About: strings.Repeat("a", MaxAboutBytes), DeleteItems: true, DelayMS: 1000})
		for i := range maxSessionItems {
			l.add(ItemAcquire{Name: itemName(s*maxSessionItems + i), Session: uint64(s) + 1})
		}
	}
}

// tombstones makes so many tombstones whose delay ends at 2 s.
func (l *loader) shades(n int) {
	l.itemHolders(n / maxSessionItems)
	for s := range n / maxSessionItems {
		l.add(EndSession{Session: uint64(s) + 1})
	}
}

// worstOfItems has the operations on items, beside a million items.
func worstOfItems() []worstCase {
	all := func(l *loader) { l.open(EntryWeight); l.items(sized(maxItems) - EntryWeight) }
	return []worstCase{
		{name: "open-holder", command: func(i int) Command {
			return OpenHolder{Session: uint64(i) + 1, TTLMS: 30_000, DeleteItems: true}
		}},
		{name: "item-put/new", fill: all, command: func(i int) Command {
			return ItemPut{Name: fmt.Sprint("new/", i), Value: "value"}
		}},
		{name: "item-put/large", fill: all, command: func(i int) Command {
			return ItemPut{Name: "new", Value: strings.Repeat("x", MaxValueBytes)}
		}},
		{name: "item-acquire", fill: all, command: func(i int) Command {
			return ItemAcquire{Name: itemName(maxSessionItems + i), Session: 2}
		}},
		{name: "item-release", fill: all, command: func(i int) Command {
			return ItemRelease{Name: itemName(i), Value: "done", Session: 1}
		}},
		{name: "item-delete", fill: all, command: func(i int) Command {
			return ItemDelete{Name: itemName(i * 89)}
		}},
		{name: "item-delete-all", fill: all, command: func(int) Command {
			return ItemDeleteAll{}
		}},
		{name: "end/4096-items", fill: func(l *loader) { l.itemHolders(3) }, command: func(i int) Command {
			return EndSession{Session: uint64(i) + 1}
		}, commands: 3},
		{name: "expire/4096-items", fill: func(l *loader) { l.itemHolders(3) }, commands: -1, stampMS: 20_000},
		{name: "tick/40960-shades", fill: func(l *loader) { l.shades(10 * maxSessionItems) }, commands: -1, stampMS: 2_000},
	}
}
