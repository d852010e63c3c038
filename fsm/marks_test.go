package fsm

import (
	"bytes"
	"fmt"
	"testing"
)

// onceKeyed is a one-call acquire with a key.
func onceKeyed(key, owner string, sessionID uint64) modelCommand {
	return modelCommand{key: key, owner: owner, command: AcquireOnce{Name: "a", Count: 1, TTLMS: 1000, Session: sessionID}}
}

// TestKeysCarryTheirRate: with the default proportions, ten keyed acquires a second for
// each thousand keys can go on for ever if each lease is released: 10,000 a second with
// 1,000,000 keys. Every repeat within ten minutes is refused as over.
func TestKeysCarryTheirRate(t *testing.T) {
	const keys, perSecond = 1000, 10
	m := New()
	limits := DefaultLimits()
	limits.Keys = keys
	apply := func(nowMS int64, commands ...modelCommand) []AppliedCommand {
		return m.Apply(m.Index()+1, EncodeEntry(nowMS, encodeAll(commands))).Commands
	}
	apply(0, modelCommand{command: StartTerm{Term: 1, Limits: limits}}, modelCommand{command: CreateSemaphore{Name: "a", Permits: 1}})
	sessionID := uint64(0)
	for second := range int64(1500) {
		for range perSecond {
			sessionID++
			got := apply(second*1000, onceKeyed(fmt.Sprint(sessionID), "", sessionID), modelCommand{command: EndSession{Session: sessionID}})
			if got[0].Result.Code != OK || !got[1].Result.Found {
				t.Fatalf("second %d, session %d: %s", second, sessionID, show(got[0].Result))
			}
		}
		if first := sessionID - min(sessionID-1, 599*perSecond); second%100 == 0 {
			if got := apply(second*1000, onceKeyed(fmt.Sprint(first), "", 0)); got[0].Result.Code != Over {
				t.Fatalf("second %d: the repeat of session %d: %s", second, first, show(got[0].Result))
			}
		}
	}
	if m.keys.live != 0 || m.marks.length != 600*perSecond {
		t.Errorf("%d keys, %d marks", m.keys.live, m.marks.length)
	}
	if size := len(snapshotOf(t, m.Freeze())); size > m.marks.length*40 { // the ended session beside each, too
		t.Errorf("the snapshot has %d bytes for %d marks", size, m.marks.length)
	}
	if err := m.check(); err != nil {
		t.Error(err)
	}
}

// TestMarksAreBounded: six times as many as keys. A key for which there is no room as a
// mark stays as it is, so that no repeat gets a second lease; new ones are refused.
func TestMarksAreBounded(t *testing.T) {
	b := newBeside(t)
	limits := DefaultLimits()
	limits.Keys = 2
	b.apply(0, modelCommand{command: StartTerm{Term: 1, Limits: limits}}, modelCommand{command: CreateSemaphore{Name: "a", Permits: 1}})
	for i := range uint64(14) {
		b.apply(0, onceKeyed(fmt.Sprint(i), "", i+1), modelCommand{command: EndSession{Session: i + 1}})
	}
	if b.machine.marks.length != 12 || b.machine.keys.live != 2 {
		t.Fatalf("%d marks, %d keys", b.machine.marks.length, b.machine.keys.live)
	}
	codes := func(nowMS int64, keys ...string) (codes []Code) {
		for i, key := range keys {
			codes = append(codes, b.apply(nowMS, onceKeyed(key, "", 100+uint64(i))).Commands[0].Result.Code)
		}
		return codes
	}
	if got := codes(599_999, "0", "11", "12", "13", "14"); fmt.Sprint(got) != "[over over ok ok limit-reached]" {
		t.Fatalf("repeats: %v", got)
	}
	if got := codes(600_000, "14", "0"); fmt.Sprint(got) != "[ok unavailable]" {
		t.Fatalf("after ten minutes: %v", got)
	}
}

// TestMarksAreForgottenInSteps: at most 4,096 an entry, alike after a restore.
func TestMarksAreForgottenInSteps(t *testing.T) {
	m := New()
	commands := []modelCommand{{command: CreateSemaphore{Name: "a", Permits: 1}}}
	for i := range uint64(5000) {
		commands = append(commands, onceKeyed(fmt.Sprint(i), "", i+1), modelCommand{command: EndSession{Session: i + 1}})
	}
	m.Apply(1, EncodeEntry(0, encodeAll(commands)))
	restored, err := Restore(bytes.NewReader(snapshotOf(t, m.Freeze())))
	if err != nil {
		t.Fatal(err)
	}
	for i, left := range []int{5000 - 4096, 0} {
		for _, m := range []*Machine{m, restored} {
			if m.Apply(uint64(i)+2, EncodeEntry(600_000, nil)); m.marks.length != left || len(m.marked) != left {
				t.Fatalf("%d marks are left, want %d", m.marks.length, left)
			}
		}
	}
	if m.Hash() != restored.Hash() {
		t.Error("the restored machine has another state")
	}
}

// TestFrozenMarksStay: a frozen copy has the marks of its moment.
func TestFrozenMarksStay(t *testing.T) {
	var q markQueue
	for i := range int64(3000) {
		q.push(mark{atMS: i})
	}
	frozen := q.freeze()
	for i := range int64(2500) {
		q.pop()
		q.push(mark{atMS: 3000 + i})
	}
	next := int64(0)
	frozen.each(func(v *mark) {
		if v.atMS != next {
			t.Fatalf("mark %d of the copy is %d", next, v.atMS)
		}
		next++
	})
	if first, _ := q.front(); next != 3000 || first.atMS != 2500 || q.length != 3000 {
		t.Errorf("%d marks in the copy, the queue begins with %d and has %d", next, first.atMS, q.length)
	}
}

// TestOneOwnerHasHalfOfTheKeys: by number and by bytes; the others still find room.
func TestOneOwnerHasHalfOfTheKeys(t *testing.T) {
	for name, limits := range map[string]func(*Limits){
		"by number": func(l *Limits) { l.Keys = 100 },
		"by bytes":  func(l *Limits) { l.KeyBytes = 20_000 },
	} {
		m := New()
		l := DefaultLimits()
		limits(&l)
		m.Apply(1, EncodeEntry(0, encodeAll([]modelCommand{{command: StartTerm{Term: 1, Limits: l}}, {command: CreateSemaphore{Name: "a"}}})))
		up := func(key int, owner string) Result {
			return m.Apply(m.Index()+1, EncodeEntry(0, encodeAll([]modelCommand{{key: fmt.Sprint(key), owner: owner, command: Up{Name: "a", Count: 1}}}))).Commands[0].Result
		}
		taken := 0
		for up(taken, "greedy").Code == OK {
			taken++
		}
		if got := up(taken, "greedy"); got.Code != LimitReached || got.Rule != RuleOwnerKeys || taken < 10 {
			t.Errorf("%s: after %d keys: %s", name, taken, show(got))
		}
		for i := range taken / 2 {
			if got := up(i, "other"); got.Code != OK {
				t.Errorf("%s: key %d of another owner: %s", name, i, show(got))
				break
			}
		}
		if err := m.check(); err != nil {
			t.Error(err)
		}
	}
}
