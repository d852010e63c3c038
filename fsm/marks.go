package fsm

import "crypto/sha256"

// mark is what is left of an idempotency key after its one-shot session ended. A repeat is refused with Over,
// so that it never gets a second lease. A mark needs about a tenth of the memory of a key.
type mark struct {
	hash [16]byte
	atMS int64 // when the session ended, in cluster time
}

// hash identifies the name of a key in its mark.
func (n keyName) hash() [16]byte {
	e := encoder{buf: make([]byte, 0, 128)}
	e.string(n.owner)
	e.string(n.text)
	sum := sha256.Sum256(e.buf)
	return [16]byte(sum[:16])
}

// marksLimit returns how many marks are kept.
func (l *Limits) marksLimit() int64 { return min(l.Keys, 1<<40) * marksPerKey }

// shrinkKey replaces the key of an ending session by a mark. If there is no room for a mark, the key stays.
func (m *Machine) shrinkKey(session *session) {
	if session.key == 0 {
		return
	}
	k := m.keys.at(session.key)
	if int64(m.marks.length) >= m.limits.marksLimit() {
		m.keys.mut(session.key).session = 0
		return
	}
	replacement := mark{hash: k.keyName.hash(), atMS: m.nowMS}
	m.marks.push(replacement)
	m.marked[replacement.hash] = struct{}{}
	m.removeKey(session.key)
}

// isMarked reports whether a key has been replaced by a mark.
func (m *Machine) isMarked(name keyName) bool {
	if len(m.marked) == 0 {
		return false
	}
	_, ok := m.marked[name.hash()]
	return ok
}

// forgetMarks drops the marks of sessions that ended keysKeptMS ago.
func (m *Machine) forgetMarks() {
	for range forgetKeys {
		oldest, ok := m.marks.front()
		if !ok || oldest.atMS+keysKeptMS > m.nowMS {
			return
		}
		m.marks.pop()
		delete(m.marked, oldest.hash)
	}
}

const markPage = 1024

// markQueue holds marks in pages, the oldest first. Each slot of a page is written once, so that a frozen copy can
// share the pages.
type markQueue struct {
	pages  []*[markPage]mark
	head   int // the index of the oldest mark in the first page
	length int
}

func (q *markQueue) push(v mark) {
	at := q.head + q.length
	if at/markPage == len(q.pages) {
		q.pages = append(q.pages, new([markPage]mark))
	}
	q.pages[at/markPage][at%markPage] = v
	q.length++
}

func (q *markQueue) front() (mark, bool) {
	if q.length == 0 {
		return mark{}, false
	}
	return q.pages[0][q.head], true
}

func (q *markQueue) pop() {
	q.head++
	q.length--
	if q.head == markPage {
		q.pages[0] = nil
		q.pages, q.head = q.pages[1:], 0
	}
}

// freeze returns a copy that never changes.
func (q *markQueue) freeze() markQueue {
	frozen := *q
	frozen.pages = append([]*[markPage]mark(nil), q.pages...)
	return frozen
}

// each calls visit for each mark, the oldest first.
func (q *markQueue) each(visit func(*mark)) {
	for at := q.head; at < q.head+q.length; at++ {
		visit(&q.pages[at/markPage][at%markPage])
	}
}
