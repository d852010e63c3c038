package fsm

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"

	"github.com/tidwall/btree"
)

// StateHeader is the part of a state outside of its records: counters, time, level and cluster id. It is immutable.
type StateHeader struct{ state state }

// StateHeader returns the header of the state.
func (m *Machine) StateHeader() StateHeader { return StateHeader{m.state} }

// StateHeader returns the header of the copy.
func (f *Frozen) StateHeader() StateHeader { return StateHeader{f.state} }

// Index returns the index of the last entry applied.
func (s StateHeader) Index() uint64 { return s.state.index }

// Term returns the term of the last StartTerm.
func (s StateHeader) Term() uint64 { return s.state.term }

// Hash returns the hash of the state.
func (s StateHeader) Hash() [16]byte { return s.state.hash }

// NowMS returns cluster time.
func (s StateHeader) NowMS() int64 { return s.state.nowMS }

// FeatureLevel returns the level in force.
func (s StateHeader) FeatureLevel() uint32 { return s.state.feature }

// ClusterID returns the id of the cluster.
func (s StateHeader) ClusterID() ClusterID { return s.state.cluster }

// RestorePending reports the same as [Machine.RestorePending].
func (s StateHeader) RestorePending() bool { return s.state.term != 0 && s.state.leader == "" }

// Succession says how a state from a backup follows the state of a running cluster.
type Succession struct {
	Own         StateHeader // of the state of the running cluster
	Index       uint64      // the index at which the new state takes effect, above the indexes of both states
	NowMS       int64       // the earliest cluster time of the new state
	EndSessions bool        // all sessions end, as if their deadlines had passed
}

// maxSucceeded bounds the index, the time and the counters that Succeed accepts. No cluster reaches it, but a damaged
// file may contain any number.
const maxSucceeded = 1 << 52

// Succeed turns a state from a backup into the state that follows the state of a running cluster (the followed state)
// at an index. It returns an error if the states can't be joined; the machine must not be used after that.
//
//   - The counters of tokens, places and epochs skip 2^32 beyond both states, so that no
//     value is used twice.
//   - The cluster's id and limits come from the followed state. The feature level is the higher
//     level of both.
//   - Cluster time continues from the later time of both, or NowMS if that is later. All
//     deadlines move with it, so that the remaining times stay.
//   - Each semaphore counts as changed at the index. If its epoch shows that the followed state may
//     have had the same semaphore, its settings get a new version.
//   - The numbers of changes of items skip 2^32 too, and each item gets a new version.
//
// The state has no leader until the next StartTerm, see [Machine.RestorePending].
func (m *Machine) Succeed(by Succession) error {
	followed := &by.Own.state
	if by.Index <= max(m.index, followed.index) || by.Index > maxSucceeded {
		return fmt.Errorf("a state at index %d can't follow one at %d at index %d", m.index, followed.index, by.Index)
	}
	for _, count := range []uint64{m.index, uint64(m.nowMS), m.places, m.epochs, m.orders, m.changes} {
		if count > maxSucceeded {
			return fmt.Errorf("the time, or a counter, is %d, and no cluster comes that far", count)
		}
	}
	if err := m.moveTime(max(m.nowMS, followed.nowMS, by.NowMS)); err != nil {
		return err
	}
	m.hash = sum128(m.hash[:], followed.hash[:], fmt.Appendf(nil, "%d %d %v", by.Index, m.nowMS, by.EndSessions))
	m.cluster, m.limits = followed.cluster, followed.limits
	m.feature = max(m.feature, followed.feature)
	m.index, m.term, m.leader = by.Index, followed.term, ""
	epochs := followed.epochs
	for _, counter := range []struct{ to, from *uint64 }{
		{&m.tokens, &followed.tokens}, {&m.places, &followed.places}, {&m.epochs, &followed.epochs},
	} {
		*counter.to = max(*counter.to, *counter.from) + succeededJump
	}
	m.jumpChanges(max(m.changes, followed.changes) - m.changes + succeededJump)
	changeEach(&m.items, func(i *item) {
		if !i.tombstone {
			i.version = m.changes
		}
	})
	m.orders = max(m.orders, followed.orders)
	changeEach(&m.semaphores, func(s *semaphore) {
		s.modified = m.index
		if s.epoch <= epochs {
			s.version += succeededJump
		}
	})
	if by.EndSessions {
		m.endAll()
	}
	return m.check()
}

// sum128 returns 128 bits of the SHA-256 of the parts.
func sum128(parts ...[]byte) (sum [16]byte) {
	h := sha256.New()
	for _, part := range parts {
		_, _ = h.Write(part) // a hash never fails
	}
	copy(sum[:], h.Sum(nil))
	return sum
}

// RestorePending reports whether the state came from a backup and no leader has begun a term on it yet. Until then the
// cluster may return to the state that this state was to replace.
func (m *Machine) RestorePending() bool { return m.StateHeader().RestorePending() }

// endAll ends all sessions in one step, without a budget.
func (m *Machine) endAll() {
	m.applied, m.done = &Applied{}, work{}
	m.budget = budget{ended: math.MaxInt, swept: math.MaxInt, served: math.MaxInt, kept: maxEnded}
	for m.deadlines.due.length > 0 { // in the order in which they would expire
		m.endSession(m.deadlines.due.at(0).session, CauseExpired, "")
	}
	m.sweep()
	m.finishCommand()
	m.dropFresh()
	m.trimUnserved()
	m.budget = defaultBudget()
	m.applied, m.conclusions, m.effects = nil, nil, nil // not reported, because the state begins a new history
}

// moveTime sets cluster time, and moves every time in the state by the same number of milliseconds.
func (m *Machine) moveTime(nowMS int64) error {
	by := nowMS - m.nowMS
	if by == 0 {
		return nil
	}
	outside := errors.New("a time is out of range")
	if by < 0 || m.nowMS < 0 {
		return outside
	}
	var err error
	move := func(ms *int64) {
		if *ms > math.MaxInt64-by {
			err = outside
			return
		}
		*ms += by
	}
	changeEach(&m.sessions, func(s *session) { move(&s.deadlineMS) })
	changeEach(&m.leases, func(l *lease) {
		move(&l.grantedMS)
		moveSet(&l.endsMS, move)
		moveSet(&l.dueMS, move)
	})
	m.moveReturns(move)
	changeEach(&m.requests, func(r *request) {
		move(&r.enqueuedMS)
		move(&r.rankMS)
	})
	m.moveLines(by)
	changeEach(&m.ended, func(e *ended) { move(&e.atMS) })
	changeEach(&m.revoked, func(v *revoked) { move(&v.atMS) })
	changeEach(&m.notices, func(n *notice) {
		if n.due {
			move(&n.dueMS)
		}
		move(&n.endsMS)
	})
	changeEach(&m.keys, func(k *key) {
		m.countKey(k, -1)
		move(&k.atMS)
		if k.place == 0 {
			k.result = moveResult(k.result, move)
		}
		m.countKey(k, 1)
	})
	m.moveItemTimes(move)
	m.marks.each(func(v *mark) { move(&v.atMS) })
	for i := range m.deadlines.due.length {
		move(&m.deadlines.due.at(i).ms)
	}
	m.nowMS = nowMS
	return err
}

// moveSet moves a time unless it is 0, which means no time.
func moveSet(ms *int64, move func(*int64)) {
	if *ms != 0 {
		move(ms)
	}
}

// moveReturns moves the times of all returns, and rebuilds the index of returns and of the ends of leases.
func (m *Machine) moveReturns(move func(*int64)) {
	changeEach(&m.returns, func(t *timedReturn) {
		if t.dueMS != NeverMS {
			move(&t.dueMS)
		}
		if t.lost != nil {
			lost := *t.lost
			move(&lost.atMS)
			t.lost = &lost // state: a frozen copy has the old record
		}
	})
	m.byReturn = newReturnIndex() // state: the times in it have moved
	for r := range m.returns.all() {
		m.fileReturn(r)
	}
	for r := range m.leases.all() {
		m.indexEnd(r)
	}
}

// moveLines moves the ranks of all waiting requests by the same number of milliseconds.
func (m *Machine) moveLines(by int64) {
	moved := func(old *btree.BTreeG[waiter]) *btree.BTreeG[waiter] {
		fresh := newWaiters()
		old.Scan(func(w waiter) bool {
			w.rank.ms += by
			fresh.Load(w)
			return true
		})
		return fresh
	}
	moveLine := func(line *line) {
		if line == nil {
			return
		}
		line.order = moved(line.order) // state: the ranks move with cluster time
		if line.aside != nil {
			line.aside = moved(line.aside) // state: as order
		}
	}
	for _, s := range m.semaphores.all() {
		moveLine(s.line)
	}
	for r, l := range m.lanes.all() {
		moveLine(l.line)
		m.updateHead(r)
	}
	m.unserved = moved(m.unserved) // state: as the lines
	m.touched, m.noticeChecks = m.touched[:0], m.noticeChecks[:0]
}

func changeEach[T any](records *table[T], change func(*T)) {
	for r := range records.all() {
		change(records.mut(r))
	}
}

// moveResult moves the times of a stored outcome, except its deadlines, which refresh sets at each replay.
func moveResult(stored string, move func(*int64)) string {
	result := decodeResult(stored)
	moved := false
	for _, part := range append([]*Result{&result}, pointers(result.Each)...) {
		for i := range part.Grants {
			move(&part.Grants[i].GrantedMS)
			if details := part.Grants[i].Details; details != nil {
				moveSet(&details.DueMS, move)
				moveSet(&details.EndsMS, move)
			}
			moved = true
		}
	}
	if !moved {
		return stored
	}
	return encodeResult(result)
}

func pointers[T any](list []T) (found []*T) {
	for i := range list {
		found = append(found, &list[i])
	}
	return found
}
