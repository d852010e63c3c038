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
	// DropSnapshot removes the newest snapshot, which has that id. The removal is durable on return.
	DropSnapshot(id string) error
}

// LogContinuesWithout reports whether a node can do without its newest snapshot: the log continues the previous
// snapshot without a gap, and ends below the newest one. newest and previous are the indexes of the two snapshots;
// previous is 0 if there is only one snapshot. The log has the entries first to last.
func LogContinuesWithout(newest, previous, first, last uint64) bool {
	return last < newest && last >= previous && first <= previous+1 && last > 0
}

// DropUncommittedRestore removes the newest snapshot of a node if it is a restored state without an entry after it, and
// if the earlier snapshot and the log continue without it. It returns the removed snapshot, or nil.
//
// The removal is safe: a restored state is committed only together with the entry after it, and this node has not
// acknowledged such an entry. A node has such a snapshot if it crashes, or loses its connections, in the middle of a
// restore. If the other members went on without the restored state, this node could not append their entries to it. If
// they went on with it, they send it again.
func DropUncommittedRestore(f Folder) (*raft.SnapshotMeta, error) {
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
	if !LogContinuesWithout(newest.Index, before, first, last) {
		return nil, nil
	}
	_, content, err := f.Snapshots().Open(newest.ID)
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	header, err := replica.ReadStateHeader(content)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", newest.ID, err)
	}
	if !header.RestorePending() {
		return nil, nil
	}
	return newest, f.DropSnapshot(newest.ID)
}
