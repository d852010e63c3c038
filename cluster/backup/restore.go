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
	// patience is how long a restore waits, at multiplier 1, for a majority to have the
	// state, and a leader to have begun a term upon it.
	patience = time.Minute
	// skipped is how many indexes are left out before a restored state, so that an entry of
	// Raft's own, made meanwhile, does not take its index.
	skipped = 1024
)

// Leadership is the leader as a Restorer sees it. All methods are safe for concurrent use.
type Leadership interface {
	// Leads reports whether this node leads an established term.
	Leads() bool
	// Interrupt is that of lead.Leadership.
	Interrupt(ctx context.Context, work func(nowMS int64) error) error
	// Hold keeps the members as they are, all of which know a feature level, until done is
	// called.
	Hold(ctx context.Context, level uint32) (done func(), err error)
	// Refuses returns why the cluster can't take another state now, or nil.
	Refuses() error
}

// Raft is the part of Raft that a Restorer needs.
type Raft interface {
	CurrentTerm() uint64
	LastIndex() uint64
	AppliedIndex() uint64
	Restore(meta *raft.SnapshotMeta, reader io.Reader, timeout time.Duration) error
}

// Restorer puts the state of a backup into the place of the cluster's, on the leader.
type Restorer struct {
	log        hclog.Logger
	leadership Leadership
	raft       Raft
	replica    *replica.Replica
	times      wake.Stretch
	turn       chan struct{} // has room for one: the restore under way

	mu     sync.Mutex
	giving uint64 // the index of the state that Raft is being given; 0: of none
	closed bool
}

// NewRestorer returns the restorer of a node whose Raft runs.
func NewRestorer(log hclog.Logger, l Leadership, r Raft, own *replica.Replica, times wake.Stretch) *Restorer {
	return &Restorer{log: log, leadership: l, raft: r, replica: own, times: times, turn: make(chan struct{}, 1)}
}

// Order says what a restore is to do.
type Order struct {
	From        *fsm.ClusterID // the cluster that the backup must be of; nil: the cluster itself
	EndSessions bool           // all sessions of the backup end; otherwise they keep the time that they had left
}

// Restored says what a restore has done.
type Restored struct {
	Index uint64         // at which the state took its place
	From  archive.Header // of the backup
}

// Restore reads a backup and puts its state into the place of the cluster's. It blocks until
// that is in force. While the state is replaced the cluster has no leader: requests wait, as in
// an election, and cluster time stands still.
//
// Errors: ErrNotLeader, also if another node leads meanwhile; ErrRestoring; ErrBackupRefused
// with the reason; ErrLevelUnknown; ErrStorageFull, ErrSplitState; ErrNotApplied; those of the
// reader, and ctx's cause. After all of them the cluster has the state that it had. After
// ErrOutcomeUnknown either state may come into force.
func (r *Restorer) Restore(ctx context.Context, from io.Reader, order Order) (Restored, error) {
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	default:
		return Restored{}, outcome.ErrRestoring
	}
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
	s := succession{Restorer: r, ctx: ctx, state: state, endSessions: order.EndSessions}
	if err := r.leadership.Interrupt(ctx, s.take); err != nil {
		r.log.Error("the backup is not restored", "error", err)
		return Restored{}, err
	}
	if err := s.await(ctx); err != nil {
		r.log.Error("it is open whether the backup is restored", "error", err)
		return Restored{}, err
	}
	r.log.Warn("the backup is restored", "at_index", s.index)
	return Restored{Index: s.index, From: header}, nil
}

// checkCluster refuses a backup of another cluster than from, or, if that is nil, than this one.
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

// Close ends the giving of states to Raft, which must not be shut down before Close returns: it
// would panic in the middle of one. Restores whose states Raft does not have yet fail. It may
// wait for a disk that hangs.
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

// begin notes that Raft is given a state, unless the restorer is closed.
func (r *Restorer) begin(index uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.giving = index
	}
	return !r.closed
}

// end notes that Raft is given that state no more. A later one may be on its way already: the
// caller of this one waits for Raft only until the state is in force.
func (r *Restorer) end(index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.giving == index {
		r.giving = 0
	}
}

// succession is one state on its way into the cluster.
type succession struct {
	*Restorer
	ctx         context.Context // after its end Raft gets no more of the state
	state       *fsm.Machine
	endSessions bool
	index       uint64   // at which it takes its place; set by take
	hash        [16]byte // of it there; set by take
}

// await blocks until an entry that follows the state is applied here: then a majority has
// both. Another leader may have brought other entries in their place.
func (s *succession) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.times.Of(patience), outcome.ErrOutcomeUnknown)
	defer cancel()
	if err := s.replica.Await(ctx, s.index+1); err != nil {
		return fmt.Errorf("%w: %w", outcome.ErrOutcomeUnknown, err)
	}
	if !s.replica.Succeeded(s.index, s.hash) {
		return fmt.Errorf("%w: at index %d this node has another state", outcome.ErrOutcomeUnknown, s.index)
	}
	return nil
}

// take gives the state to Raft while no term runs. An error means that Raft has not taken
// it.
func (s *succession) take(nowMS int64) error {
	by := fsm.Succession{NowMS: nowMS, EndSessions: s.endSessions}
	s.replica.View(func(m *fsm.Machine) { by.Own = m.Standing() })
	// Raft takes the index after the one in the metadata, unless its log is there already.
	before := max(s.raft.LastIndex(), by.Own.Index(), s.state.Index()) + skipped
	by.Index = before + 1
	if err := s.state.Succeed(by); err != nil {
		return refused(err)
	}
	s.index, s.hash = by.Index, s.state.Hash()
	if !s.begin(s.index) {
		return outcome.ErrDraining
	}
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: before}
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(replica.WriteSnapshot(writer, s.index, s.state.Freeze())) }()
	given := &given{Reader: reader, ctx: s.ctx, meta: meta, raft: s.raft, term: by.Own.Term()}
	taken, forget := s.replica.Prepare(s.index, s.state)
	returned := make(chan error, 1)
	go func() {
		err := s.raft.Restore(meta, given, 0)
		s.end(by.Index)
		_ = reader.Close() // ends the writing, if Raft did not read all
		forget()
		if given.whole {
			err = s.open(err)
		} else if err != nil {
			err = fmt.Errorf("%w: %w", outcome.ErrNotApplied, err)
		}
		returned <- err
	}()
	// Raft returns only after an entry of its own, and never if it gets out of that one's way.
	select {
	case <-taken:
		return nil // and await finds out what became of it
	case err := <-returned:
		return err
	}
}

// open returns the outcome of a restore whose state Raft has read whole, given Raft's error: nil
// if await finds out, as after an end of leadership. After another error, as that of a disk
// which took the state and could not finish it, there is nothing to wait for.
func (s *succession) open(err error) error {
	if err == nil {
		return nil
	}
	s.log.Error("Raft has read the state of a backup, and failed", "error", err)
	if outcome.LeadershipOver(err) {
		return nil
	}
	return fmt.Errorf("%w: %w", outcome.ErrOutcomeUnknown, err)
}

// given is a snapshot on its way to Raft. It notes the size in the metadata while it is
// read: Raft compares the two once it has read all.
type given struct {
	io.Reader
	ctx   context.Context
	meta  *raft.SnapshotMeta
	raft  Raft
	term  uint64 // in which alone Raft may take it: the state follows what that term has come to
	begun bool   // Raft reads it
	whole bool   // Raft has read all: from now on an error does not say what became of it
}

// Read is called by Raft's main loop, so that term and log stay as they are meanwhile.
func (g *given) Read(p []byte) (int, error) {
	if !g.begun && (g.raft.CurrentTerm() != g.term || g.raft.LastIndex() > g.meta.Index) {
		return 0, errors.New("the log has gone on before the state was ready")
	}
	if g.ctx.Err() != nil { // a node that stops must not be in the middle of it: Raft would panic
		return 0, context.Cause(g.ctx)
	}
	g.begun = true
	n, err := g.Reader.Read(p)
	g.meta.Size += int64(n)
	g.whole = errors.Is(err, io.EOF)
	return n, err
}
