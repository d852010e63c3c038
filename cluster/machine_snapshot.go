package cluster

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// A snapshot is the index that the machine had reached, 8 bytes big-endian, and
// then what fsm.Frozen writes. The index may be beyond the state's own: that of
// a configuration. Without it a node that restores such a snapshot would wait
// for an index that never comes.
const snapshotHeader = 8

// frozen is the state at one index, on its way into a snapshot.
type frozen struct {
	index uint64
	state *fsm.Frozen
	size  *atomic.Int64 // set to the snapshot's, once it is written
}

// Snapshot implements [raft.FSM]. It costs one pointer a page of records.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.halted != nil {
		return nil, m.halted
	}
	m.meter.cost = 0
	m.mu.Lock()
	defer m.mu.Unlock()
	return &frozen{index: m.progress.reached.Load(), state: m.state.Freeze(), size: &m.meter.size}, nil
}

// Persist implements [raft.FSMSnapshot], beside continuing applies.
func (f *frozen) Persist(sink raft.SnapshotSink) error {
	counted := &countingWriter{w: sink}
	err := f.write(counted)
	if err != nil {
		_ = sink.Cancel() // the error told is the first
		return err
	}
	f.size.Store(counted.bytes)
	return sink.Close()
}

func (f *frozen) write(w io.Writer) error {
	header := binary.BigEndian.AppendUint64(make([]byte, 0, snapshotHeader), f.index)
	if _, err := w.Write(header); err != nil {
		return err
	}
	return f.state.Write(w)
}

// Release implements [raft.FSMSnapshot].
func (f *frozen) Release() {}

// Restore implements [raft.FSM]: it replaces the state in one step, or leaves it
// as it is when the bytes are no snapshot.
func (m *machine) Restore(source io.ReadCloser) error {
	defer func() { _ = source.Close() }() // it was only read
	if m.halted != nil {
		return m.halted
	}
	counted := &countingReader{r: source}
	var header [snapshotHeader]byte
	if _, err := io.ReadFull(counted, header[:]); err != nil {
		return fmt.Errorf("snapshot header: %w", err)
	}
	state, err := fsm.Restore(counted)
	if err != nil {
		m.unread = err
		return err
	}
	index := binary.BigEndian.Uint64(header[:])
	if index < state.Index() {
		return fmt.Errorf("snapshot header says index %d, its state %d", index, state.Index())
	}
	m.meter.cost = 0
	m.meter.size.Store(counted.bytes)
	m.mu.Lock()
	m.state, m.at = state, time.Now()
	m.level.Store(state.FeatureLevel())
	m.mu.Unlock()
	m.restored(state, index)
	m.progress.advance(index)
	return nil
}
