package fsm

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// The rules that bind each transition of an exhaustion, beside the invariants of a state.

// standing is what a state has before a move.
type standing struct {
	tokens   uint64
	sessions map[uint64]bool // whether it is a one-shot
	leases   map[uint64]heldLease
	requests map[uint64]waiting
}

type heldLease struct {
	session   uint64
	semaphore string
	count     int64
	revoked   bool
	slots     string
}

type waiting struct {
	session    uint64
	semaphores []string
}

func standingOf(m *Machine) standing {
	s := standing{m.tokens, map[uint64]bool{}, map[uint64]heldLease{}, map[uint64]waiting{}}
	for _, session := range m.sessions.all() {
		s.sessions[session.id] = session.oneShot
	}
	for _, l := range m.leases.all() {
		s.leases[l.token] = heldLease{m.sessionID(l.session), m.semaphores.at(l.semaphore).name, l.count, l.revoked(), slotsText(l.slots.all())}
	}
	for _, q := range m.requests.all() {
		w := waiting{session: m.sessionID(q.session)}
		for _, want := range q.members {
			w.semaphores = append(w.semaphores, m.semaphores.at(want.semaphore).name)
		}
		s.requests[q.place] = w
	}
	return s
}

// differs returns the first rule that a move from this state to the state of m broke.
func (s standing) differs(m *Machine, by move, applied *Applied) error {
	if applied.MoreDue {
		return fmt.Errorf("%s: work is left over in a small state", by.name)
	}
	if err := s.lost(m, by, applied); err != nil {
		return err
	}
	for _, e := range applied.Effects {
		if e.Kind == EffectGranted && !(by.restores && e.Place == 0) { // a restore goes beyond permits
			if err := s.granted(m, by, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// lost finds a session, a lease or a request that went without a reason.
func (s standing) lost(m *Machine, by move, applied *Applied) error {
	ended := map[uint64]Cause{} // by time, or with their last lease
	concluded := map[uint64]Code{}
	for _, e := range applied.Effects {
		if e.Kind == EffectSessionEnded {
			ended[e.Session] = e.Cause
		}
	}
	for _, c := range applied.Conclusions {
		concluded[c.Place] = c.Result.Code
	}
	after := standingOf(m)
	mayEnd := func(sessionID uint64, semaphores ...string) bool {
		if s.sessions[sessionID] && ended[sessionID] != 0 { // a one-shot ends whole
			semaphores = append(semaphores, "a", "b")
		}
		if ended[sessionID] == CauseExpired {
			return true
		}
		for _, name := range semaphores {
			if by.ends != nil && by.ends(sessionID, name) {
				return true
			}
		}
		return false
	}
	for id, oneShot := range s.sessions {
		if _, lives := after.sessions[id]; !lives && !oneShot && !mayEnd(id, "") {
			return fmt.Errorf("%s ended session %d", by.name, id)
		}
	}
	for token, l := range s.leases {
		if after.leases[token] != l && !mayEnd(l.session, l.semaphore) {
			return fmt.Errorf("%s: the lease %d of session %d on %q is lost or changed", by.name, token, l.session, l.semaphore)
		}
	}
	for place, w := range s.requests {
		_, waits := after.requests[place]
		code, isConcluded := concluded[place]
		switch {
		case waits == isConcluded && ended[w.session] == 0:
			return fmt.Errorf("%s: place %d of session %d waits: %v, concluded: %v", by.name, place, w.session, waits, isConcluded)
		case !waits && code != OK && !mayEnd(w.session, w.semaphores...):
			return fmt.Errorf("%s: place %d of session %d ended: %v", by.name, place, w.session, code)
		}
	}
	for _, session := range m.sessions.all() {
		if session.deadlineMS <= m.nowMS {
			return fmt.Errorf("%s: session %d outlives its deadline", by.name, session.id)
		}
	}
	return nil
}

// granted checks one grant: a new token, within the permits and the limit of its group, and no
// request is overtaken.
func (s standing) granted(m *Machine, by move, e Effect) error {
	if !e.Unowned && e.Token <= s.tokens {
		return fmt.Errorf("%s: token %d was given before", by.name, e.Token)
	}
	r := m.byName[e.Semaphore]
	if r == 0 {
		return fmt.Errorf("%s granted %q, which does not exist", by.name, e.Semaphore)
	}
	granted := m.semaphores.at(r)
	if with := granted.settingsOrZero(); with.Paused != "" {
		return fmt.Errorf("%s: %q is paused, and grants", by.name, e.Semaphore)
	}
	if granted.available() < 0 && !granted.family() {
		return fmt.Errorf("%s: %q is granted beyond its permits by %d", by.name, e.Semaphore, -granted.available())
	}
	for _, l := range m.lanes.all() {
		if l.group == e.DetailsOrZero().Group && granted.grouped() && l.limit != NoLimit && l.used() > l.limit {
			return fmt.Errorf("%s: group %q is granted %d beyond its limit", by.name, l.group, l.used()-l.limit)
		}
	}
	if len(e.DetailsOrZero().Slots) > 0 {
		if err := slotsRight(m, r, e); err != nil {
			return fmt.Errorf("%s: %w", by.name, err)
		}
	}
	if granted.line == nil {
		return nil
	}
	if first, _ := granted.line.firstInOrder(); e.Place == 0 || first.rank.place < e.Place {
		return fmt.Errorf("%s: the grant of place %d on %q overtakes place %d", by.name, e.Place, e.Semaphore, first.rank.place)
	}
	return nil
}

// TestCanonicalStatesGoOnAlike: a state and its canonical form have the same codes and the
// same next states, so that an exhaustion may take one for the other.
func TestCanonicalStatesGoOnAlike(t *testing.T) {
	start := []Command{CreateSemaphore{Name: "b", Permits: 1}, CreateSemaphore{Name: "a", Permits: 2}}
	walkAlike(t, 60, rand.New(rand.NewPCG(1, 2)), start, scopeMoves(3, true))
}

// walkAlike makes random walks of a machine, and of the canonical form of each of its states.
func walkAlike(t *testing.T, walks int, random *rand.Rand, start []Command, moves []move) {
	for walk := range walks {
		m := New()
		applyOne(m, 5*scopeTick, start...)
		for range 40 {
			v := moves[random.IntN(len(moves))]
			if v.allowed != nil && !v.allowed(m) {
				continue
			}
			short, err := restoreSmall(canonical(m))
			if err != nil {
				t.Fatal(err)
			}
			real, same := v.apply(m), v.apply(short)
			for i, c := range real.Commands {
				if c.Result.Code != same.Commands[i].Result.Code {
					t.Fatalf("walk %d, %s: %v, and %v in the canonical state", walk, v.name, c.Result.Code, same.Commands[i].Result.Code)
				}
			}
			if string(canonical(m)) != string(canonical(short)) {
				t.Fatalf("walk %d, %s: the states differ", walk, v.name)
			}
		}
	}
}
