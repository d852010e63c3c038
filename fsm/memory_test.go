package fsm

import "testing"

// TestFloodOfEndsPushesOutNoOther: however many sessions of one identity end, those that an
// operator ended stay ended, and each end of another identity is remembered as it was.
func TestFloodOfEndsPushesOutNoOther(t *testing.T) {
	m := New()
	m.budget.kept = 4
	apply := func(commands ...modelCommand) []AppliedCommand {
		return m.Apply(m.index+1, EncodeEntry(0, encodeAll(commands))).Commands
	}
	by := func(owner string, c Command) modelCommand { return modelCommand{owner: owner, command: c} }
	restore := func(owner string, id uint64) modelCommand {
		return by(owner, RestoreSession{Session: id, TTLMS: 1000, Leases: []Want{{Semaphore: "a", Count: 1}}})
	}
	apply(by("", CreateSemaphore{Name: "a", Permits: 9}),
		by("ann", OpenSession{Session: 1, TTLMS: 1000}), by("ann", AcquireOnce{Session: 2, Name: "a", Count: 1, TTLMS: 1000}),
		by("ann", OpenSession{Session: 3, TTLMS: 0}), by("ann", OpenSession{Session: 4, TTLMS: 1000}),
		by("", EndSession{Session: 1, Operator: true, Reason: "stuck"}), by("", RevokeLease{Session: 2, Name: "a", Reason: "stuck"}),
		by("ann", EndSession{Session: 4}))
	for i := range uint64(20) {
		apply(by("bob", OpenSession{Session: 100 + i, TTLMS: 0}),
			by("bob", OpenSession{Session: 200 + i, TTLMS: 1000}), by("bob", EndSession{Session: 200 + i}),
			by("bob", OpenSession{Session: 300 + i, TTLMS: 1000}), by("", EndSession{Session: 300 + i, Operator: true}))
		m.rememberEnded(ended{id: 400 + i, cause: CauseMaxHold, reason: maxHoldReason, owner: "ann"})
	}
	got := apply(restore("ann", 1), restore("ann", 2), by("ann", Renew{Renewals: []Renewal{{3, 1000}}}),
		restore("bob", 3), restore("bob", 4), restore("bob", 1), restore("bob", 319), restore("ann", 419))
	for i, code := range []Code{Revoked, Revoked, OK, SessionExists, SessionExists, SessionExists, Revoked, Revoked} {
		if r := got[i].Result; r.Code != code || code == Revoked && i < 2 && r.Why().Reason != "stuck" {
			t.Errorf("%d: %s", i, show(r))
		}
	}
	if each := got[2].Result.Each[0]; each.Code != ExpiredSession {
		t.Errorf("an expired session: %s", show(each))
	}
	if m.ended.live != 16 {
		t.Errorf("%d ends are remembered", m.ended.live)
	}
}

// TestKindOfARevokedLease: the cause decides which leases are remembered together, and not the reason, which an
// operator may choose.
func TestKindOfARevokedLease(t *testing.T) {
	m := New()
	for i, c := range []Command{CreateSemaphore{Name: "a", Permits: 9}, CreateSemaphore{Name: "b", Permits: 9, Settings: SettingsChange{MaxHoldMS: Change[int64]{Given: true, Value: MinHoldMS}}},
		OpenSession{Session: 1, TTLMS: MaxTTLMS}, Acquire{Session: 1, Name: "a", Count: 1, TTLMS: KeepTTL}, Acquire{Session: 1, Name: "b", Count: 1, TTLMS: KeepTTL},
		RevokeLease{Session: 1, Name: "a", Reason: maxHoldReason}, StartTerm{Term: 1, Limits: DefaultLimits()},
		Release{Session: 1, Name: "a"}, Release{Session: 1, Name: "b"}} {
		stamp := int64(0)
		if i > 5 {
			stamp = MinHoldMS
		}
		m.Apply(m.index+1, EncodeEntry(stamp, encodeAll([]modelCommand{{command: c}})))
		m = reread(t, m)
	}
	if m.revokedOrder[0].length() != 1 || m.revokedOrder[1].length() != 1 {
		t.Errorf("%d leases that operators revoked are remembered, and %d that max_hold ended", m.revokedOrder[0].length(), m.revokedOrder[1].length())
	}
}
