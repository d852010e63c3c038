package backup

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/replica"
)

// Folder is the data folder of a node whose Raft does not run.
type Folder interface {
	Logs() raft.LogStore
	Snapshots() raft.SnapshotStore
	// DropSnapshot removes the newest snapshot, whose id is id. The removal is durable on return.
	DropSnapshot(id string) error
}

// MadeUp reports whether a node can go on without its newest snapshot: the snapshot at index before and the log from
// first to last have no gap between them, and the log ends before the newest snapshot. An index is 0 if there is no
// such snapshot or entry.
func MadeUp(newest, before, first, last uint64) bool {
	return last < newest && last >= before && first <= before+1 && last > 0
}

// GiveUp removes the newest snapshot of a node if that snapshot is a restored state with no entry after it, and if the
// snapshot before it and the log hold all entries before it. It returns the removed snapshot, or nil.
//
// A node has such a snapshot if it dies, or loses its connections, in the middle of a restore. The other members may
// have gone on without the restored state: then the node could not append their entries. If they have gone on with it,
// they send it again. The removal is safe: a restored state is committed only together with an entry after it, and this
// node has acknowledged no such entry.
func GiveUp(f Folder) (*raft.SnapshotMeta, error) {
	snapshots, err := f.Snapshots().List()
	if err != nil || len(snapshots) == 0 {
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
	newest, before := snapshots[0], uint64(0)
	if len(snapshots) > 1 {
		before = snapshots[1].Index
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
