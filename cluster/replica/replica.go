package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// MaxStampStep is the most by which a stamp may exceed the stamp before. For example, if a cluster without sessions
// logs no entry for an hour, its cluster time advances by 30 s. No lease is affected: while sessions exist, the leader
// logs an entry every 500 ms.
const MaxStampStep = 30 * time.Second

// Config says how much a replica keeps.
type Config struct {
	// HistoryEvents and HistoryBytes bound the events that are kept for readers that
	// follow them; 0: DefaultHistoryEvents, DefaultHistoryBytes.
	HistoryEvents, HistoryBytes int64
	// Logger gets a warning for each skipped entry, and an error when the replica halts; nil: no log.
	Logger hclog.Logger
}

// Replica is this node's copy of the state. Its FSM alone changes it. All methods
// are safe for concurrent use.
type Replica struct {
	log            hclog.Logger
	level          atomic.Uint32                   // the state's feature level
	snapshots      atomic.Uint64                   // how many snapshots the FSM has begun
	reached        atomic.Uint64                   // all entries up to this index are applied, and the sinks have returned
	pendingRestore atomic.Pointer[fsm.StateHeader] // of a state from a backup that is not in force yet, or nil
	lastRestore    atomic.Pointer[fsm.StateHeader] // of the last state from a backup that came into force, or nil
	prepared       atomic.Pointer[prepared]        // see Prepare; may be nil

	mu    sync.RWMutex // guards state and at
	state *fsm.Machine
	at    time.Time // when the last entry was applied, on the local clock

	arrivals wake.Watchers[uint64] // by index
	changes  wake.Watchers[string] // by semaphore
	lists    wake.Watchers[uint64] // by session: its wait list
	items    *ItemWatches
	holders  wake.Bell // rung at each change of the state's HoldersIndex
	rungAt   uint64    // the HoldersIndex at the last ring; used only by the apply goroutine
	history  *history
	hashes   Hashes
}

// New returns a replica with an empty state.
func New(config Config) *Replica {
	if config.HistoryEvents == 0 {
		config.HistoryEvents = DefaultHistoryEvents
	}
	if config.HistoryBytes == 0 {
		config.HistoryBytes = DefaultHistoryBytes
	}
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	r := &Replica{
		log: config.Logger, state: fsm.New(), at: time.Now(), items: NewItemWatches(),
		history: newHistory(config.HistoryEvents, config.HistoryBytes),
	}
	r.level.Store(r.state.FeatureLevel())
	return r
}

// Run wakes the readers of events until ctx ends. Without Run, the replica works, but it never closes the News of a
// page.
func (r *Replica) Run(ctx context.Context) { r.history.run(ctx) }

// View calls read with the state, under a lock that delays the next entry: read must return quickly, must not block,
// and must not change or keep the state.
func (r *Replica) View(read func(*fsm.Machine)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	read(r.state)
}

// Index returns the index up to which all entries are applied and all sinks have returned. Raft's own AppliedIndex also
// counts entries that Raft has only handed to the FSM.
func (r *Replica) Index() uint64 { return r.reached.Load() }

// Await blocks until Index has reached index. It fails with the cause of ctx if ctx ends first.
func (r *Replica) Await(ctx context.Context, index uint64) error {
	if r.reached.Load() >= index {
		return nil
	}
	arrived, stop := r.arrivals.Watch(index)
	defer stop()
	if r.reached.Load() >= index {
		return nil
	}
	return wake.Until(ctx, arrived)
}

// arrive raises Index, and wakes the callers of Await that wait for an index up to it.
func (r *Replica) arrive(index uint64) {
	r.reached.Store(index)
	r.arrivals.WakeIf(func(wanted uint64) bool { return wanted <= index })
}

// Watch returns a signal that is set when an entry that changes the semaphore has been applied, or a snapshot restored,
// until stop is called. A caller that calls Watch before it reads the state misses no change. It does not block.
func (r *Replica) Watch(semaphore string) (changed <-chan struct{}, stop func()) {
	return r.changes.Watch(semaphore)
}

// Listen is Watch for the wait list of a session. The signal is set when an entry of the list may be ready, when a call
// has taken an entry, and when the session has ended. If several calls want the same entry, the log decides which call
// gets it.
func (r *Replica) Listen(session uint64) (news <-chan struct{}, stop func()) {
	return r.lists.Watch(session)
}

// Listeners returns how many callers listen to the wait list of a session.
func (r *Replica) Listeners(session uint64) int { return r.lists.Count(session) }

// WatchItems returns a watch of one item or, with below, of all items whose names begin with name: see
// ItemWatches.Watch.
func (r *Replica) WatchItems(name string, below bool) *ItemWatch { return r.items.Watch(name, below) }

// ItemWatchers returns how many watches of items there are.
func (r *Replica) ItemWatchers() int { return r.items.Count() }

// HoldersChanged returns a channel that is closed when HoldersIndex of the state has changed, or a snapshot was restored.
// A caller that calls HoldersChanged before it reads the state misses no change. It does not block.
func (r *Replica) HoldersChanged() <-chan struct{} { return r.holders.Next() }

// wakeWatchers wakes the watchers of the wait lists, semaphores, items and holders that an entry has changed.
func (r *Replica) wakeWatchers(entry *fsm.Applied) {
	r.lists.Wake(func(yield func(session uint64) bool) {
		for i := range entry.Effects {
			e := &entry.Effects[i]
			if (e.Kind == fsm.EffectListReady || e.Kind == fsm.EffectSessionEnded) && !yield(e.Session) {
				return
			}
		}
		for i := range entry.Commands {
			c := &entry.Commands[i]
			if c.Result.Code == fsm.OK && (c.Op == fsm.OpListRemove || c.Op == fsm.OpListDeliver) && !yield(c.Result.Session) {
				return
			}
		}
	})
	r.changes.Wake(func(yield func(semaphore string) bool) {
		for i := range entry.Effects {
			if !yield(entry.Effects[i].Semaphore) {
				return
			}
		}
	})
	for i := range entry.Effects {
		if entry.Effects[i].Item != "" {
			r.items.Applied(entry.Effects)
			break
		}
	}
	if entry.Jump { // a jump changes all indexes
		r.items.Restored(r.itemIndex())
	}
	before := r.rungAt
	r.View(func(state *fsm.Machine) { r.rungAt = state.HoldersIndex() })
	if r.rungAt != before {
		r.holders.Ring()
	}
}

// itemIndex returns the number of the last change of any item.
func (r *Replica) itemIndex() (number uint64) {
	r.View(func(state *fsm.Machine) { number = state.ItemsIndex("") })
	return number
}

// EventsAfter returns a page of the events after an event, as far as this node has applied the log; the page's News
// reports later events. It fails with outcome.ErrHistoryGone if this node no longer has all events after that event; the
// page's Next is then the first event after which it has all. It does not block.
func (r *Replica) EventsAfter(after EventID) (EventPage, error) { return r.history.after(after) }

// EventsBefore returns the latest entries with events before an index, at most one page, in their order. The slice is
// empty if this node has not kept them, and belongs to the caller. It does not block.
func (r *Replica) EventsBefore(index uint64) []EventEntry { return r.history.before(index) }

// Hashes returns the state hashes at past indexes.
func (r *Replica) Hashes() *Hashes { return &r.hashes }

// Reading returns an index and the hash of the state at that index: the higher one of Index and the state's index. The
// state is ahead of Index while the sinks still work on an entry. Index is ahead of the state after a configuration,
// which does not change the state.
func (r *Replica) Reading() (index uint64, hash [16]byte) {
	r.View(func(state *fsm.Machine) {
		index, hash = max(r.reached.Load(), state.Index()), state.Hash()
	})
	return index, hash
}

// EstimateMS returns this node's estimate of cluster time: the time of the last entry, plus the local time since then.
// It adds at most MaxStampStep, as a leader does.
func (r *Replica) EstimateMS() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.state.NowMS() + min(time.Since(r.at), MaxStampStep).Milliseconds()
}

// NowMS returns the cluster time of the last entry, from which a new leader's clock starts. While a restored backup
// waits for the next entry, the time of the backup counts if it is later.
func (r *Replica) NowMS() (ms int64) {
	r.View(func(state *fsm.Machine) { ms = state.NowMS() })
	if next := r.pendingRestore.Load(); next != nil {
		ms = max(ms, next.NowMS())
	}
	return ms
}

// RestorePending reports whether this node has a restored state that takes effect only with the next entry.
func (r *Replica) RestorePending() bool { return r.pendingRestore.Load() != nil }

// RestoreInForce reports whether the last state from a backup that came into force here has this index and this hash.
func (r *Replica) RestoreInForce(index uint64, hash [16]byte) bool {
	last := r.lastRestore.Load()
	return last != nil && last.Index() == index && last.Hash() == hash
}

// MoreDue reports whether the last entry has left work for the next entry.
func (r *Replica) MoreDue() (more bool) {
	r.View(func(state *fsm.Machine) { more = state.MoreDue() })
	return more
}

// NextDeadline returns the earliest deadline of a session, if there is one.
func (r *Replica) NextDeadline() (ms int64, ok bool) {
	r.View(func(state *fsm.Machine) { ms, ok = state.NextDeadline() })
	return ms, ok
}

// Level returns the feature level in force.
func (r *Replica) Level() uint32 { return r.level.Load() }

// Admits fails with outcome.ErrBelowLevel if a command needs a higher feature level than the cluster has, because a
// member that does not know the command could not apply it.
func (r *Replica) Admits(command []byte) error {
	if fsm.CommandLevel(command) > r.level.Load() {
		return outcome.ErrBelowLevel
	}
	return nil
}

// JoinsQueue reports whether a command would only join a queue in which other requests wait for a semaphore, so that
// its result is the same in a later entry.
func (r *Replica) JoinsQueue(command []byte) (joins bool) {
	if want, session := fsm.MayWait(command); want.Semaphore != "" {
		r.View(func(m *fsm.Machine) { joins = m.JoinsQueue(want, session) })
	}
	return joins
}

// Snapshots returns how many snapshots the FSM has begun.
func (r *Replica) Snapshots() uint64 { return r.snapshots.Load() }

// Sink follows the log as it is applied to the replica. Raft's apply goroutine calls both methods: they must be quick
// and must not block. Replica.Index reaches the index of the entry only after all sinks have returned.
type Sink interface {
	// Applied is called after the state has applied an entry. The entry never changes, so the sink may keep it.
	Applied(entry *fsm.Applied)
	// SnapshotRestored is called after a snapshot has replaced the state by the state at index, which may be lower than
	// before. The sink may read the state until SnapshotRestored returns.
	SnapshotRestored(state *fsm.Machine, index uint64)
}

// ClusterSink follows the terms and the configurations in the log. The rules of [Sink] hold for it, too.
type ClusterSink interface {
	// TermBegan is called after the first entry of a term, which may give the cluster an id.
	TermBegan(entry *fsm.Applied)
	// Configured is called with the entry of a committed configuration.
	Configured(entry *raft.Log)
	// SnapshotRestored is as in Sink.
	SnapshotRestored(state *fsm.Machine, index uint64)
}

// FSMConfig names the parts that follow the log. Raft's apply goroutine calls all functions.
type FSMConfig struct {
	// Cluster is called before the other sinks; it may be nil.
	Cluster ClusterSink
	// Sinks are called in this order; package cluster lists them, requests.Registry among them. The replica wakes its
	// own watchers after them, so that a goroutine that wakes finds the work of the sinks done.
	Sinks []Sink
	// Fatal is called once, when the replica halts, with the reason.
	Fatal func(error)
	// SnapshotDue is called when a snapshot would save a restart more work than the snapshot costs.
	SnapshotDue func()
}

// FSM is what Raft gets: it applies the log to the replica and calls the sinks.
//
// An entry in Raft's log is the term of the leader that proposed it, as a varint, and then the bytes of
// fsm.EncodeEntry. Every node skips an entry that Raft logged in another term. For example, a node may lose the
// leadership and win it again just before its old proposer calls Raft. Raft would then log the old term's command in
// the new term, after other nodes have concluded that the old term adds no more entries.
type FSM struct {
	replica *Replica
	config  FSMConfig
	meter   snapshotMeter
	halted  error // not nil: the replica has stopped for good
	unread  error // why the last snapshot from Raft could not be read

	pendingState *restoredState // a restored state that the next entry brings into force, or nil
}

var _ raft.BatchingFSM = (*FSM)(nil)

// FSM returns the FSM of the replica, for Raft. There must not be a second one.
func (r *Replica) FSM(config FSMConfig) *FSM {
	return &FSM{replica: r, config: config, meter: snapshotMeter{base: snapshotCost}}
}

// Unread returns why the FSM could not read the last snapshot from Raft, or nil. Raft itself does not report the
// reason.
func (f *FSM) Unread() error { return f.unread }

// EncodeTermEntry makes an entry for Raft's log.
func EncodeTermEntry(term uint64, stampMS int64, commands [][]byte) []byte {
	entry := fsm.EncodeEntry(stampMS, commands)
	data := make([]byte, 0, binary.MaxVarintLen64+len(entry))
	data = binary.AppendUvarint(data, term)
	return append(data, entry...)
}

// Apply is ApplyBatch for one entry. RecoverCluster calls only Apply.
func (f *FSM) Apply(entry *raft.Log) any {
	return f.ApplyBatch([]*raft.Log{entry})[0]
}

// ApplyBatch implements [raft.BatchingFSM]. The response to an entry is nil, or the
// error that says why the entry was not applied.
func (f *FSM) ApplyBatch(entries []*raft.Log) []any {
	responses := make([]any, len(entries))
	for i, entry := range entries {
		if err := f.applyEntry(entry); err != nil {
			responses[i] = err
		}
	}
	return responses
}

// applyEntry applies a command, or passes a configuration to the cluster sink. Index rises over a skipped entry, too.
func (f *FSM) applyEntry(entry *raft.Log) error {
	if f.halted != nil {
		return f.halted
	}
	if f.pendingState != nil {
		header := f.pendingState.state.StateHeader()
		f.install(*f.pendingState)
		f.replica.lastRestore.Store(&header)
		f.meter.ask()
	}
	var skipped error
	switch entry.Type {
	case raft.LogCommand:
		applied, hash, err := f.applyCommand(entry)
		switch {
		case errors.Is(err, outcome.ErrOtherTerm):
			f.replica.log.Warn("an entry of another term was skipped", "index", entry.Index)
			skipped = err
		case err != nil:
			f.halt(err)
			return f.halted
		default:
			f.replica.hashes.note(entry.Index, hash)
			f.notifySinks(applied)
		}
		if f.meter.count(len(entry.Data)) {
			f.config.SnapshotDue()
		}
	case raft.LogConfiguration:
		if f.config.Cluster != nil {
			f.config.Cluster.Configured(entry)
		}
	}
	f.replica.arrive(entry.Index)
	return skipped
}

// notifySinks calls the sinks with an entry, then wakes the replica's watchers and adds the events to the history.
func (f *FSM) notifySinks(entry *fsm.Applied) {
	if entry.Term != 0 && f.config.Cluster != nil {
		f.config.Cluster.TermBegan(entry)
	}
	for _, s := range f.config.Sinks {
		s.Applied(entry)
	}
	f.replica.wakeWatchers(entry)
	f.replica.history.applied(entry)
}

// applyCommand applies an entry to the state, under the lock. It returns the hash of the state after the entry.
func (f *FSM) applyCommand(entry *raft.Log) (applied *fsm.Applied, hash [16]byte, err error) {
	term, size := binary.Uvarint(entry.Data)
	if size <= 0 {
		return nil, hash, fmt.Errorf("the entry at index %d has no term", entry.Index)
	}
	if term != entry.Term {
		return nil, hash, outcome.ErrOtherTerm
	}
	r := f.replica
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("%v", broken)
		}
	}()
	applied = r.state.Apply(entry.Index, entry.Data[size:])
	r.at = time.Now()
	r.level.Store(r.state.FeatureLevel())
	return applied, r.state.Hash(), nil
}

// halt stops the replica for good: its state may be wrong, so Index rises no more, and Snapshot fails.
func (f *FSM) halt(err error) {
	f.halted = fmt.Errorf("%w: %w", outcome.ErrHalted, err)
	f.replica.log.Error("the state machine has halted", "error", err)
	f.config.Fatal(f.halted)
}

const (
	// entryCost is added to the bytes of each entry. For example, a tick of 9 bytes takes about 170 bytes on the disk.
	// A restart reads it twice and applies it, which takes as long as 400 bytes of a full entry.
	entryCost = 512
	// snapshotCost is the cost of entries after which a snapshot is due while the state is small. It bounds the time
	// that a restart spends on the log to about a second.
	snapshotCost = 32 << 20
	// snapshotShare divides the size of the last snapshot; the quotient is added to snapshotCost. Otherwise a large
	// state, which takes long to write, would be written again after few entries.
	snapshotShare = 2
)

// snapshotMeter counts the entries that a restart would have to read and apply, and reports when a snapshot would save
// more than it costs. size is safe for concurrent use; only the apply goroutine uses the other fields.
type snapshotMeter struct {
	base int64        // snapshotCost, except in tests
	cost int64        // what a restart would spend on the entries since the last snapshot, in bytes
	size atomic.Int64 // bytes of the last snapshot that was written or restored
}

// ask makes a snapshot due with the next entry. It is needed when the newest snapshot is a backup's state without a
// leader: a restarted node would not show that state before another entry follows.
func (s *snapshotMeter) ask() { s.cost = math.MaxInt64 / 2 }

// count adds the cost of an entry, and reports whether a snapshot is due. If it is, count starts again at 0.
func (s *snapshotMeter) count(bytes int) (due bool) {
	s.cost += int64(bytes) + entryCost
	if s.cost < s.base+s.size.Load()/snapshotShare {
		return false
	}
	s.cost = 0
	return true
}
