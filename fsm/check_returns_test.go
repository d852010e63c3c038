package fsm

import (
	"bytes"
	"strings"
	"testing"
)

// returningState returns the snapshot of a machine with what is spent, rests or is lost, and a lease
// that ends.
func returningState(t *testing.T) []byte {
	l := &stampedLog{t: t, m: New()}
	l.do("", CreateSemaphore{Name: "rate", Permits: 5, Settings: SettingsChange{Groups: given(ByRequest), WindowMS: given[int64](1000)}},
		CreateSemaphore{Name: "rig", Permits: 5, Settings: SettingsChange{OnLostMS: given(Quarantine), CooldownMS: given[int64](1000), MaxHoldMS: given[int64](1000)}})
	l.do("", OpenSession{Session: 1, TTLMS: MaxTTLMS}, OpenSession{Session: 2, TTLMS: MaxTTLMS}, Down{Name: "rate", Count: 2, Group: "g"},
		Acquire{Session: 1, Name: "rate", Count: 1, TTLMS: KeepTTL}, Acquire{Session: 1, Name: "rig", Count: 2, TTLMS: KeepTTL},
		Acquire{Session: 2, Name: "rig", Count: 1, TTLMS: 1}, ResizeLease{Session: 1, Name: "rig", Count: 1})
	return snapshotOf(t, l.m.Freeze())
}

// returned finds a return by what it is.
func (b brokenState) returned(spent, lost bool) *timedReturn {
	for r, t := range b.returns.all() {
		if t.spent == spent && (t.lost != nil) == lost {
			return b.returns.mut(r)
		}
	}
	return nil
}

// slottedState returns the snapshot of a machine whose leases and returns name slots: a full page of them,
// and a few.
func slottedState(t *testing.T) []byte {
	l := &stampedLog{t: t, m: New()}
	slots := SettingsChange{Slots: given(true), CooldownMS: given[int64](1000)}
	l.do("", CreateSemaphore{Name: "gpus", Permits: 10, Settings: slots}, CreateSemaphore{Name: "many", Permits: maxSlots, Settings: slots})
	l.do("", OpenSession{Session: 1, TTLMS: MaxTTLMS}, OpenSession{Session: 2, TTLMS: MaxTTLMS})
	for _, name := range []string{"gpus", "many"} {
		l.do("", Acquire{Session: 1, Name: name, Count: 3, TTLMS: KeepTTL}, Acquire{Session: 2, Name: name, Count: 2, TTLMS: KeepTTL},
			ResizeLease{Session: 1, Name: name, Count: 2})
	}
	for id := range uint64(4) {
		l.do("", AcquireOnce{Session: 3 + id, Name: "many", Count: maxLeaseSlots, TTLMS: MaxTTLMS})
	}
	return snapshotOf(t, l.m.Freeze())
}

// TestCheckFindsBrokenSlots breaks what check says of slots.
func TestCheckFindsBrokenSlots(t *testing.T) {
	named := func(runs ...SlotRun) *slotList { return newSlotList(runs) }
	checkFinds(t, slottedState(t), []brokenInvariant{
		{"or one of them named twice or free", func(b brokenState) { b.lease(1, "gpus").slots = b.lease(2, "gpus").slots }},
		{"or one of them named twice or free", func(b brokenState) { b.lease(1, "gpus").slots = named(SlotRun{7, 2}) }},
		{"or one of them named twice or free", func(b brokenState) { b.lease(1, "gpus").slots = named(SlotRun{0, 1}, SlotRun{0, 1}) }},
		{"3 slots for 2 permits", func(b brokenState) {
			b.lease(1, "gpus").slots = named(SlotRun{0, 2}, SlotRun{9, 1})
			b.semaphore("gpus").slots.mark(9)
		}},
		{"or one of them named twice or free", func(b brokenState) { b.returned(false, false).slots = b.lease(1, "gpus").slots }},
		{"or one of them named twice or free", func(b brokenState) { b.semaphore("gpus").slots.free(4) }},
		{"6 slots are taken, and 5 are named", func(b brokenState) { b.semaphore("gpus").slots.mark(5) }},
		{"5 slots are taken, and 3 are named", func(b brokenState) { b.lease(2, "gpus").slots = nil }},
		{"a page of its slots is counted wrongly", func(b brokenState) { b.semaphore("gpus").slots.pages[0].taken++ }},
		{"a page of its slots is counted wrongly", func(b brokenState) { b.semaphore("many").slots.pages[0].full = 0 }},
		{"a full page of its slots is not marked", func(b brokenState) { b.semaphore("many").slots.full[0] = 0 }},
		{"a full page of its slots is not marked", func(b brokenState) { b.semaphore("many").slots.full[0] |= 2 }},
	})
}

// TestCheckFindsBrokenReturns breaks what check says of returns and of leases that end.
func TestCheckFindsBrokenReturns(t *testing.T) {
	checkFinds(t, returningState(t), []brokenInvariant{
		{"is not filed under its time", func(b brokenState) { b.returned(false, false).dueMS++ }},
		{"is not filed under its semaphore", func(b brokenState) { b.byReturn.ofSemaphore.Clear() }},
		{"in two records", func(b brokenState) { clear(b.byReturn.spends) }},
		{"not filed under its token", func(b brokenState) { b.returned(false, true).lost = &lostHold{token: 99} }},
		{"an impossible count, time or order", func(b brokenState) { b.returned(false, false).count = -1 }},
		{"not filed under its end", func(b brokenState) { b.lease(1, "rig").endsMS++ }},
		{"not filed under its end", func(b brokenState) { b.lease(1, "rig").endCause = CauseRevoked; b.semaphore("rig").held-- }},
		{"returns and their indexes differ", func(b brokenState) { b.byReturn.leaseEnds.Set(leaseEnd{ms: 1}) }},
		{"returns and their indexes differ", func(b brokenState) { b.byReturn.due.Set(dueReturn{ms: 1}) }},
		{"returns and their indexes differ", func(b brokenState) { b.byReturn.lost.Set(lostLease{epoch: 99}) }},
		{"returns and their indexes differ", func(b brokenState) { b.byReturn.spends[spendKey{dueMS: 1}] = 1 }},
		{"and it counts", func(b brokenState) { b.semaphore("rig").returning++ }},
		{"and it counts", func(b brokenState) { b.semaphore("rig").lost-- }},
		{"and it counts", func(b brokenState) { b.semaphore("rate").returns++ }},
		{"come back later, and it counts", func(b brokenState) {
			for r, l := range b.lanes.all() {
				if l.group == "g" {
					b.lanes.mut(r).returning++
				}
			}
		}},
	})
}

// checkFinds breaks a sound state in several ways, each of which checkReturns finds.
func checkFinds(t *testing.T, snapshot []byte, ways []brokenInvariant) {
	for i, broken := range ways {
		m, err := Restore(bytes.NewReader(snapshot))
		if err != nil {
			t.Fatal(err)
		}
		broken.breaks(brokenState{m})
		if err := m.checkReturns(); err == nil || !strings.Contains(err.Error(), broken.finding) {
			t.Errorf("way %d, %q: check finds %v", i+1, broken.finding, err)
		}
	}
}
