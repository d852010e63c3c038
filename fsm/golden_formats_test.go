package fsm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// goldenStep is one command of a golden history, and its code.
type goldenStep struct {
	command Command
	code    Code
}

// operationsHistory is a history with the operations that the histories of TestStateHashIsForEver
// lack. It leaves a record of each kind in the snapshot.
func operationsHistory() []goldenStep {
	two := int32(2)
	return []goldenStep{
		{StartTerm{Term: 1, Leader: "n1", Limits: DefaultLimits(), Cluster: ClusterID{15: 1}, Level: 1, Jump: true}, OK},
		{CreateSemaphore{Name: "db", Permits: 3, Level: &two, Metadata: []Pair{{"team", "core"}, {"use", "test"}}}, OK},
		{CreateSemaphore{Name: "pool", Permits: 2, Level: &two}, OK},
		{CreateSemaphore{Name: "jobs"}, OK},
		{CreateSemaphore{Name: "jobs"}, OK},
		{OpenSession{Session: 1, TTLMS: 60_000, Metadata: []Pair{{"host", "a"}}, Keep: true}, OK},
		{OpenSession{Session: 2, TTLMS: 60_000}, OK},
		{OpenSession{Session: 300, TTLMS: 60_000}, OK},
		{AcquireMany{Session: 1, Wants: []Want{{Semaphore: "db", Count: 2}, {Semaphore: "pool", Count: 1}}, Mode: All}, OK},
		{AcquireMany{Session: 2, Wants: []Want{{Semaphore: "db", Count: 2}, {Semaphore: "pool", Count: 2}}, Mode: Any}, Waiting},
		{AcquireMany{Session: 300, Wants: []Want{{Semaphore: "db", Count: 3}}, Mode: All, Try: true}, Unavailable},
		{ResizeLease{Session: 1, Name: "db", Count: 1, Token: 300}, NotHeld},
		{ResizeLease{Session: 1, Name: "db", Count: 1, Epoch: 77}, EpochMismatch},
		{ResizeLease{Session: 1, Name: "db", Count: 1}, OK},
		{ListAdd{Session: 1, Name: "jobs", Count: 5}, OK},
		{Up{Name: "jobs", Count: 2}, OK},
		{ListDeliver{Session: 1}, OK},
		{ListDeliver{Session: 1}, NothingReady},
		{ListAdd{Session: 1, Name: "jobs", Count: 4}, OK},
		{ListRemove{Session: 1, Name: "jobs", Epoch: 77}, OK},
		{ListRemove{Session: 1, Name: "jobs"}, OK},
		{Down{Name: "jobs", Count: 9, Notice: "http://n1/due"}, Unavailable},
		{Up{Name: "jobs", Count: 20, Epoch: 77}, EpochMismatch},
		{Up{Name: "jobs", Count: 20}, OK},
		{NoticeDone{IDs: []uint64{3, 300}}, OK},
		{Down{Name: "jobs", Count: 90, Notice: "http://n1/later"}, Unavailable},
		{RevokeLease{Session: 2, Name: "db", Reason: "repair", Epoch: 77}, EpochMismatch},
		{RevokeLease{Session: 2, Name: "db", Reason: "repair"}, OK},
		{RestoreSession{Session: 9, TTLMS: 45_000, Leases: []Want{{Semaphore: "pool", Count: 1}}, Metadata: []Pair{{"host", "b"}}}, OK},
		{EndSession{Session: 300, Operator: true, Reason: "moved"}, OK},
		{OpenSession{Session: 301, TTLMS: 60_000}, OK},
		{AcquireMany{Session: 301, Wants: []Want{{Semaphore: "db", Count: 3}, {Semaphore: "pool", Count: 2}}, Mode: All}, Waiting},
		{ListAdd{Session: 1, Name: "pool", Count: 4}, OK},
		{AcquireOnce{Session: 302, Name: "jobs", Count: 1, TTLMS: 20_000, Metadata: []Pair{{"host", "c"}}}, OK},
		{EndSession{Session: 302}, OK},
		{PutSemaphore{Name: "db", Permits: Change[int64]{true, 4}, Level: Change[*int32]{true, &two}, Metadata: Change[[]Pair]{true, []Pair{{"team", "edge"}}}}, OK},
		{PutSemaphore{Name: "db", Level: Change[*int32]{Given: true}, OnlyNew: true}, AlreadyExists},
		{PutSemaphore{Name: "db", Epoch: 77}, EpochMismatch},
		{DeleteSemaphore{Name: "db", Epoch: 77}, EpochMismatch},
		{SetValue{Name: "db", Value: -3, Epoch: 77}, EpochMismatch},
		{Down{Name: "db", Count: 3, Partial: true, Epoch: 77}, EpochMismatch},
		{Acquire{Session: 2, Name: "db", Count: 3, TTLMS: 70_000, Try: true, Epoch: 77}, EpochMismatch},
		{AcquireOnce{Session: 303, Name: "db", Count: 3, TTLMS: 70_000, Epoch: 77}, EpochMismatch},
		{Release{Session: 2, Name: "db", Epoch: 77}, EpochMismatch},
		{ListAdd{Session: 2, Name: "db", Count: 3, Epoch: 77}, EpochMismatch},
		{Renew{Renewals: []Renewal{{Session: 2, TTLMS: 70_000}, {Session: 303, TTLMS: KeepTTL}}}, OK},
		{RaiseLevel{Level: 1}, OK},
	}
}

// TestOperationsAreForEver pins the bytes of the operations, and what they do.
func TestOperationsAreForEver(t *testing.T) {
	steps := operationsHistory()
	history := make([]Command, len(steps))
	for i, step := range steps {
		history[i] = step.command
	}
	codes := goldenHistory(t, "testdata/operations-1.golden", goldenEnvelope(OwnerLimits{Sessions: 5, Leases: 300, Waiting: 6}), history)
	for i, step := range steps {
		if codes[i] != step.code {
			t.Errorf("command %d, %v: %v, want %v", i+1, step.command.Op(), codes[i], step.code)
		}
	}
}

// TestEachOperationIsPinned: each operation occurs in a golden history. A new one needs a
// history of its level, in a separate file.
func TestEachOperationIsPinned(t *testing.T) {
	files, err := filepath.Glob("testdata/*-[1-9].golden")
	if err != nil {
		t.Fatal(err)
	}
	pinned := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			pinned[strings.Fields(line)[1]] = true
		}
	}
	for op := OpStartTerm; op < opCount; op++ {
		if !pinned[op.String()] {
			t.Errorf("no file testdata/*-LEVEL.golden has the operation %v: add it to a golden history, see TestOperationsAreForEver", op)
		}
	}
}

// TestResultsAreForEver pins the bytes of a result, as keys in a snapshot and the peer port
// have them: each member alone, and all together. A line may be added, never changed.
func TestResultsAreForEver(t *testing.T) {
	level, lowest := int32(-70), int32(300)
	all := Result{
		Grants: []Grant{{Semaphore: "a", Epoch: 200, Count: -3, Token: 400, GrantedMS: 5_000}, {Semaphore: "b"}},
		Semaphore: &SemaphoreView{Name: "a", Epoch: 200, Permits: 3, Offset: -4, Held: 5, Available: -6, Level: &level, Metadata: []Pair{{"k", "v"}},
			ModifiedIndex: 700, Holders: 8, Waiters: 9},
		Each:      []Result{{Code: ExpiredSession, Session: 300}, {TTLMS: 1_000}},
		Completed: []Completion{{Semaphore: "a", Epoch: 200, Granted: 3, Token: 400, Deleted: false}, {Semaphore: "b", Deleted: true}},
		Refusal:   &Refusal{Level: &level, LowestLevel: &lowest},
	}
	// The file has values by these positions.
	members := strings.Fields(`Code Replayed Joined Waiting Created Found OneShot TookOver Session TTLMS DeadlineMS Place Position
		Epoch Version Granted Value Trace Grants Semaphore Each Completed Subject Rule Limit Reason Asked Holding Permits Full
		Available QueueLength Level LowestLevel Locks DelayMS More Group Used`)
	member := func(r *Result, name string) reflect.Value {
		if f := reflect.ValueOf(r).Elem().FieldByName(name); f.IsValid() {
			return f
		}
		return reflect.ValueOf(r.explain()).Elem().FieldByName(name)
	}
	if n := reflect.TypeFor[Result]().NumField() - 1 + reflect.TypeFor[Refusal]().NumField(); n != len(members) {
		t.Fatalf("a result has %d members, and %d are listed", n, len(members))
	}
	for i, name := range members {
		switch f := member(&all, name); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Uint8:
			f.SetUint(uint64(i + 1))
		case reflect.Uint64:
			f.SetUint(uint64(1_000 + i))
		case reflect.Int64:
			f.SetInt(int64(-1_000 - i))
		case reflect.String:
			f.SetString("text " + name)
		}
	}
	all.Semaphore.Version = all.Version
	var b strings.Builder
	pin := func(name string, r Result) {
		encoded := AppendResult(nil, &r)
		fmt.Fprintf(&b, "%s %x\n", name, encoded)
		decoded, err := DecodeResult(encoded)
		if again := AppendResult(nil, &decoded); err != nil || !slices.Equal(again, encoded) {
			t.Errorf("%s is read as %+v, error %v", name, decoded, err)
		}
	}
	for _, name := range members {
		var single Result
		member(&single, name).Set(member(&all, name))
		if empty := new(Result); len(AppendResult(nil, &single)) <= 2 && string(AppendResult(nil, &single)) == string(AppendResult(nil, empty)) {
			t.Errorf("a result loses its %s", name)
		}
		pin(name, single)
	}
	pin("all", all)
	pin("times and slots", Result{Grants: []Grant{{Details: &GrantDetails{DueMS: 9_000, EndsMS: 8_000}},
		{Details: &GrantDetails{Slots: []SlotRun{{0, 2}, {300, 1}}}}}})
	pin("returns", Result{Semaphore: &SemaphoreView{Returning: 9, Returns: 2, NextReturnMS: 7_000, Lost: 1}})
	decoded, err := DecodeResult(AppendResult(nil, &all))
	if err != nil || !reflect.DeepEqual(decoded, all) {
		t.Errorf("all is read as\n%+v, error %v, and was\n%+v", decoded, err, all)
	}
	golden(t, "testdata/results.golden", b.String())
}

// TestEachMemberOfAResultIsKnown: what is read with one member alone is written as the same bytes, so that no member
// is read over.
func TestEachMemberOfAResultIsKnown(t *testing.T) {
	known := 0
	for bit := range 64 {
		for content := range 64 { // as many bytes as some member needs
			encoded := append(binary.AppendUvarint([]byte{byte(OK)}, 1<<bit), bytes.Repeat([]byte{1}, content)...)
			decoded, err := DecodeResult(encoded)
			if err != nil {
				continue
			}
			known++
			if again := AppendResult(nil, &decoded); !bytes.Equal(again, encoded) {
				t.Errorf("bit %d: %x is read as %x", bit, encoded, again)
			}
		}
	}
	if known < 30 {
		t.Errorf("only %d members are read", known)
	}
}

// TestResultsOfOtherProgramsAreRefused: a code or a member that this program does not know.
func TestResultsOfOtherProgramsAreRefused(t *testing.T) {
	for i, encoded := range [][]byte{AppendResult(nil, &Result{Code: codeCount - 1}), AppendResult(nil, &Result{Code: codeCount}), {byte(OK), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}} {
		if decoded, err := DecodeResult(encoded); (err == nil) != (i == 0) {
			t.Errorf("%x is read as %+v, %v", encoded, decoded, err)
		}
	}
}
