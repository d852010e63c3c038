//go:build unix

package fsm

import "testing"

// touches returns how many records of the machine's tables do looks up.
func touches(m *Machine, do func()) int {
	count := 0
	set := func(touches *int) {
		m.semaphores.touches, m.sessions.touches, m.leases.touches, m.requests.touches = touches, touches, touches, touches
		m.entries.touches, m.notices.touches, m.ended.touches, m.keys.touches = touches, touches, touches, touches
	}
	set(&count)
	do()
	set(nil)
	return count
}

// touchCase is a state, a command, and the most records that it may touch.
type touchCase struct {
	name    string
	fill    func(*loader)
	key     string
	command Command
	most    int
	code    Code
}

func touchCases() []touchCase {
	level := int32(7)
	waits := func(l *loader) { // 127 requests of 64 members, none of which can be served
		limits := DefaultLimits()
		limits.SessionWaiting = 1 << 20
		l.add(Reign{Term: 1, Limits: limits})
		l.full(64 * 129)
		l.manyOfOne(127)
	}
	return []touchCase{
		{"acquire-many beside 8,128 members that wait", waits, "",
			AcquireMany{Session: 1, Wants: wants(64 * 128), Mode: Any}, 64 * 20, Waiting},
		{"the same again", waits, "", AcquireMany{Session: 1, Wants: wants(64 * 126), Mode: Any}, 20, Waiting},
		{"acquire beside 8,128 members that wait", waits, "",
			Acquire{Session: 1, Name: nameOf(64 * 128), Count: 1, TTLMS: KeepTTL}, 40, Waiting},
		{"acquire with a key", waits, "the key",
			Acquire{Session: 1, Name: nameOf(64 * 128), Count: 1, TTLMS: KeepTTL}, 60, Waiting},
		{"acquire-many with levels, beside 4,000 leases", func(l *loader) {
			l.open(1)
			for i := range 4000 {
				l.add(CreateSemaphore{Name: nameOf(i), Permits: 1})
				l.add(Acquire{Session: 1, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
			}
			for i := range 64 {
				l.add(CreateSemaphore{Name: nameOf(4000 + i), Permits: 1, Level: &level})
			}
		}, "", AcquireMany{Session: 1, Wants: wants(4000), Mode: All}, 3*4000 + 64*40, OK},
		{"put of permits, with a line of 50,000", func(l *loader) {
			l.open(50_001)
			l.add(CreateSemaphore{Name: nameOf(0), Permits: 5})
			l.add(Down{Name: nameOf(0), Count: 5})
			l.line(50_001)
		}, "", PutSemaphore{Name: nameOf(0), Permits: Change[int64]{true, 4}}, 20, OK},
		{"delete of a semaphore with 20,000 leases", func(l *loader) { l.free(1); l.open(20_000); l.line(20_000) }, "",
			DeleteSemaphore{Name: nameOf(0)}, 20 * 2048, OK},
		{"delete of a semaphore with 20,000 waiters", func(l *loader) { l.full(1); l.openMore(20_000); l.line(20_000) }, "",
			DeleteSemaphore{Name: nameOf(0)}, 20 * 2048, OK},
		{"up that serves 20,000", func(l *loader) { l.full(1); l.openMore(20_000); l.line(20_000) }, "",
			Up{Name: nameOf(0), Count: 20_000}, 50 * 2048, OK},
		{"put that 20,000 waiters don't fit into", func(l *loader) { l.full(1); l.openMore(20_000); l.line(20_000) }, "",
			PutSemaphore{Name: nameOf(0), Permits: Change[int64]{Given: true}}, 20 * 2048, OK},
	}
}

// TestCommandsTouchFewRecords: what a command looks at goes with what it lists and
// changes, not with all that waits beside it.
func TestCommandsTouchFewRecords(t *testing.T) {
	for _, c := range touchCases() {
		t.Run(c.name, func(t *testing.T) {
			l := &loader{m: NewAtLevel(FeatureLevel)}
			c.fill(l)
			l.flush()
			entry := EncodeEntry(0, [][]byte{Envelope{Key: c.key}.Encode(c.command)})
			var applied *Applied
			touched := touches(l.m, func() { applied = l.apply(entry) })
			if code := applied.Commands[0].Result.Code; code != c.code {
				t.Fatalf("%v, want %v", code, c.code)
			}
			t.Logf("%d records", touched)
			if touched > c.most {
				t.Errorf("it touched %d records, the bound is %d", touched, c.most)
			}
		})
	}
}

// TestHeadsLeftOverAreNotWalkedThrough: an entry looks at the heads that it grants, and
// not at all that are left over.
func TestHeadsLeftOverAreNotWalkedThrough(t *testing.T) {
	const lines, served = 10_000, 16
	l := &loader{m: NewAtLevel(FeatureLevel)}
	l.open(2)
	l.add(Renew{Renewals: []Renewal{{1, 1000}}})
	limits := DefaultLimits()
	limits.SessionLeases, limits.SessionWaiting = lines, lines
	l.add(Reign{Term: 1, Limits: limits})
	for i := range lines {
		l.add(CreateSemaphore{Name: nameOf(i), Permits: 1})
		l.add(Acquire{Session: 1, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
		l.add(Acquire{Session: 2, Name: nameOf(i), Count: 1, TTLMS: KeepTTL})
	}
	l.flush()
	l.m.budget.served = served
	applied := l.apply(EncodeEntry(1000, nil))
	if !applied.MoreDue || l.m.unserved.Len() < lines/2 {
		t.Fatalf("%d heads are left over", l.m.unserved.Len())
	}
	for i := range 5 {
		first := l.m.tokens
		if touched := touches(l.m, func() { applied = l.apply(EncodeEntry(1000, nil)) }); touched > 60*served {
			t.Errorf("entry %d touched %d records", i, touched)
		}
		if granted := l.m.tokens - first; granted != served {
			t.Errorf("entry %d granted %d", i, granted)
		}
	}
	l.apply(EncodeEntry(1000, encodeAll(plain(EndSession{Session: 2}))))
	if l.m.unserved.Len() != 0 || l.m.MoreDue() {
		t.Errorf("%d heads are left over after the end of their session", l.m.unserved.Len())
	}
}
