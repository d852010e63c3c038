package fsm

import "testing"

// TestReturnsAreForEver pins the bytes of windows, rests, lost holds, longest holds and slots, and what
// they do: each member of each record, command and result.
func TestReturnsAreForEver(t *testing.T) {
	number := func(value int64) Change[int64] { return Change[int64]{true, value} }
	on, request := Change[bool]{true, true}, Change[Grouping]{true, ByRequest}
	goldenHistory(t, "testdata/returns-1.golden", goldenEnvelope(OwnerLimits{}), []Command{
		StartTerm{Term: 1, Leader: "n1", Limits: DefaultLimits(), Cluster: ClusterID{15: 1}, Level: 1},
		CreateSemaphore{Name: "rpm", Permits: 300, Settings: SettingsChange{WindowMS: number(60_000)}},
		CreateSemaphore{Name: "api", Permits: 5, Settings: SettingsChange{WindowMS: number(1_000), Groups: request, PerGroup: number(2)}},
		PutSemaphore{Name: "gpus", Permits: number(4), Settings: SettingsChange{Slots: on, CooldownMS: number(5_000), OnLostMS: number(Quarantine)}},
		PutSemaphore{Name: "rig", Permits: number(2), Settings: SettingsChange{OnLostMS: number(30_000), MaxHoldMS: number(3_000)}},
		PutSemaphore{Name: "rpm", Settings: SettingsChange{Slots: on}},
		OpenSession{Session: 1, TTLMS: 3_000, Metadata: []Pair{{"host", "a"}}},
		OpenSession{Session: 2, TTLMS: 300_000},
		Acquire{Session: 2, Name: "rpm", Count: 30, TTLMS: KeepTTL},
		ResizeLease{Session: 2, Name: "rpm", Count: 12},
		Down{Name: "rpm", Count: 7},
		Down{Name: "api", Count: 2, Group: "a"},
		Down{Name: "api", Count: 2, Group: "a", WaitMS: 60_000, Session: 3},
		AcquireOnce{Session: 4, Name: "api", Count: 1, TTLMS: 9_000, Group: "a"},
		ListAdd{Session: 2, Name: "api", Count: 5, Group: "listed"},
		SetValue{Name: "api", Value: 1},
		Acquire{Session: 1, Name: "gpus", Count: 2, TTLMS: KeepTTL},
		Acquire{Session: 2, Name: "gpus", Count: 2, TTLMS: KeepTTL},
		ResizeLease{Session: 2, Name: "gpus", Count: 1},
		Acquire{Session: 2, Name: "rig", Count: 1, TTLMS: KeepTTL},
		AcquireOnce{Session: 5, Name: "rig", Count: 1, TTLMS: 60_000},
		Renew{Renewals: []Renewal{{Session: 2, TTLMS: KeepTTL}}},
		Renew{Renewals: []Renewal{{Session: 1, TTLMS: KeepTTL}}},
		FreeLost{Name: "gpus", Token: 77, Reason: "looked"},
		FreeLost{Name: "gpus", Token: 7, Epoch: 77},
		AcquireMany{Session: 2, Mode: Any, Wants: []Want{{Semaphore: "api", Count: 2, Group: "a"}, {Semaphore: "api", Count: 2, Group: "b"}}},
		RestoreSession{Session: 6, TTLMS: 9_000, Leases: []Want{{Semaphore: "gpus", Count: 2}, {Semaphore: "rpm", Count: 3}}},
		RestoreSession{Session: 6, TTLMS: 9_000, Leases: []Want{{Semaphore: "gpus", Count: 2}, {Semaphore: "rpm", Count: 3}}, Slots: [][]uint32{{9, 4}, nil}},
		RestoreSession{Session: 7, TTLMS: 9_000, Leases: []Want{{Semaphore: "gpus", Count: 1}}, Slots: [][]uint32{{300}}},
		RestoreSession{Session: 8, TTLMS: 9_000, Leases: []Want{{Semaphore: "gpus", Count: 1}}, Slots: [][]uint32{{300}}},
		SetValue{Name: "rpm", Value: 200},
		Acquire{Session: 7, Name: "rpm", Count: 3, TTLMS: KeepTTL},
		Acquire{Session: 7, Name: "rig", Count: 1, TTLMS: 300_000},
		Release{Session: 7, Name: "gpus"},
		Acquire{Session: 2, Name: "rig", Count: 1, TTLMS: KeepTTL},
		RaiseTokens{Above: 70_000},
		AcquireOnce{Session: 9, Name: "rpm", Count: 1, TTLMS: 60_000},
	})
}
