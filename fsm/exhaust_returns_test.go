package fsm

import (
	"math/rand/v2"
	"testing"
)

// Exhaustion with windows, groups and pauses: two sessions and one semaphore "a" of each kind.

// windowTicks is the window of these scopes.
const windowTicks = 2

// windowKinds are the kinds of the semaphore, with the groups that requests name.
var windowKinds = []struct {
	name     string
	settings SettingsChange
	groups   []string
}{
	{"plain", SettingsChange{}, []string{""}},
	{"family", SettingsChange{Groups: given(ByRequest), Family: true, PerGroup: given[int64](1)}, []string{"", "g"}},
	{"pool", SettingsChange{Groups: given(ByRequest), PerGroup: given[int64](1)}, []string{"", "g"}},
}

// windowScope returns the start and the alphabet of a scope.
func windowScope(settings SettingsChange, groups []string) (start []Command, moves []move) {
	window := func(ms int64) PutSemaphore {
		return PutSemaphore{Name: "a", Settings: SettingsChange{WindowMS: given(ms)}}
	}
	settings.WindowMS = given[int64](windowTicks * scopeTick)
	start = []Command{CreateSemaphore{Name: "a", Permits: 2, Settings: settings}}
	moves = append(moves,
		move{name: "tick", apply: func(m *Machine) *Applied { return applyOne(m, scopeTick) }},
		command(window(0), nil, nil), command(window(windowTicks*scopeTick), nil, nil))
	if !settings.Family {
		for _, reason := range []string{"r", ""} {
			moves = append(moves, command(PutSemaphore{Name: "a", Settings: SettingsChange{Paused: given(reason)}}, nil, nil))
		}
	}
	for id := uint64(1); id <= 2; id++ {
		inTurn := func(m *Machine) bool { return id == 1 || m.sessionOf(id-1) != 0 || m.byEnded[id-1] != 0 }
		itsLeases := func(sessionID uint64, _ string) bool { return sessionID == id }
		moves = append(moves,
			command(OpenSession{Session: id, TTLMS: 2 * scopeTick}, inTurn, nil),
			command(Renew{Renewals: []Renewal{{id, KeepTTL}}}, nil, nil),
			command(EndSession{Session: id}, nil, itsLeases))
		for _, group := range groups {
			moves = append(moves,
				command(Acquire{Session: id, Name: "a", Count: 1, TTLMS: KeepTTL, Group: group}, nil, nil),
				command(Release{Session: id, Name: "a", Group: group}, nil, itsLeases),
				command(ResizeLease{Session: id, Name: "a", Count: 0, Group: group}, nil, itsLeases),
				command(ResizeLease{Session: id, Name: "a", Count: 2, Group: group}, nil, itsLeases))
		}
	}
	return start, moves
}

// TestExhaustionOfWindows walks through the states of windows and pauses, of each kind of semaphore.
func TestExhaustionOfWindows(t *testing.T) {
	for _, kind := range windowKinds {
		t.Run(kind.name, func(t *testing.T) {
			e := &exhaustion{most: *exhaustStates / 4, found: map[[16]byte]int32{}}
			e.start, e.moves = windowScope(kind.settings, kind.groups)
			e.run(t)
			if e.left > 0 && len(e.found) < e.most {
				t.Errorf("%d states were not expanded, after %d", e.left, len(e.found))
			}
		})
	}
}

// TestCanonicalWindowsGoOnAlike does for these scopes what TestCanonicalStatesGoOnAlike does.
func TestCanonicalWindowsGoOnAlike(t *testing.T) {
	for _, kind := range windowKinds {
		start, moves := windowScope(kind.settings, kind.groups)
		walkAlike(t, 30, rand.New(rand.NewPCG(3, 4)), start, moves)
	}
}

// bringAllBack lets the sessions live, ends pauses, and lets so much time pass that every spend has come
// back and its permits have been granted once more.
func bringAllBack(m *Machine) {
	for name, r := range m.byName {
		if s := m.semaphores.at(r); s.settings == nil && s.returns == 0 {
			continue
		}
		for _, s := range m.sessions.all() {
			applyOne(m, 0, Renew{Renewals: []Renewal{{s.id, MaxTTLMS}}})
		}
		applyOne(m, 0, PutSemaphore{Name: name, Settings: SettingsChange{Paused: given("")}})
		for range 3 {
			applyOne(m, (windowTicks+1)*scopeTick)
		}
	}
}
