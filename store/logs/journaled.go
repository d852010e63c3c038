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

const (
	// drainPortion is how many bytes of entries go to bbolt in one transaction: appends
	// are synced beside it on the same disk.
	drainPortion = 1 << 20
	// drainIdle is the time without a change after which all of them go to bbolt.
	drainIdle = time.Second
)

// journaledLog is a log whose changes are in the journal first, and in bbolt later. It keeps
// in memory what bbolt doesn't have yet: the entries of the tail, and cuts, which hide what is
// to be removed. A change is durable on return.
//
// Changes become part of the journal, the memory and the witness in turn (writing). bbolt gets
// them from drain, which any goroutine may call, and which never waits for a change.
type journaledLog struct {
	bolt    *boltLog
	sequel  interface{ setDrained(uint64) error } // keeps the sequence that bbolt has
	guard   *damage.Guard
	witness Witness
	logger  hclog.Logger

	writing sync.Mutex // held during a change
	journal *journal.Journal
	entries []journal.Entry // of the last change, for the next one

	draining sync.Mutex // held while bbolt changes, before mu

	mu      sync.Mutex
	tail    []held // by index
	cuts    []cut  // in their order
	base    Extent // the entries of bbolt, but for those cut
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
	l := &journaledLog{
		bolt: bolt, sequel: stable, guard: c.Guard, witness: c.Witness, logger: c.Logger,
		journal: journal.Open(file, found.journal, found.stable.drained()), drained: found.stable.drained(), base: bolt.now(),
		wake: make(chan struct{}, 1), soon: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	l.reached = l.drained
	if !l.apply(found.journal.Ops) {
		if err := l.drain(); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// start starts the drainer, which runs until close.
func (l *journaledLog) start() {
	l.asleep.Store(true)
	go l.run()
	l.changed()
}

// apply makes changes that the journal has. It returns false if bbolt must be asked for the
// first or last entry that is left.
func (l *journaledLog) apply(ops []journal.Op) (exact bool) {
	exact = true
	for _, op := range ops {
		l.reached = op.Sequence
		for i := range op.Entries {
			l.put(raftLog(&op.Entries[i]), op.Sequence)
		}
		if op.Entries == nil {
			exact = l.remove(op.First, op.Last) && exact
		}
	}
	return exact
}

// hides reports whether an entry that bbolt may have is cut. The lock is held.
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
}

// remove takes the entries of a cut, which is the change reached, out of the tail, and hides
// those of bbolt. It returns false if bbolt must be asked for the first or last entry that
// is left. The lock is held.
func (l *journaledLog) remove(first, last uint64) (exact bool) {
	from, _ := l.place(first)
	to, found := l.place(last)
	if found {
		to++
	}
	if from < to {
		l.tail = slices.Delete(l.tail, from, to)
	}
	before := l.base
	l.cuts = append(l.cuts, cut{first, last, l.reached})
	l.base = before.without(first, last)
	return l.base.Last == 0 || l.base.sure() && (l.base.First == before.First || l.base.First >= l.base.From)
}

// ends returns the first and last index. The lock is held.
func (l *journaledLog) ends() (first, last uint64) {
	first, last = l.base.First, l.base.Last
	if n := len(l.tail); n > 0 {
		last = max(last, l.tail[n-1].log.Index)
		if lowest := l.tail[0].log.Index; first == 0 || lowest < first {
			first = lowest
		}
	}
	return first, last
}

func (l *journaledLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, _ := l.ends()
	return first, l.guard.Refusal()
}

func (l *journaledLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, last := l.ends()
	return last, l.guard.Refusal()
}

func (l *journaledLog) GetLog(index uint64, log *raft.Log) error {
	if err := l.guard.Refusal(); err != nil {
		return err
	}
	l.mu.Lock()
	if at, found := l.place(index); found {
		*log = *l.tail[at].log
		l.mu.Unlock()
		return nil
	}
	hidden := l.hides(index)
	l.mu.Unlock()
	if hidden {
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
	_, last := l.ends()
	l.mu.Unlock()
	l.witness.RaiseEntry(last)
	l.changed()
	return nil
}

// append stores a change in the journal, when there is room for it. writing is held.
func (l *journaledLog) append(op journal.Op) (uint64, error) {
	for {
		if err := l.guard.Refusal(); err != nil {
			return 0, err
		}
		half := l.journal.Generation()
		sequence, err := l.journal.Append(op)
		switch {
		case errors.Is(err, journal.ErrNoRoom):
			if err := l.drain(); err != nil {
				return 0, err
			}
			continue
		case errors.Is(err, journal.ErrTooLarge):
			return 0, err
		case err != nil:
			return 0, l.guard.WriteFailed(journal.FileName, err)
		}
		if half != l.journal.Generation() {
			signal(l.soon)
		}
		return sequence, nil
	}
}

// storeDirectly stores entries that no half of the journal holds. All changes before are in
// bbolt then, and the journal has none that would be applied again. writing is held.
func (l *journaledLog) storeDirectly(logs []*raft.Log) error {
	if err := l.drain(); err != nil {
		return err
	}
	l.draining.Lock()
	defer l.draining.Unlock()
	err := l.bolt.StoreLogs(logs)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base = l.bolt.now()
	return err
}

// DeleteRange lowers the witness before the cut is in the journal: a crash may come between.
func (l *journaledLog) DeleteRange(first, last uint64) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.guard.Refusal(); err != nil {
		return err
	}
	if floor, lower := l.floorWithout(first, last); lower {
		if err := l.witness.LowerEntry(floor); err != nil {
			return err
		}
	}
	sequence, err := l.append(journal.Op{First: first, Last: last})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.reached = sequence
	exact := l.remove(first, last)
	l.mu.Unlock()
	if !exact {
		if err := l.drain(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	_, last = l.ends()
	l.mu.Unlock()
	l.witness.RaiseEntry(last)
	signal(l.soon) // bbolt's file is to become smaller
	return nil
}

// floorWithout returns an index that the log has or exceeds after a cut, and whether its last
// index may fall.
func (l *journaledLog) floorWithout(first, last uint64) (floor uint64, lower bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, before := l.ends()
	floor = l.base.without(first, last).floor()
	for i := len(l.tail) - 1; i >= 0; i-- {
		if index := l.tail[i].log.Index; index < first || index > last {
			floor = max(floor, index)
			break
		}
	}
	return floor, floor < before
}

// drain brings all changes of now into bbolt. With an error they stay in the journal and in
// memory, and some may be in bbolt too: that makes no difference to those that come again.
func (l *journaledLog) drain() error {
	l.draining.Lock()
	defer l.draining.Unlock()
	l.mu.Lock()
	reached, cuts, tail := l.reached, slices.Clone(l.cuts), slices.Clone(l.tail)
	done := reached == l.drained
	l.mu.Unlock()
	if done {
		return l.guard.Refusal()
	}
	for _, c := range cuts {
		if e := l.bolt.now(); e.Last == 0 || c.first > e.Last || c.last < e.First {
			continue
		}
		if err := l.bolt.DeleteRange(c.first, c.last); err != nil {
			return err
		}
	}
	for len(tail) > 0 {
		var portion []*raft.Log
		for size := 0; len(tail) > 0 && (size < drainPortion || len(portion) == 0); tail = tail[1:] {
			portion = append(portion, tail[0].log)
			size += len(tail[0].log.Data)
		}
		if err := l.bolt.StoreLogs(portion); err != nil {
			return err
		}
	}
	if err := l.sequel.setDrained(reached); err != nil {
		return err
	}
	l.journal.Drained(reached)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drained = reached
	l.tail = slices.DeleteFunc(l.tail, func(h held) bool { return h.sequence <= reached })
	l.cuts = slices.DeleteFunc(l.cuts, func(c cut) bool { return c.sequence <= reached })
	l.base = l.bolt.now()
	for _, c := range l.cuts {
		l.base = l.base.without(c.first, c.last)
	}
	return nil
}

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

// run drains when a half is full, and when there was no change for a while. A full disk ends
// an attempt; the next one comes with a change.
func (l *journaledLog) run() {
	defer close(l.ended)
	timer := time.NewTimer(drainIdle)
	var seen uint64
	for {
		select {
		case <-l.stop:
			return
		case <-l.wake:
		case <-l.soon:
			seen = l.try()
		case <-timer.C:
			reached, idle := l.progress()
			switch {
			case idle:
				l.asleep.Store(true)
				if _, idle = l.progress(); idle { // else the change may not have seen that it sleeps
					continue
				}
				l.asleep.Store(false)
			case reached == seen:
				if seen = l.try(); seen == 0 {
					l.asleep.Store(true)
					continue
				}
			default:
				seen = reached
			}
		}
		timer.Reset(drainIdle)
	}
}

// progress returns the sequence of the last change, and whether bbolt has all.
func (l *journaledLog) progress() (reached uint64, drained bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reached, l.reached == l.drained
}

// try drains, and returns the sequence that is reached, 0 if that failed.
func (l *journaledLog) try() uint64 {
	if err := l.drain(); err != nil {
		if !errors.Is(err, damage.ErrClosed) {
			l.logger.Warn("entries stay in the journal", "error", err)
		}
		return 0
	}
	reached, _ := l.progress()
	return reached
}

// close ends the drainer and closes the journal, after the change that is under way.
func (l *journaledLog) close() error {
	close(l.stop)
	<-l.ended
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.journal.Close()
}

// silent is the witness of the log in bbolt that follows a journal: what is in bbolt is less
// than what is stored.
type silent struct{}

func (silent) RaiseEntry(uint64)       {}
func (silent) RaiseStable(uint64)      {}
func (silent) LowerEntry(uint64) error { return nil }
