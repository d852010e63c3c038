package logs

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/journal"
)

// journaledLog is a log whose changes go to the journal first, and to bbolt later. It keeps in memory what bbolt
// doesn't have yet: tail has the new entries, and cuts has the removals, which hide entries of bbolt. A change is
// durable on return.
//
// One change at a time goes to the journal, to memory and to the witness (lock writing). Any goroutine may call drain,
// which copies changes to bbolt and never waits for a change.
type journaledLog struct {
	bolt    *boltLog
	sequel  interface{ setDrained(uint64) error } // stores the sequence of the last change that bbolt has
	guard   *damage.Guard
	witness Witness
	logger  hclog.Logger

	writing sync.Mutex // held during a change
	journal *journal.Journal
	entries []journal.Entry // of the last change, to be used again
	unsure  bool            // entries that were refused may be in bbolt or in the journal

	draining sync.Mutex // held while bbolt changes; locked before mu
	copied   uint64     // bbolt has the changes up to this sequence, but may not have stored the sequence; else 0

	mu      sync.Mutex
	tail    []held // sorted by index
	cuts    []cut  // in the order of the changes
	all     spans  // the entries in bbolt and in the tail
	reached uint64 // sequence of the last change in tail and cuts
	drained uint64 // sequence of the last change that bbolt has

	asleep atomic.Bool   // the drainer waits for a change, without a timer
	wake   chan struct{} // tells the drainer that there is a change
	soon   chan struct{} // tells the drainer to drain at once
	stop   chan struct{}
	ended  chan struct{}
}

// held is an entry that bbolt doesn't have yet.
type held struct {
	log      *raft.Log
	sequence uint64
}

// cut is a range of entries that were removed, but may still be in bbolt.
type cut struct{ first, last, sequence uint64 }

var _ raft.LogStore = (*journaledLog)(nil)

// newJournaled returns the log with the content that Read has found.
func newJournaled(c Config, bolt *boltLog, file journal.File, found Contents, stable *stableValues) (*journaledLog, error) {
	before, err := journal.Open(file, found.journal, found.stable.drained())
	if err != nil {
		return nil, c.Guard.WriteFailed(journal.FileName, err)
	}
	l := &journaledLog{
		bolt: bolt, sequel: stable, guard: c.Guard, witness: c.Witness, logger: c.Logger,
		journal: before, drained: found.stable.drained(), all: slices.Clone(found.spans),
		wake: make(chan struct{}, 1), soon: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	l.reached = l.drained
	l.apply(found.journal.Ops)
	return l, nil
}

// start starts the drainer, which runs until close.
func (l *journaledLog) start() {
	l.asleep.Store(true)
	go l.run()
	l.changed()
}

// apply applies changes of the journal to tail, cuts and all.
func (l *journaledLog) apply(ops []journal.Op) {
	for _, op := range ops {
		l.reached = op.Sequence
		for i := range op.Entries {
			l.put(raftLog(&op.Entries[i]), op.Sequence)
		}
		if op.Entries == nil {
			l.remove(op.First, op.Last)
		}
	}
}

// hides reports whether an entry was removed that may still be in bbolt.
func (l *journaledLog) hides(index uint64) bool {
	return slices.ContainsFunc(l.cuts, func(c cut) bool { return c.first <= index && index <= c.last })
}

// journalEntry and raftLog convert an entry without copying its bytes.
func journalEntry(log *raft.Log) journal.Entry {
	e := journal.Entry{Index: log.Index, Term: log.Term, Kind: uint8(log.Type), Data: log.Data, Extensions: log.Extensions}
	if !log.AppendedAt.IsZero() {
		e.At = log.AppendedAt.UnixNano()
	}
	return e
}

func raftLog(e *journal.Entry) *raft.Log {
	log := &raft.Log{Index: e.Index, Term: e.Term, Type: raft.LogType(e.Kind), Data: e.Data, Extensions: e.Extensions}
	if e.At != 0 {
		log.AppendedAt = time.Unix(0, e.At)
	}
	return log
}

// place returns the position of the entry in the tail, or where it would be.
func (l *journaledLog) place(index uint64) (int, bool) {
	if n := len(l.tail); n == 0 || l.tail[n-1].log.Index < index {
		return n, false
	}
	return slices.BinarySearchFunc(l.tail, index, func(h held, index uint64) int { return cmp.Compare(h.log.Index, index) })
}

// put adds an entry to the tail. The caller holds mu.
func (l *journaledLog) put(log *raft.Log, sequence uint64) {
	at, found := l.place(log.Index)
	if found {
		l.tail[at] = held{log, sequence}
	} else {
		l.tail = slices.Insert(l.tail, at, held{log, sequence})
	}
	l.all = l.all.with(log.Index)
}

// remove removes a range of entries from the tail, and adds the range to cuts, with the sequence of the removal, which
// the caller has stored in reached. The caller holds mu.
func (l *journaledLog) remove(first, last uint64) {
	from, _ := l.place(first)
	to, found := l.place(last)
	if found {
		to++
	}
	if from < to {
		l.tail = slices.Delete(l.tail, from, to)
	}
	l.cuts = append(l.cuts, cut{first, last, l.reached})
	l.all = l.all.without(first, last)
}

// ends returns the first and last index of the log.
func (l *journaledLog) ends() (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.ends()
}

func (l *journaledLog) FirstIndex() (uint64, error) {
	first, _ := l.ends()
	return first, l.guard.Refusal()
}

func (l *journaledLog) LastIndex() (uint64, error) {
	_, last := l.ends()
	return last, l.guard.Refusal()
}

func (l *journaledLog) GetLog(index uint64, log *raft.Log) error {
	if err := l.guard.Refusal(); err != nil {
		return err
	}
	l.mu.Lock()
	at, found := l.place(index)
	if found {
		*log = *l.tail[at].log
	}
	stored := l.all.has(index)
	l.mu.Unlock()
	switch {
	case found:
		return nil
	case !stored:
		return raft.ErrLogNotFound
	}
	return l.bolt.GetLog(index, log)
}

func (l *journaledLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

func (l *journaledLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return l.guard.Refusal()
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.entries = l.entries[:0]
	for _, log := range logs {
		l.entries = append(l.entries, journalEntry(log))
	}
	sequence, err := l.append(journal.Op{Entries: l.entries})
	clear(l.entries)
	switch {
	case errors.Is(err, journal.ErrTooLarge):
		if err := l.storeDirectly(logs); err != nil {
			return err
		}
	case err != nil:
		return err
	}
	l.mu.Lock()
	if sequence != 0 {
		l.reached = sequence
		for _, log := range logs {
			l.put(log, sequence)
		}
	}
	_, last := l.all.ends()
	l.mu.Unlock()
	l.witness.RaiseEntry(last)
	l.changed()
	return nil
}

// append stores a change in the journal. If the journal is full, it drains first. The caller holds writing.
func (l *journaledLog) append(op journal.Op) (uint64, error) {
	if err := l.settle(); err != nil {
		return 0, err
	}
	for {
		if err := l.guard.Refusal(); err != nil {
			return 0, err
		}
		half := l.journal.Generation()
		sequence, err := l.journal.Append(op)
		switch {
		case errors.Is(err, journal.ErrNoRoom):
			if err := l.drainTo(l.journal.Needed()); err != nil {
				return 0, err
			}
			continue
		case errors.Is(err, journal.ErrTooLarge):
			return 0, err
		case err != nil:
			l.unsure = true
			return 0, l.guard.WriteFailed(journal.FileName, err)
		}
		if half != l.journal.Generation() {
			signal(l.soon)
		}
		return sequence, nil
	}
}

// settle removes refused entries from the journal and from bbolt before the next change. Otherwise a crash could bring
// them back among later entries. The caller holds writing.
func (l *journaledLog) settle() error {
	if !l.unsure {
		return nil
	}
	if err := l.journal.Settle(); err != nil {
		return l.guard.WriteFailed(journal.FileName, err)
	}
	l.draining.Lock()
	defer l.draining.Unlock()
	err := l.bolt.settle()
	l.unsure = err != nil
	return err
}

// storeDirectly stores entries in bbolt that are too large for the journal. It drains first, so that a restart does not
// apply older changes of the journal over these entries. The caller holds writing.
func (l *journaledLog) storeDirectly(logs []*raft.Log) error {
	if err := l.drain(); err != nil {
		return err
	}
	l.draining.Lock()
	defer l.draining.Unlock()
	if err := l.bolt.StoreLogs(logs); err != nil {
		l.unsure = true
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, log := range logs {
		l.all = l.all.with(log.Index)
	}
	return nil
}

// DeleteRange lowers the witness before the removal is in the journal, since a crash may come in between.
func (l *journaledLog) DeleteRange(first, last uint64) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.guard.Refusal(); err != nil {
		return err
	}
	l.mu.Lock()
	_, before := l.all.ends()
	_, after := l.all.without(first, last).ends()
	l.mu.Unlock()
	if after < before {
		if err := l.witness.LowerEntry(after); err != nil {
			return err
		}
	}
	sequence, err := l.append(journal.Op{First: first, Last: last})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.reached = sequence
	l.remove(first, last)
	l.mu.Unlock()
	l.witness.RaiseEntry(after)
	signal(l.soon) // so that bbolt's file becomes smaller
	return nil
}

// close ends the drainer and closes the journal, after the present change.
func (l *journaledLog) close() error {
	close(l.stop)
	<-l.ended
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.journal.Close()
}

// silent is the witness of the log in bbolt behind a journal. It ignores all calls, since journaledLog raises and
// lowers the bounds, and bbolt may have fewer entries.
type silent struct{}

func (silent) RaiseEntry(uint64)       {}
func (silent) RaiseStable(uint64)      {}
func (silent) LowerEntry(uint64) error { return nil }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed wakes the drainer if it waits for a change.
func (l *journaledLog) changed() {
	if l.asleep.CompareAndSwap(true, false) {
		signal(l.wake)
	}
}

// span is a range of indexes, both ends included.
type span struct{ first, last uint64 }

// spans are the ranges of indexes of a log, in order, with a gap between two ranges. There is one span, or two with a
// hole between them that a snapshot covers.
type spans []span

// with returns the spans with index added. It may change s.
func (s spans) with(index uint64) spans {
	if n := len(s); n > 0 && index == s[n-1].last+1 {
		s[n-1].last = index
		return s
	}
	if s.has(index) {
		return s
	}
	at := slices.IndexFunc(s, func(p span) bool { return p.first > index })
	if at < 0 {
		at = len(s)
	}
	s = slices.Insert(s, at, span{index, index})
	for _, neighbour := range []int{at, at - 1} {
		if neighbour >= 0 && neighbour+1 < len(s) && s[neighbour].last+1 == s[neighbour+1].first {
			s[neighbour].last = s[neighbour+1].last
			s = slices.Delete(s, neighbour+1, neighbour+2)
		}
	}
	return s
}

// without returns the spans without the indexes from first to last. It does not change s.
func (s spans) without(first, last uint64) (rest spans) {
	for _, p := range s {
		if p.first < first {
			rest = append(rest, span{p.first, min(p.last, first-1)})
		}
		if p.last > last {
			rest = append(rest, span{max(p.first, last+1), p.last})
		}
	}
	return rest
}

// has reports whether the spans contain an index.
func (s spans) has(index uint64) bool {
	for i := len(s) - 1; i >= 0; i-- { // from the end, where most reads are
		if s[i].first <= index {
			return index <= s[i].last
		}
	}
	return false
}

// ends returns the lowest and the highest index, or 0 if there is no entry.
func (s spans) ends() (first, last uint64) {
	if len(s) == 0 {
		return 0, 0
	}
	return s[0].first, s[len(s)-1].last
}
