package client_test

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// fake is a small Signalbox: one state, which all its nodes serve (fake_http_test.go).
// Its rules are those of the real one, as far as the tests need them. Like the real
// one it counts time in whole milliseconds, cut off. Safe for concurrent use.
type fake struct {
	mu       sync.Mutex
	start    time.Time
	index    uint64
	last     uint64 // ids, tokens, epochs
	sems     map[string]*fakeSemaphore
	sessions map[string]*fakeSession
	ended    map[string]refusal // sessions that were ended, and the refusal since
	queue    []*request         // all lines, by place
	keys     map[string]*keyed
	maxKeys  int
	behind   bool          // the nodes' own states: renewals don't show leases
	changed  chan struct{} // closed at each change, then another
	grants   []grant       // all there ever were
}

type fakeSemaphore struct {
	name            string
	permits, offset int64
	held            int64
	level           *int32
	metadata        map[string]string
	epoch, modified uint64
}

type fakeSession struct {
	id       string
	ttlMS    int64
	deadline int64
	oneShot  bool
	metadata map[string]string
	leases   map[string]*lease
	revoked  map[string]string // reasons
}

type lease struct {
	semaphore string
	count     int64
	token     uint64
}

type grant struct {
	session, semaphore string
	token              uint64
	at                 time.Time
}

// want is a member of a request.
type want struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// request waits, or has ended.
type request struct {
	session  *fakeSession // nil: a down's own place
	wants    []want
	mode     string // "" single, "all", "any"
	unowned  bool
	partial  bool
	deadline int64 // of a one-shot request, else 0
	ended    bool
	code     string // why it ended, "" granted
	granted  []*lease
	taken    int64
	value    int64
	at       int64 // when it ended
}

// keyed is an idempotency key.
type keyed struct {
	fingerprint string
	request     *request // what it asked for, waiting or ended
	outcome     *answer  // of what never waits
}

// refusal is a problem: status, code and further members.
type refusal struct {
	status  int
	code    string
	members map[string]any
}

func newFake() *fake {
	return &fake{start: time.Now().Add(-time.Second), sems: map[string]*fakeSemaphore{}, sessions: map[string]*fakeSession{}, ended: map[string]refusal{},
		keys: map[string]*keyed{}, maxKeys: 1 << 20, changed: make(chan struct{})}
}

// nowMS is cluster time.
func (f *fake) nowMS() int64 { return int64(time.Since(f.start) / time.Millisecond) }

func (f *fake) next() uint64 {
	f.last++
	return f.last
}

// do makes a change: first the due ends, then the change, then the lines are served.
func (f *fake) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index++
	f.expire()
	change()
	f.serve()
	close(f.changed)
	f.changed = make(chan struct{})
}

// put makes a semaphore, as a test's setup.
func (f *fake) put(name string, permits int64) *fake {
	f.do(func() { f.sems[name] = f.newSemaphore(name, permits) })
	return f
}

func (f *fake) newSemaphore(name string, permits int64) *fakeSemaphore {
	return &fakeSemaphore{name: name, permits: permits, epoch: f.next(), modified: f.index}
}

func (f *fake) open(ttlMS int64, oneShot bool) *fakeSession {
	s := &fakeSession{id: fmt.Sprint(f.next()), ttlMS: ttlMS, oneShot: oneShot, leases: map[string]*lease{}, revoked: map[string]string{}}
	f.sessions[s.id] = s
	f.renew(s, ttlMS)
	return s
}

// renew moves a session's deadline, and has its end done in time.
func (f *fake) renew(s *fakeSession, ttlMS int64) {
	s.deadline = f.nowMS() + ttlMS
	f.wakeAt(s.deadline)
}

func (f *fake) wakeAt(deadline int64) {
	at := f.start.Add(time.Duration(deadline) * time.Millisecond)
	time.AfterFunc(time.Until(at), func() { f.do(func() {}) })
}

func (f *fake) expire() {
	now := f.nowMS()
	for _, r := range f.queue {
		if r.deadline > 0 && r.deadline <= now {
			f.conclude(r, "unavailable")
		}
	}
	for _, s := range f.sessions {
		if s.deadline <= now {
			f.end(s, "expired-session", "")
		}
	}
}

// end ends a session; code is its refusal from then on.
func (f *fake) end(s *fakeSession, code, reason string) {
	delete(f.sessions, s.id)
	status := map[string]int{"expired-session": 410, "revoked": 410}[code]
	if status != 0 {
		f.ended[s.id] = refusal{status, code, map[string]any{"reason": reason, "session": s.id}}
	}
	for _, l := range s.leases {
		f.drop(s, l)
	}
	for _, r := range f.queue {
		if r.session == s {
			f.conclude(r, map[bool]string{true: code, false: "unavailable"}[status != 0])
		}
	}
}

func (f *fake) drop(s *fakeSession, l *lease) {
	delete(s.leases, l.semaphore)
	if sem := f.sems[l.semaphore]; sem != nil {
		sem.held -= l.count
		sem.modified = f.index
	}
	if s.oneShot {
		delete(f.sessions, s.id)
	}
}

// revoke is an operator's.
func (f *fake) revoke(session, name, reason string) {
	f.do(func() {
		s := f.sessions[session]
		f.drop(s, s.leases[name])
		s.revoked[name] = reason
	})
}

func (f *fake) remove(name string) {
	delete(f.sems, name)
	for _, s := range f.sessions {
		if l := s.leases[name]; l != nil {
			f.drop(s, l)
		}
		delete(s.revoked, name)
	}
	for _, r := range f.queue {
		if slices.ContainsFunc(r.wants, func(w want) bool { return w.Name == name }) {
			f.conclude(r, "deleted")
		}
	}
}

// enqueue adds a request; serve then decides about it.
func (f *fake) enqueue(r *request) {
	f.queue = append(f.queue, r)
	if r.deadline > 0 {
		f.wakeAt(r.deadline)
	}
	f.touch(r)
	f.serve()
}

func (f *fake) touch(r *request) {
	for _, w := range r.wants {
		if sem := f.sems[w.Name]; sem != nil {
			sem.modified = f.index
		}
	}
}

func (f *fake) conclude(r *request, code string) {
	if r.ended {
		return
	}
	r.ended, r.code, r.at = true, code, f.nowMS()
	f.queue = slices.DeleteFunc(slices.Clone(f.queue), func(q *request) bool { return q == r })
	f.touch(r)
	if r.session != nil && r.session.oneShot && (code != "" || r.unowned) {
		delete(f.sessions, r.session.id)
	}
}

// serve grants from the heads of all lines: a request that does not fit stops its lines.
func (f *fake) serve() {
	stopped := map[string]bool{}
	for _, r := range slices.Clone(f.queue) {
		var fit []want
		for _, w := range r.wants {
			sem := f.sems[w.Name]
			available := sem.permits + sem.offset - sem.held
			switch {
			case stopped[w.Name]:
			case r.partial && available > 0:
				fit = append(fit, want{w.Name, min(w.Count, available)})
			case w.Count <= available:
				fit = append(fit, w)
			}
		}
		if len(fit) == 0 || r.mode != "any" && len(fit) < len(r.wants) {
			for _, w := range r.wants {
				stopped[w.Name] = true
			}
			continue
		}
		if r.mode == "any" {
			fit = fit[:1]
		}
		f.grant(r, fit)
	}
}

func (f *fake) grant(r *request, fit []want) {
	for _, w := range fit {
		sem := f.sems[w.Name]
		sem.modified = f.index
		if r.unowned {
			sem.offset -= w.Count
			r.taken, r.value = w.Count, sem.permits+sem.offset-sem.held
			continue
		}
		sem.held += w.Count
		l := &lease{w.Name, w.Count, f.next()}
		r.session.leases[w.Name] = l
		r.granted = append(r.granted, l)
		f.grants = append(f.grants, grant{r.session.id, w.Name, l.token, time.Now()})
		if r.session.oneShot {
			f.renew(r.session, r.session.ttlMS)
		}
	}
	f.conclude(r, "")
}

// position is a request's in its first line, from 1.
func (f *fake) position(r *request) int {
	n := 1
	for _, q := range f.queue {
		if q == r {
			return n
		}
		if slices.ContainsFunc(q.wants, func(w want) bool { return w.Name == r.wants[0].Name }) {
			n++
		}
	}
	return 0
}

// waiters counts a semaphore's line, for tests.
func (f *fake) waiters(name string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.queue {
		if slices.ContainsFunc(r.wants, func(w want) bool { return w.Name == name }) {
			n++
		}
	}
	return n
}

// available is a semaphore's, for tests.
func (f *fake) available(name string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	sem := f.sems[name]
	return sem.permits + sem.offset - sem.held
}

// living counts the sessions, for tests.
func (f *fake) living() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sessions)
}

// occupy holds permits for a session that lives for a day without a renewal;
// free gives them back.
func (f *fake) occupy(name string, count int64) (free func()) {
	var s *fakeSession
	f.do(func() {
		s = f.open(86_400_000, false)
		f.enqueue(&request{session: s, wants: []want{{name, count}}})
	})
	return func() { f.do(func() { f.end(s, "", "") }) }
}
