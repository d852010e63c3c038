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

// MaxStampStep is how far a stamp may be ahead of the stamp before. Time that an idle
// cluster sleeps beyond that never happened in cluster time: sessions opened after
// the sleep are not concerned, and while sessions live the leader logs a tick
// every 500 ms.
const MaxStampStep = 30 * time.Second

// Config says how much a replica keeps.
type Config struct {
	// HistoryEvents and HistoryBytes bound the events that are kept for readers that
	// follow them; 0: DefaultHistoryEvents, DefaultHistoryBytes.
	HistoryEvents, HistoryBytes int64
	// Logger gets an entry that was skipped, and the end of the replica; nil: they are dropped.
	Logger hclog.Logger
}

// Replica is this node's copy of the state. Its feed alone changes it. All methods
// are safe for concurrent use.
type Replica struct {
	log       hclog.Logger
	level     atomic.Uint32                // the state's feature level
	snapshots atomic.Uint64                // that were begun
	reached   atomic.Uint64                // the index up to which all is applied and the sinks have returned
	headless  atomic.Pointer[fsm.Standing] // of the feed's headless state; nil: there is none
	succeeded atomic.Pointer[fsm.Standing] // of the last headless state that came into force; nil: none did
	prepared  atomic.Pointer[prepared]     // see Prepare; nil: there is none

	mu    sync.RWMutex // guards state and at
	state *fsm.Machine
	at    time.Time // when the last entry was applied, on the local clock

	arrivals wake.Watchers[uint64] // of an index
	changes  wake.Watchers[string] // of a semaphore
	lists    wake.Watchers[uint64] // of a session's wait list
	items    *ItemWatches
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

// Run wakes the readers of events until ctx ends. A replica without it works, but for
// the News of its pages.
func (r *Replica) Run(ctx context.Context) { r.history.run(ctx) }

// View calls read with the state, under a lock that holds up entries: read must be
// quick, must not block, and must not change nor keep the state.
func (r *Replica) View(read func(*fsm.Machine)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	read(r.state)
}

// Index returns the index up to which all entries are applied and delivered. Raft's
// own AppliedIndex counts entries that were only handed over.
func (r *Replica) Index() uint64 { return r.reached.Load() }

// Await blocks until Index has come to index, or ctx ends with its cause.
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

// arrive notes that the replica and its sinks have come to index.
func (r *Replica) arrive(index uint64) {
	r.reached.Store(index)
	r.arrivals.WakeIf(func(wanted uint64) bool { return wanted <= index })
}

// Watch returns a signal that is set when an entry that changes the semaphore has been
// applied, or a snapshot restored, until stop is called. A caller that watches
// before it looks misses no change. It does not block.
func (r *Replica) Watch(semaphore string) (changed <-chan struct{}, stop func()) {
	return r.changes.Watch(semaphore)
}

// Listen is Watch for the wait list of a session: an entry on it may be ready, another
// call may have taken one, or the session has ended. The log decides which call gets it.
func (r *Replica) Listen(session uint64) (news <-chan struct{}, stop func()) {
	return r.lists.Watch(session)
}

// Listeners returns how many callers listen to the wait list of a session.
func (r *Replica) Listeners(session uint64) int { return r.lists.Count(session) }

// WatchItems returns a watch of one item or, with below, of all items whose names begin with
// name, see ItemWatches.Watch.
func (r *Replica) WatchItems(name string, below bool) *ItemWatch { return r.items.Watch(name, below) }

// ItemWatchers returns how many watches of items there are.
func (r *Replica) ItemWatchers() int { return r.items.Count() }

// wakeWatchers wakes the watchers of all that an entry has changed.
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
	if entry.Jump { // every index has moved
		r.items.Restored(r.itemIndex())
	}
}

// itemIndex returns the number of the last change of any item.
func (r *Replica) itemIndex() (number uint64) {
	r.View(func(state *fsm.Machine) { number = state.ItemsIndex("") })
	return number
}

// EventsAfter returns a page of the events that follow an event, as far as this node
// has applied the log; News of the page is for the events beyond that. It fails with
// outcome.ErrHistoryGone. It does not block.
func (r *Replica) EventsAfter(after EventID) (EventPage, error) { return r.history.after(after) }

// EventsBefore returns the entries with events before an index, the latest last, one page at most. It is
// empty where this node has not kept them. The slice is the caller's. It does not block.
func (r *Replica) EventsBefore(index uint64) []EventEntry { return r.history.before(index) }

// Hashes returns the state hashes at past indexes.
func (r *Replica) Hashes() *Hashes { return &r.hashes }

// Reading returns an index and the hash of the state there. An entry that the state
// has and whose index does not show yet counts. Index alone knows the indexes of
// configurations, which do not change the state.
func (r *Replica) Reading() (index uint64, hash [16]byte) {
	r.View(func(state *fsm.Machine) {
		index, hash = max(r.reached.Load(), state.Index()), state.Hash()
	})
	return index, hash
}

// EstimateMS returns cluster time as this node can estimate it alone: the last
// entry's, and the time since then, as far as a leader would count it.
func (r *Replica) EstimateMS() int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.state.NowMS() + min(time.Since(r.at), MaxStampStep).Milliseconds()
}

// NowMS returns cluster time as of the last entry, from which the next one goes on. If a
// state from a backup waits for that entry, it is that state's time.
func (r *Replica) NowMS() (ms int64) {
	r.View(func(state *fsm.Machine) { ms = state.NowMS() })
	if next := r.headless.Load(); next != nil {
		ms = max(ms, next.NowMS())
	}
	return ms
}

// Headless reports whether the newest snapshot comes from a restore that is not in force here.
func (r *Replica) Headless() bool { return r.headless.Load() != nil }

// Succeeded reports whether a state from a backup, with this hash at this index, came into
// force here, and no other such state since.
func (r *Replica) Succeeded(index uint64, hash [16]byte) bool {
	last := r.succeeded.Load()
	return last != nil && last.Index() == index && last.Hash() == hash
}

// MoreDue reports whether the last entry has left work over for the next.
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

// Admits refuses a command that needs a higher feature level than the cluster has,
// with outcome.ErrBelowLevel: members that don't know it could not apply it as the
// others do.
func (r *Replica) Admits(command []byte) error {
	if fsm.CommandLevel(command) > r.level.Load() {
		return outcome.ErrBelowLevel
	}
	return nil
}

// Snapshots returns how many snapshots the feed has begun.
func (r *Replica) Snapshots() uint64 { return r.snapshots.Load() }

// Sink follows the log as it is applied to the replica. Raft's apply goroutine calls both
// methods: they must be quick and must not block. The index of a call shows in the
// replica's Index only once all sinks have returned.
type Sink interface {
	// Applied follows an entry of the state machine, which the state has by then. The
	// entry is never changed, and may be kept.
	Applied(entry *fsm.Applied)
	// Restored follows a snapshot: the state has jumped to that of index, in either
	// direction. The state may be read until Restored returns.
	Restored(state *fsm.Machine, index uint64)
}

// ClusterSink follows what the log says of the cluster itself. The rules of [Sink] hold for
// it as well.
type ClusterSink interface {
	// TermBegan follows the first entry of a term, which may give the cluster an id.
	TermBegan(entry *fsm.Applied)
	// Configured follows the entry of a committed configuration.
	Configured(entry *raft.Log)
	// Restored is as in Sink.
	Restored(state *fsm.Machine, index uint64)
}

// FeedConfig names all that follow the log. Raft's apply goroutine calls all functions.
type FeedConfig struct {
	// Cluster is called before the other sinks; nil: there is no such sink.
	Cluster ClusterSink
	// Sinks are called in this order. The replica's own watchers are woken after them,
	// so that a goroutine that they wake finds the work of the sinks done.
	Sinks []Sink
	// Fatal gets, once, the reason why the replica has halted.
	Fatal func(error)
	// SnapshotDue is called when a snapshot saves a restart more than it costs.
	SnapshotDue func()
}

// Feed is the FSM that Raft gets: it applies the log to the replica and calls the
// sinks.
//
// An entry in Raft's log is the term of the leader that proposed it, as a varint,
// and then the bytes of fsm.EncodeEntry. Every node skips one that Raft logged in
// another term. Otherwise a proposer whose leadership ended and came back between
// its last look and its call of Raft could write under the new term a command of
// the old one, after others have concluded that the old term brings no more.
type Feed struct {
	replica *Replica
	config  FeedConfig
	meter   snapshotMeter
	halted  error // not nil: the replica has stopped for good
	unread  error // why the snapshot given last could not be read

	headless *jump // nil: none; a restored state that the next entry brings into force
}

var _ raft.BatchingFSM = (*Feed)(nil)

// Feed returns the replica's FSM for Raft. There must not be a second one.
func (r *Replica) Feed(config FeedConfig) *Feed {
	return &Feed{replica: r, config: config, meter: snapshotMeter{base: snapshotCost}}
}

// Unread returns why the feed could not read the snapshot that Raft gave it last, or
// nil: Raft itself does not pass the reason on.
func (f *Feed) Unread() error { return f.unread }

// EncodeEntry makes an entry for Raft's log.
func EncodeEntry(term uint64, stampMS int64, commands [][]byte) []byte {
	entry := fsm.EncodeEntry(stampMS, commands)
	data := make([]byte, 0, binary.MaxVarintLen64+len(entry))
	data = binary.AppendUvarint(data, term)
	return append(data, entry...)
}

// Apply is ApplyBatch for one entry: RecoverCluster calls only this.
func (f *Feed) Apply(entry *raft.Log) any {
	return f.ApplyBatch([]*raft.Log{entry})[0]
}

// ApplyBatch implements [raft.BatchingFSM]. The response to an entry is nil, or the
// error that says why the entry was not applied.
func (f *Feed) ApplyBatch(entries []*raft.Log) []any {
	responses := make([]any, len(entries))
	for i, entry := range entries {
		if err := f.applyEntry(entry); err != nil {
			responses[i] = err
		}
	}
	return responses
}

// applyEntry applies a command, or notes a configuration. The index of an entry of
// another term shows as well.
func (f *Feed) applyEntry(entry *raft.Log) error {
	if f.halted != nil {
		return f.halted
	}
	if f.headless != nil {
		standing := f.headless.state.Standing()
		f.take(*f.headless)
		f.replica.succeeded.Store(&standing)
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
			f.follow(applied)
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

// follow lets the sinks and the replica's watchers follow an entry.
func (f *Feed) follow(entry *fsm.Applied) {
	if entry.Term != 0 && f.config.Cluster != nil {
		f.config.Cluster.TermBegan(entry)
	}
	for _, s := range f.config.Sinks {
		s.Applied(entry)
	}
	f.replica.wakeWatchers(entry)
	f.replica.history.applied(entry)
}

// applyCommand gives an entry to the state under the lock. hash is the state's after
// it.
func (f *Feed) applyCommand(entry *raft.Log) (applied *fsm.Applied, hash [16]byte, err error) {
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

// halt stops the replica for good: its state is not to be trusted any more, so its
// index stays where it is, and no snapshot is made of it.
func (f *Feed) halt(err error) {
	f.halted = fmt.Errorf("%w: %w", outcome.ErrHalted, err)
	f.replica.log.Error("the state machine has halted", "error", err)
	f.config.Fatal(f.halted)
}

const (
	// entryCost is the cost of an entry beside its bytes, however small it is. An
	// idle tick of 9 bytes takes about 170 on the disk; read twice and applied at a
	// restart it takes as long as 400 bytes of a full entry.
	entryCost = 512
	// snapshotCost is the cost of entries after which a snapshot is due while the
	// state is small. It bounds the time that a restart spends on the log to about
	// a second.
	snapshotCost = 32 << 20
	// snapshotShare divides the last snapshot's size, which is added to that: one half.
	// A large state takes long to write and to restore anyway, and would
	// otherwise be written again and again for little.
	snapshotShare = 2
)

// snapshotMeter counts the entries that a restart would have to read and apply, and
// reports when a snapshot saves more than it costs. size is safe for concurrent
// use; the rest is the apply goroutine's.
type snapshotMeter struct {
	base int64        // snapshotCost, but in tests
	cost int64        // of the entries since the last snapshot
	size atomic.Int64 // of the last snapshot that was written or restored
}

// ask makes a snapshot due with the next entry. The newest one has a state without a leader:
// a restart would show the state before it until an entry follows.
func (s *snapshotMeter) ask() { s.cost = math.MaxInt64 / 2 }

// count adds an entry of so many bytes, and reports whether a snapshot is due. It
// does not do so again until as much more has come.
func (s *snapshotMeter) count(bytes int) (due bool) {
	s.cost += int64(bytes) + entryCost
	if s.cost < s.base+s.size.Load()/snapshotShare {
		return false
	}
	s.cost = 0
	return true
}
