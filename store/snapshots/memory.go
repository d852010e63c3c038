package snapshots

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// Memory is a raft.SnapshotStore in memory. raft.InmemSnapshotStore does not serve: it lists an unfinished snapshot in
// place of the finished snapshot before it, ignores Cancel, and returns metadata that a sink still changes.
type Memory struct {
	mu     sync.Mutex
	stored []memorySnapshot // newest first
	stamp  uint64           // the highest stamp so far
	newest *atomic.Uint64   // the index of the first snapshot that List returns
}

type memorySnapshot struct {
	snapshotRecord
	content []byte
}

var _ raft.SnapshotStore = (*Memory)(nil)

// NewMemory returns an empty store. The store keeps newest at the index of the first snapshot that List returns.
func NewMemory(newest *atomic.Uint64) *Memory { return &Memory{newest: newest} }

// Create implements [raft.SnapshotStore].
func (m *Memory) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	record, err := begin(m.stamp, version, index, term, configuration, configurationIndex)
	if err != nil {
		return nil, err
	}
	m.stamp = record.stamp
	return &memorySink{store: m, record: record}, nil
}

// List implements [raft.SnapshotStore].
func (m *Memory) List() ([]*raft.SnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var listed []*raft.SnapshotMeta
	for _, snapshot := range m.stored[:min(len(m.stored), maxKept)] {
		listed = append(listed, cloneMeta(snapshot.meta))
	}
	return listed, nil
}

// Open implements [raft.SnapshotStore].
func (m *Memory) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, snapshot := range m.stored {
		if snapshot.meta.ID == id {
			return cloneMeta(snapshot.meta), io.NopCloser(bytes.NewReader(snapshot.content)), nil
		}
	}
	return nil, nil, fmt.Errorf("there is no snapshot %q", id)
}

// add lists a finished snapshot and drops the oldest snapshots beyond maxKept. It never drops the new snapshot, since
// Raft opens a snapshot right after it has installed it.
func (m *Memory) add(snapshot memorySnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = append(m.stored, snapshot)
	slices.SortFunc(m.stored, func(a, b memorySnapshot) int { return newerFirst(a.snapshotRecord, b.snapshotRecord) })
	count := 0
	m.stored = slices.DeleteFunc(m.stored, func(s memorySnapshot) bool {
		count++
		return count > maxKept && s.stamp != snapshot.stamp
	})
	m.newest.Store(m.stored[0].meta.Index)
}

// Drop removes a snapshot, like Store.Drop.
func (m *Memory) Drop(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = slices.DeleteFunc(m.stored, func(s memorySnapshot) bool { return s.meta.ID == id })
	m.newest.Store(0)
	if len(m.stored) > 0 {
		m.newest.Store(m.stored[0].meta.Index)
	}
	return nil
}

type memorySink struct {
	store *Memory

	mu      sync.Mutex
	record  snapshotRecord
	content []byte
	done    bool
	result  error
}

var _ raft.SnapshotSink = (*memorySink)(nil)

func (s *memorySink) ID() string { return s.record.meta.ID }

func (s *memorySink) Write(content []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return 0, fmt.Errorf("snapshot %s takes no more", s.record.meta.ID)
	}
	s.content = append(s.content, content...)
	return len(content), nil
}

func (s *memorySink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return s.result
	}
	s.done = true
	s.record.meta.Size = int64(len(s.content))
	s.store.add(memorySnapshot{snapshotRecord: s.record, content: s.content})
	return nil
}

func (s *memorySink) Cancel() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.done, s.result, s.content = true, errCancelled, nil
	}
	return nil
}
