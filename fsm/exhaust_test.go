package fsm

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// Small-scope exhaustion: every sequence of commands over few sessions and semaphores, on
// the machine itself, breadth first. Two states that differ only in numbers that always
// rise, or in the moment at which they are, count as one: see canonical.

var exhaustStates = flag.Int("states", 20_000, "distinct states that the larger scope of TestExhaustion finds")

// TestExhaustion walks through every state that a scope can reach, and checks at each step
// the machine's invariants, the rules of transitions, and that a released semaphore serves
// its line. The small scope is exhausted; the larger one is walked until so many distinct
// states are found.
func TestExhaustion(t *testing.T) {
	t.Run("two sessions, to the end", func(t *testing.T) {
		e := newExhaustion(2, 0, false)
		e.run(t)
		if e.left > 0 {
			t.Errorf("%d states were not expanded", e.left)
		}
	})
	t.Run("three sessions", func(t *testing.T) {
		e := newExhaustion(3, *exhaustStates, true)
		e.run(t)
		if len(e.found) < *exhaustStates {
			t.Errorf("%d distinct states, fewer than %d", len(e.found), *exhaustStates)
		}
	})
}

// exhaustion is a walk through the states of one scope.
type exhaustion struct {
	start []Command
	moves []move
	most  int // stop beyond so many states; 0: when there is no new one

	mu       sync.Mutex
	found    map[[16]byte]int32 // states by the hash of their canonical bytes, with their number
	path     []step             // by the number of a state: how it was reached first
	next     []frontier
	failed   error
	failedAt step

	depth, left, transitions int
}

// step leads from a state to another by a move.
type step struct {
	from int32
	move int16
}

// frontier is a state that is to be expanded.
type frontier struct {
	number int32
	state  []byte // canonical
}

func newExhaustion(sessions, bound int, wide bool) *exhaustion {
	start := []Command{CreateSemaphore{Name: "a", Permits: 2}, CreateSemaphore{Name: "b", Permits: 1}}
	return &exhaustion{start: start, moves: scopeMoves(sessions, wide), most: bound, found: map[[16]byte]int32{}}
}

// run expands level after level, each by all processors.
func (e *exhaustion) run(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // machines come and go, little stays
	m := New()
	applyOne(m, 0, e.start...)
	e.add(canonical(m), step{-1, -1})
	for len(e.next) > 0 && e.failed == nil && !e.enough() {
		level := e.next
		e.next = nil
		e.depth++
		e.expandAll(level)
	}
	if e.failed != nil {
		t.Fatalf("%v\nafter %s", e.failed, e.trace(e.failedAt))
	}
	t.Logf("%d distinct states, %d transitions, depth %d, %d states not expanded", len(e.found), e.transitions, e.depth, e.left)
}

func (e *exhaustion) enough() bool { return e.most > 0 && len(e.found) >= e.most }

// expandAll expands the states of one depth.
func (e *exhaustion) expandAll(level []frontier) {
	var workers sync.WaitGroup
	var mu sync.Mutex
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			w := newWalker(e)
			for {
				mu.Lock()
				if len(level) == 0 || w.stopped() {
					mu.Unlock()
					return
				}
				f := level[0]
				level[0].state = nil
				level = level[1:]
				mu.Unlock()
				w.expand(f)
			}
		})
	}
	workers.Wait()
	e.left = len(level) + len(e.next)
}

// add records a state and reports whether it is new.
func (e *exhaustion) add(state []byte, by step) bool {
	sum := sha256.Sum256(state)
	hash := [16]byte(sum[:16])
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.found[hash]; known {
		return false
	}
	number := int32(len(e.path))
	e.found[hash] = number
	e.path = append(e.path, by)
	e.next = append(e.next, frontier{number, bytes.Clone(state)})
	return true
}

// trace names the moves that lead to a state and beyond it.
func (e *exhaustion) trace(last step) string {
	var moves []string
	for at := last; at.move >= 0; at = e.path[at.from] {
		moves = append([]string{e.moves[at.move].name}, moves...)
	}
	return strings.Join(moves, "; ")
}

// walker expands states in one goroutine.
type walker struct {
	e       *exhaustion
	machine *Machine // in the state that is expanded, or nil
	before  standing // what the machine has then
}

func newWalker(e *exhaustion) *walker { return &walker{e: e} }

func (w *walker) stopped() bool {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	return w.e.failed != nil || w.e.enough()
}

// expand makes every move of the scope in a state.
func (w *walker) expand(f frontier) {
	w.machine = nil
	for i, v := range w.e.moves {
		if err := w.try(f, v, step{f.number, int16(i)}); err != nil {
			w.e.mu.Lock()
			if w.e.failed == nil {
				w.e.failed, w.e.failedAt = err, step{f.number, int16(i)}
			}
			w.e.mu.Unlock()
			return
		}
	}
}

// try makes one move and checks what it did.
func (w *walker) try(f frontier, v move, by step) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("%v", broken)
		}
	}()
	if w.machine == nil {
		if w.machine, err = restoreSmall(f.state); err != nil {
			return err
		}
		w.before = standingOf(w.machine)
	}
	m := w.machine
	if v.allowed != nil && !v.allowed(m) {
		return nil
	}
	applied := v.apply(m)
	if err := errors.Join(m.check(), w.before.differs(m, v, applied)); err != nil {
		return err
	}
	after := canonical(m)
	w.e.mu.Lock()
	w.e.transitions++
	w.e.mu.Unlock()
	if bytes.Equal(after, f.state) {
		return nil // the machine may go on from here
	}
	w.machine = nil
	if refused := len(applied.Commands) == 1 && applied.Commands[0].Result.Code > Waiting; refused {
		return fmt.Errorf("%s was refused (%v) and changed the state", v.name, applied.Commands[0].Result.Code)
	}
	if !w.e.add(after, by) {
		return nil
	}
	return served(after)
}

// served checks that whatever waits in a state is granted or ended once all that is held is
// given back.
func served(state []byte) error {
	m, err := restoreSmall(state)
	if err != nil {
		return err
	}
	for name, r := range m.byName {
		if s := m.semaphores.at(r); s.offset < 0 { // taken by downs, which no lease gives back
			if result := applyOne(m, 0, Up{Name: name, Count: -s.offset}).Commands[0].Result; result.Code != OK {
				return fmt.Errorf("up of %q: %v", name, result.Code)
			}
		}
	}
	bringAllBack(m)
	for rounds := 0; m.leases.live > 0; rounds++ {
		if rounds > 50 {
			return errors.New("leases do not come to an end")
		}
		for _, l := range m.leases.all() {
			release := Release{Session: m.sessionID(l.session), Name: m.semaphores.at(l.semaphore).name, Group: m.groupOf(l.lane)}
			if result := applyOne(m, 0, release).Commands[0].Result; result.Code != OK {
				return fmt.Errorf("%v: %v", release, result.Code)
			}
			break
		}
		bringAllBack(m)
	}
	if m.requests.live > 0 {
		return fmt.Errorf("%d requests wait, and no lease is left", m.requests.live)
	}
	return nil
}
