package fsm

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
)

// The moves of an exhaustion, the canonical form of its states, and the rules that hold for
// each transition.

// move is one entry of the alphabet: a command, or time that passes.
type move struct {
	name    string
	allowed func(*Machine) bool // nil: always
	apply   func(*Machine) *Applied
	ends    func(sessionID uint64, semaphore string) bool // leases and requests that the move may take away; nil: it takes no lease

	restores bool
}

// scopeTick is the unit of time of a scope, in milliseconds.
const scopeTick = 1000

// scopeMoves returns the alphabet over so many sessions, a semaphore "a" of two permits and
// "b" of one. A wide one changes the semaphores, too.
func scopeMoves(sessions int, wide bool) []move {
	moves := []move{{name: "tick", apply: func(m *Machine) *Applied { return applyOne(m, scopeTick) }}}
	for id := uint64(1); id <= uint64(sessions); id++ {
		moves = append(moves, sessionMoves(id, wide)...)
	}
	if wide {
		moves = append(moves, semaphoreMoves()...)
	}
	return moves
}

// sessionMoves are the moves of one session. The one before it comes first, since two ids that
// were not used are alike.
func sessionMoves(id uint64, wide bool) []move {
	inTurn := func(m *Machine) bool { return id == 1 || m.sessionOf(id-1) != 0 || m.byEnded[id-1] != 0 }
	sameSession := func(sessionID uint64, _ string) bool { return sessionID == id }
	moves := []move{
		command(OpenSession{Session: id, TTLMS: scopeTick}, inTurn, nil),
		command(OpenSession{Session: id, TTLMS: 2 * scopeTick}, inTurn, nil),
		command(Renew{Renewals: []Renewal{{id, KeepTTL}}}, nil, nil),
		command(EndSession{Session: id}, nil, sameSession),
		command(Acquire{Session: id, Name: "a", Count: 1, TTLMS: KeepTTL}, nil, nil),
		command(Acquire{Session: id, Name: "a", Count: 2, TTLMS: KeepTTL}, nil, nil),
		command(Acquire{Session: id, Name: "b", Count: 1, TTLMS: KeepTTL}, nil, nil),
		command(AcquireMany{Session: id, Mode: All, Wants: []Want{{Semaphore: "a", Count: 1}, {Semaphore: "b", Count: 1}}}, nil, nil),
		command(AcquireMany{Session: id, Mode: Any, Wants: []Want{{Semaphore: "b", Count: 1}, {Semaphore: "a", Count: 2}}}, nil, nil),
	}
	for _, name := range []string{"a", "b"} {
		moves = append(moves, command(Release{Session: id, Name: name}, nil, sameSession))
	}
	if !wide {
		return moves
	}
	ofA := func(sessionID uint64, name string) bool { return sessionID == id && name == "a" }
	return append(moves,
		command(AcquireOnce{Session: id, Name: "a", Count: 2, TTLMS: scopeTick, WaitMS: scopeTick}, inTurn, nil),
		command(ResizeLease{Session: id, Name: "a", Count: 1}, nil, ofA),
		command(RevokeLease{Session: id, Name: "a", Reason: "r"}, nil, ofA),
		command(EndSession{Session: id, Operator: true, Reason: "r"}, nil, sameSession),
	)
}

// semaphoreMoves change semaphores and their counters, within two permits of the start.
func semaphoreMoves() []move {
	offset := func(lowest, highest int64) func(*Machine) bool {
		return func(m *Machine) bool {
			r, exists := m.byName["a"]
			return exists && m.semaphores.at(r).offset >= lowest && m.semaphores.at(r).offset <= highest
		}
	}
	ofA := func(_ uint64, name string) bool { return name == "a" }
	missing := func(m *Machine) bool { return m.byName["a"] == 0 }
	permits := func(n int64) PutSemaphore { return PutSemaphore{Name: "a", Permits: Change[int64]{true, n}} }
	return []move{
		command(permits(1), nil, ofA), // ends requests that can't be granted any more
		command(permits(2), nil, nil),
		command(DeleteSemaphore{Name: "a"}, nil, ofA),
		command(CreateSemaphore{Name: "a", Permits: 2}, missing, nil),
		command(Up{Name: "a", Count: 1}, offset(-1, 0), nil),
		command(Down{Name: "a", Count: 1}, offset(0, 1), nil),
	}
}

// command returns the move that applies a command at the same time.
func command(c Command, allowed func(*Machine) bool, ends func(uint64, string) bool) move {
	encoded := Envelope{}.Encode(c)
	return move{
		name: fmt.Sprintf("%v %+v", c.Op(), c), allowed: allowed, ends: ends,
		apply: func(m *Machine) *Applied { return m.Apply(m.index+1, EncodeEntry(m.nowMS, [][]byte{encoded})) },
	}
}

// applyOne applies commands in an entry of their own, after some milliseconds.
func applyOne(m *Machine, later int64, commands ...Command) *Applied {
	var encoded [][]byte
	for _, c := range commands {
		encoded = append(encoded, Envelope{}.Encode(c))
	}
	return m.Apply(m.index+1, EncodeEntry(m.nowMS+later, encoded))
}

// canonical returns the snapshot of the state in its canonical form. Numbers that only
// rise (tokens, places, epochs, orders) become their ranks, moments become times from now,
// and what readers are only shown (when and at which index something was) is left out. No
// decision of the machine depends on more, as long as no counter overflows and nothing is
// old enough to be forgotten: TestCanonicalStatesGoOnAlike.
func canonical(m *Machine) []byte {
	f := &Frozen{state: m.state, tables: m.tables}
	numbers := ranks{}
	numbers.collect(f)
	var undo []func() // the machine goes on as it was
	alter(&f.semaphores, &undo, func(s *semaphore) {
		s.epoch, s.modified, s.version, s.forgotten = orderOf(numbers.epochs, s.epoch), 0, 0, orderOf(numbers.tokens, s.forgotten)
	})
	alter(&f.sessions, &undo, func(s *session) {
		s.deadlineMS, s.first = s.deadlineMS-m.nowMS+canonicalNow, orderOf(numbers.places, s.first)
	})
	alter(&f.leases, &undo, func(l *lease) {
		l.token, l.grantedMS = orderOf(numbers.tokens, l.token), 0
		if l.dueMS != 0 {
			l.dueMS = max(l.dueMS-m.nowMS, 0) + canonicalNow
		}
	})
	alter(&f.lanes, &undo, func(l *lane) { l.turn = orderOf(numbers.turns, l.turn) })
	alter(&f.returns, &undo, func(t *timedReturn) {
		t.order, t.dueMS = orderOf(numbers.orders, t.order), t.dueMS-m.nowMS+canonicalNow
	})
	alter(&f.requests, &undo, func(q *request) { q.place, q.enqueuedMS, q.rankMS = orderOf(numbers.places, q.place), 0, 0 })
	alter(&f.ended, &undo, func(e *ended) { e.order, e.atMS = orderOf(numbers.orders, e.order), canonicalNow })
	alter(&f.revoked, &undo, func(v *revoked) {
		v.order, v.epoch, v.atMS = orderOf(numbers.orders, v.order), orderOf(numbers.epochs, v.epoch), canonicalNow
	})
	f.state.index, f.state.hash, f.state.nowMS = 1, [16]byte{}, canonicalNow
	f.state.tokens, f.state.places = uint64(len(numbers.tokens)), uint64(len(numbers.places))
	f.state.epochs, f.state.orders = uint64(len(numbers.epochs)), uint64(len(numbers.orders))
	f.state.turns = uint64(len(numbers.turns))
	state := snapshotSmall(f)
	for _, u := range undo {
		u()
	}
	return state
}

// alter changes each record of a table in place and notes how to undo that.
func alter[T any](records *table[T], undo *[]func(), change func(*T)) {
	for _, r := range records.all() {
		was := *r
		change(r)
		*undo = append(*undo, func() { *r = was })
	}
}

// canonicalNow is the cluster time of canonical states, in milliseconds.
const canonicalNow = 1_000_000

// ranks are the numbers of each counter that a state has, in order.
type ranks struct{ tokens, places, epochs, orders, turns []uint64 }

// collect finds them. Wait lists, notices and keys are in no scope.
func (n *ranks) collect(f *Frozen) {
	if f.entries.live+f.notices.live+f.keys.live > 0 {
		panic("the canonical form does not know wait lists, notices and keys")
	}
	for _, s := range f.semaphores.all() {
		n.epochs, n.tokens = append(n.epochs, s.epoch), append(n.tokens, s.forgotten)
	}
	for _, l := range f.lanes.all() {
		n.turns = append(n.turns, l.turn)
	}
	for _, t := range f.returns.all() {
		n.orders = append(n.orders, t.order)
	}
	for _, l := range f.leases.all() {
		n.tokens = append(n.tokens, l.token)
	}
	for _, q := range f.requests.all() {
		n.places = append(n.places, q.place)
	}
	for _, s := range f.sessions.all() {
		n.places = append(n.places, s.first)
	}
	for _, e := range f.ended.all() {
		n.orders = append(n.orders, e.order)
	}
	for _, v := range f.revoked.all() {
		n.orders, n.epochs = append(n.orders, v.order), append(n.epochs, v.epoch)
	}
	for _, numbers := range []*[]uint64{&n.tokens, &n.places, &n.epochs, &n.orders, &n.turns} {
		slices.Sort(*numbers)
		*numbers = slices.Compact(*numbers)
		*numbers = slices.DeleteFunc(*numbers, func(v uint64) bool { return v == 0 })
	}
}

// orderOf returns the order of a number among all, from 1; 0 stays.
func orderOf(numbers []uint64, v uint64) uint64 {
	if v == 0 {
		return 0
	}
	i, _ := slices.BinarySearch(numbers, v)
	return uint64(i + 1)
}

// snapshotSmall is [Frozen.Write] with a small buffer: an exhaustion calls it for each move.
func snapshotSmall(f *Frozen) []byte {
	var out bytes.Buffer
	if err := f.write(&snapshotWriter{w: bufio.NewWriterSize(&out, 512)}); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// restoreSmall is [Restore] with a small buffer.
func restoreSmall(state []byte) (*Machine, error) {
	return restore(bufio.NewReaderSize(bytes.NewReader(state), 512))
}
