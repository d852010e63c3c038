package offline

import (
	"cmp"
	"encoding/hex"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/fsm"
)

// Report describes what a data folder or a backup contains. Programs read it as JSON, so its members keep their names
// and meanings.
type Report struct {
	Kind string `json:"kind"` // "folder" or "backup"
	Path string `json:"path"`

	Folder  *FolderReport `json:"folder,omitempty"`
	Backup  *BackupReport `json:"backup,omitempty"`
	Members []Member      `json:"members,omitempty"`
	// MembersIndex is the index of the configuration that lists Members. If it is above CommittedIndex, that
	// configuration may not be committed.
	MembersIndex uint64 `json:"members_index,omitempty"`

	// CommittedIndex is the highest index that is certainly committed: the index of the newest snapshot, or of the last
	// entry if this node is the only voter. Later entries may be committed too.
	CommittedIndex uint64 `json:"committed_index"`
	// Committed is the state at CommittedIndex. Latest is the state at the end of the log, or at the first damage, if
	// that is later. Both are nil for an empty state.
	Committed *State `json:"committed,omitempty"`
	Latest    *State `json:"latest,omitempty"`

	// Damage describes each damaged part in a sentence.
	Damage []string `json:"damage"`
}

// FolderReport is the part of a report for a data folder.
type FolderReport struct {
	Format        int              `json:"format"`
	Node          string           `json:"node"`
	ID            string           `json:"id"`
	Cluster       string           `json:"cluster"` // "": unknown
	Restored      bool             `json:"restored"`
	Term          uint64           `json:"term"`
	VoteTerm      uint64           `json:"vote_term"`
	VoteCandidate string           `json:"vote_candidate"`
	FirstIndex    uint64           `json:"first_index"` // of the log; 0: the log is empty
	LastIndex     uint64           `json:"last_index"`
	LastTerm      uint64           `json:"last_term"` // term of the last sound entry, or of the newest snapshot if that is later
	Snapshots     []SnapshotReport `json:"snapshots"` // newest first
	// NotInForce is the index of the newest snapshot if it is a restored state that is not in force, because no entry
	// follows it. If the earlier snapshot and the log are complete without it, the report describes their state.
	NotInForce uint64 `json:"not_in_force,omitempty"`
}

// BackupReport is the part of a report for a backup: its header, and the size of its state.
type BackupReport struct {
	Index         uint64    `json:"index"`
	Term          uint64    `json:"term"`
	MadeAt        time.Time `json:"made_at"`
	ClusterTimeMS int64     `json:"cluster_time_ms"`
	FeatureLevel  uint32    `json:"feature_level"`
	Cluster       string    `json:"cluster"`
	Bytes         uint64    `json:"bytes"`
}

// SnapshotReport describes a snapshot of a data folder.
type SnapshotReport struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	Bytes int64  `json:"bytes"`
}

// Member is a member of the cluster.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Folder  string `json:"folder,omitempty"` // the id of the admitted folder, if the configuration has it
	Voter   bool   `json:"voter"`
}

// State describes the state at one index.
type State struct {
	Index         uint64 `json:"index"`
	EntryIndex    uint64 `json:"entry_index"` // index of the last entry that the state machine has applied; at most Index
	Term          uint64 `json:"term"`        // term of the last leader
	Leader        string `json:"leader"`
	ClusterTimeMS int64  `json:"cluster_time_ms"`
	FeatureLevel  uint32 `json:"feature_level"`
	Cluster       string `json:"cluster"` // "": the cluster has no id yet
	Hash          string `json:"hash"`    // equal states have equal hashes on all members

	Semaphores int `json:"semaphores"`
	Sessions   int `json:"sessions"`
	Leases     int `json:"leases"`
	Waiting    int `json:"waiting"`

	// MostLeases lists the semaphores with the most leases. MostWaiting lists the semaphores with the most waiting
	// requests. Semaphores with a count of 0 are left out.
	MostLeases  []Semaphore `json:"most_leases"`
	MostWaiting []Semaphore `json:"most_waiting"`
}

// Semaphore is a semaphore in the state.
type Semaphore struct {
	Name    string `json:"name"`
	Permits int64  `json:"permits"`
	Held    int64  `json:"held"`
	Leases  int64  `json:"leases"`
	Waiting int64  `json:"waiting"`
}

// describe reports on the state after the entry at index.
func describe(state *fsm.Machine, index uint64, top int) *State {
	if index == 0 {
		return nil
	}
	hash := state.Hash()
	s := &State{
		Index: index, EntryIndex: state.Index(), Term: state.Term(), Leader: state.Leader(), ClusterTimeMS: state.NowMS(),
		FeatureLevel: state.FeatureLevel(), Cluster: membership.ClusterText(state.ClusterID()), Hash: hex.EncodeToString(hash[:]),
	}
	s.Semaphores, s.Sessions, s.Leases, s.Waiting = state.Counts()
	leases, waiting := ranking{size: top}, ranking{size: top}
	const page = 1000
	for after := ""; ; {
		views := state.Semaphores("", after, page)
		for i := range views {
			v := &views[i]
			semaphore := Semaphore{Name: v.Name, Permits: v.Permits, Held: v.Held, Leases: v.Holders, Waiting: v.Waiters}
			leases.add(v.Holders, semaphore)
			waiting.add(v.Waiters, semaphore)
		}
		if len(views) < page {
			break
		}
		after = views[page-1].Name
	}
	s.MostLeases, s.MostWaiting = leases.list(), waiting.list()
	return s
}

// ranking keeps the semaphores with the highest counts; equal counts are sorted by name.
type ranking struct {
	size   int
	ranked []ranked
}

type ranked struct {
	count int64
	Semaphore
}

func byCount(a, b ranked) int {
	return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.Name, b.Name))
}

func (r *ranking) add(count int64, s Semaphore) {
	if count == 0 || r.size == 0 {
		return
	}
	entry := ranked{count, s}
	at, _ := slices.BinarySearchFunc(r.ranked, entry, byCount)
	if at < r.size {
		r.ranked = slices.Insert(r.ranked, at, entry)
		r.ranked = r.ranked[:min(len(r.ranked), r.size)]
	}
}

func (r *ranking) list() []Semaphore {
	list := []Semaphore{} // not nil, so that JSON has [] rather than null
	for _, entry := range r.ranked {
		list = append(list, entry.Semaphore)
	}
	return list
}

func membersOf(c raft.Configuration) (members []Member) {
	for _, server := range c.Servers {
		address, folder := peer.SplitAddress(server.Address)
		m := Member{ID: string(server.ID), Address: address, Voter: server.Suffrage == raft.Voter}
		if folder != (peer.ID{}) {
			m.Folder = folder.String()
		}
		members = append(members, m)
	}
	return members
}
