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

// journaledLog is a log whose changes are in the journal first, and in bbolt later. It keeps
// in memory what bbolt doesn't have yet: the entries of the tail, and cuts, which hide what is
// to be removed. A change is durable on return.
//
// Changes go to the journal, to memory and to the witness one at a time (writing). drain copies
// them to bbolt: any goroutine may call it, and it never waits for a change.
type journaledLog struct {
	bolt    *boltLog
	sequel  interface{ setDrained(uint64) error } // keeps the sequence that bbolt has
	guard   *damage.Guard
	witness Witness
	logger  hclog.Logger

	writing sync.Mutex // held during a change
	journal *journal.Journal
	entries []journal.Entry // of the last change, for the next one
	unsure  bool            // entries that were refused may be in bbolt, or in the journal

	draining sync.Mutex // held while bbolt changes, before mu
	copied   uint64     // bbolt has the changes up to here, and perhaps doesn't say so; 0 otherwise

	mu      sync.Mutex
	tail    []held // by index
	cuts    []cut  // in their order
	all     spans  // which entries there are, in bbolt and in the tail
	reached uint64 // the sequence of the last change in tail and cuts
	drained uint64 // the sequence that bbolt has

	asleep atomic.Bool   // the drainer waits for a change, and not for time
	wake   chan struct{} // to the drainer: there is a change
	soon   chan struct{} // to the drainer: drain now
	stop   chan struct{}
	ended  chan struct{}
}

// held is an entry that bbolt doesn't have yet.
type held struct {
	log      *raft.Log
	sequence uint64
}

// cut is a range of entries that are gone, and that bbolt may still have.
type cut struct{ first, last, sequence uint64 }

var _ raft.LogStore = (*journaledLog)(nil)

// newJournaled returns the log over what Read found.
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

// apply makes changes that the journal has.
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

// hides reports whether an entry that bbolt may have is cut.
func (l *journaledLog) hides(index uint64) bool {
	return slices.ContainsFunc(l.cuts, func(c cut) bool { return c.first <= index && index <= c.last })
}

// journalEntry and raftLog change the form of an entry; its bytes are shared.
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

// place is where in the tail the entry is, or would be.
func (l *journaledLog) place(index uint64) (int, bool) {
	if n := len(l.tail); n == 0 || l.tail[n-1].log.Index < index {
		return n, false
	}
	return slices.BinarySearchFunc(l.tail, index, func(h held, index uint64) int { return cmp.Compare(h.log.Index, index) })
}

// put adds an entry to the tail. The lock is held.
func (l *journaledLog) put(log *raft.Log, sequence uint64) {
	at, found := l.place(log.Index)
	if found {
		l.tail[at] = held{log, sequence}
	} else {
		l.tail = slices.Insert(l.tail, at, held{log, sequence})
	}
	l.all = l.all.with(log.Index)
}

// remove takes the entries of a cut, which is the change reached, out of the tail, and
// remembers it for bbolt. The lock is held.
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

// ends returns the first and last index.
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

// append stores a change in the journal, which it drains first if there is no room. writing is held.
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

// settle makes sure that refused entries are neither in the journal nor in bbolt, before
// another change comes: after a crash they would be behind it. writing is held.
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

// storeDirectly stores entries in bbolt that are too large for a half of the journal. It drains first,
// so that a restart applies no older change of the journal over these entries. writing is held.
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

// DeleteRange lowers the witness before the cut is in the journal: a crash may come between.
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
	signal(l.soon) // bbolt's file is to become smaller
	return nil
}

// close ends the drainer and closes the journal, after the change that is under way.
func (l *journaledLog) close() error {
	close(l.stop)
	<-l.ended
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.journal.Close()
}

// silent is the witness of the log in bbolt behind a journal. It ignores calls, since bbolt may
// have less than what is stored.
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

// spans are which entries a log has, in order; no two of them touch. There is one span, or two
// with a hole between them where a snapshot took over.
type spans []span

// with returns the spans and an index. It may change them.
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

// without returns the spans less those from first to last. It does not change them.
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

// has reports whether the log has the entry.
func (s spans) has(index uint64) bool {
	for i := len(s) - 1; i >= 0; i-- { // most look at the end
		if s[i].first <= index {
			return index <= s[i].last
		}
	}
	return false
}

// ends returns the lowest and the highest index, 0 if there is no entry.
func (s spans) ends() (first, last uint64) {
	if len(s) == 0 {
		return 0, 0
	}
	return s[0].first, s[len(s)-1].last
}
