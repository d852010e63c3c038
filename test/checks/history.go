package checks

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client"
)

// Outcome is what a client knows of an operation.
type Outcome int

// The outcomes.
const (
	Refused   Outcome = iota // certainly no effect
	Done                     // carried out between call and return
	Unknown                  // carried out at any time since the call, or never
	Withdrawn                // perhaps granted, and ended by the withdrawal
)

// String returns the outcome's name in reports.
func (o Outcome) String() string { return [...]string{"refused", "ok", "unknown", "withdrawn"}[o] }

// Operation is one step on one semaphore, as a client saw it.
type Operation struct {
	Client    int
	Kind      string // acquire, withdraw, release, drop, read, up, down, set
	Semaphore string
	Lease     string // names one lease, granted or requested
	Count     int64  // of permits; of a set: the value
	Exact     bool   // a refusal proves that fewer than Count permits were available; up, down, set: Available is known
	Call, Ret int64  // stamps; Ret is endless for an unknown outcome

	Outcome   Outcome
	Token     uint64 // acquire
	Held      int64  // read
	Available int64  // read; or the value after up, down and set
}

// endless is the stamp of the return of an operation that never returned.
const endless = int64(1) << 62

// String returns the operation as one line of a report.
func (o Operation) String() string {
	ret := "…"
	if o.Ret < endless {
		ret = time.Duration(o.Ret).String()
	}
	text := fmt.Sprintf("%v–%s c%d %s %s %d", time.Duration(o.Call), ret, o.Client, o.Kind, o.Semaphore, o.Count)
	if o.Lease != "" {
		text += " lease " + o.Lease
	}
	text += ": " + o.Outcome.String()
	if o.Token != 0 {
		text += fmt.Sprintf(", token %d", o.Token)
	}
	if o.Kind == "read" || o.Exact && o.Kind != "acquire" {
		text += fmt.Sprintf(", held %d, available %d", o.Held, o.Available)
	}
	return text
}

// Belief is the time for which a client counts on a lease.
type Belief struct {
	Semaphore string
	Session   string
	Token     uint64
	Count     int64
	From, To  int64 // stamps
}

// Write is a write that a resource received.
type Write struct {
	Semaphore string
	Session   string
	Token     uint64
	At        int64 // stamp
	Accepted  bool
	Valid     bool // the client counted on the lease when the write arrived
}

// SeenIndex is the index of a semaphore that a linearizable read returned.
type SeenIndex struct {
	Semaphore string
	Index     uint64
	Call, Ret int64
}

// History is what all clients of a run saw. Its methods are safe for concurrent use; its fields may be read after the
// run. A stamp is a time in ns since Began.
type History struct {
	Began time.Time

	mu         sync.Mutex
	last       int64
	Operations []Operation
	Beliefs    []Belief
	Writes     []Write
	Indexes    []SeenIndex
	resource   map[string]uint64        // the highest token that each resource has seen
	Deadlines  map[string]time.Time     // by session: the last deadline that its client was promised
	ttls       map[string]time.Duration // by session
	lostEarly  []string                 // leases that were lost before their deadline
}

// NewHistory returns a history that begins now.
func NewHistory() *History {
	return &History{Began: time.Now(), resource: map[string]uint64{}, Deadlines: map[string]time.Time{}, ttls: map[string]time.Duration{}}
}

// Stamp returns the present time. No two stamps are equal, and stamps have the order of the calls.
func (h *History) Stamp() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stampLocked()
}

func (h *History) stampLocked() int64 {
	h.last = max(h.last+1, int64(time.Since(h.Began)))
	return h.last
}

// Add records an operation. It returns now unless it has a stamp of its return.
func (h *History) Add(o Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case o.Ret == 0 && o.Outcome == Unknown:
		o.Ret = endless
	case o.Ret == 0:
		o.Ret = h.stampLocked()
	}
	h.Operations = append(h.Operations, o)
}

// Withdrawn records an acquire that may have been granted since its call, and that holds no permit after its return.
func (h *History) Withdrawn(o Operation) {
	o.Outcome, o.Ret = Withdrawn, h.Stamp()
	h.Add(o)
	o.Kind = "withdraw"
	h.Add(o)
}

// Drop records that a lease, if it exists, may end at any time between two stamps.
func (h *History) Drop(o Operation, call, ret int64) {
	h.Add(Operation{Client: o.Client, Kind: "drop", Semaphore: o.Semaphore, Lease: o.Lease, Call: call, Ret: ret, Outcome: Unknown})
}

// NoteTTL records the ttl of a session.
func (h *History) NoteTTL(session string, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ttls[session] = ttl
}

// Early records a lease that was lost before its deadline. No operator revokes leases in a run, so this is a violation.
func (h *History) Early(l *client.Lease, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lostEarly = append(h.lostEarly, fmt.Sprintf("%v: token %d of %s was lost: %v", time.Since(h.Began), l.Token, l.Semaphore, why))
}

// NoteDeadline records the time until which a client may count on a session.
func (h *History) NoteDeadline(session string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if until.After(h.Deadlines[session]) {
		h.Deadlines[session] = until
	}
}

// NoteBelief records the time for which a client counted on a lease.
func (h *History) NoteBelief(b Belief) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Beliefs = append(h.Beliefs, b)
}

// Write sends a write to the resource that a semaphore protects. It is valid while the client counts on the lease: Err
// alone may be late, since a goroutine sets it.
func (h *History) Write(l *client.Lease) {
	h.Arrive(Write{Semaphore: l.Semaphore, Session: l.Session, Token: l.Token}, func() bool { return l.Err() == nil && time.Now().Before(l.Deadline()) })
}

// Arrive delivers a write to its resource, which refuses a token smaller than the highest token that it has seen. valid
// reports, at that moment, whether the writer counts on its lease.
func (h *History) Arrive(w Write, valid func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.At, w.Valid = h.stampLocked(), valid()
	if w.Accepted = w.Token >= h.resource[w.Semaphore]; w.Accepted {
		h.resource[w.Semaphore] = w.Token
	}
	h.Writes = append(h.Writes, w)
}

// Read records a linearizable read.
func (h *History) Read(o Operation, s *client.Semaphore) {
	o.Held, o.Available, o.Outcome, o.Ret = s.Held, s.Available, Done, h.Stamp()
	h.Add(o)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Indexes = append(h.Indexes, SeenIndex{s.Name, s.ModifiedIndex, o.Call, o.Ret})
}

// Known counts the operations whose outcome is known.
func (h *History) Known() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.Operations {
		if o.Outcome == Done || o.Outcome == Refused {
			n++
		}
	}
	return n
}

// Tail returns the last count items of a list, one per line.
func Tail[T any](list []T, count int) string {
	var text strings.Builder
	if skipped := len(list) - count; skipped > 0 {
		fmt.Fprintf(&text, "  (%d before)\n", skipped)
		list = list[skipped:]
	}
	for _, item := range list {
		fmt.Fprintf(&text, "  %v\n", item)
	}
	return text.String()
}

// Gap is a time without a change; NoEnd: no change came after it.
type Gap time.Duration

// NoEnd is longer than any other gap.
const NoEnd = Gap(math.MaxInt64)

// String returns the gap in milliseconds.
func (g Gap) String() string {
	if g == NoEnd {
		return "without end"
	}
	return time.Duration(g).Round(time.Millisecond).String()
}

// LongestGap returns the longest time without a change that begins before the stamp until and goes on at the stamp lost.
func (h *History) LongestGap(lost, until int64) (longest Gap) {
	var changes []int64
	for _, o := range h.Operations {
		if o.Outcome == Done && o.Kind != "read" {
			changes = append(changes, o.Ret)
		}
	}
	slices.Sort(changes)
	last := len(changes) - 1
	if last < 0 || changes[last] < until {
		return NoEnd
	}
	for i, begin := range changes[:last] {
		if begin < until && changes[i+1] > lost {
			longest = max(longest, Gap(changes[i+1]-begin))
		}
	}
	return longest
}
