package store

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// memoryFile stands for a file in messages of an ephemeral store.
const memoryFile = "memory"

// OpenEphemeral returns a store of the given node that keeps everything in
// memory, and that nobody finds again after Close. It is used like any other;
// Open with Options.Ephemeral makes one with further options.
func OpenEphemeral(nodeID string) (*Store, error) {
	return Open(Options{NodeID: nodeID, Ephemeral: true})
}

func openEphemeral(o Options) (*Store, error) {
	s := &Store{
		logger: o.Logger.Named("store"), watermark: NewWatermark(o.MinFree), reserveMark: NewWatermark(o.MinFree / reserveShare), guard: &guard{onDamage: o.OnDamage},
		stable: raft.NewInmemStore(), snapshots: newMemorySnapshots(),
	}
	s.identity.record = newRecord(o)
	s.identity.record.complete = true
	return s, s.wireLog(o, &memoryLog{}, memoryFile, false)
}

// memorySnapshots is a raft.SnapshotStore in memory. The library has one, which
// doesn't do: it lists a snapshot that is only begun in place of the finished
// one before it, ignores Cancel, and hands out metadata that a sink still
// changes.
type memorySnapshots struct {
	mu     sync.Mutex
	stored []memorySnapshot // the newest first
	stamp  uint64           // the highest one given out
}

// memorySnapshot is a snapshot; its content never changes.
type memorySnapshot struct {
	snapshotRecord
	content []byte
}

var _ raft.SnapshotStore = (*memorySnapshots)(nil)

func newMemorySnapshots() *memorySnapshots { return &memorySnapshots{} }

func (m *memorySnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("snapshots of version %d are not supported", version)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stamp = max(m.stamp+1, uint64(max(time.Now().UnixMilli(), 0)))
	record := snapshotRecord{stamp: m.stamp, meta: raft.SnapshotMeta{
		Version: version, ID: snapshotID(term, index, m.stamp), Index: index, Term: term,
		Configuration: configuration.Clone(), ConfigurationIndex: configurationIndex,
	}}
	return &memorySink{store: m, record: record}, nil
}

func (m *memorySnapshots) List() ([]*raft.SnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var listed []*raft.SnapshotMeta
	for _, snapshot := range m.stored[:min(len(m.stored), snapshotsKept)] {
		listed = append(listed, cloneMeta(snapshot.meta))
	}
	return listed, nil
}

func (m *memorySnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, snapshot := range m.stored {
		if snapshot.meta.ID == id {
			return cloneMeta(snapshot.meta), io.NopCloser(bytes.NewReader(snapshot.content)), nil
		}
	}
	return nil, nil, fmt.Errorf("there is no snapshot %q", id)
}

// add lists a finished snapshot and lets go of what is too many, but never of
// itself: Raft opens a snapshot right after it was installed.
func (m *memorySnapshots) add(snapshot memorySnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = append(m.stored, snapshot)
	slices.SortFunc(m.stored, func(a, b memorySnapshot) int { return newerFirst(a.snapshotRecord, b.snapshotRecord) })
	kept := 0
	m.stored = slices.DeleteFunc(m.stored, func(s memorySnapshot) bool {
		kept++
		return kept > snapshotsKept && s.stamp != snapshot.stamp
	})
}

// memorySink takes in a snapshot.
type memorySink struct {
	store *memorySnapshots

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
