package fsm

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Exhaustion with slots: two sessions and one semaphore "a" of two permits, whose leases rest after their end.

// restoring is the move of a restore.
func restoring(c RestoreSession, allowed func(*Machine) bool) move {
	v := command(c, allowed, nil)
	v.restores = true
	return v
}

// slotScope returns the start and the alphabet of the scope.
func slotScope() (start []Command, moves []move) {
	put := func(permits int64) PutSemaphore { return PutSemaphore{Name: "a", Permits: given(permits)} }
	name := func(on bool) PutSemaphore {
		return PutSemaphore{Name: "a", Settings: SettingsChange{Slots: given(on)}}
	}
	ofA := func(_ uint64, name string) bool { return name == "a" }
	start = []Command{CreateSemaphore{Name: "a", Permits: 2, Settings: SettingsChange{Slots: given(true), CooldownMS: given[int64](scopeTick)}}}
	moves = append(moves,
		move{name: "tick", apply: func(m *Machine) *Applied { return applyOne(m, scopeTick) }},
		command(put(1), nil, ofA), command(put(2), nil, nil), command(name(false), nil, nil), command(name(true), nil, nil))
	for id := uint64(1); id <= 2; id++ {
		inTurn := func(m *Machine) bool { return id == 1 || m.sessionOf(id-1) != 0 || m.byEnded[id-1] != 0 }
		its := func(sessionID uint64, _ string) bool { return sessionID == id }
		restored := RestoreSession{Session: id, TTLMS: 2 * scopeTick, Leases: []Want{{Semaphore: "a", Count: 1}}, Slots: [][]uint32{{1}}}
		moves = append(moves,
			command(OpenSession{Session: id, TTLMS: 2 * scopeTick}, inTurn, nil),
			command(EndSession{Session: id}, nil, its),
			command(Acquire{Session: id, Name: "a", Count: 1, TTLMS: KeepTTL}, nil, nil),
			command(Acquire{Session: id, Name: "a", Count: 2, TTLMS: KeepTTL}, nil, nil),
			command(ResizeLease{Session: id, Name: "a", Count: 1}, nil, its),
			command(Release{Session: id, Name: "a"}, nil, its),
			command(RevokeLease{Session: id, Name: "a"}, nil, its),
			restoring(restored, inTurn))
	}
	return start, moves
}

// TestExhaustionOfSlots walks through the states of slots.
func TestExhaustionOfSlots(t *testing.T) {
	e := &exhaustion{most: *exhaustStates / 4, found: map[[16]byte]int32{}}
	e.start, e.moves = slotScope()
	e.run(t)
	if e.left > 0 && len(e.found) < e.most {
		t.Errorf("%d states were not expanded, after %d", e.left, len(e.found))
	}
}

// TestCanonicalSlotsGoOnAlike does for this scope what TestCanonicalStatesGoOnAlike does.
func TestCanonicalSlotsGoOnAlike(t *testing.T) {
	start, moves := slotScope()
	walkAlike(t, 30, rand.New(rand.NewPCG(5, 6)), start, moves)
}

// slotsRight checks a grant that its session still has: its slots are in the range, and every lower one is named.
func slotsRight(m *Machine, semaphore ref, e Effect) error {
	named, holds := map[uint32]bool{}, false
	name := func(slot uint32) { named[slot] = true }
	for _, l := range m.leases.all() {
		if holds = holds || l.token == e.Token; l.semaphore == semaphore {
			each(l.slots.all(), name)
		}
	}
	for _, t := range m.returns.all() {
		if t.semaphore == semaphore {
			each(t.slots.all(), name)
		}
	}
	last := uint32(0)
	each(e.DetailsOrZero().Slots, func(slot uint32) { last = slot })
	for slot := uint32(0); holds && slot < last; slot++ {
		if !named[slot] {
			return fmt.Errorf("slot %d is granted, and slot %d is free", last, slot)
		}
	}
	if s := m.semaphores.at(semaphore); int64(last) >= s.permits+s.offset {
		return fmt.Errorf("slot %d of %d is granted", last, s.permits+s.offset)
	}
	return nil
}
