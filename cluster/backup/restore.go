package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/store/archive"
)

const (
	// patience bounds, at multiplier 1, the wait until a majority has the restored state and the next leader has begun
	// a term.
	patience = time.Minute
	// skipped is the number of unused indexes before a restored state. During the restore Raft may append entries, for
	// example a barrier, and no such entry may get the state's index.
	skipped = 1024
)

// Leadership is the part of the leader that a Restorer needs. All methods are safe for concurrent use.
type Leadership interface {
	// Leads reports whether this node is the leader and its machine has applied the first entry of its term.
	Leads() bool
	// Interrupt calls work while this leader makes no entries and serves no reads; see lead.Leadership.
	Interrupt(ctx context.Context, work func(nowMS int64) error) error
	// Hold blocks all changes of the members until done is called, after all members have confirmed that they know
	// level.
	Hold(ctx context.Context, level uint32) (done func(), err error)
	// Refuses returns why the cluster can't accept a restored state now, or nil.
	Refuses() error
}

// Raft is the part of Raft that a Restorer needs.
type Raft interface {
	CurrentTerm() uint64
	LastIndex() uint64
	AppliedIndex() uint64
	Restore(meta *raft.SnapshotMeta, reader io.Reader, timeout time.Duration) error
}

// Restorer replaces the cluster's state by a backup's state, on the leader.
type Restorer struct {
	log        hclog.Logger
	leadership Leadership
	raft       Raft
	replica    *replica.Replica
	times      wake.Stretch
	restoring  sync.Mutex // locked during a restore

	mu     sync.Mutex
	giving uint64 // the index of the restored state while Raft reads it, else 0
	closed bool
}

// NewRestorer returns the restorer of a node whose Raft runs.
func NewRestorer(log hclog.Logger, l Leadership, r Raft, state *replica.Replica, times wake.Stretch) *Restorer {
	return &Restorer{log: log, leadership: l, raft: r, replica: state, times: times}
}

// Order says how to restore a backup.
type Order struct {
	From        *fsm.ClusterID // the cluster from which the backup must come; nil: this cluster
	EndSessions bool           // end all sessions of the backup; otherwise they keep their remaining time
}

// Restored is the result of a restore.
type Restored struct {
	Index uint64         // of the restored state
	From  archive.Header // of the backup
}

// Restore reads a backup and replaces the cluster's state by the backup's. It blocks until the new state is in force.
// During the replacement the cluster has no leader: requests wait, as in an election, and cluster time stands still.
//
// Errors: ErrNotLeader, also if this node loses leadership during the restore; ErrRestoring; ErrBackupRefused with the
// reason; ErrLevelUnknown; ErrStorageFull, ErrSplitState; ErrNotApplied; the errors of the reader, and ctx's cause.
// After these errors the cluster has its old state. After ErrOutcomeUnknown it may get either state.
func (r *Restorer) Restore(ctx context.Context, from io.Reader, order Order) (Restored, error) {
	if !r.restoring.TryLock() {
		return Restored{}, outcome.ErrRestoring
	}
	defer r.restoring.Unlock()
	if !r.leadership.Leads() {
		return Restored{}, outcome.ErrNotLeader
	}
	if err := r.leadership.Refuses(); err != nil {
		return Restored{}, err
	}
	header, state, err := Read(from)
	if err != nil {
		return Restored{}, err
	}
	if err := r.checkCluster(header.Cluster, order.From); err != nil {
		return Restored{}, err
	}
	done, err := r.leadership.Hold(ctx, header.Level)
	if err != nil {
		return Restored{}, err
	}
	defer done()
	r.log.Warn("restoring a backup: its state takes the place of the cluster's", "index", header.Index, "cluster", fsm.ClusterID(header.Cluster),
		"taken", header.WallTime, "end_sessions", order.EndSessions)
	n := newState{Restorer: r, ctx: ctx, machine: state, endSessions: order.EndSessions}
	if err := r.leadership.Interrupt(ctx, n.giveToRaft); err != nil {
		r.log.Error("the backup is not restored", "error", err)
		return Restored{}, err
	}
	if err := n.awaitSuccessor(); err != nil {
		r.log.Error("it is open whether the backup is restored", "error", err)
		return Restored{}, err
	}
	r.log.Warn("the backup is restored", "at_index", n.index)
	return Restored{Index: n.index, From: header}, nil
}

// checkCluster refuses a backup of any other cluster than from. nil means this cluster.
func (r *Restorer) checkCluster(id fsm.ClusterID, from *fsm.ClusterID) error {
	if from == nil {
		var self fsm.ClusterID
		r.replica.View(func(m *fsm.Machine) { self = m.ClusterID() })
		from = &self
	}
	if id != *from {
		return refused(fmt.Errorf("it is of cluster %s, and not of %s", id, *from))
	}
	return nil
}

// newState is the state of a backup during its restore.
type newState struct {
	*Restorer
	ctx         context.Context // when it ends, Raft stops reading the state
	machine     *fsm.Machine
	endSessions bool
	index       uint64   // the state's index in the log; set by giveToRaft
	hash        [16]byte // the state's hash; set by giveToRaft
}

// giveToRaft prepares the state to follow the present state, and passes it to Raft as a snapshot. It is called by
// Interrupt. It blocks until Raft's state machine has the state and Raft has appended an entry after it, or Raft has
// failed. After an error other than ErrOutcomeUnknown, Raft has not accepted the state.
func (n *newState) giveToRaft(nowMS int64) error {
	successor := fsm.Succession{NowMS: nowMS, EndSessions: n.endSessions}
	n.replica.View(func(m *fsm.Machine) { successor.Own = m.StateHeader() })
	// Raft gives the state the index after the index in the metadata, unless its log is longer.
	before := max(n.raft.LastIndex(), successor.Own.Index(), n.machine.Index()) + skipped
	successor.Index = before + 1
	if err := n.machine.Succeed(successor); err != nil {
		return refused(err)
	}
	n.index, n.hash = successor.Index, n.machine.Hash()
	if !n.beginGiving(n.index) {
		return outcome.ErrDraining
	}
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(replica.WriteSnapshot(writer, n.index, n.machine.Freeze())) }()
	snapshot := &snapshotReader{
		Reader: reader, ctx: n.ctx, raft: n.raft, term: successor.Own.Term(),
		meta: &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: before},
	}
	taken, forget := n.replica.Prepare(n.index, n.machine)
	returned := make(chan error, 1)
	go func() {
		err := n.raft.Restore(snapshot.meta, snapshot, 0)
		n.endGiving(successor.Index)
		_ = reader.Close() // ends the writing goroutine if Raft did not read everything
		forget()
		returned <- n.judge(err, snapshot.complete)
	}()
	// Raft's Restore also appends an entry and waits for it. If another leader's entry replaces that entry, it never
	// returns.
	select {
	case <-taken:
		return n.awaitOwnEntry(successor.Own.Term(), returned) // then awaitSuccessor finds out whether the state comes into force
	case err := <-returned:
		return err
	}
}

// awaitOwnEntry blocks until Raft's Restore has appended an entry after the restored state, or has failed, or the term
// has ended. That entry has no command, so the replica never reports its index as applied. The first entry of the next
// term must come after it: otherwise a linearizable read would wait for an index that the replica reaches only with a
// later command.
func (n *newState) awaitOwnEntry(term uint64, returned <-chan error) error {
	for n.raft.LastIndex() <= n.index && n.raft.CurrentTerm() == term {
		select {
		case err := <-returned:
			return err
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// judge translates the error of Raft's Restore. If Raft has not read the whole state, it has not accepted it. If it has
// read all and lost leadership, judge returns nil, and awaitSuccessor finds out the outcome. Any other error leaves the
// outcome unknown; for example, the snapshot was written but could not be completed.
func (n *newState) judge(err error, complete bool) error {
	switch {
	case err == nil:
		return nil
	case !complete:
		return fmt.Errorf("%w: %w", outcome.ErrNotApplied, err)
	}
	n.log.Error("Raft has read the state of a backup, and failed", "error", err)
	if outcome.LeadershipOver(err) {
		return nil
	}
	return fmt.Errorf("%w: %w", outcome.ErrOutcomeUnknown, err)
}

// awaitSuccessor blocks until this node has applied an entry after the state. Then a majority has both. It fails if
// another leader's entries have replaced the state.
func (n *newState) awaitSuccessor() error {
	ctx, cancel := context.WithTimeoutCause(n.ctx, n.times.Of(patience), outcome.ErrOutcomeUnknown)
	defer cancel()
	if err := n.replica.Await(ctx, n.index+1); err != nil {
		return fmt.Errorf("%w: %w", outcome.ErrOutcomeUnknown, err)
	}
	if !n.replica.RestoreInForce(n.index, n.hash) {
		return fmt.Errorf("%w: at index %d this node has another state", outcome.ErrOutcomeUnknown, n.index)
	}
	return nil
}

// snapshotReader is the reader from which Raft reads a state. It counts the bytes into the size in the metadata, since
// Raft compares that size with the bytes at the end.
type snapshotReader struct {
	io.Reader
	ctx      context.Context
	meta     *raft.SnapshotMeta
	raft     Raft
	term     uint64 // Raft must begin to read in this term: the state follows the last entry of this term
	started  bool   // Raft has begun to read
	complete bool   // Raft has read all; after a later error it may or may not have accepted the state
}

// Read is called by Raft's main loop. So the term and the log don't change during a call.
func (s *snapshotReader) Read(p []byte) (int, error) {
	if !s.started && (s.raft.CurrentTerm() != s.term || s.raft.LastIndex() > s.meta.Index) {
		return 0, errors.New("the log has gone on before the state was ready")
	}
	if s.ctx.Err() != nil { // a shutdown of Raft in the middle of the reading would panic
		return 0, context.Cause(s.ctx)
	}
	s.started = true
	n, err := s.Reader.Read(p)
	s.meta.Size += int64(n)
	s.complete = errors.Is(err, io.EOF)
	return n, err
}

// beginGiving records that Raft is about to read the state at index. It returns false if the restorer is closed.
func (r *Restorer) beginGiving(index uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.giving = index
	}
	return !r.closed
}

// endGiving records that Raft no longer reads the state at index. It checks the index because Raft may already read the
// state of a later restore: Restore can return before Raft's Restore returns.
func (r *Restorer) endGiving(index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.giving == index {
		r.giving = 0
	}
}

// Close prevents Raft from reading further states. It must return before Raft is shut down, since a shutdown in the
// middle of the reading panics. Restores whose state Raft does not have yet fail. Close may block while a disk hangs.
func (r *Restorer) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for r.giving != 0 && r.raft.AppliedIndex() < r.giving {
		r.mu.Unlock()
		<-time.After(time.Millisecond)
		r.mu.Lock()
	}
}
