package offline

import (
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
	"github.com/signalbox/signalbox/store/archive"
	"github.com/signalbox/signalbox/store/damage"
)

// Inspect reports on a data folder or a backup file, and lists at most top semaphores of each kind. It reads all bytes,
// and holds the whole state in memory. It fails if a process has the folder open, or if the path is neither a data
// folder nor a backup. Damage is not an error: the report lists it.
func Inspect(path string, top int) (*Report, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return inspectBackup(path, top)
	}
	view, err := store.Look(path, false)
	if err != nil {
		return nil, err
	}
	found := look(view, top)
	return found.report, errors.Join(found.err, view.Close())
}

func inspectBackup(path string, top int) (report *Report, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	report = &Report{Kind: "backup", Path: path, Damage: []string{}}
	reader, err := archive.NewReader(file)
	if errors.Is(err, archive.ErrDamaged) || errors.Is(err, archive.ErrCut) {
		report.Damage = append(report.Damage, err.Error())
		return report, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	state, err := backup.Check(reader)
	h := reader.Header()
	report.Backup = &BackupReport{
		Index: h.Index, Term: h.Term, MadeAt: h.WallTime, ClusterTimeMS: h.ClusterTimeMS, FeatureLevel: h.Level,
		Cluster: membership.ClusterText(fsm.ClusterID(h.Cluster)), Bytes: reader.Size(),
	}
	switch {
	case errors.Is(err, archive.ErrDamaged), errors.Is(err, archive.ErrCut):
		report.Damage = append(report.Damage, err.Error())
		return report, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	report.CommittedIndex, report.Committed = h.Index, describe(state, h.Index, top)
	return report, nil
}

// remains is the part of a cluster that one folder still holds: the state after all sound entries.
type remains struct {
	report *Report
	feed   *replica.FSM // applies the log's entries to state
	state  *replica.Replica
	term   uint64 // the term of the last applied entry
	last   uint64 // the index of the last applied entry, or 0
	err    error  // why the state can't be read, or an entry can't be applied
}

// look applies the folder's whole log, and reports on the resulting state.
func look(view *store.View, top int) *remains {
	facts := view.Facts
	r := &remains{report: &Report{Kind: "folder", Path: facts.Path, Damage: []string{}, Folder: &FolderReport{
		Format: facts.Format, Node: facts.NodeID, ID: facts.FolderID.String(), Cluster: facts.ClusterID, Restored: facts.RestoredTerm != 0,
		Term: view.Log.Term(), FirstIndex: view.Log.First, LastIndex: view.Log.Last, Snapshots: []SnapshotReport{},
	}}}
	r.report.Folder.VoteTerm, r.report.Folder.VoteCandidate = view.Log.Vote()
	for _, found := range view.Damage {
		r.report.Damage = append(r.report.Damage, sentence(found))
	}
	r.state = replica.New(replica.Config{Logger: hclog.NewNullLogger()})
	r.feed = r.state.FSM(replica.FSMConfig{Fatal: func(error) {}, SnapshotDue: func() {}})
	if r.err = r.restore(view); r.err != nil {
		return r
	}
	r.report.CommittedIndex, r.report.Committed, r.report.Folder.LastTerm = r.last, r.describe(top), r.term
	if r.state.RestorePending() && view.Log.Last <= r.last { // the only state is a restored state that never came into force
		r.report.CommittedIndex, r.report.Committed = 0, nil
		return r
	}
	if r.err = view.Entries(r.last, r.apply); r.err != nil || r.last == r.report.CommittedIndex {
		return r
	}
	latest := r.describe(top)
	r.report.Folder.LastTerm = r.term
	if r.alone() {
		r.report.CommittedIndex, r.report.Committed = r.last, latest
	} else {
		r.report.Latest = latest
	}
	return r
}

// sentence describes damage, without the advice that only helps a node of a cluster.
func sentence(err error) string {
	if found := (*damage.Error)(nil); errors.As(err, &found) {
		bare := *found
		bare.Folder = ""
		return bare.Error()
	}
	return err.Error()
}

// restore reads the newest snapshot, if there is one. If a starting node would drop that snapshot (see
// [backup.DropUncommittedRestore]), it reads the snapshot before.
func (r *remains) restore(view *store.View) error {
	use := 0
	for i, meta := range view.Snapshots {
		r.report.Folder.Snapshots = append(r.report.Folder.Snapshots, SnapshotReport{meta.Index, meta.Term, meta.Size})
		if i == 0 && view.Log.Last < meta.Index {
			var err error
			if use, err = r.judge(view); err != nil {
				return fmt.Errorf("the snapshot at index %d: %w", meta.Index, err)
			}
		}
		if i != use {
			continue
		}
		if err := r.feed.Restore(view.Snapshot(meta.ID)); err != nil {
			return fmt.Errorf("the snapshot at index %d: %w", meta.Index, err)
		}
		r.last, r.term = meta.Index, meta.Term
		r.report.Members, r.report.MembersIndex = membersOf(meta.Configuration), meta.ConfigurationIndex
	}
	return nil
}

// judge returns which snapshot a starting node would use: 0 for the newest, or 1 for the snapshot before if the newest
// is a restored state that never came into force.
func (r *remains) judge(view *store.View) (use int, err error) {
	newest := view.Snapshots[0]
	content := view.Snapshot(newest.ID)
	defer func() { _ = content.Close() }()
	header, err := replica.ReadStateHeader(content)
	if err != nil || !header.RestorePending() {
		return 0, err
	}
	r.report.Folder.NotInForce = newest.Index
	before := uint64(0)
	if len(view.Snapshots) > 1 {
		before = view.Snapshots[1].Index
	}
	if backup.LogContinuesWithout(newest.Index, before, view.Log.First, view.Log.Last) {
		return 1, nil
	}
	return 0, nil
}

// apply applies an entry, committed or not.
func (r *remains) apply(entry *raft.Log) error {
	if entry.Type == raft.LogConfiguration {
		r.report.Members, r.report.MembersIndex = membersOf(raft.DecodeConfiguration(entry.Data)), entry.Index
	}
	// As on a node, the FSM skips a command that was proposed in another term.
	if halted, _ := r.feed.Apply(entry).(error); errors.Is(halted, outcome.ErrHalted) {
		return halted
	}
	r.last, r.term = entry.Index, entry.Term
	return nil
}

// alone reports whether this node is the only voter. Then all entries in its log are committed.
func (r *remains) alone() bool {
	voters := 0
	for _, m := range r.report.Members {
		if m.Voter {
			voters++
		}
	}
	return voters == 1 && len(r.report.Damage) == 0 && r.voter()
}

func (r *remains) voter() bool {
	for _, m := range r.report.Members {
		if m.ID == r.report.Folder.Node {
			return m.Voter
		}
	}
	return false
}

func (r *remains) describe(top int) (s *State) {
	r.state.View(func(state *fsm.Machine) { s = describe(state, r.last, top) })
	return s
}
