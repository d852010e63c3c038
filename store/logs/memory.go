package logs

import (
	"cmp"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// memoryLog is a raft.LogStore in memory. raft.InmemStore does not serve for the log: it computes its first and last
// index wrongly after a removal that ends in a hole, and after RecoverCluster of an empty log.
type memoryLog struct {
	mu     sync.RWMutex
	stored []*raft.Log // sorted by index; never changed
}

var _ raft.LogStore = (*memoryLog)(nil)

// place returns the position of the entry, or where it would be. The caller holds the lock.
func (m *memoryLog) place(index uint64) (int, bool) {
	return slices.BinarySearchFunc(m.stored, index, func(log *raft.Log, index uint64) int { return cmp.Compare(log.Index, index) })
}

func (m *memoryLog) FirstIndex() (uint64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.stored) == 0 {
		return 0, nil
	}
	return m.stored[0].Index, nil
}

func (m *memoryLog) LastIndex() (uint64, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.stored) == 0 {
		return 0, nil
	}
	return m.stored[len(m.stored)-1].Index, nil
}

func (m *memoryLog) GetLog(index uint64, log *raft.Log) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	at, found := m.place(index)
	if !found {
		return raft.ErrLogNotFound
	}
	*log = *m.stored[at]
	return nil
}

func (m *memoryLog) StoreLog(log *raft.Log) error { return m.StoreLogs([]*raft.Log{log}) }

func (m *memoryLog) StoreLogs(logs []*raft.Log) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, log := range logs {
		if at, found := m.place(log.Index); found {
			m.stored[at] = log
		} else {
			m.stored = slices.Insert(m.stored, at, log)
		}
	}
	return nil
}

func (m *memoryLog) DeleteRange(first, last uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, _ := m.place(first)
	to, found := m.place(last)
	if found {
		to++
	}
	if from < to {
		m.stored = slices.Delete(m.stored, from, to)
	}
	return nil
}
