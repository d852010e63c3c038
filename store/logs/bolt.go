package logs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
)

// boltLog is the log in raft-boltdb, behind the guard. It knows which entries
// are there without asking the file, so that an entry that has vanished from the
// file under a running node is distinguished from a new file.
type boltLog struct {
	bolt    raft.LogStore
	guard   *damage.Guard
	witness Witness
	logger  hclog.Logger

	writing sync.Mutex // held during StoreLogs and DeleteRange, which bbolt puts in a row anyway
	unsure  bool       // a write failed, and may be in the file nevertheless; under writing

	mu     sync.Mutex
	extent Extent
}

// Extent is which entries a log has.
type Extent struct {
	First uint64 // the lowest index; 0 for an empty log
	From  uint64 // each entry from here to Last is there; below may be a hole, where a snapshot took over
	Last  uint64 // the highest index; 0 for an empty log
	cuts  uint64 // how often entries were removed
}

// holds reports whether the entry must be there.
func (e Extent) holds(index uint64) bool { return index != 0 && e.From <= index && index <= e.Last }

var _ raft.LogStore = (*boltLog)(nil)

func (b *boltLog) now() Extent {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.extent
}

func (b *boltLog) set(e Extent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extent = e
}

func (b *boltLog) FirstIndex() (uint64, error) { return b.now().First, b.guard.Refusal() }

func (b *boltLog) LastIndex() (uint64, error) { return b.now().Last, b.guard.Refusal() }

func (b *boltLog) GetLog(index uint64, log *raft.Log) error {
	before := b.now()
	err := b.guard.Run(FileName, index, func() error { return b.bolt.GetLog(index, log) })
	switch {
	case err == nil, errors.Is(err, damage.ErrDamaged), errors.Is(err, damage.ErrClosed):
		return err
	case !errors.Is(err, raft.ErrLogNotFound):
		return b.guard.Damaged(FileName, index, "the entry can't be decoded", err)
	}
	// Another goroutine may cut entries off during this call, and store others with the same
	// index. So only without a cut is a missing entry a lost entry.
	if after := b.now(); before.cuts == after.cuts && before.holds(index) {
		return b.guard.Damaged(FileName, index, "the entry was stored, and is missing", nil)
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
	err := b.guard.Run(FileName, 0, func() error { return b.bolt.StoreLogs(logs) })
	if err != nil {
		b.unsure = true
		return b.guard.WriteFailed(FileName, err)
	}
	e := b.now()
	for _, log := range logs {
		e = e.with(log.Index)
	}
	b.set(e)
	b.witness.RaiseEntry(e.Last)
	return nil
}

// dropUnsure removes what a failed write left in the file. (When the last sync of a commit
// fails, its data is there.) Raft believes that these entries are not stored; with entries of
// an old term after newer entries this node would vote wrongly.
func (b *boltLog) dropUnsure() error {
	if !b.unsure {
		return nil
	}
	last := b.now().Last
	err := b.guard.Run(FileName, 0, func() error {
		found, err := b.bolt.LastIndex()
		if err != nil || found <= last {
			return err
		}
		b.logger.Info("removing log entries of a write that had failed", "from", last+1, "to", found)
		return b.bolt.DeleteRange(last+1, found)
	})
	if err != nil {
		return b.guard.WriteFailed(FileName, err)
	}
	b.unsure = false
	return nil
}

// settle makes sure that the file has no part of a failed write.
func (b *boltLog) settle() error {
	b.writing.Lock()
	defer b.writing.Unlock()
	return b.dropUnsure()
}

func (b *boltLog) DeleteRange(first, last uint64) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	if err := b.dropUnsure(); err != nil { // ask would find more than there should be
		return err
	}
	before := b.now()
	after := before.without(first, last)
	if after.Last < before.Last {
		if err := b.witness.LowerEntry(after.floor()); err != nil {
			return err
		}
	}
	b.set(after) // before the entries go: see GetLog
	err := b.guard.Run(FileName, 0, func() (err error) {
		failed := b.bolt.DeleteRange(first, last)
		if failed != nil && !damage.IsFull(failed) {
			return failed
		}
		// If there was no room, the cut may be in the file nevertheless, and is done.
		if after, err = b.ask(after); failed != nil && err != nil {
			return failed
		}
		return err
	})
	if err != nil {
		// The cut stays counted, since the entries may be gone for all we know.
		before.cuts = after.cuts
		b.set(before)
		return b.guard.WriteFailed(FileName, err)
	}
	b.set(after)
	b.witness.RaiseEntry(after.Last)
	return nil
}

// with is the extent after an entry is stored.
func (e Extent) with(index uint64) Extent {
	switch {
	case e.Last == 0:
		e.First, e.From, e.Last = index, index, index
	case index == e.Last+1:
		e.Last = index
	case index > e.Last: // a hole, where a snapshot takes over
		e.From, e.Last = index, index
	case index+1 == e.From:
		e.From = index
	}
	e.First = min(e.First, index)
	return e
}

// without is the extent after the entries from first to last are removed. If what remains ends in a hole, Last is an
// upper bound; if it begins in a hole, First is a lower bound. The method ask corrects both.
func (e Extent) without(first, last uint64) Extent {
	e.cuts++
	switch {
	case e.Last == 0 || first > e.Last || last < e.First: // no entry of it is there
	case first <= e.First && last >= e.Last:
		e.First, e.From, e.Last = 0, 0, 0
	case last >= e.Last: // if Last is less than From now, no entry is sure any more
		e.Last = first - 1
	default: // a prefix, or, which Raft never does, a piece of the middle
		e.From = max(e.From, last+1)
		if first <= e.First {
			e.First = last + 1
		}
	}
	return e
}

// sure reports whether last is known to be there.
func (e Extent) sure() bool { return e.From <= e.Last }

// floor is the highest index that is known to be there.
func (e Extent) floor() uint64 {
	if e.sure() {
		return e.Last
	}
	return e.First
}

// ask returns the extent after a cut, with the first and last entry that the file has. It
// returns an error if the file has entries that it should not have, or lacks entries.
func (b *boltLog) ask(e Extent) (Extent, error) {
	first, err := b.bolt.FirstIndex()
	if err != nil {
		return e, err
	}
	last, err := b.bolt.LastIndex()
	if err != nil {
		return e, err
	}
	if first < e.First || last > e.Last || last < e.floor() || first > last {
		return e, fmt.Errorf("after a cut the log holds entries %d to %d instead of %d to %d", first, last, e.First, e.Last)
	}
	if !e.sure() {
		e.From = last
	}
	e.First, e.Last = first, last
	return e, nil
}
