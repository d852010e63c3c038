package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// scene is a restorer on the leader of term 3, whose Raft is the test.
type scene struct {
	*replica.Replica
	feed   *replica.FSM
	term   uint64
	last   atomic.Uint64  // index of the log
	next   uint64         // index of the log when the next term may begin
	given  int            // bytes that Raft has read
	before []func(*scene) // happens before Raft reads
	become func(s *scene, snapshot []byte, err error) error
}

func (s *scene) Leads() bool    { return true }
func (s *scene) Refuses() error { return nil }

// Interrupt notes when the next term may begin.
func (s *scene) Interrupt(_ context.Context, work func(int64) error) error {
	err := work(0)
	s.next = s.last.Load()
	return err
}

func (s *scene) Hold(context.Context, uint32) (func(), error) { return func() {}, nil }

func (s *scene) CurrentTerm() uint64 { return s.term }
func (s *scene) LastIndex() uint64   { return s.last.Load() }

func (s *scene) AppliedIndex() uint64 { return s.Index() }

// Restore reads the snapshot as Raft does.
func (s *scene) Restore(_ *raft.SnapshotMeta, from io.Reader, _ time.Duration) error {
	for _, happens := range s.before {
		happens(s)
	}
	var snapshot bytes.Buffer
	n, err := io.Copy(&snapshot, from)
	s.given = int(n)
	return s.become(s, snapshot.Bytes(), err)
}

// begin applies the first entry of a term.
func (s *scene) begin(t *testing.T, index, term uint64) {
	t.Helper()
	first := fsm.Envelope{}.Encode(fsm.StartTerm{Term: term, Leader: "n1", Limits: fsm.DefaultLimits(), Cluster: fsm.ClusterID{7}, Level: fsm.FeatureLevel})
	entry := &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: replica.EncodeTermEntry(term, 0, [][]byte{first})}
	if err, _ := s.feed.Apply(entry).(error); err != nil {
		t.Fatal(err)
	}
	s.last.Store(index)
}

// restored returns the outcome of a restore and how many bytes Raft has read, given what
// happens before and what Raft makes of them.
func restored(t *testing.T, become func(s *scene, snapshot []byte, err error) error, before ...func(*scene)) (read int, err error) {
	t.Helper()
	s := &scene{Replica: replica.New(replica.Config{}), term: 3, become: become, before: before}
	s.feed = s.FSM(replica.FSMConfig{Fatal: func(err error) { t.Error(err) }, SnapshotDue: func() {}})
	s.begin(t, 5, 3)
	r := NewRestorer(hclog.NewNullLogger(), s, s, s.Replica, wake.Stretch(1))
	_, err = r.Restore(t.Context(), bytes.NewReader(fileOf(t, state(7, 9, fsm.CreateSemaphore{Name: "db", Permits: 3}))), Order{})
	return s.given, err
}

// TestNextTermFollowsRaftsOwnEntry: the replica never reaches an entry without a command, so a read whose index it is
// waits for ever, unless the first entry of the next term follows it.
func TestNextTermFollowsRaftsOwnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{Replica: replica.New(replica.Config{}), term: 3}
		s.become = func(s *scene, snapshot []byte, err error) error {
			if err := s.feed.Restore(io.NopCloser(bytes.NewReader(snapshot))); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // virtual
			s.last.Store(at + 1)
			time.Sleep(time.Second) // virtual: a majority has the entry
			s.begin(t, at+2, 3)
			return err
		}
		s.feed = s.FSM(replica.FSMConfig{Fatal: func(err error) { t.Error(err) }, SnapshotDue: func() {}})
		s.begin(t, 5, 3)
		r := NewRestorer(hclog.NewNullLogger(), s, s, s.Replica, wake.Stretch(1))
		backup := fileOf(t, state(7, 9, fsm.CreateSemaphore{Name: "db", Permits: 3}))
		if _, err := r.Restore(t.Context(), bytes.NewReader(backup), Order{}); err != nil || s.next != at+1 {
			t.Errorf("%v; the next term began after index %d, and Raft's entry is %d", err, s.next, at+1)
		}
	})
}

// at is the index of the state in those tests.
const at = 9 + skipped + 1

// TestRestoreSucceedsIfItsStateIsInForce alone: not if Raft has failed and the log has come
// to the same index without that state, by another leader.
func TestRestoreSucceedsIfItsStateIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take := func(s *scene, snapshot []byte) {
			if err := s.feed.Restore(io.NopCloser(bytes.NewReader(snapshot))); err != nil {
				t.Error(err)
			}
		}
		for name, c := range map[string]struct {
			become func(s *scene, snapshot []byte, err error) error
			want   error
		}{
			"in force": {func(s *scene, snapshot []byte, err error) error {
				take(s, snapshot)
				s.begin(t, at+1, 3)
				return err
			}, nil},
			"in force, though leadership was lost": {func(s *scene, snapshot []byte, _ error) error {
				take(s, snapshot)
				s.begin(t, at+1, 4)
				return raft.ErrLeadershipLost
			}, nil},
			"overtaken by another leader": {func(s *scene, _ []byte, _ error) error {
				s.begin(t, at+1, 4)
				return raft.ErrLeadershipLost
			}, outcome.ErrOutcomeUnknown},
			"read whole, and no more is known": {func(*scene, []byte, error) error { return raft.ErrNotLeader }, outcome.ErrOutcomeUnknown},
		} {
			if n, err := restored(t, c.become); !errors.Is(err, c.want) || n == 0 {
				t.Errorf("%s: %v, after %d bytes", name, err, n)
			}
		}
	})
}

// TestRaftTakesAStateInItsTermAlone: a state that follows the log of one term is not taken in
// a later one of the same leader, nor after entries that it does not follow. It is known then
// that it is not applied.
func TestRaftTakesAStateInItsTermAlone(t *testing.T) {
	for name, goOn := range map[string]func(*scene){
		"a later term": func(s *scene) { s.term++ },
		"a longer log": func(s *scene) { s.last.Store(at) },
	} {
		n, err := restored(t, func(_ *scene, _ []byte, err error) error { return err }, goOn)
		if !errors.Is(err, outcome.ErrNotApplied) || n != 0 {
			t.Errorf("%s: %v, after %d bytes", name, err, n)
		}
	}
}

// TestFailedEndOfARestoreIsReportedAtOnce: the disk took the state and could not finish it, so no
// entry will follow it in this term.
func TestFailedEndOfARestoreIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full, began := errors.New("failed to close snapshot: no room"), time.Now()
		_, err := restored(t, func(*scene, []byte, error) error { return full })
		if took := time.Since(began); !errors.Is(err, outcome.ErrOutcomeUnknown) || !errors.Is(err, full) || took > time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// TestLateEndOfARestoreLeavesTheNextOneMarked: Close waits for the restore that Raft is being given.
func TestLateEndOfARestoreLeavesTheNextOneMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scene{Replica: replica.New(replica.Config{})}
		r := NewRestorer(hclog.NewNullLogger(), s, s, s.Replica, wake.Stretch(1))
		if !r.beginGiving(1000) || !r.beginGiving(3000) {
			t.Fatal("the restorer takes no state")
		}
		r.endGiving(1000)
		closed := make(chan struct{})
		go func() { r.Close(); close(closed) }()
		time.Sleep(time.Second) // virtual
		select {
		case <-closed:
			t.Error("Raft may be shut down while it is being given a state")
		default:
		}
		r.endGiving(3000)
		<-closed
	})
}

// must ends a test upon an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
