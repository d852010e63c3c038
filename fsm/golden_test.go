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
	for op := OpReign; op < opCount; op++ {
		fmt.Fprintf(&b, "operation %d %v\n", op, op)
	}
	for c := Code(0); c < codeCount; c++ {
		fmt.Fprintf(&b, "code %d %v\n", c, c)
	}
	for r := Rule(1); r < ruleCount; r++ {
		fmt.Fprintf(&b, "rule %d %v\n", r, r)
	}
	for c := CauseExpired; c <= CauseResized; c++ {
		fmt.Fprintf(&b, "cause %d %v\n", c, c)
	}
	for k := EffectCreated; k <= EffectListLeft; k++ {
		fmt.Fprintf(&b, "effect %d %v\n", k, k)
	}
	golden(t, "testdata/numbers.golden", b.String())
}

// TestStateHashIsForEver replays one fixed history; its hash and its snapshot
// must stay the same in every later version.
func TestStateHashIsForEver(t *testing.T) {
	m := New()
	history := []Command{
		Reign{Term: 1, Leader: "n1", Limits: DefaultLimits()},
		PutSemaphore{Name: "db", Permits: Change[int64]{true, 2}},
		OpenSession{Session: 1, TTLMS: 30_000, Metadata: []Pair{{"host", "a"}}},
		Acquire{Session: 1, Name: "db", Count: 2, TTLMS: KeepTTL},
		AcquireOnce{Session: 2, Name: "db", Count: 1, TTLMS: 1_000, WaitMS: 60_000},
		Down{Name: "db", Count: 1, WaitMS: 5_000, Session: 3},
		Release{Session: 1, Name: "db"},
		Renew{Renewals: []Renewal{{Session: 1, TTLMS: KeepTTL}, {Session: 2, TTLMS: 10_000}}},
	}
	var b strings.Builder
	for i, command := range history {
		id := RequestID{Origin: 7, Sequence: uint64(i + 1)}
		m.Apply(uint64(i+1), EncodeEntry(int64(i)*250, [][]byte{EncodeCommand(id, fmt.Sprintf("key-%d", i), command)}))
		fmt.Fprintf(&b, "%d %v %x\n", i+1, command.Op(), m.Hash())
	}
	golden(t, "testdata/trace.golden", b.String())
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
