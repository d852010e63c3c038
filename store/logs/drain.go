package logs

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/damage"
)

const (
	// drainPortion is how many bytes of entries go to bbolt in one transaction. It is small, since appends sync on the
	// same disk meanwhile.
	drainPortion = 1 << 20
	// drainIdle is the time without a change after which all changes go to bbolt.
	drainIdle = time.Second
)

// drain copies all present changes to bbolt. After an error they stay in the journal and in memory. Some may be in
// bbolt too, which is harmless: to apply a change again makes no difference.
func (l *journaledLog) drain() error { return l.drainTo(math.MaxUint64) }

// drainTo is drain, but returns at once if bbolt has the changes up to sequence, because another goroutine has copied
// them while this goroutine waited for the lock.
func (l *journaledLog) drainTo(sequence uint64) error {
	l.draining.Lock()
	defer l.draining.Unlock()
	if l.copied != 0 {
		if err := l.finish(l.copied); err != nil {
			return err
		}
	}
	l.mu.Lock()
	reached, cuts, tail := l.reached, slices.Clone(l.cuts), slices.Clone(l.tail)
	done := l.drained >= min(sequence, reached)
	l.mu.Unlock()
	if done {
		return l.guard.Refusal()
	}
	if err := l.copyToBolt(cuts, tail); err != nil {
		return err
	}
	l.copied = reached
	return l.finish(reached)
}

// copyToBolt applies changes to bbolt. The caller holds draining.
func (l *journaledLog) copyToBolt(cuts []cut, tail []held) error {
	// A failed write may have left entries that were removed since. No later write would replace them.
	if err := l.bolt.settle(); err != nil {
		return err
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
	return nil
}

// finish stores that bbolt has the changes up to a sequence, and removes them from memory. If it fails, the sequence
// may be stored nevertheless. Then no entry may be removed from bbolt before finish succeeds, since the journal would
// not restore the entry. The caller holds draining.
func (l *journaledLog) finish(reached uint64) error {
	if err := l.sequel.setDrained(reached); err != nil {
		return err
	}
	l.copied = 0
	l.journal.Drained(reached)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drained = reached
	l.tail = slices.DeleteFunc(l.tail, func(h held) bool { return h.sequence <= reached })
	l.cuts = slices.DeleteFunc(l.cuts, func(c cut) bool { return c.sequence <= reached })
	return nil
}

// run drains when a half is full, and when there was no change for a while. After a failure, for example on a full
// disk, the next change starts another attempt.
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
				if _, idle = l.progress(); idle { // else a change came just before asleep was set, and did not wake this goroutine
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

// progress returns the sequence of the last change, and whether bbolt has all changes.
func (l *journaledLog) progress() (reached uint64, drained bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reached, l.reached == l.drained
}

// try drains and returns the sequence of the last change, or 0 after an error.
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
