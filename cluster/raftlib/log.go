package raftlib

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// maxQueued bounds the bytes of entries that wait for the leader's disk; a single batch may exceed it. A leader has
	// two entries of up to 256 KiB in flight.
	maxQueued = 4 << 20
	// fullAgain is the pause after a write that failed because the disk was full.
	fullAgain = 50 * time.Millisecond
	// closeDrain bounds how long Close waits for the disk.
	closeDrain = 200 * time.Millisecond
)

// ErrNotStored reports entries that this node's disk does not have yet.
var ErrNotStored = errors.New("log entries are not on the disk yet")

// Storage is the store below a [Log]. All methods are safe for concurrent use.
type Storage interface {
	// Logs returns the log. Its StoreLogs returns when the entries are durable.
	Logs() raft.LogStore
	// Seal returns the entries as Logs would store them, or the error with which Logs would refuse them. It does not
	// block.
	Seal(entries []*raft.Log) ([]*raft.Log, error)
	// Full reports whether an error means that the disk is full, so that the same write
	// may succeed later.
	Full(err error) bool
}

// LogSource is the state of Raft that a [Log] depends on. No method blocks.
type LogSource interface {
	State() raft.RaftState
	CommitIndex() uint64
	GetConfiguration() raft.ConfigurationFuture
}

// LogConfig is what a [Log] needs. All fields are required.
type LogConfig struct {
	Storage Storage
	Self    raft.ServerID
	// Fatal ends the process.
	Fatal func(error)
}

// Log is Raft's log. On a leader, StoreLogs hands entries to a writer and returns at once, so that the disks of the
// leader and of the followers work at the same time. Raft then counts the leader as having stored each entry. The
// transport makes this true: it returns a follower's success only after [Log.WaitDurable] has returned. If every
// majority needs another voter's success, no entry is committed before the leader's disk has it.
//
// StoreLogs waits for the disk where this does not hold: on a node that does not lead, in a configuration without
// another voter, and for configurations themselves. On a node that no longer leads, every call about a queued entry
// waits, so that no message reports an entry as stored before it is. A failed write ends the process, because Raft
// relies on it. But while the disk is full, the log repeats the write and refuses new entries.
//
// See ADR 15. All methods are safe for concurrent use; Raft calls StoreLogs from one goroutine.
type Log struct {
	config  LogConfig
	store   raft.LogStore
	raft    atomic.Pointer[LogSource] // nil before Attach
	work    context.Context           // ends with Close
	end     context.CancelFunc
	news    wake.Signal // entries were queued
	changed wake.Bell   // the queue got shorter, or failed changed

	mu     sync.Mutex
	queue  []queuedEntry // by index; the entries of a pending write come first
	bytes  int           // of the queue
	failed error         // the error of the last write; nil if it succeeded
}

// queuedEntry is an entry that waits for the disk.
type queuedEntry struct {
	*raft.Log
	since time.Time
}

var _ raft.LogStore = (*Log)(nil)

// NewLog returns a log whose StoreLogs waits for the disk until Attach is called. The caller
// closes it once Raft sends no more messages.
func NewLog(config LogConfig) *Log {
	l := &Log{config: config, store: config.Storage.Logs(), news: wake.NewSignal()}
	l.work, l.end = context.WithCancel(context.Background())
	go l.run()
	return l
}

// Attach sets the Raft that uses the log. From then on, StoreLogs does not wait for the disk while that Raft leads.
func (l *Log) Attach(r LogSource) { l.raft.Store(&r) }

// leads reports whether this node leads. It is exact in Raft's main loop, since only the main loop changes the state of
// the node.
func (l *Log) leads() bool {
	r := l.raft.Load()
	return r != nil && (*r).State() == raft.Leader
}

// parallel reports whether entries may wait in the queue. A configuration may not, because it decides which voters
// commit it and the entries before it.
func (l *Log) parallel(entries []*raft.Log) bool {
	if !l.leads() || slices.ContainsFunc(entries, changesVoters) {
		return false
	}
	for _, server := range (*l.raft.Load()).GetConfiguration().Configuration().Servers {
		if server.Suffrage == raft.Voter && server.ID != l.config.Self {
			return true
		}
	}
	return false
}

// changesVoters reports whether an entry may be a configuration.
func changesVoters(entry *raft.Log) bool {
	return entry.Type != raft.LogCommand && entry.Type != raft.LogNoop && entry.Type != raft.LogBarrier
}

// StoreLog implements [raft.LogStore].
func (l *Log) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores entries, or queues them on a leader that writes in parallel. It blocks
// while the queue is full.
func (l *Log) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	if l.parallel(entries) {
		return l.enqueue(entries)
	}
	if err := l.drain(); err != nil {
		return err
	}
	return l.store.StoreLogs(entries)
}

// enqueue hands entries to the writer.
func (l *Log) enqueue(entries []*raft.Log) error {
	sealed, err := l.config.Storage.Seal(entries)
	if err != nil {
		return err
	}
	size := 0
	for _, entry := range sealed {
		size += entrySize(entry)
	}
	err = l.waitUntil(l.work, func() bool {
		if l.failed != nil || l.bytes > 0 && l.bytes+size > maxQueued {
			return false
		}
		now := time.Now()
		for _, entry := range sealed {
			l.queue = append(l.queue, queuedEntry{entry, now})
		}
		l.bytes += size
		return true
	})
	if err == nil {
		l.news.Set()
	}
	return err
}

// waitUntil blocks until condition returns true. It calls condition under mu. It fails if the last write has failed,
// and when ctx ends.
func (l *Log) waitUntil(ctx context.Context, condition func() bool) error {
	check := func() (bool, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		return condition(), l.failed
	}
	var changed <-chan struct{}
	for {
		if ok, err := check(); ok {
			return nil
		} else if err != nil {
			return err
		}
		if changed == nil {
			changed = l.changed.Next() // before the next check, so that no change is missed
			continue
		}
		if err := wake.Until(ctx, changed); err != nil {
			return err
		}
		changed = nil
	}
}

// hasQueuedUpTo reports whether an entry at or below index is in the queue. The caller holds mu.
func (l *Log) hasQueuedUpTo(index uint64) bool { return len(l.queue) > 0 && l.queue[0].Index <= index }

// drain blocks until the queue is on the disk.
func (l *Log) drain() error {
	return l.waitUntil(l.work, func() bool { return len(l.queue) == 0 })
}

// WaitDurable blocks until this node's disk has every entry up to index that StoreLogs has accepted. It fails after
// limit, when the disk is full, and after Close.
func (l *Log) WaitDurable(index uint64, limit time.Duration) error {
	l.mu.Lock()
	queued := l.hasQueuedUpTo(index)
	l.mu.Unlock()
	if !queued {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(l.work, limit, ErrNotStored)
	defer cancel()
	return l.waitUntil(ctx, func() bool { return !l.hasQueuedUpTo(index) })
}

// Failed returns the error of the last write, or nil if it succeeded. It never waits for the disk.
func (l *Log) Failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// WaitingFor returns how long the oldest entry of the queue has waited for the disk; 0
// when the queue is empty, or when the disk is full. It never waits for the disk.
func (l *Log) WaitingFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 || l.failed != nil {
		return 0
	}
	return time.Since(l.queue[0].since)
}

// run writes the queue whenever it has entries, until Close or a failed write.
func (l *Log) run() {
	for wake.Until(l.work, l.news) == nil {
		for more := true; more; {
			var err error
			if more, err = l.writeAll(); err != nil {
				l.config.Fatal(err)
				return
			}
		}
	}
}

// writeAll writes the whole queue at once, and reports whether there may be more to
// write. Its error is final.
func (l *Log) writeAll() (more bool, err error) {
	l.mu.Lock()
	batch := make([]*raft.Log, len(l.queue))
	for i, entry := range l.queue {
		batch[i] = entry.Log
	}
	l.mu.Unlock()
	if len(batch) == 0 || l.work.Err() != nil {
		return false, nil
	}
	err = l.store.StoreLogs(batch)
	l.mu.Lock()
	l.failed = err
	if err == nil {
		for _, entry := range batch {
			l.bytes -= entrySize(entry)
		}
		l.queue = slices.Delete(l.queue, 0, len(batch))
	}
	l.mu.Unlock()
	l.changed.Ring()
	switch {
	case err == nil:
		return true, nil
	case l.config.Storage.Full(err):
		return wake.Pause(l.work, fullAgain) == nil, nil
	}
	return false, err
}

// GetLog reads an entry. A leader reads from the queue at once. On another node a read waits until the entry is on the
// disk, because Raft compares the entry with a leader's entry and reports equal entries as stored. While the disk is
// full, a read of an uncommitted entry fails, so that Raft continues with votes and heartbeats. A read of a committed
// entry never fails, because Raft would panic. After Close no read waits, since this node sends no more messages.
func (l *Log) GetLog(index uint64, log *raft.Log) error {
	entry, queued := l.queued(index)
	for queued && !l.leads() && l.work.Err() == nil {
		if err := l.waitUntil(l.work, func() bool { return !l.hasQueuedUpTo(index) }); err != nil && l.work.Err() == nil {
			if index > (*l.raft.Load()).CommitIndex() {
				return err
			}
			_ = wake.Pause(l.work, fullAgain)
		}
		entry, queued = l.queued(index)
	}
	if queued {
		*log = *entry
		return nil
	}
	return l.store.GetLog(index, log)
}

// queued returns an entry of the queue.
func (l *Log) queued(index uint64) (entry *raft.Log, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.hasQueuedUpTo(index) {
		return nil, false
	}
	at, found := slices.BinarySearchFunc(l.queue, index, func(e queuedEntry, index uint64) int { return cmp.Compare(e.Index, index) })
	if !found {
		return nil, false
	}
	return l.queue[at].Log, true
}

// FirstIndex implements [raft.LogStore].
func (l *Log) FirstIndex() (uint64, error) {
	first, _ := l.queuedRange()
	stored, err := l.store.FirstIndex()
	if stored == 0 && err == nil {
		return first, nil
	}
	return stored, err
}

// LastIndex implements [raft.LogStore].
func (l *Log) LastIndex() (uint64, error) {
	_, last := l.queuedRange() // read first, because entries move from the queue to the disk
	stored, err := l.store.LastIndex()
	return max(last, stored), err
}

// queuedRange returns the first and the last index of the queue, or 0.
func (l *Log) queuedRange() (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return 0, 0
	}
	return l.queue[0].Index, l.queue[len(l.queue)-1].Index
}

// DeleteRange implements [raft.LogStore].
func (l *Log) DeleteRange(first, last uint64) error {
	if err := l.waitUntil(l.work, func() bool { return !l.hasQueuedUpTo(last) }); err != nil {
		return err
	}
	return l.store.DeleteRange(first, last)
}

// Close stops the writer, once the queue is on the disk or after closeDrain, and ends all waits. It fails with
// ErrNotStored if entries are left in the queue; no message has reported these entries as stored.
func (l *Log) Close() error {
	defer l.end()
	ctx, cancel := context.WithTimeoutCause(l.work, closeDrain, ErrNotStored)
	defer cancel()
	return l.waitUntil(ctx, func() bool { return len(l.queue) == 0 })
}

// Snapshots returns a store that begins a snapshot only when the log up to its index is on the disk, because Raft does
// not store entries that a snapshot covers.
func (l *Log) Snapshots(below raft.SnapshotStore) raft.SnapshotStore {
	return drainedSnapshots{below, l}
}

type drainedSnapshots struct {
	raft.SnapshotStore
	log *Log
}

// Create implements [raft.SnapshotStore].
func (s drainedSnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	if err := s.log.waitUntil(s.log.work, func() bool { return !s.log.hasQueuedUpTo(index) }); err != nil {
		return nil, err
	}
	return s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
}
