package replica

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// A snapshot is the index that the replica had reached, 8 bytes big-endian, and then the bytes of fsm.Frozen. The
// state's own index may be lower, since a configuration raises only the index of the replica. Without the header, a
// node that restores such a snapshot would wait for ever for its index.
const snapshotHeader = 8

// frozen is the state at one index, on its way into a snapshot.
type frozen struct {
	index uint64
	state *fsm.Frozen
	size  *atomic.Int64 // set to the bytes of the snapshot, once it is written
}

// Snapshot implements [raft.FSM]. It copies one pointer for each page of records.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if f.halted != nil {
		return nil, f.halted
	}
	f.meter.cost = 0
	r := f.replica
	r.snapshots.Add(1)
	if f.pendingState != nil {
		return &frozen{index: f.pendingState.index, state: f.pendingState.state.Freeze(), size: &f.meter.size}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &frozen{index: r.reached.Load(), state: r.state.Freeze(), size: &f.meter.size}, nil
}

// Recovered turns the state into the first state of another cluster, and returns the snapshot with which that cluster
// begins, at an index that must not be below Index. It is for an FSM without Raft, which must not be used after that.
// See [fsm.Machine.Recovered].
func (f *FSM) Recovered(cluster fsm.ClusterID, index uint64) (raft.FSMSnapshot, error) {
	if f.halted != nil {
		return nil, f.halted
	}
	if f.pendingState != nil {
		f.install(*f.pendingState)
	}
	f.replica.mu.Lock()
	f.replica.state.Recovered(cluster)
	f.replica.mu.Unlock()
	f.replica.arrive(index)
	return f.Snapshot()
}

// Freeze returns a copy of the state, for a backup. Entries wait while it copies one pointer for each page of records.
func (r *Replica) Freeze() *fsm.Frozen {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Freeze()
}

// Persist implements [raft.FSMSnapshot]. The FSM continues to apply entries while it writes.
func (f *frozen) Persist(sink raft.SnapshotSink) error {
	var written byteCount
	err := WriteSnapshot(io.MultiWriter(sink, &written), f.index, f.state)
	if err != nil {
		_ = sink.Cancel() // the first error is returned
		return err
	}
	f.size.Store(int64(written))
	return sink.Close()
}

// WriteSnapshot writes a snapshot for Raft: index, which is at or above the state's index, and then the state.
func WriteSnapshot(w io.Writer, index uint64, state *fsm.Frozen) error {
	header := binary.BigEndian.AppendUint64(make([]byte, 0, snapshotHeader), index)
	if _, err := w.Write(header); err != nil {
		return err
	}
	return state.Write(w)
}

// ReadStateHeader reads the header of the state in a snapshot for Raft. It may read more of r than it needs.
func ReadStateHeader(r io.Reader) (fsm.StateHeader, error) {
	if _, err := io.CopyN(io.Discard, r, snapshotHeader); err != nil {
		return fsm.StateHeader{}, fmt.Errorf("snapshot header: %w", err)
	}
	return fsm.ReadStateHeader(r)
}

// Release implements [raft.FSMSnapshot].
func (f *frozen) Release() {}

// restoredState is a state that came from a snapshot, on its way into the replica.
type restoredState struct {
	state *fsm.Machine
	index uint64
}

// Restore implements [raft.FSM]: it replaces the state in one step, or keeps the state when it cannot read the
// snapshot.
//
// A state without a leader comes from a backup, which a leader has put in the place of the cluster's state. It is
// committed only together with a later entry. If the leader loses its followers before that, another leader continues
// without the backup. So until the next entry, readers and callers see the old state.
func (f *FSM) Restore(source io.ReadCloser) error {
	defer func() { _ = source.Close() }() // an error of Close is harmless after reading
	if f.halted != nil {
		return f.halted
	}
	var read byteCount
	counted := io.TeeReader(source, &read)
	var header [snapshotHeader]byte
	if _, err := io.ReadFull(counted, header[:]); err != nil {
		return fmt.Errorf("snapshot header: %w", err)
	}
	index := binary.BigEndian.Uint64(header[:])
	state, taken, err := f.stateOf(counted, index)
	if err != nil {
		f.unread = err
		return err
	}
	defer taken()
	if index < state.Index() {
		return fmt.Errorf("snapshot header says index %d, its state %d", index, state.Index())
	}
	f.meter.cost = 0
	f.meter.size.Store(int64(read))
	if next := (restoredState{state, index}); state.RestorePending() {
		f.pendingState = &next
		header := state.StateHeader()
		f.replica.pendingRestore.Store(&header)
	} else {
		f.install(next)
	}
	return nil
}

// prepared is a state whose snapshot Raft is about to give back.
type prepared struct {
	restoredState
	taken chan struct{} // closed when the FSM has taken it
}

// Prepare hands the FSM a state whose snapshot Raft is about to deliver, so that the FSM need not decode it while
// Raft's main loop waits, which takes as long as an election. From now on the state belongs to the replica. taken is
// closed when the FSM has the state. forget withdraws the state if Raft does not deliver the snapshot.
func (r *Replica) Prepare(index uint64, state *fsm.Machine) (taken <-chan struct{}, forget func()) {
	next := &prepared{restoredState{state, index}, make(chan struct{})}
	r.prepared.Store(next)
	return next.taken, func() { r.prepared.CompareAndSwap(next, nil) }
}

// stateOf returns the state of a snapshot with this index. It returns the prepared state if that has the same index and
// the same fsm.StateHeader, which includes the hash; otherwise it decodes the snapshot. It reads the bytes to their end
// in both cases, so that the reader checks them. The caller calls taken once the FSM has the state.
func (f *FSM) stateOf(snapshot io.Reader, index uint64) (state *fsm.Machine, taken func(), err error) {
	next := f.replica.prepared.Swap(nil)
	if next == nil || next.index != index {
		state, err = fsm.Restore(snapshot)
		return state, func() {}, err
	}
	var head bytes.Buffer
	header, err := fsm.ReadStateHeader(io.TeeReader(snapshot, &head))
	if err != nil || header != next.state.StateHeader() {
		state, err = fsm.Restore(io.MultiReader(&head, snapshot))
		return state, func() {}, err
	}
	_, err = io.Copy(io.Discard, snapshot)
	return next.state, func() { close(next.taken) }, err
}

// install replaces the state of the replica, calls the sinks, and wakes all watchers.
func (f *FSM) install(next restoredState) {
	f.pendingState = nil // state: a restore sets it, the next entry takes it
	f.replica.pendingRestore.Store(nil)
	f.replica.replace(next.state)
	if f.config.Cluster != nil {
		f.config.Cluster.SnapshotRestored(next.state, next.index)
	}
	for _, s := range f.config.Sinks {
		s.SnapshotRestored(next.state, next.index)
	}
	f.replica.lists.WakeAll()
	f.replica.changes.WakeAll() // anything may have changed
	f.replica.items.Restored(f.replica.itemIndex())
	f.replica.holders.Ring()
	f.replica.history.restored(next.index)
	f.replica.arrive(next.index)
}

// replace replaces the state of the replica.
func (r *Replica) replace(state *fsm.Machine) {
	r.hashes.restored(state.Index(), state.Hash())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state, r.at = state, time.Now() // state: a snapshot brings another one
	r.level.Store(state.FeatureLevel())
}

// byteCount counts the bytes that are written to it.
type byteCount int64

func (c *byteCount) Write(p []byte) (int, error) {
	*c += byteCount(len(p))
	return len(p), nil
}
