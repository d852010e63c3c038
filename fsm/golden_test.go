package fsm

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestNumbersAreForEver pins every number that stands in logs, snapshots and
// on the peer port. A line may be added, never changed.
func TestNumbersAreForEver(t *testing.T) {
	var b strings.Builder
	for op := OpStartTerm; op < opCount; op++ {
		fmt.Fprintf(&b, "operation %d %v\n", op, op)
	}
	for c := Code(0); c < codeCount; c++ {
		fmt.Fprintf(&b, "code %d %v\n", c, c)
	}
	for r := Rule(1); r < ruleCount; r++ {
		fmt.Fprintf(&b, "rule %d %v\n", r, r)
	}
	for c := CauseExpired; c <= CauseSuperseded; c++ {
		fmt.Fprintf(&b, "cause %d %v\n", c, c)
	}
	for k := EffectCreated; k <= EffectGroupChanged; k++ {
		fmt.Fprintf(&b, "effect %d %v\n", k, k)
	}
	golden(t, "testdata/numbers.golden", b.String())
}

// TestStateHashIsForEver replays fixed histories; their hashes, and the snapshot after each,
// must stay the same in every later version. A level's histories are named after it.
func TestStateHashIsForEver(t *testing.T) {
	goldenHistory(t, "testdata/cycle-1.golden", goldenEnvelope(OwnerLimits{}), []Command{
		StartTerm{Term: 1, Leader: "n1", Limits: DefaultLimits(), Cluster: ClusterID{15: 1}, Level: 1},
		PutSemaphore{Name: "db", Permits: Change[int64]{true, 2}},
		OpenSession{Session: 1, TTLMS: 30_000, Metadata: []Pair{{"host", "a"}}},
		Acquire{Session: 1, Name: "db", Count: 2, TTLMS: KeepTTL},
		AcquireOnce{Session: 2, Name: "db", Count: 1, TTLMS: 1_000, WaitMS: 60_000},
		Down{Name: "db", Count: 1, WaitMS: 5_000, Session: 3},
		Release{Session: 1, Name: "db", Token: 1},
		Renew{Renewals: []Renewal{{Session: 1, TTLMS: KeepTTL}, {Session: 2, TTLMS: 10_000}}},
		PutSemaphore{Name: "db", Permits: Change[int64]{true, 3}, Version: Change[uint64]{true, 1}},
		DeleteSemaphore{Name: "db", Version: Change[uint64]{true, 1}},
	})
	goldenHistory(t, "testdata/limits-1.golden", goldenEnvelope(OwnerLimits{Sessions: 2, Leases: 300, Waiting: 1}), []Command{
		StartTerm{Term: 1, Leader: "n1", Limits: DefaultLimits(), Cluster: ClusterID{15: 1}, Level: 1},
		PutSemaphore{Name: "db", Permits: Change[int64]{true, 2}},
		OpenSession{Session: 1, TTLMS: 30_000},
		Acquire{Session: 1, Name: "db", Count: 2, TTLMS: KeepTTL},
		AcquireOnce{Session: 2, Name: "db", Count: 1, TTLMS: 1_000, WaitMS: 60_000},
		Down{Name: "db", Count: 1, WaitMS: 5_000, Session: 3},
		Release{Session: 1, Name: "db", Token: 1},
		ListAdd{Session: 1, Name: "db", Count: 9},
		ListAdd{Session: 1, Name: "db", Count: 9},
		EndSession{Session: 1},
		Down{Name: "db", Count: 9, WaitMS: 5_000, Session: 3},
	})
	limits := OwnerLimits{Sessions: 3, Leases: 300, Waiting: 1}
	goldenHistory(t, "testdata/takeover-1.golden", func(i int) Envelope { // from before the identities, then of one
		v := goldenEnvelope(limits)(i)
		switch {
		case i < 6:
			v.Owner, v.Limits = "", OwnerLimits{}
		case i < 9: // the keys of 3, 4 and 5
			v.Key = fmt.Sprintf("key-%d", i-3)
		}
		return v
	}, []Command{
		StartTerm{Term: 1, Leader: "n1", Limits: DefaultLimits(), Cluster: ClusterID{15: 1}, Level: 1},
		PutSemaphore{Name: "db", Permits: Change[int64]{true, 2}},
		OpenSession{Session: 1, TTLMS: 30_000},
		AcquireOnce{Session: 2, Name: "db", Count: 2, TTLMS: 10_000},
		AcquireOnce{Session: 3, Name: "db", Count: 1, TTLMS: 10_000, WaitMS: 60_000},
		SetValue{Name: "db", Value: 0},
		AcquireOnce{Session: 4, Name: "db", Count: 2, TTLMS: 10_000},
		AcquireOnce{Session: 5, Name: "db", Count: 1, TTLMS: 10_000, WaitMS: 60_000},
		SetValue{Name: "db", Value: 0},
		Renew{Renewals: []Renewal{{Session: 1, TTLMS: KeepTTL}}},
		OpenSession{Session: 6, TTLMS: 30_000},
		PutSemaphore{Name: "db", Permits: Change[int64]{true, 4}, OnlyExisting: true},
		PutSemaphore{Name: "absent", Permits: Change[int64]{true, 4}, OnlyExisting: true},
		PutSemaphore{Name: "db", OnlyNew: true, OnlyExisting: true},
	})
	goldenHistory(t, "testdata/items-1.golden", goldenEnvelope(OwnerLimits{Sessions: 4}), []Command{
		StartTerm{Term: 1, Leader: "n1", Limits: DefaultLimits(), Cluster: ClusterID{15: 1}, Level: 1},
		OpenHolder{Session: 1, TTLMS: 30_000, About: "{\"Name\":\"deploy\"}", DeleteItems: true, DelayMS: 15_000},
		OpenHolder{Session: 2, TTLMS: 4_000, DelayMS: 60_000},
		OpenSession{Session: 3, TTLMS: 30_000},
		ItemPut{Name: "p/config", Value: "\x00one", Flags: 1 << 63},
		ItemPut{Name: "p/config", Value: "two", Version: Change[uint64]{true, 3}},
		ItemPut{Name: "p/config", Value: "three", Version: Change[uint64]{true, 3}},
		ItemPut{Name: "absent", Version: Change[uint64]{true, 3}},
		ItemAcquire{Name: "p/.lock", Value: "held", Flags: 300, Session: 1},
		ItemAcquire{Name: "p/.lock", Value: "held", Session: 3},
		ItemRelease{Name: "p/.lock", Session: 3},
		ItemAcquire{Name: "p/other", Session: 2},
		ItemAcquire{Name: "other", Session: 3},
		ItemRelease{Name: "other", Value: "free", Flags: 7, Session: 3},
		ItemAcquire{Name: "q/1", Session: 3},
		ItemPut{Name: "r/1"},
		ItemPut{Name: "r/2"},
		ItemDelete{Name: "r/1", Version: Change[uint64]{true, 1}},
		ItemDelete{Name: "q/1"},
		ItemDelete{Name: "q/1"},
		ItemDeleteAll{Prefix: "r/"},
		EndSession{Session: 1},
		ItemAcquire{Name: "p/.lock", Session: 3},
		ItemDelete{Name: "p/other"},
		ItemAcquire{Name: "p/config", Session: 3},
		OpenHolder{Session: 4, TTLMS: 30_000, About: "{\"Name\":\"next\"}", DelayMS: 1},
		ItemAcquire{Name: "p/next", Session: 4},
	})
}

// TestGroupsAreForEver pins the bytes of settings and groups, and what they do: each member of each
// record, command and result.
func TestGroupsAreForEver(t *testing.T) {
	change := func(permits int64) Change[int64] { return Change[int64]{true, permits} }
	goldenHistory(t, "testdata/groups-1.golden", goldenEnvelope(OwnerLimits{Sessions: 40}), []Command{
		StartTerm{Term: 1, Leader: "n1", Limits: DefaultLimits(), Cluster: ClusterID{15: 1}, Level: 1},
		CreateSemaphore{Name: "pool", Permits: 3, Settings: SettingsChange{Groups: Change[Grouping]{true, ByRequest}, PerGroup: change(2)}},
		PutSemaphore{Name: "family", Permits: change(0), Settings: SettingsChange{Family: true, Groups: Change[Grouping]{true, ByRequest},
			PerGroup: change(1), MaxWaiting: change(1), DropOldest: Change[bool]{true, true}}},
		PutSemaphore{Name: "mine", Permits: change(1), Settings: SettingsChange{Groups: Change[Grouping]{true, ByOwner}}},
		PutSemaphore{Name: "plain", Permits: change(1), Settings: SettingsChange{HeadStartMS: change(60_000), MaxWaiting: change(2)}},
		PutSemaphore{Name: "db", Permits: change(1), Settings: SettingsChange{Paused: Change[string]{true, "disk swap"}}},
		GroupPut{Name: "pool", Group: "acme", Limit: 300},
		OpenSession{Session: 1, TTLMS: 30_000},
		OpenSession{Session: 2, TTLMS: 30_000, Keep: true},
		Acquire{Session: 1, Name: "pool", Count: 2, TTLMS: KeepTTL, Group: "acme"},
		AcquireOnce{Session: 11, Name: "pool", Count: 2, TTLMS: 9_000, WaitMS: 60_000, Group: "umbrella"},
		AcquireOnce{Session: 12, Name: "pool", Count: 1, TTLMS: 9_000, WaitMS: 60_000},
		AcquireOnce{Session: 13, Name: "pool", Count: 1, TTLMS: 9_000, Group: "acme"},
		AcquireOnce{Session: 14, Name: "pool", Count: 301, TTLMS: 9_000, Group: "acme"},
		Acquire{Session: 1, Name: "family", Count: 1, TTLMS: KeepTTL, Group: "fix"},
		AcquireOnce{Session: 15, Name: "family", Count: 1, TTLMS: 9_000, WaitMS: 60_000, Group: "fix"},
		AcquireOnce{Session: 16, Name: "family", Count: 1, TTLMS: 9_000, WaitMS: 60_000, Group: "fix"},
		AcquireOnce{Session: 17, Name: "mine", Count: 1, TTLMS: 9_000, Group: "ignored"},
		AcquireMany{Session: 2, Mode: All, Wants: []Want{{Semaphore: "plain", Count: 1}, {Semaphore: "pool", Count: 1, Group: "acme"}, {Semaphore: "family", Count: 1, Group: "other"}}},
		Acquire{Session: 1, Name: "plain", Count: 1, TTLMS: KeepTTL, HeadStartMS: 90_000},
		AcquireOnce{Session: 18, Name: "plain", Count: 1, TTLMS: 9_000, WaitMS: 60_000, HeadStartMS: 30_000},
		AcquireOnce{Session: 19, Name: "plain", Count: 1, TTLMS: 9_000, WaitMS: 60_000, HeadStartMS: 30_000},
		AcquireOnce{Session: 20, Name: "db", Count: 1, TTLMS: 9_000},
		Down{Name: "pool", Count: 1, Group: "acme", HeadStartMS: 1},
		Down{Name: "pool", Count: 3, Group: "late", Notice: "http://127.0.0.1/"},
		Down{Name: "family", Count: 1, Group: "fix"},
		ListAdd{Session: 2, Name: "pool", Count: 5, Group: "listed"},
		ListAdd{Session: 2, Name: "pool", Count: 5, Group: "dropped"},
		ListRemove{Session: 2, Name: "pool", Group: "dropped"},
		GroupPut{Name: "pool", Group: "umbrella", Limit: 1},
		PutSemaphore{Name: "pool", Settings: SettingsChange{Groups: Change[Grouping]{true, ByOwner}}},
		PutSemaphore{Name: "pool", Settings: SettingsChange{PerGroup: change(1)}},
		PutSemaphore{Name: "plain", Settings: SettingsChange{PerGroup: change(1)}},
		RestoreSession{Session: 3, TTLMS: 30_000, Leases: []Want{{Semaphore: "pool", Count: 2, Group: "restored"}, {Semaphore: "family", Count: 2, Group: "restored"}}},
		ResizeLease{Session: 3, Name: "pool", Count: 1, Group: "restored"},
		RevokeLease{Session: 3, Name: "family", Reason: "why", Group: "restored"},
		Release{Session: 3, Name: "family", Group: "restored"},
		Release{Session: 1, Name: "pool", Group: "acme"},
		Release{Session: 1, Name: "plain"},
		GroupPut{Name: "pool", Group: "acme", Limit: NoLimit},
		PutSemaphore{Name: "db", Settings: SettingsChange{Paused: Change[string]{Given: true}}},
		GroupPut{Name: "db", Limit: 1},
		AcquireMany{Session: 1, Mode: Any, HeadStartMS: 5, Wants: []Want{{Semaphore: "mine", Count: 1}, {Semaphore: "family", Count: 1, Group: "fix"}}},
	})
}

// goldenEnvelope frames the commands of one owner, which carry its limits.
func goldenEnvelope(limits OwnerLimits) func(int) Envelope {
	return func(i int) Envelope {
		return Envelope{Request: RequestID{Origin: 7, Sequence: uint64(i + 1)}, Key: fmt.Sprintf("key-%d", i),
			Owner: "ci", Limits: limits, Trace: fmt.Sprintf("trace-%d", i)}
	}
}

// goldenHistory applies a history of commands, each in its frame, and returns their codes.
func goldenHistory(t *testing.T, path string, frame func(int) Envelope, history []Command) (codes []Code) {
	t.Helper()
	m := New()
	var b strings.Builder
	for i, command := range history {
		entry := EncodeEntry(int64(i)*250, [][]byte{frame(i).Encode(command)})
		codes = append(codes, m.Apply(uint64(i+1), entry).Commands[0].Result.Code)
		fmt.Fprintf(&b, "%d %v %x %x\n", i+1, command.Op(), m.Hash(), entry)
	}
	fmt.Fprintf(&b, "snapshot %x\n", snapshotOf(t, m.Freeze()))
	golden(t, path, b.String())
	return codes
}

// TestOtherClustersLogHalts: an entry of another cluster is never applied.
func TestOtherClustersLogHalts(t *testing.T) {
	m := New()
	startTerm := func(index uint64, cluster ClusterID) string {
		c := StartTerm{Term: index, Leader: "n1", Limits: DefaultLimits(), Cluster: cluster, Level: 1}
		return halts(m, index, EncodeEntry(0, [][]byte{Envelope{}.Encode(c)}))
	}
	if halt := startTerm(1, ClusterID{1}); halt != "" {
		t.Fatal(halt)
	}
	if halt := startTerm(2, ClusterID{2}); !strings.Contains(halt, "belongs to cluster") {
		t.Fatalf("an entry of another cluster: %q", halt)
	}
}

// TestCommandsAboveTheLevel: a command names the level that it needs, is refused below that, and
// halts a program that doesn't know it.
func TestCommandsAboveTheLevel(t *testing.T) {
	command := Envelope{Owner: "ci"}.Encode(DeleteSemaphore{Name: "a"})
	if level := CommandLevel(command); level != 1 {
		t.Errorf("the command names level %d", level)
	}
	lower := append([]byte{0}, command[1:]...)
	if _, err := CheckCommand(lower); err == nil {
		t.Error("a command under a level that is too low is taken")
	}
	below := New()
	below.feature = 0
	if code := below.Apply(1, EncodeEntry(0, [][]byte{command})).Commands[0].Result.Code; code != Malformed {
		t.Errorf("below its level: %v", code)
	}
	for name, unknown := range map[string][]byte{
		"a level":      append([]byte{byte(FeatureLevel + 1)}, command[1:]...),
		"an operation": {1, 1, 1, byte(opCount), 0},
		"a raise":      Envelope{}.Encode(RaiseLevel{Level: FeatureLevel + 1}),
	} {
		if _, err := CheckCommand(unknown); err == nil {
			t.Errorf("%s that is not known is taken", name)
		}
		if halt := halts(New(), 1, EncodeEntry(0, [][]byte{unknown})); !strings.Contains(halt, "newer version") {
			t.Errorf("%s that is not known: %q", name, halt)
		}
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if a line was only added, run with -update:\n%s", path, got)
	}
}

// TestConstantsBelongToTheLevel pins the constants that are behaviour: with another
// value a machine would apply the same entries otherwise than one of another program.
// A line may be added, for a rule of a new level, never changed.
func TestConstantsBelongToTheLevel(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		name  string
		value int64
	}{
		{"remembered ended sessions", maxEnded}, {"ms that they are kept", endedKeptMS}, {"remembered revoked leases", maxRevoked},
		{"ms that keys and marks are kept", keysKeptMS}, {"marks for each key allowed", marksPerKey}, {"bytes that a key counts beside its texts", keyOverhead},
		{"bytes for a member of an outcome", memberBytes}, {"bytes for the outcome of a wait", waitBytes}, {"bytes for any outcome", answerBytes},
		{"bytes for each renewal's outcome", maxEachBytes}, {"keys of one request", maxRequestKeys}, {"waiting keys of one session", maxSessionKeys},
		{"sessions that expire in an entry", expireSessions}, {"memories of each kind forgotten in an entry", forgetKeys},
		{"largest token", maxToken}, {"jump after a recovery", termJump}, {"notices", maxNotices}, {"notices of a semaphore", maxNoticesHere},
		{"bytes of a notice's address", maxNoticeBytes}, {"ms that a notice is kept", noticesKeptMS}, {"notices done at once", maxNoticesDone},
		{"bytes of a name", maxNameBytes}, {"bytes of a reason", maxReasonBytes}, {"bytes of a key", maxKeyBytes}, {"bytes of an owner", MaxOwnerBytes},
		{"bytes of a trace", MaxTraceBytes}, {"pairs of metadata", maxMetadataPairs}, {"bytes of metadata", maxMetadataBytes}, {"members of a list", MaxMembers},
		{"longest ttl in ms", MaxTTLMS}, {"keys of one owner where 3 are allowed", half(3)},
		{"items and shades", maxItems}, {"bytes of items", maxItemBytes}, {"bytes that an item counts beside its texts", itemOverhead}, {"bytes of an item's value", MaxValueBytes},
		{"bytes of an about", MaxAboutBytes}, {"longest delay of an item in ms", MaxItemDelayMS}, {"items of a session", maxSessionItems}, {"items deleted at once", maxDeletedAtOnce},
		{"shades dropped in an entry", maxTombstonesDropped}, {"folders of deleted items", maxFolders}, {"deleted items of a folder", maxFolderNames}, {"deleted items", maxDeletedNames},
		{"groups with limits of their own", maxOwnLimits}, {"bytes of a group", MaxGroupBytes}, {"requests that may wait in a line", MaxWaitingLimit},
		{"longest head start in ms", MaxHeadStartMS}, {"shortest window in ms", MinWindowMS}, {"longest window in ms", MaxWindowMS},
		{"longest cooldown in ms", MaxCooldownMS}, {"shortest longest hold in ms", MinHoldMS}, {"ms between returns", returnStepMS}, {"most that a receipt says", maxSettled},
		{"returns that a set looks at", spendsAtOnce}, {"returns that a refusal looks at", returnsWalked}, {"slots", maxSlots}, {"slots of a lease", maxLeaseSlots}, {"slots that cost as much as a record", slotsPerRecord},
		{"grants that pass the longest wait", passedAtMost},
		{"ms that deleted items are kept", deletesKeptMS}, {"jump of a state that takes another one's place", succeededJump},
	} {
		fmt.Fprintf(&b, "%s %d\n", c.name, c.value)
	}
	fmt.Fprintf(&b, "what one entry does because of the state %+v\n", defaultBudget())
	fmt.Fprintf(&b, "limits before the first StartTerm %+v\n", DefaultLimits())
	golden(t, "testdata/constants.golden", b.String())
}
