package store

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// watchedLog times the writes to the log beneath it, so that a leader whose disk
// hangs can be found out (raft#503: the library itself never does: its
// heartbeats go on). It also says which errors mean a full disk.
//
// Faults that tests inject (Options.WrapLog) are beneath it, so that it sees a
// write that hangs there, or fails for want of room, like a real one.
type watchedLog struct {
	raft.LogStore
	file string // for messages

	mu     sync.Mutex // never held during a write
	begun  map[int]time.Time
	writes int
	last   error // of the latest StoreLogs
}

func newWatchedLog(below raft.LogStore, file string) *watchedLog {
	return &watchedLog{LogStore: below, file: file, begun: map[int]time.Time{}}
}

// stuckFor returns how long the oldest write under way has taken so far; 0 when
// there is none.
func (w *watchedLog) stuckFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var longest time.Duration
	for _, at := range w.begun {
		longest = max(longest, time.Since(at))
	}
	return longest
}

// timed runs a write under the watch.
func (w *watchedLog) timed(write func() error) error {
	w.mu.Lock()
	w.writes++
	id := w.writes
	w.begun[id] = time.Now()
	w.mu.Unlock()

	defer func() {
		w.mu.Lock()
		delete(w.begun, id)
		w.mu.Unlock()
	}()
	return asFull(w.file, write())
}

func (w *watchedLog) StoreLog(log *raft.Log) error { return w.StoreLogs([]*raft.Log{log}) }

func (w *watchedLog) StoreLogs(logs []*raft.Log) error {
	err := w.timed(func() error { return w.LogStore.StoreLogs(logs) })
	w.mu.Lock()
	w.last = err
	w.mu.Unlock()
	return err
}

func (w *watchedLog) DeleteRange(first, last uint64) error {
	return w.timed(func() error { return w.LogStore.DeleteRange(first, last) })
}

// storeError returns the error of the latest StoreLogs, or the given one if that
// had none.
func (w *watchedLog) storeError(otherwise error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil {
		return w.last
	}
	return otherwise
}
