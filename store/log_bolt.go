package store

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// boltLog is the log in raft-boltdb, behind the guard. It knows which entries
// are there without asking the file, so that an entry that has vanished from the
// file under a running node is told from one that never was.
type boltLog struct {
	bolt    raft.LogStore
	guard   *guard
	witness *witness
	logger  hclog.Logger

	writing sync.Mutex // held during StoreLogs and DeleteRange, which bbolt puts in a row anyway
	unsure  bool       // a write failed, and may be in the file all the same; under writing

	mu     sync.Mutex
	extent logExtent
}

// logExtent is which entries are stored.
type logExtent struct {
	first uint64 // the lowest index; 0 for an empty log
	from  uint64 // each entry from here to last is there; below may be a hole, where a snapshot took over
	last  uint64 // the highest index; 0 for an empty log
	cuts  uint64 // how often entries were removed
}

// holds reports whether the entry must be there.
func (e logExtent) holds(index uint64) bool { return index != 0 && e.from <= index && index <= e.last }

var _ raft.LogStore = (*boltLog)(nil)

func (b *boltLog) now() logExtent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.extent
}

func (b *boltLog) set(e logExtent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extent = e
}

func (b *boltLog) FirstIndex() (uint64, error) { return b.now().first, b.guard.refusal() }

func (b *boltLog) LastIndex() (uint64, error) { return b.now().last, b.guard.refusal() }

func (b *boltLog) GetLog(index uint64, log *raft.Log) error {
	before := b.now()
	err := b.guard.run(raftFile, index, func() error { return b.bolt.GetLog(index, log) })
	switch {
	case err == nil, errors.Is(err, ErrDamaged), errors.Is(err, ErrClosed):
		return err
	case !errors.Is(err, raft.ErrLogNotFound):
		return b.guard.damaged(raftFile, index, "the entry can't be decoded", err)
	}
	// Entries are cut off beside this, and others may come after that with the
	// same index: only if there was no cut is a missing entry a lost one.
	if after := b.now(); before.cuts == after.cuts && before.holds(index) {
		return b.guard.damaged(raftFile, index, "the entry was stored, and is missing", nil)
	}
	return err
}

func (b *boltLog) StoreLog(log *raft.Log) error { return b.StoreLogs([]*raft.Log{log}) }

func (b *boltLog) StoreLogs(logs []*raft.Log) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	if err := b.dropUnsure(); err != nil {
		return err
	}
	err := b.guard.run(raftFile, 0, func() error { return b.bolt.StoreLogs(logs) })
	if err != nil {
		b.unsure = true
		return b.guard.writeFailed(raftFile, err)
	}
	e := b.now()
	for _, log := range logs {
		e = e.with(log.Index)
	}
	b.set(e)
	b.raise(e.last)
	return nil
}

// dropUnsure removes what a failed write left in the file after all. (When the
// last sync of a commit fails, its data is there.) Raft believes that it isn't;
// entries of an old term after newer ones would make this node vote wrongly.
func (b *boltLog) dropUnsure() error {
	if !b.unsure {
		return nil
	}
	last := b.now().last
	err := b.guard.run(raftFile, 0, func() error {
		found, err := b.bolt.LastIndex()
		if err != nil || found <= last {
			return err
		}
		b.logger.Info("removing log entries of a write that had failed", "from", last+1, "to", found)
		return b.bolt.DeleteRange(last+1, found)
	})
	if err != nil {
		return b.guard.writeFailed(raftFile, err)
	}
	b.unsure = false
	return nil
}

func (b *boltLog) DeleteRange(first, last uint64) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	if err := b.dropUnsure(); err != nil { // ask would find more than there should be
		return err
	}
	before := b.now()
	after := before.without(first, last)
	if after.last < before.last {
		if err := b.witness.lowerEntry(after.floor()); err != nil {
			return b.guard.writeFailed(witnessFile, err)
		}
	}
	b.set(after) // before the entries go: see GetLog
	err := b.guard.run(raftFile, 0, func() (err error) {
		failed := b.bolt.DeleteRange(first, last)
		if failed != nil && !isFull(failed) {
			return failed
		}
		// Without room it may be in the file all the same, and then it is done.
		if after, err = b.ask(after); failed != nil && err != nil {
			return failed
		}
		return err
	})
	if err != nil {
		// The cut stays counted, since the entries may be gone for all we know.
		before.cuts = after.cuts
		b.set(before)
		return b.guard.writeFailed(raftFile, err)
	}
	b.set(after)
	b.raise(after.last)
	return nil
}

// raise tells the witness how far the log reaches.
func (b *boltLog) raise(last uint64) {
	if err := b.witness.raise(bounds{entry: last}); err != nil {
		// The entries are stored; what is weaker is the guard against losing them.
		b.logger.Warn("the witness of the log can't be kept up", "index", last, "error", err)
	}
}

// with is the extent after an entry is stored.
func (e logExtent) with(index uint64) logExtent {
	switch {
	case e.last == 0:
		e.first, e.from, e.last = index, index, index
	case index == e.last+1:
		e.last = index
	case index > e.last: // a hole, where a snapshot takes over
		e.from, e.last = index, index
	case index+1 == e.from:
		e.from = index
	}
	e.first = min(e.first, index)
	return e
}

// without is the extent after the entries from first to last are removed. What
// remains may end, or begin, in a hole: then its last, or first, says what it is
// at most, or at least, and ask corrects it.
func (e logExtent) without(first, last uint64) logExtent {
	e.cuts++
	switch {
	case e.last == 0 || first > e.last || last < e.first: // nothing of it is there
	case first <= e.first && last >= e.last:
		e.first, e.from, e.last = 0, 0, 0
	case last >= e.last: // if that leaves it below from, all that we were sure of is gone
		e.last = first - 1
	default: // a prefix, or, which Raft never does, a piece of the middle
		e.from = max(e.from, last+1)
		if first <= e.first {
			e.first = last + 1
		}
	}
	return e
}

// sure reports whether last is known to be there.
func (e logExtent) sure() bool { return e.from <= e.last }

// floor is the highest index that is known to be there.
func (e logExtent) floor() uint64 {
	if e.sure() {
		return e.last
	}
	return e.first
}

// ask returns the extent after a cut with the first and last entry that the file
// has. The error says that it has others than it should have.
func (b *boltLog) ask(e logExtent) (logExtent, error) {
	first, err := b.bolt.FirstIndex()
	if err != nil {
		return e, err
	}
	last, err := b.bolt.LastIndex()
	if err != nil {
		return e, err
	}
	if first < e.first || last > e.last || last < e.floor() || first > last {
		return e, fmt.Errorf("after a cut the log holds entries %d to %d instead of %d to %d", first, last, e.first, e.last)
	}
	if !e.sure() {
		e.from = last
	}
	e.first, e.last = first, last
	return e, nil
}
