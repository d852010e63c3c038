package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/client"
)

// result is what a client knows of an operation.
type result int

const (
	refused result = iota // certainly no effect
	done
	unknown   // at any time since the call, or never
	withdrawn // perhaps granted, and over since the withdrawal
)

func (o result) String() string { return [...]string{"refused", "ok", "unknown", "withdrawn"}[o] }

// operation is one step on one semaphore, as a client saw it.
type operation struct {
	client    int
	kind      string // acquire, withdraw, release, drop, read, up, down, set
	semaphore string
	lease     string // names one lease, granted or asked for
	count     int64  // asked for; of a set: the value
	exact     bool   // the reply says something about the state also if it is a refusal
	call, ret int64  // stamps; ret is endless for an unknown outcome

	outcome   result
	token     uint64 // acquire
	held      int64  // read
	available int64  // read; or the value after up, down and set
}

// endless is the stamp of what never returned.
const endless = int64(1) << 62

func (o operation) String() string {
	ret := "…"
	if o.ret < endless {
		ret = time.Duration(o.ret).String()
	}
	text := fmt.Sprintf("%v–%s c%d %s %s %d", time.Duration(o.call), ret, o.client, o.kind, o.semaphore, o.count)
	if o.lease != "" {
		text += " lease " + o.lease
	}
	text += ": " + o.outcome.String()
	if o.token != 0 {
		text += fmt.Sprintf(", token %d", o.token)
	}
	if o.kind == "read" || o.exact && o.kind != "acquire" {
		text += fmt.Sprintf(", held %d, available %d", o.held, o.available)
	}
	return text
}

// belief is the time for which a client counts on a lease.
type belief struct {
	semaphore string
	session   string
	token     uint64
	count     int64
	from, to  int64
}

// write is one that a resource got.
type write struct {
	semaphore string
	session   string
	token     uint64
	at        int64
	accepted  bool
	valid     bool // its client counted on the lease when it arrived
}

// seenIndex is the index that a linearizable read has shown of a semaphore.
type seenIndex struct {
	semaphore string
	index     uint64
	call, ret int64
}

// history is what all clients of an episode saw. Safe for concurrent use.
type history struct {
	began time.Time

	mu         sync.Mutex
	last       int64
	operations []operation
	beliefs    []belief
	writes     []write
	indexes    []seenIndex
	resource   map[string]uint64        // the highest token that each resource has seen
	deadlines  map[string]time.Duration // of sessions: until when the client was promised them
}

func newHistory() *history {
	return &history{began: time.Now(), resource: map[string]uint64{}, deadlines: map[string]time.Duration{}}
}

// stamp returns a moment, in ns of virtual time; no two are equal, and they are in the
// order in which things really happen within one moment.
func (h *history) stamp() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stampLocked()
}

func (h *history) stampLocked() int64 {
	h.last = max(h.last+1, int64(time.Since(h.began)))
	return h.last
}

// add notes an operation, which has returned now unless it has a stamp of its return.
func (h *history) add(o operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case o.ret == 0 && o.outcome == unknown:
		o.ret = endless
	case o.ret == 0:
		o.ret = h.stampLocked()
	}
	h.operations = append(h.operations, o)
}

// withdrawn notes an acquire that may have been granted since its call, and holds nothing
// from its return on.
func (h *history) withdrawn(o operation) {
	o.outcome, o.ret = withdrawn, h.stamp()
	h.add(o)
	o.kind = "withdraw"
	h.add(o)
}

// drop notes that a lease, if it exists, may end at any time between two stamps.
func (h *history) drop(o operation, call, ret int64) {
	h.add(operation{client: o.client, kind: "drop", semaphore: o.semaphore, lease: o.lease, call: call, ret: ret, outcome: unknown})
}

// promised notes until when a client counts on a session at most.
func (h *history) promised(session string, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadlines[session] = max(h.deadlines[session], until.Sub(h.began))
}

// believed notes a lease that a client has counted on until now.
func (h *history) believed(l *client.Lease, from, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beliefs = append(h.beliefs, belief{l.Semaphore, l.Session, l.Token, l.Count, from, to})
}

// write brings a write to the resource that a semaphore protects, which refuses a token
// smaller than one that it has seen.
func (h *history) write(l *client.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := write{semaphore: l.Semaphore, session: l.Session, token: l.Token, at: h.stampLocked(), valid: l.Err() == nil}
	if w.accepted = l.Token >= h.resource[l.Semaphore]; w.accepted {
		h.resource[l.Semaphore] = l.Token
	}
	h.writes = append(h.writes, w)
}

// read notes a linearizable read.
func (h *history) read(o operation, s *client.Semaphore) {
	o.held, o.available, o.outcome, o.ret = s.Held, s.Available, done, h.stamp()
	h.add(o)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.indexes = append(h.indexes, seenIndex{s.Name, s.ModifiedIndex, o.call, o.ret})
}

// known counts the operations whose outcome is known.
func (h *history) known() (n int) {
	for _, o := range h.operations {
		if o.outcome == done || o.outcome == refused {
			n++
		}
	}
	return n
}

// tail prints the last lines of a list.
func tail[T any](list []T, most int) string {
	var text strings.Builder
	if skipped := len(list) - most; skipped > 0 {
		fmt.Fprintf(&text, "  (%d before)\n", skipped)
		list = list[skipped:]
	}
	for _, one := range list {
		fmt.Fprintf(&text, "  %v\n", one)
	}
	return text.String()
}
