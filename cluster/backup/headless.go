package backup

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/replica"
)

// Folder is the stored part of a node whose Raft does not run.
type Folder interface {
	Logs() raft.LogStore
	Snapshots() raft.SnapshotStore
	// DropSnapshot removes the newest snapshot, durably.
	DropSnapshot(id string) error
}

// MadeUp reports whether a log from first to last, and a snapshot before it, hold all that was
// before the newest snapshot, and no entry after that one. 0 is none.
func MadeUp(newest, before, first, last uint64) bool {
	return last < newest && last >= before && first <= before+1 && last > 0
}

// GiveUp removes the newest snapshot of a node if it is the state of a restore with no entry
// after it, and the snapshot before and the log make up for it. It returns the snapshot that it
// has removed, or nil.
//
// A node comes into this position if it dies, or is cut off, in the middle of a restore. The
// members may have gone on without that state: then the node could take none of their entries.
// If they go on with it, they send it again. It is safe to give up: the state is committed only
// together with an entry after it, and this node has acknowledged none.
func GiveUp(f Folder) (*raft.SnapshotMeta, error) {
	kept, err := f.Snapshots().List()
	if err != nil || len(kept) == 0 {
		return nil, err
	}
	first, err := f.Logs().FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := f.Logs().LastIndex()
	if err != nil {
		return nil, err
	}
	newest, before := kept[0], uint64(0)
	if len(kept) > 1 {
		before = kept[1].Index
	}
	if !MadeUp(newest.Index, before, first, last) {
		return nil, nil
	}
	_, content, err := f.Snapshots().Open(newest.ID)
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }() // it was only read
	standing, err := replica.ReadStanding(content)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", newest.ID, err)
	}
	if !standing.Headless() {
		return nil, nil
	}
	return newest, f.DropSnapshot(newest.ID)
}
