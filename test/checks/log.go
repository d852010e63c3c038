package checks

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// Logged has the effects of one entry. seen is when a node was first seen to have applied it.
type Logged struct {
	replica.EventEntry
	by   string
	seen time.Time
}

// span is a range of indexes, both ends included.
type span struct{ from, to uint64 }

// EventLog merges the events of all nodes into one log. Its methods are safe for concurrent use; Jumps and Differ may
// be read after the run.
type EventLog struct {
	mu      sync.Mutex
	entries map[uint64]Logged
	last    uint64   // the highest index of entries
	known   []span   // the indexes whose events a node has reported
	Jumps   int      // how often a snapshot replaced the log of a node
	Differ  []string // differences between the reports of nodes
}

// NewEventLog returns a log without events.
func NewEventLog() *EventLog { return &EventLog{entries: map[uint64]Logged{}} }

// Jumped counts a snapshot that replaced the log of a node.
func (l *EventLog) Jumped() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Jumps++
}

// Note adds a finding to Differ.
func (l *EventLog) Note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Differ = append(l.Differ, text)
}

// Take adds a page of a node's events, and compares it with the events of other nodes.
func (l *EventLog) Take(id string, page replica.EventPage, after replica.EventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range page.Entries {
		first, known := l.entries[e.Index]
		if !known {
			l.entries[e.Index] = Logged{e, id, time.Now()}
			l.last = max(l.last, e.Index)
		} else if !reflect.DeepEqual(first.EventEntry, e) {
			l.Differ = append(l.Differ, fmt.Sprintf("index %d is %+v on %s, and %+v on %s", e.Index, first.EventEntry, first.by, e, id))
		}
	}
	if page.Next.Index > after.Index {
		l.known = append(l.known, span{after.Index + 1, page.Next.Index})
	}
}

// All returns the entries by index, and the first index whose events no node has reported, 0 if there is no such gap.
func (l *EventLog) All() (list []Logged, gap uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reached := uint64(0)
	slices.SortFunc(l.known, func(a, b span) int { return int(a.from) - int(b.from) })
	for _, s := range l.known {
		if s.from > reached+1 {
			gap = reached + 1
			break
		}
		reached = max(reached, s.to)
	}
	for _, index := range slices.Sorted(maps.Keys(l.entries)) {
		list = append(list, l.entries[index])
	}
	return list, gap
}

// Last returns the highest index whose events a node has reported, 0 before the first.
func (l *EventLog) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// GrantKey identifies a grant as its client knows it.
type GrantKey struct {
	semaphore, session string
	token              uint64
}

// line is a semaphore as the events describe it.
type line struct {
	permits, offset, held int64
	leases                map[uint64]lease // by session
	waiting               []waiting        // in the order of their places
}

type lease struct {
	count int64
	token uint64
}

type waiting struct {
	place   uint64
	session uint64
	count   int64
	mode    fsm.Mode
	partial bool
}

func (l *line) available() int64 { return l.permits + l.offset - l.held }

func (l *line) find(place uint64) int {
	return slices.IndexFunc(l.waiting, func(w waiting) bool { return w.place == place })
}

// Replay is a simple state machine that applies events and checks each against the rules.
type Replay struct {
	lines     map[string]*line
	deadlines map[uint64]int64 // by open session: its deadline in cluster time
	nowMS     int64
	token     uint64
	place     uint64
	index     uint64
	Grants    map[GrantKey]uint64 // by grant: its index
	Ended     map[uint64]Logged   // by expired session: the entry of its end
	Broken    []string
	at        string
}

func newReplay() *Replay {
	return &Replay{lines: map[string]*line{}, deadlines: map[uint64]int64{}, Grants: map[GrantKey]uint64{}, Ended: map[uint64]Logged{}}
}

func (r *Replay) fail(format string, arguments ...any) {
	if len(r.Broken) < 20 {
		r.Broken = append(r.Broken, r.at+": "+fmt.Sprintf(format, arguments...))
	}
}

// Log replays entries, whose indexes rise, and records the rules that they break.
func Log(entries []Logged) *Replay {
	r := newReplay()
	for _, e := range entries {
		r.apply(e)
	}
	return r
}

func (r *Replay) apply(e Logged) {
	r.at = fmt.Sprintf("index %d", e.Index)
	if e.Index <= r.index {
		r.fail("the index before is %d", r.index)
	}
	if e.NowMS < r.nowMS {
		r.fail("cluster time falls from %d to %d ms", r.nowMS, e.NowMS)
	}
	r.index, r.nowMS = e.Index, e.NowMS
	moved := "" // the semaphore from which an unowned grant has just taken permits
	for _, f := range e.Effects {
		r.at = fmt.Sprintf("index %d, %s %s session %d place %d token %d count %d %s", e.Index, f.Kind, f.Semaphore, f.Session, f.Place, f.Token, f.Count, f.Cause)
		switch f.Kind {
		case fsm.EffectCreated:
			r.lines[f.Semaphore] = &line{permits: f.DetailsOrZero().Permits, leases: map[uint64]lease{}}
		case fsm.EffectChanged:
			r.changed(f, moved == f.Semaphore)
		case fsm.EffectGranted:
			r.granted(f)
		case fsm.EffectReleased:
			r.released(f)
		case fsm.EffectWaiting:
			r.waits(f)
		case fsm.EffectWithdrawn:
			if l := r.lines[f.Semaphore]; l.find(f.Place) < 0 {
				r.fail("it does not wait")
			} else {
				l.waiting = slices.Delete(l.waiting, l.find(f.Place), l.find(f.Place)+1)
			}
		case fsm.EffectSessionOpen:
			r.deadlines[f.Session] = f.DeadlineMS
		case fsm.EffectSessionRenewed:
			if _, lives := r.deadlines[f.Session]; !lives {
				r.fail("the session does not live")
			}
			r.deadlines[f.Session] = f.DeadlineMS
		case fsm.EffectSessionEnded:
			r.sessionEnded(e, f)
		}
		if moved = ""; f.Kind == fsm.EffectGranted && f.Unowned {
			moved = f.Semaphore
		}
	}
	r.settled(e)
}

// changed applies new permits and a new offset. If the offset falls while requests wait, permits were given to a
// request that had to wait in line: no client of a checked run sets the value of a semaphore with a line.
func (r *Replay) changed(f fsm.Effect, served bool) {
	l, with := r.lines[f.Semaphore], f.DetailsOrZero()
	if served && with.Offset != l.offset {
		r.fail("after the grant the offset is %d, not %d", with.Offset, l.offset)
	}
	if with.Offset < l.offset && len(l.waiting) > 0 {
		r.fail("%d permits are taken before those who wait", l.offset-with.Offset)
	}
	l.permits, l.offset = with.Permits, with.Offset
}

func (r *Replay) granted(f fsm.Effect) {
	l := r.lines[f.Semaphore]
	switch i := l.find(f.Place); {
	case i > 0:
		r.fail("place %d is before it", l.waiting[0].place)
	case i < 0 && len(l.waiting) > 0:
		r.fail("place %d waits", l.waiting[0].place)
	}
	r.servedElsewhere(f)
	if i := l.find(f.Place); i >= 0 {
		if w := l.waiting[i]; f.Count > w.count || f.Count < w.count && !w.partial {
			r.fail("it asked for %d", w.count)
		}
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	if f.Unowned {
		l.offset -= f.Count
	} else {
		r.leased(l, f)
	}
	if l.available() < 0 {
		r.fail("%d permits are missing: %d + %d, %d held", -l.available(), l.permits, l.offset, l.held)
	}
}

// servedElsewhere checks the other lines of a request that wants all of several semaphores.
func (r *Replay) servedElsewhere(f fsm.Effect) {
	for name, other := range r.lines {
		i := other.find(f.Place)
		if name != f.Semaphore && f.Place != 0 && i > 0 && other.waiting[i].mode == fsm.All {
			r.fail("in the line of %s place %d is before it", name, other.waiting[0].place)
		}
	}
}

func (r *Replay) leased(l *line, f fsm.Effect) {
	if f.Token <= r.token {
		r.fail("a token of %d was given before", r.token)
	}
	if _, lives := r.deadlines[f.Session]; !lives {
		r.fail("the session does not live")
	}
	if held, ok := l.leases[f.Session]; ok {
		r.fail("the session has token %d already", held.token)
	}
	r.token = max(r.token, f.Token)
	l.leases[f.Session] = lease{f.Count, f.Token}
	l.held += f.Count
	r.Grants[GrantKey{f.Semaphore, fmt.Sprint(f.Session), f.Token}] = r.index
}

func (r *Replay) released(f fsm.Effect) {
	l := r.lines[f.Semaphore]
	held, ok := l.leases[f.Session]
	if !ok || held.token != f.Token || held.count != f.Count {
		r.fail("the session holds %+v", held)
		return
	}
	if f.Cause == fsm.CauseExpired && r.deadlines[f.Session] > r.nowMS {
		r.fail("the session lives until %d ms, and it is %d", r.deadlines[f.Session], r.nowMS)
	}
	delete(l.leases, f.Session)
	l.held -= f.Count
}

func (r *Replay) waits(f fsm.Effect) {
	l := r.lines[f.Semaphore]
	w := waiting{f.Place, f.Session, f.Count, f.Mode, f.Partial}
	if i := l.find(f.Place); i >= 0 {
		l.waiting[i] = w
		return
	}
	if f.Place < r.place || f.Place == r.place && f.Mode == 0 {
		r.fail("place %d was given before", r.place)
	}
	r.place = f.Place
	l.waiting = append(l.waiting, w)
}

func (r *Replay) sessionEnded(e Logged, f fsm.Effect) {
	deadline, lives := r.deadlines[f.Session]
	if !lives {
		r.fail("the session does not live")
	}
	if f.Cause == fsm.CauseExpired {
		if deadline > r.nowMS {
			r.fail("the session lives until %d ms, and it is %d", deadline, r.nowMS)
		}
		r.Ended[f.Session] = e
	}
	delete(r.deadlines, f.Session)
	for name, l := range r.lines {
		if held, ok := l.leases[f.Session]; ok {
			r.fail("it leaves a lease of %s behind, token %d", name, held.token)
		}
	}
}

// settled checks that no request at the head of all its lines could be granted.
func (r *Replay) settled(e Logged) {
	r.at = fmt.Sprintf("after index %d", e.Index)
	for name, l := range r.lines {
		if len(l.waiting) == 0 {
			continue
		}
		head := l.waiting[0]
		if _, lives := r.deadlines[head.session]; !lives {
			r.fail("place %d of %s waits without a session", head.place, name)
		}
		fits := r.fits(l, head)
		if head.mode == fsm.All {
			for _, other := range r.lines {
				if i := other.find(head.place); i > 0 || i == 0 && !r.fits(other, other.waiting[0]) {
					fits = false
				}
			}
		}
		if fits {
			r.fail("place %d of %s wants %d and waits, though %d are available", head.place, name, head.count, l.available())
		}
	}
}

func (r *Replay) fits(l *line, w waiting) bool {
	return l.available() >= w.count || w.partial && l.available() > 0
}

// Expiries returns the sessions that were seen to expire while their clients still counted on them. ended, promised and
// lives are by session id; promised has deadlines, and lives has ttls. rate is how much the clocks of nodes and clients
// may differ, as a fraction of a ttl.
func Expiries(ended map[uint64]Logged, promised map[string]time.Time, lives map[string]time.Duration, rate float64) (broken []string) {
	for id, e := range ended {
		session := fmt.Sprint(id)
		until, known := promised[session]
		slack := time.Duration(float64(lives[session])*rate) + 2*time.Millisecond
		if known && e.seen.Before(until.Add(-slack)) {
			broken = append(broken, fmt.Sprintf("index %d: session %s was seen to expire %v before the time that it was promised", e.Index, session, until.Sub(e.seen)))
		}
	}
	return broken
}
