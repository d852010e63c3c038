package lead

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// loneRaft is a Raft of one voter that commits and applies each entry at once. It
// leads as long as a test lets it.
type loneRaft struct {
	feed *replica.FSM
	hung chan struct{} // no barrier is taken until it is closed; nil: all are

	mu      sync.Mutex
	term    uint64
	leads   bool
	barrier error
	log     []*raft.Log
}

func (r *loneRaft) set(term uint64, leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.term, r.leads = term, leads
}

func (r *loneRaft) CurrentTerm() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term
}

func (r *loneRaft) State() raft.RaftState {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leads {
		return raft.Leader
	}
	return raft.Follower
}

func (r *loneRaft) CommitIndex() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(len(r.log))
}

func (r *loneRaft) Apply(entry []byte, _ time.Duration) raft.ApplyFuture {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &fakeFuture{answered: make(chan struct{})}
	if !r.leads {
		f.answer(raft.ErrNotLeader)
		return f
	}
	log := &raft.Log{Index: uint64(len(r.log) + 1), Term: r.term, Type: raft.LogCommand, Data: entry}
	r.log = append(r.log, log)
	f.index, f.response = log.Index, r.feed.Apply(log)
	f.answer(nil)
	return f
}

func (r *loneRaft) Barrier(time.Duration) raft.Future {
	if r.hung != nil {
		<-r.hung
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &fakeFuture{answered: make(chan struct{})}
	f.answer(r.barrier)
	return f
}

func (r *loneRaft) VerifyLeader() raft.Future { return r.Barrier(0) }

func (r *loneRaft) GetConfiguration() raft.ConfigurationFuture {
	f := &fakeConfiguration{fakeFuture{answered: make(chan struct{})}}
	f.answer(nil)
	return f
}

type fakeConfiguration struct{ fakeFuture }

func (*fakeConfiguration) Configuration() raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{ID: "n1"}}}
}

// loneNode is the node of a loneRaft.
type loneNode struct {
	fakeAdmission
	cluster fsm.ClusterID

	mu         sync.Mutex
	outcast    bool
	standstill error
	notices    []*loneNotices // one for each term
}

func (n *loneNode) ClusterID() fsm.ClusterID { return n.cluster }
func (n *loneNode) Jumps() bool              { return false }

func (n *loneNode) InForeignCluster() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.outcast
}

func (n *loneNode) Standstill() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.standstill
}

func (n *loneNode) Notices(*Term) Notices {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notices = append(n.notices, &loneNotices{})
	return n.notices[len(n.notices)-1]
}

// loneNotices notes its calls.
type loneNotices struct {
	running  bool
	restored int
	due      []uint64
}

func (n *loneNotices) Run(ctx context.Context) {
	n.running = true
	<-ctx.Done()
	n.running = false
}

func (n *loneNotices) Due(id uint64) { n.due = append(n.due, id) }
func (n *loneNotices) Restored()     { n.restored++ }

// lone is a leadership over a Raft of one voter, in a bubble.
type lone struct {
	*Leadership
	t    *testing.T
	raft *loneRaft
	node *loneNode
	news chan bool
}

func inLoneBubble(t *testing.T, test func(t *testing.T, l *lone)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lone{t: t, raft: &loneRaft{}, node: &loneNode{cluster: fsm.ClusterID{1: 7}}, news: make(chan bool)}
		r := replica.New(replica.Config{})
		l.Leadership = New(Config{
			Log: hclog.NewNullLogger(), Self: "n1", Node: l.node, Replica: r, Acks: raftlib.NewAckClock(), Pulse: NewPulse(),
			Limits: fsm.DefaultLimits(), QueueSize: 100, ReadTimeout: time.Second,
		})
		l.raft.feed = r.FSM(replica.FSMConfig{
			Sinks: []replica.Sink{l.Leadership}, Fatal: func(err error) { t.Error(err) }, SnapshotDue: func() {},
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.ForwardNotifications(l.news) })
		running.Go(func() { l.Run(ctx, l.raft) })
		test(t, l)
		cancel()
		close(l.news)
		running.Wait()
	})
}

// becomes has Raft win or lose a term, and waits until that is taken in.
func (l *lone) becomes(term uint64, leads bool) *Term {
	l.raft.set(term, leads)
	l.news <- leads
	synctest.Wait()
	return l.Established()
}

// apply logs one command, past the proposer's callers.
func (l *lone) apply(c fsm.Command) {
	l.t.Helper()
	p := &fakeProposal{data: fsm.Envelope{}.Encode(c), failed: make(chan outcome.Verdict, 1)}
	if !l.Established().Propose([]Proposal{p}) {
		l.t.Fatal("not taken")
	}
	synctest.Wait()
	if len(p.failed) > 0 {
		l.t.Fatalf("failed: %v", <-p.failed)
	}
}

// TestLeadershipEndsWhileRaftHangs: Run returns although Raft takes no barrier.
func TestLeadershipEndsWhileRaftHangs(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		l.raft.hung = make(chan struct{})
		t.Cleanup(func() { close(l.raft.hung) }) // after Run's end
		if l.becomes(2, true) != nil {
			t.Error("a term has begun without a barrier")
		}
	})
}

func TestLeadershipBeginsAndEndsTerms(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		changed := func() bool {
			select {
			case <-l.Changed():
				return true
			default:
				return false
			}
		}
		if l.becomes(1, false) != nil || changed() {
			t.Fatal("a follower has a term")
		}
		first := l.becomes(2, true)
		if !changed() {
			t.Error("a term is not told of")
		}
		if first == nil || first.Number() != 2 || first.Over() {
			t.Fatalf("as leader of term 2: %+v", first)
		}
		l.config.Replica.View(func(m *fsm.Machine) {
			if m.Term() != 2 || m.Leader() != "n1" || m.ClusterID() != l.node.cluster || m.FeatureLevel() != fsm.FeatureLevel {
				t.Errorf("the first entry: term %d of %q in cluster %v at level %d", m.Term(), m.Leader(), m.ClusterID(), m.FeatureLevel())
			}
		})
		if l.becomes(2, true) != first || changed() {
			t.Error("news without a change replace the term")
		}
		second := l.becomes(4, true) // lost and won again between two looks
		if !changed() {
			t.Error("another term is not told of")
		}
		if second == first || second.Number() != 4 || !first.Over() {
			t.Errorf("term %d, and the one before is over: %v", second.Number(), first.Over())
		}
		if first.Propose(nil) {
			t.Error("a term that is over takes commands")
		}
		if _, err := first.ProposeTick(t.Context()); err != raftlib.ErrTermOver {
			t.Errorf("a tick of a term that is over: %v", err)
		}
		if l.becomes(5, false) != nil || !second.Over() {
			t.Error("the term goes on though the leadership is lost")
		}
		if !changed() {
			t.Error("a lost leadership is not told of")
		}
	})
}

// TestLeadershipTriesAgain: a leader whose machine has not caught up has no term yet.
func TestLeadershipTriesAgain(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		l.raft.barrier = raft.ErrEnqueueTimeout
		if l.becomes(2, true) != nil {
			t.Fatal("established before the machine has caught up")
		}
		l.raft.mu.Lock()
		l.raft.barrier = nil
		l.raft.mu.Unlock()
		time.Sleep(2 * beginAgain) // virtual
		if l.Established() == nil {
			t.Error("not tried again")
		}
	})
}

// TestOutcastHasNoTerm: a node among nodes of another cluster serves no caller, but
// its term goes on.
func TestOutcastHasNoTerm(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		l.node.outcast = true
		if l.becomes(2, true) != nil {
			t.Error("established")
		}
		l.node.outcast = false
		if l.Established() == nil {
			t.Error("the term did not go on")
		}
	})
}

// TestTermBeginsWithHeldTime: a leader that can take no writes does not move time, not
// even for a moment.
func TestTermBeginsWithHeldTime(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		l.node.standstill = outcome.ErrStorageFull
		if term := l.becomes(2, true); !term.TimeHeld() {
			t.Error("time goes on")
		}
	})
}

// TestNoticesFollowTheirTerm: the notices of a term get those that become due in it, and
// no others.
func TestNoticesFollowTheirTerm(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		l.becomes(2, true)
		l.apply(fsm.CreateSemaphore{Name: "a"})
		l.apply(fsm.Down{Name: "a", Count: 1, Notice: "http://hooks.example/"})
		first := l.node.notices[0]
		if !first.running || first.restored != 1 || len(first.due) != 0 {
			t.Errorf("before it is due: %+v", first)
		}
		l.apply(fsm.Up{Name: "a", Count: 1})
		if len(first.due) != 1 {
			t.Errorf("in its term: %+v", first)
		}
		l.becomes(3, true)
		l.apply(fsm.Down{Name: "a", Count: 2, Notice: "http://hooks.example/"})
		l.apply(fsm.Up{Name: "a", Count: 1})
		l.SnapshotRestored(nil, 0)
		second := l.node.notices[1]
		if first.running || len(first.due) != 1 {
			t.Errorf("after its term: %+v", first)
		}
		if !second.running || second.restored != 2 || len(second.due) != 1 {
			t.Errorf("in the next term: %+v", second)
		}
	})
}

// TestConfirmShowsNothingThatIsDue: a session whose deadline has passed is removed
// before a read is confirmed, whether or not the ticker has come to it.
func TestConfirmShowsNothingThatIsDue(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		term := l.becomes(2, true)
		const opened = 2000 // more than an entry removes
		for session := range uint64(opened) {
			l.apply(fsm.OpenSession{Session: session + 1, TTLMS: 1000})
		}
		l.node.mu.Lock()
		l.node.standstill = outcome.ErrStorageFull
		l.node.mu.Unlock()
		l.UpdateTimeHold()
		time.Sleep(time.Minute) // virtual: cluster time stands still
		index, held, err := term.ReadIndex(t.Context())
		if err != nil || index < 2 {
			t.Fatalf("index %d, %v", index, err)
		}
		_, sessions, _, _ := l.counts()
		if sessions != opened {
			t.Fatalf("%d sessions while time stands still", sessions)
		}
		l.node.mu.Lock()
		l.node.standstill = nil
		l.node.mu.Unlock()
		l.UpdateTimeHold()
		time.Sleep(time.Second) // virtual
		_, nowMS, err := term.ReadIndex(t.Context())
		if _, sessions, _, _ := l.counts(); err != nil || sessions != 0 || nowMS < held+1000 {
			t.Errorf("%d sessions at %d, %d ms after time went on: %v", sessions, nowMS, nowMS-held, err)
		}
		l.becomes(3, true)
		if _, _, err := term.ReadIndex(t.Context()); !errors.Is(err, raftlib.ErrTermOver) {
			t.Errorf("in an earlier term: %v", err)
		}
	})
}

// TestConfirmLooksAtDeadlinesOfItsIndex: the machine may trail the index of a read, and entries up to it have
// deadlines that have passed by then.
func TestConfirmLooksAtDeadlinesOfItsIndex(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		term := l.becomes(2, true)
		l.raft.mu.Lock()
		entry := &raft.Log{Index: uint64(len(l.raft.log) + 1), Term: 2, Type: raft.LogCommand,
			Data: replica.EncodeTermEntry(2, term.NowMS(), [][]byte{fsm.Envelope{}.Encode(fsm.OpenSession{Session: 5, TTLMS: 1000})})}
		l.raft.log = append(l.raft.log, entry) // committed, and not applied yet
		l.raft.mu.Unlock()
		confirmed := make(chan error, 1)
		go func() {
			_, _, err := term.ReadIndex(t.Context())
			confirmed <- err
		}()
		time.Sleep(2 * time.Second) // virtual
		l.raft.mu.Lock()            // as loneRaft applies
		l.raft.feed.Apply(entry)
		l.raft.mu.Unlock()
		if err := <-confirmed; err != nil {
			t.Error(err)
		}
		if _, sessions, _, _ := l.counts(); sessions != 0 {
			t.Errorf("%d sessions that are due", sessions)
		}
	})
}

func (l *lone) counts() (semaphores, sessions, leases, waiting int) {
	l.config.Replica.View(func(m *fsm.Machine) { semaphores, sessions, leases, waiting = m.Counts() })
	return semaphores, sessions, leases, waiting
}

// TestEndOfATermEndsItsWaits: a read does not wait for acknowledgements that do not count any more.
func TestEndOfATermEndsItsWaits(t *testing.T) {
	inLoneBubble(t, func(t *testing.T, l *lone) {
		l.becomes(2, true)
		ended := make(chan error, 1)
		go func() {
			ended <- l.config.Acks.Wait(t.Context(), 2, l.config.Acks.Now(), []raft.ServerID{"n1", "n2", "n3"}, "n1")
		}()
		synctest.Wait()
		l.becomes(2, false)
		select {
		case err := <-ended:
			if !errors.Is(err, raftlib.ErrTermOver) {
				t.Error(err)
			}
		default:
			t.Error("it waits on")
		}
	})
}

// TestRefusalIsNotedFirst: a command that Raft did not take is given back only once its node knows that Raft refuses:
// it would be sent here again at once.
func TestRefusalIsNotedFirst(t *testing.T) {
	admission := &fakeAdmission{}
	p := newProposer(7, newClock(0, time.Now), nil, 10, admission, joinsNothing, NewPulse(), nil)
	q := &refusedFirst{fakeProposal: &fakeProposal{}, admission: admission}
	if p.fail(batch{proposals: []Proposal{q}}, raft.ErrLeadershipTransferInProgress); q.early || admission.refused != 7 {
		t.Errorf("given back too early %t, refused in term %d", q.early, admission.refused)
	}
}

// refusedFirst notes whether its node knew of the refusal when it was given back.
type refusedFirst struct {
	*fakeProposal
	admission *fakeAdmission
	early     bool
}

func (q *refusedFirst) Failed(outcome.Verdict) {
	if q.admission.refused == 0 {
		q.early = true
	}
}
