package fsm

import (
	"fmt"
	"testing"
)

// beside is a machine and the model under the same entries, for the cases that
// random sequences are too short for.
type beside struct {
	t       *testing.T
	machine *Machine
	model   *model
	index   uint64
}

func (b *beside) apply(stampMS int64, commands ...modelCommand) *Applied {
	b.t.Helper()
	b.index++
	applied := b.machine.Apply(b.index, EncodeEntry(stampMS, encodeAll(commands)))
	if err := b.model.saidDiffers(applied, b.model.apply(b.index, stampMS, commands)); err != nil {
		b.t.Fatal(err)
	}
	if err := b.model.differs(b.machine); err != nil {
		b.t.Fatal(err)
	}
	if err := b.machine.check(); err != nil {
		b.t.Fatal(err)
	}
	return applied
}

func newBeside(t *testing.T) *beside {
	return &beside{t: t, machine: New(), model: newModel()}
}

func endedIn(applied *Applied) (sessions int) {
	for _, e := range applied.Effects {
		if e.Kind == EffectSessionEnded {
			sessions++
		}
	}
	return sessions
}

// TestExpiryTakesNoMoreThan1024Sessions: the rest is late, still holds, may be
// renewed, and goes with the next entries in the order (deadline, id).
func TestExpiryTakesNoMoreThan1024Sessions(t *testing.T) {
	b := newBeside(t)
	var commands []modelCommand
	for i := range uint64(2100) { // without leases, so that the budget would allow for more
		commands = append(commands, modelCommand{command: OpenSession{Session: 3000 - i, TTLMS: int64(100 + i%3)}})
	}
	b.apply(0, commands...)
	applied := b.apply(500, modelCommand{command: Renew{Renewals: []Renewal{{Session: 2998, TTLMS: 1000}, {Session: 3000, TTLMS: KeepTTL}}}})
	if n := endedIn(applied); n != 1024 || !applied.MoreDue {
		t.Fatalf("%d sessions ended, more due: %v", n, applied.MoreDue)
	}
	if each := applied.Commands[0].Result.Each; each[0].Code != OK || each[1].Code != ExpiredSession {
		t.Fatalf("a late session is renewed with %v, a removed one with %v", each[0].Code, each[1].Code)
	}
	if n := endedIn(b.apply(500)); n != 1024 {
		t.Fatalf("%d sessions ended at the second entry", n)
	}
	if applied := b.apply(500); endedIn(applied) != 51 || applied.MoreDue {
		t.Fatalf("%d sessions ended at the third entry, more due: %v", endedIn(applied), applied.MoreDue)
	}
}

// TestExpiryTakesFewRecords: sessions with many leases and requests end in fewer
// numbers, and at least one an entry.
func TestExpiryTakesFewRecords(t *testing.T) {
	b := &beside{t: t, machine: New()}
	limits := DefaultLimits()
	limits.SessionLeases = 10_000
	commands := []modelCommand{{command: StartTerm{Term: 1, Limits: limits}}}
	restored := []RestoreSession{{Session: 1, TTLMS: 10}, {Session: 2, TTLMS: 10}, {Session: 3, TTLMS: 10}}
	for i := range 3000 {
		name := fmt.Sprint(i)
		commands = append(commands, modelCommand{command: CreateSemaphore{Name: name, Permits: 1}})
		for j := range restored {
			restored[j].Leases = append(restored[j].Leases, Want{Semaphore: name, Count: 1})
		}
	}
	b.index++
	encoded := [][]byte{}
	for _, c := range commands {
		encoded = append(encoded, Envelope{Request: RequestID{}, Key: ""}.Encode(c.command))
	}
	for _, c := range restored {
		encoded = append(encoded, Envelope{Request: RequestID{}, Key: ""}.Encode(c))
	}
	encoded = append(encoded, Envelope{Request: RequestID{}, Key: ""}.Encode(OpenSession{Session: 4, TTLMS: 11}))
	b.machine.Apply(b.index, EncodeEntry(0, encoded))
	ended := []int{1, 1, 1, 1} // of 2,048 records one session of 3,000 is too many
	for i, want := range ended {
		applied := b.machine.Apply(b.index+1+uint64(i), EncodeEntry(100, nil))
		if n := endedIn(applied); n != want || applied.MoreDue != (i < len(ended)-1) {
			t.Fatalf("%d sessions ended at entry %d, more due: %v", n, i, applied.MoreDue)
		}
	}
	if err := b.machine.check(); err != nil {
		t.Fatal(err)
	}
}

// TestOldMemoryIsForgotten: ended sessions and keys live ten minutes, and at
// most 4,096 of each are forgotten at one entry.
func TestOldMemoryIsForgotten(t *testing.T) {
	var commands []modelCommand
	for i := range uint64(4100) {
		commands = append(commands, modelCommand{key: fmt.Sprint("key ", i), command: OpenSession{Session: i + 1, TTLMS: 0}})
	}
	m := New()
	for i := range 4 {
		m.Apply(uint64(i)+1, EncodeEntry(1000, encodeAll(commands[1025*i:1025*(i+1)])))
	}
	for i, step := range []struct {
		stampMS int64
		left    int
	}{{600_999, 4100}, {601_000, 4}, {601_000, 0}} {
		m.Apply(uint64(i)+5, EncodeEntry(step.stampMS, nil))
		if m.ended.live != step.left || m.keys.live != step.left {
			t.Fatalf("at %d: %d ended sessions and %d keys are left, want %d", step.stampMS, m.ended.live, m.keys.live, step.left)
		}
	}
}

// TestPendingKeyOutlivesTenMinutes: a key waits as long as its request, and
// its outcome is kept ten minutes from then.
func TestPendingKeyOutlivesTenMinutes(t *testing.T) {
	b := newBeside(t)
	ask := func(sessionID uint64) modelCommand {
		return modelCommand{key: "the key", command: AcquireOnce{Name: "a", Count: 1, TTLMS: 2_000_000, WaitMS: 3_600_000, Session: sessionID}}
	}
	b.apply(0, modelCommand{command: CreateSemaphore{Name: "a", Permits: 1}},
		modelCommand{command: AcquireOnce{Name: "a", Count: 1, TTLMS: 3_600_000, Session: 6}}, ask(7))
	if r := b.apply(1_000_000, ask(8)).Commands[0].Result; !r.Joined || r.Code != Waiting || r.Session != 7 {
		t.Fatalf("a repeat of a pending key: %s", show(r))
	}
	b.apply(1_000_000, modelCommand{command: PutSemaphore{Name: "a", Permits: Change[int64]{true, 2}}})
	if r := b.apply(1_599_999, ask(9)).Commands[0].Result; !r.Replayed || r.Code != OK || r.DeadlineMS != 3_000_000 {
		t.Fatalf("a repeat of a finished key: %s", show(r))
	}
	if r := b.apply(1_600_000, ask(10)).Commands[0].Result; r.Replayed || r.Code != Waiting {
		t.Fatalf("a repeat of a forgotten key: %s", show(r))
	}
}

// TestEndedSessionsAreBounded: the 100,001st pushes out the first.
func TestEndedSessionsAreBounded(t *testing.T) {
	m := New()
	for i := range uint64(100) {
		var encoded [][]byte
		for j := range uint64(1000) {
			encoded = append(encoded, Envelope{Request: RequestID{}, Key: ""}.Encode(OpenSession{Session: 1 + i*1000 + j, TTLMS: 0}))
		}
		m.Apply(i+1, EncodeEntry(0, encoded))
	}
	if _, _, ok := m.Ended(1); !ok || m.ended.live != 100_000 {
		t.Fatalf("%d ended sessions are remembered", m.ended.live)
	}
	m.Apply(101, EncodeEntry(0, [][]byte{Envelope{Request: RequestID{}, Key: ""}.Encode(OpenSession{Session: 200_000, TTLMS: 0})}))
	_, _, first := m.Ended(1)
	_, _, second := m.Ended(2)
	_, _, last := m.Ended(200_000)
	if first || !second || !last || m.ended.live != 100_000 {
		t.Fatalf("remembered: first %v, second %v, last %v, %d in all", first, second, last, m.ended.live)
	}
}

// TestNoticesAreBounded: 100 for one semaphore, 10,000 in all; notices of a
// deleted semaphore count until they are done.
func TestNoticesAreBounded(t *testing.T) {
	b := newBeside(t)
	var down []modelCommand
	for range 101 {
		down = append(down, modelCommand{command: Down{Name: "a", Count: 1, Notice: "http://example.com/free"}})
	}
	b.apply(0, modelCommand{command: CreateSemaphore{Name: "a"}})
	applied := b.apply(0, down...)
	if code := applied.Commands[99].Result.Code; code != Unavailable {
		t.Fatalf("the 100th down with a notice: %v", code)
	}
	if r := applied.Commands[100].Result; r.Code != LimitReached || r.Rule != RuleNotices {
		t.Fatalf("the 101st down with a notice: %s", show(r))
	}
	again := append([]modelCommand{{command: DeleteSemaphore{Name: "a"}}, {command: CreateSemaphore{Name: "a"}}}, down[:100]...)
	for range 99 {
		b.index++
		b.machine.Apply(b.index, EncodeEntry(0, encodeAll(again)))
		b.model.apply(b.index, 0, again)
	}
	applied = b.apply(0, again...)
	if r := applied.Commands[2].Result; r.Code != LimitReached || r.Rule != RuleNotices || b.machine.notices.live != 10_000 {
		t.Fatalf("the 10,001st notice: %s", show(r))
	}
}

func encodeAll(commands []modelCommand) (encoded [][]byte) {
	for i, c := range commands {
		encoded = append(encoded, Envelope{Request: RequestID{1, uint64(i)}, Key: c.key, Owner: c.owner, Trace: c.trace}.Encode(c.command))
	}
	return encoded
}
