package fsm

import (
	"slices"
	"testing"
)

// The sums agree with the whole views.
func TestViewSums(t *testing.T) {
	m, index := New(), uint64(0)
	apply := func(c Command) {
		index++
		m.Apply(index, EncodeEntry(int64(index), [][]byte{Envelope{}.Encode(c)}))
	}
	apply(PutSemaphore{Name: "a", Permits: Change[int64]{Given: true, Value: 1}})
	apply(PutSemaphore{Name: "b", Permits: Change[int64]{Given: true, Value: 9}})
	for id := uint64(1); id <= 40; id++ {
		apply(OpenSession{Session: id * 3, TTLMS: 60_000})
		apply(AcquireMany{Session: id * 3, Mode: All, Wants: []Want{{Semaphore: "b", Count: 1}, {Semaphore: "a", Count: 1}}})
	}
	var ids []uint64
	for _, s := range m.Sessions(0, 100) {
		ids = append(ids, s.ID)
	}
	if got := m.SessionIDs(0, 100); len(got) != 40 || !slices.Equal(got, ids) {
		t.Errorf("ids %v, want %v", got, ids)
	}
	if got := m.SessionIDs(9, 2); !slices.Equal(got, []uint64{12, 15}) {
		t.Errorf("after 9: %v", got)
	}
	for _, name := range []string{"a", "b", "none"} {
		var want, since int64
		for i, w := range m.Waiters(name, LinePlace{}, 1000) {
			if i == 0 {
				since = w.EnqueuedMS
			}
			for _, wish := range w.Wants {
				if wish.Semaphore == name {
					want += wish.Count
				}
			}
		}
		if count, sinceMS := m.Queued(name); count != want || sinceMS != since {
			t.Errorf("%s: %d since %d, want %d since %d", name, count, sinceMS, want, since)
		}
	}
	if count, _ := m.Queued("a"); count != 39 {
		t.Errorf("%d wait for a", count)
	}
}

// TestJoinsQueue: behind others, and without a lease.
func TestJoinsQueue(t *testing.T) {
	m, index := New(), uint64(0)
	joins := func(step, name string, sessionID uint64, want bool) {
		t.Helper()
		if got := m.JoinsQueue(Want{Semaphore: name}, sessionID); got != want {
			t.Errorf("%s: %v", step, got)
		}
	}
	apply := func(c Command) {
		index++
		m.Apply(index, EncodeEntry(int64(index), [][]byte{Envelope{}.Encode(c)}))
	}
	joins("no semaphore", "a", 3, false)
	apply(PutSemaphore{Name: "a", Permits: Change[int64]{Given: true, Value: 1}})
	for id := uint64(1); id <= 3; id++ {
		apply(OpenSession{Session: id, TTLMS: 60_000})
	}
	joins("free", "a", 3, false)
	apply(Acquire{Session: 1, Name: "a", Count: 1, TTLMS: KeepTTL})
	joins("taken, but the queue is empty", "a", 3, false)
	apply(Acquire{Session: 2, Name: "a", Count: 1, TTLMS: KeepTTL})
	joins("behind one", "a", 3, true)
	joins("without a session", "a", 0, true)
	joins("in a session that is unknown", "a", 99, true)
	joins("the holder", "a", 1, false)
	apply(Release{Session: 1, Name: "a"})
	joins("the queue is empty again", "a", 3, false)
}
