package store

import (
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// checkedLog is what Raft sees: it puts a checksum on each entry that it stores,
// and checks each one that it returns.
//
// It lies outside the log cache, not beneath it: a cached entry is checked too
// (its bytes are shared with whoever stored it, and memory rots as well), and an
// entry from the cache has its checksum when it goes to the followers.
//
// The cache turns errors of StoreLogs into text. So the log beneath it remembers
// its last one, and this returns that, typed.
type checkedLog struct {
	top   raft.LogStore // the cache over below, or below itself
	below *watchedLog
	guard *guard
	file  string // for messages

	storing sync.Mutex // held during StoreLogs, so that below's last error is this call's
}

var _ raft.LogStore = (*checkedLog)(nil)

func (c *checkedLog) FirstIndex() (uint64, error) { return c.top.FirstIndex() }

func (c *checkedLog) LastIndex() (uint64, error) { return c.top.LastIndex() }

func (c *checkedLog) GetLog(index uint64, log *raft.Log) error {
	// Before the cache can answer: a damaged node must not go on replicating.
	if err := c.guard.refusal(); err != nil {
		return err
	}
	if err := c.top.GetLog(index, log); err != nil {
		return err
	}
	err := checkRead(index, log)
	if err == nil {
		return nil
	}
	*log = raft.Log{} // never wrong bytes, not even beside an error
	file := c.file
	var again raft.Log
	if c.below.GetLog(index, &again) == nil && checkRead(index, &again) == nil {
		file = "the log cache in memory" // the file is right
	}
	return c.guard.damaged(file, index, err.Error(), nil)
}

// checkRead makes sure that an entry is the one asked for, unchanged.
func checkRead(index uint64, log *raft.Log) error {
	if log.Index != index {
		return fmt.Errorf("the entry there says that it has index %d", log.Index)
	}
	return checkEntry(log)
}

func (c *checkedLog) StoreLog(log *raft.Log) error { return c.StoreLogs([]*raft.Log{log}) }

func (c *checkedLog) StoreLogs(logs []*raft.Log) error {
	if err := c.guard.refusal(); err != nil {
		return err
	}
	own, err := sealed(logs)
	if err != nil {
		return err
	}
	c.storing.Lock()
	defer c.storing.Unlock()
	if err := c.top.StoreLogs(own); err != nil {
		return c.below.storeError(err)
	}
	return nil
}

func (c *checkedLog) DeleteRange(first, last uint64) error { return c.top.DeleteRange(first, last) }
