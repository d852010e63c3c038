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
		Acquire{Session: 2, Name: "rig", Count: 1, TTLMS: 0}, ResizeLease{Session: 1, Name: "rig", Count: 1})
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

// TestCheckFindsBrokenReturns breaks what check says of returns and of leases that end.
func TestCheckFindsBrokenReturns(t *testing.T) {
	snapshot := returningState(t)
	for i, broken := range []brokenInvariant{
		{"is not filed under its time", func(b brokenState) { b.returned(false, false).dueMS++ }},
		{"is not filed under its semaphore", func(b brokenState) { b.byReturn.ofSemaphore.Clear() }},
		{"in two records", func(b brokenState) { clear(b.byReturn.spends) }},
		{"not filed under its token", func(b brokenState) { b.returned(false, true).lost = &lostHold{token: 99} }},
		{"a count, a time or an order", func(b brokenState) { b.returned(false, false).count = -1 }},
		{"not filed under its end", func(b brokenState) { b.lease(1, "rig").ends++ }},
		{"not filed under its end", func(b brokenState) { b.lease(1, "rig").revoked = true; b.semaphore("rig").held-- }},
		{"returns and their indexes differ", func(b brokenState) { b.byReturn.ends.Set(leaseEnd{ms: 1}) }},
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
	} {
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
