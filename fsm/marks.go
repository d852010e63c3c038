package fsm

import "crypto/sha256"

// A mark is what is left of an idempotency key when the one-shot session that it
// was granted has ended: a repeat is refused with Over, and never gets a second
// lease. It takes about a tenth of a key's room.
type mark struct {
	hash [16]byte
	atMS int64 // when the session ended, in cluster time
}

// hash is what a mark keeps of a key's name.
func (n keyName) hash() [16]byte {
	e := encoder{buf: make([]byte, 0, 128)}
	e.string(n.owner)
	e.string(n.text)
	sum := sha256.Sum256(e.buf)
	return [16]byte(sum[:16])
}

// marksLimit is how many marks are kept.
func (l *Limits) marksLimit() int64 { return min(l.Keys, 1<<40) * marksPerKey }

// followOneShot lets a key with its outcome end with the one-shot session that it
// was granted. A session takes one key with it, the first that has an outcome: its
// end stays one step. Keys that further acquires of the session have live on.
func (m *Machine) followOneShot(k ref, outcome *Result) {
	if m.feature < 1 || outcome.Code != OK || !outcome.OneShot || len(outcome.Grants) == 0 {
		return
	}
	r, ok := m.bySession[outcome.Session]
	if !ok || m.sessions.at(r).key != 0 {
		return
	}
	m.sessions.mut(r).key = k
	m.keys.mut(k).session = outcome.Session
}

// shrinkKey is a session's end: the key that follows it becomes a mark. While there
// is no room for one, the key stays as it is.
func (m *Machine) shrinkKey(owner *session) {
	if owner.key == 0 {
		return
	}
	k := m.keys.at(owner.key)
	if int64(m.marks.length) >= m.limits.marksLimit() {
		m.keys.mut(owner.key).session = 0
		return
	}
	made := mark{hash: k.keyName.hash(), atMS: m.nowMS}
	m.marks.push(made)
	m.marked[made.hash] = struct{}{}
	m.removeKey(owner.key)
}

// isMarked reports whether a key's lease is over, and nothing else of it is kept.
func (m *Machine) isMarked(name keyName) bool {
	if len(m.marked) == 0 {
		return false
	}
	_, is := m.marked[name.hash()]
	return is
}

// forgetMarks drops the marks that are older than they are kept, so many an entry.
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

// markQueue holds marks, the oldest first, in pages. A place in a page is written
// once, so that a frozen copy shares the pages as they are.
type markQueue struct {
	pages  []*[markPage]mark
	head   int // the place of the oldest in the first page
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

// freeze returns a copy that never changes again.
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
