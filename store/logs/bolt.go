package logs

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
)

// boltLog is the log in raft-boltdb. The guard runs its calls. boltLog remembers which entries the file must have, so
// that it notices when an entry disappears from the file while the node runs.
type boltLog struct {
	bolt    raft.LogStore
	guard   *damage.Guard
	witness Witness
	logger  hclog.Logger

	writing sync.Mutex // held during StoreLogs and DeleteRange; bbolt would run them one by one anyway
	unsure  bool       // a write failed, but may be in the file; guarded by writing

	mu     sync.Mutex
	extent Extent
}

// Extent says which entries a log has.
type Extent struct {
	First uint64 // the lowest index; 0 for an empty log
	From  uint64 // all entries from From to Last are there; before From may be a hole that a snapshot covers
	Last  uint64 // the highest index; 0 for an empty log
	cuts  uint64 // number of removals so far
}

// holds reports whether the log must have the entry.
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
	// During this call another goroutine may have removed entries, and stored others at the same index. So the entry
	// counts as lost only if no entries were removed meanwhile.
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

// dropUnsure removes entries that a failed write may have left in the file, for example if only the last sync of the
// commit failed. Raft believes that these entries are not stored. If they stayed, newer entries could be followed by
// entries of an older term, and this node would vote wrongly.
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

// settle removes entries that a failed write may have left.
func (b *boltLog) settle() error {
	b.writing.Lock()
	defer b.writing.Unlock()
	return b.dropUnsure()
}

func (b *boltLog) DeleteRange(first, last uint64) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	if err := b.dropUnsure(); err != nil { // first, since ask fails if the file has more entries than expected
		return err
	}
	before := b.now()
	after := before.without(first, last)
	if after.Last < before.Last {
		if err := b.witness.LowerEntry(after.floor()); err != nil {
			return err
		}
	}
	b.set(after) // before the entries are removed: see GetLog
	err := b.guard.Run(FileName, 0, func() (err error) {
		failed := b.bolt.DeleteRange(first, last)
		if failed != nil && !damage.IsFull(failed) {
			return failed
		}
		// The commit may have removed the entries although it failed because the disk is full. Then the removal has
		// succeeded.
		if after, err = b.ask(after); failed != nil && err != nil {
			return failed
		}
		return err
	})
	if err != nil {
		// Count the removal, since the entries may be gone.
		before.cuts = after.cuts
		b.set(before)
		return b.guard.WriteFailed(FileName, err)
	}
	b.set(after)
	b.witness.RaiseEntry(after.Last)
	return nil
}

// with returns the extent after an entry is stored.
func (e Extent) with(index uint64) Extent {
	switch {
	case e.Last == 0:
		e.First, e.From, e.Last = index, index, index
	case index == e.Last+1:
		e.Last = index
	case index > e.Last: // the entries in between are missing, and a snapshot covers them
		e.From, e.Last = index, index
	case index+1 == e.From:
		e.From = index
	}
	e.First = min(e.First, index)
	return e
}

// without returns the extent after the entries from first to last are removed. Next to a hole the result is not exact:
// Last may be too high, or First too low. The method ask corrects it.
func (e Extent) without(first, last uint64) Extent {
	e.cuts++
	switch {
	case e.Last == 0 || first > e.Last || last < e.First: // the log has no entry in the range
	case first <= e.First && last >= e.Last:
		e.First, e.From, e.Last = 0, 0, 0
	case last >= e.Last: // if Last is now less than From, no entry is known to be there
		e.Last = first - 1
	default: // a prefix, or a range in the middle, which Raft never removes
		e.From = max(e.From, last+1)
		if first <= e.First {
			e.First = last + 1
		}
	}
	return e
}

// sure reports whether the entry Last is known to be there.
func (e Extent) sure() bool { return e.From <= e.Last }

// floor returns the highest index that is known to be there.
func (e Extent) floor() uint64 {
	if e.sure() {
		return e.Last
	}
	return e.First
}

// ask returns the extent after a removal, with the first and last entry that are in the file. It fails if the file has
// too many or too few entries.
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
