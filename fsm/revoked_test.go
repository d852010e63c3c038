package fsm

import "testing"

// TestMaxHoldPushesOutNoOperator: a client can cause as many ends by max_hold as it likes. What operators revoked stays revoked.
func TestMaxHoldPushesOutNoOperator(t *testing.T) {
	m := New()
	m.orders = maxRevoked
	for i := range uint64(maxRevoked) {
		m.fileRevoked(revoked{session: 1000 + i, epoch: 2, order: i + 1, reason: maxHoldReason})
	}
	restore := func(sessionID uint64, name string) modelCommand {
		return modelCommand{command: RestoreSession{Session: sessionID, TTLMS: 1000, Leases: []Want{{Semaphore: name, Count: 1}}}}
	}
	m.Apply(1, EncodeEntry(0, encodeAll([]modelCommand{{command: CreateSemaphore{Name: "a", Permits: 1}},
		{command: CreateSemaphore{Name: "held", Permits: 1, Settings: SettingsChange{MaxHoldMS: Change[int64]{true, MinHoldMS}}}},
		{command: OpenSession{Session: 1, TTLMS: MaxTTLMS}}, {command: OpenSession{Session: 2, TTLMS: MaxTTLMS}},
		{command: Acquire{Session: 1, Name: "a", Count: 1, TTLMS: KeepTTL}}, {command: Acquire{Session: 2, Name: "held", Count: 1, TTLMS: KeepTTL}},
		{command: RevokeLease{Session: 1, Name: "a", Reason: "why"}}, {command: EndSession{Session: 1}},
	})))
	m.Apply(2, EncodeEntry(MinHoldMS, nil))
	got := m.Apply(3, EncodeEntry(MinHoldMS, encodeAll([]modelCommand{{command: EndSession{Session: 2}},
		restore(1, "a"), restore(2, "held"), restore(1001, "held"), restore(1000, "held")}))).Commands
	for i, code := range []Code{OK, Revoked, Revoked, Revoked, OK} {
		if got[i].Result.Code != code {
			t.Errorf("%d: %s", i, show(got[i].Result))
		}
	}
	if err := m.check(); err != nil {
		t.Error(err)
	}
}

// TestRevokedIsBounded: the 100,001st pushes out the first.
func TestRevokedIsBounded(t *testing.T) {
	m := New()
	m.orders = maxRevoked
	for i := range uint64(maxRevoked) {
		m.fileRevoked(revoked{session: 1000 + i, epoch: 1, order: i + 1})
	}
	m.Apply(1, EncodeEntry(0, encodeAll([]modelCommand{{command: CreateSemaphore{Name: "a", Permits: 1}},
		{command: RestoreSession{Session: 1000, TTLMS: 1000, Leases: []Want{{Semaphore: "a", Count: 1}}}},
		{command: OpenSession{Session: 1, TTLMS: 1000}}, {command: Acquire{Session: 1, Name: "a", Count: 1, TTLMS: KeepTTL}},
		{command: RevokeLease{Session: 1, Name: "a", Reason: "why"}}, {command: EndSession{Session: 1}},
	})))
	got := m.Apply(2, EncodeEntry(0, encodeAll([]modelCommand{
		{command: RestoreSession{Session: 1000, TTLMS: 1000, Leases: []Want{{Semaphore: "a", Count: 1}}}},
		{command: RestoreSession{Session: 1001, TTLMS: 1000, Leases: []Want{{Semaphore: "a", Count: 1}}}},
		{command: RestoreSession{Session: 1, TTLMS: 1000, Leases: []Want{{Semaphore: "a", Count: 1}}}},
	})))
	if c := got.Commands; c[0].Result.Code != OK || c[1].Result.Code != Revoked || c[2].Result.Code != Revoked || c[2].Result.Why().Reason != "why" {
		t.Errorf("%s %s %s", show(c[0].Result), show(c[1].Result), show(c[2].Result))
	}
	if err := m.check(); err != nil {
		t.Error(err)
	}
}
