package lead

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// barrierTimeout bounds how long a new leader's machine may take to catch up with the log before the leader tries
	// again. For example, a node that has just restarted may have many entries to apply.
	barrierTimeout = 30 * time.Second
	// landTimeout bounds how long Interrupt waits for Raft's replies about the entries made before it.
	landTimeout = 10 * time.Second
	// firstEntryTimeout bounds the first entry of a term.
	firstEntryTimeout = 5 * time.Second
	// beginAgain is the pause after a failed attempt to begin a term.
	beginAgain = 100 * time.Millisecond
)

// Raft is the part of Raft that a leader needs.
type Raft interface {
	raftlib.ReadSource
	State() raft.RaftState
	Apply(entry []byte, timeout time.Duration) raft.ApplyFuture
	Barrier(timeout time.Duration) raft.Future
}

// Node is the part of the node that its leadership uses. No method blocks; all are safe for concurrent use.
type Node interface {
	Admission
	// ClusterID returns the id of the cluster in the data folder. A state without an id gets it.
	ClusterID() fsm.ClusterID
	// Jumps reports whether the first entry of a term must make the counters skip numbers. This is so after a restore
	// of the data folder: the lost entries may have used higher numbers.
	Jumps() bool
	// InForeignCluster reports that the node finds itself among nodes of another cluster. Then it serves no caller,
	// even if its Raft leads.
	InForeignCluster() bool
	// Standstill returns why the leader must refuse all commands and stop cluster time, or nil.
	Standstill() error
	// Notices returns the part that delivers due notices during a term.
	Notices(t *Term) Notices
}

// Notices delivers the notices that are due, during one term. The apply goroutine calls Due and Restored, which must
// not block.
type Notices interface {
	// Run works until ctx ends with the term. It returns when its work is over.
	Run(ctx context.Context)
	// Due reports a notice that has become due; Restored reports that any notice may be due.
	Due(id uint64)
	Restored()
}

// Config says how a node leads. All fields are needed.
type Config struct {
	Log     hclog.Logger
	Self    raft.ServerID
	Node    Node
	Replica *replica.Replica
	Acks    *raftlib.AckClock
	Pulse   *Pulse
	Limits  fsm.Limits // sent with the first entry of each term
	// QueueSize bounds the commands that wait for the log.
	QueueSize int
	// ReadTimeout bounds one exchange with the peers that confirms reads.
	ReadTimeout time.Duration
	// Clock is the node's monotonic clock, by which cluster time passes; nil: time.Now.
	Clock func() time.Time
	// Tracer learns which commands with a trace context were logged; it may be nil.
	Tracer Tracer
}

// Leadership begins a term when this node wins an election, and ends it when the node loses the leadership. One
// goroutine, Run, does both, one after the other, so there are never two proposers. Leadership is a sink of the
// replica's FSM. All methods are safe for concurrent use.
type Leadership struct {
	config  Config
	news    wake.Signal // Run must check its conditions again
	changed wake.Signal // Established returns another term
	current atomic.Pointer[Term]
	pauses  chan pause

	interrupted uint64 // the term that Interrupt stopped last, until Run finds it lost; only Run uses it
}

// pause is a call of Interrupt, which does its work while no term runs.
type pause struct {
	ctx  context.Context
	work func(nowMS int64) error
	done chan error // buffered, for one error
}

// New returns the leadership of a node that does not lead yet.
func New(config Config) *Leadership {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	return &Leadership{config: config, news: wake.NewSignal(), changed: wake.NewSignal(), pauses: make(chan pause)}
}

// ForwardNotifications reads Raft's notifications until the channel is closed, and only wakes Run: Raft's main loop
// stops while a notification is not read.
func (l *Leadership) ForwardNotifications(notifications <-chan bool) {
	for range notifications {
		l.news.Set()
	}
}

// Established returns the term in which this node leads, or nil if it does not lead, or cannot lead yet: its machine
// must first apply the first entry of the term.
func (l *Leadership) Established() *Term {
	if l.config.Node.InForeignCluster() {
		return nil
	}
	return l.current.Load()
}

// Changed is set whenever Established may return another term. It has one receiver.
func (l *Leadership) Changed() <-chan struct{} { return l.changed }

// established returns the number of the established term, or 0.
func (l *Leadership) established() uint64 {
	if t := l.Established(); t != nil {
		return t.term
	}
	return 0
}

// Run begins and ends terms until ctx ends. It returns once the last term is over.
func (l *Leadership) Run(ctx context.Context, r Raft) {
	defer l.end()
	rounds := raftlib.NewReadRounds(r, l.established, l.config.Acks, l.config.Self, l.config.ReadTimeout)
	for ctx.Err() == nil {
		number, leads := r.CurrentTerm(), r.State() == raft.Leader
		now := l.current.Load()
		if now != nil && (!leads || now.term != number) {
			l.end()
			now = nil
		}
		if l.interrupted != 0 && (!leads || l.interrupted != number) { // end did not see the interrupted term
			l.config.Acks.EndTerm(l.interrupted)
			l.interrupted = 0
		}
		var again <-chan time.Time
		if leads && now == nil && !l.begin(ctx, r, number, rounds) {
			again = time.After(beginAgain)
		}
		select {
		case <-l.news:
		case <-again:
		case p := <-l.pauses:
			p.done <- l.interrupt(p)
		case <-ctx.Done():
		}
	}
}

// Interrupt stops the term, calls work, and then begins the same term again if this node still leads. All earlier
// entries are applied before work is called; during work no entry is made and no read is confirmed. nowMS is cluster
// time. Interrupt fails with outcome.ErrNotLeader if no term is established here, and with outcome.ErrNotApplied if the
// earlier entries do not return in time; in both cases it does not call work. It blocks until work returns, even if ctx
// ends during work.
func (l *Leadership) Interrupt(ctx context.Context, work func(nowMS int64) error) error {
	p := pause{ctx: ctx, work: work, done: make(chan error, 1)}
	select {
	case l.pauses <- p:
		return <-p.done
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// interrupt stops the term. It does not end the term's number in Acks, because the next term here has the same number.
func (l *Leadership) interrupt(p pause) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	t := l.current.Swap(nil)
	if t == nil {
		return outcome.ErrNotLeader
	}
	l.interrupted = t.term
	t.stop()
	l.changed.Set()
	l.news.Set() // makes Run begin the next term
	if !wake.Within(landTimeout, t.inFlight.Wait) {
		return fmt.Errorf("%w: entries are under way", outcome.ErrNotApplied)
	}
	return p.work(t.clock.now())
}

// begin establishes a term: the machine applies everything that earlier leaders may have acknowledged, and then the
// first entry, which names the term. From the stamp of that entry on, this node's clock sets cluster time.
func (l *Leadership) begin(ctx context.Context, r Raft, number uint64, rounds *raftlib.ReadRounds) bool {
	log := l.config.Log
	wait, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	if err := wake.Await(wait, func() error { return r.Barrier(barrierTimeout).Error() }); err != nil {
		log.Warn("the machine has not caught up with the log", "term", number, "error", err)
		return false
	}
	c := newClock(l.config.Replica.NowMS(), l.config.Clock)
	if err := l.logFirstEntry(ctx, r, number, c); err != nil {
		log.Warn("the first entry of a term failed", "term", number, "error", err)
		return false
	}
	c.hold(l.config.Node.Standstill() != nil)
	t := newTerm(newProposer(number, c, r, l.config.QueueSize, l.config.Node, l.config.Replica.JoinsQueue, l.config.Pulse, l.config.Tracer), rounds, &l.config)
	l.current.Store(t)
	l.UpdateTimeHold()
	t.restored() // every entry is reported from now on; check the earlier ones
	log.Info("leading", "term", number)
	l.changed.Set()
	return true
}

// logFirstEntry logs the entry that names the term. It does not use the proposer, which does not run yet.
func (l *Leadership) logFirstEntry(ctx context.Context, r Raft, term uint64, c *clock) error {
	first := fsm.Envelope{}.Encode(l.firstEntry(term))
	ctx, cancel := context.WithTimeout(ctx, firstEntryTimeout)
	defer cancel()
	entry := replica.EncodeTermEntry(term, c.stamp(), [][]byte{first})
	return wake.Await(ctx, func() error {
		future := r.Apply(entry, enqueueTimeout)
		if err := future.Error(); err != nil {
			return err
		}
		err, _ := future.Response().(error)
		return err
	})
}

// firstEntry returns the first command of a term. A state without a cluster id gets one, and begins at the highest
// feature level of this program. Any other state keeps its level, since another member may not know a higher one.
func (l *Leadership) firstEntry(term uint64) fsm.StartTerm {
	node := l.config.Node
	first := fsm.StartTerm{Term: term, Leader: string(l.config.Self), Limits: l.config.Limits, Jump: node.Jumps()}
	l.config.Replica.View(func(m *fsm.Machine) { first.Cluster, first.Level = m.ClusterID(), m.FeatureLevel() })
	if first.Cluster == (fsm.ClusterID{}) {
		first.Cluster, first.Level = node.ClusterID(), fsm.FeatureLevel
	}
	return first
}

// end ends the present term, if there is one, and waits until the term makes no further entry. Callers of earlier
// entries may still wait for Raft.
func (l *Leadership) end() {
	t := l.current.Swap(nil)
	if t == nil {
		return
	}
	l.config.Acks.EndTerm(t.term)
	t.stop()
	l.config.Log.Info("no longer leading", "term", t.term)
	l.changed.Set()
}

// Applied implements [replica.Sink]: the ticker and the notices of the present term check the entry.
func (l *Leadership) Applied(entry *fsm.Applied) {
	if t := l.current.Load(); t != nil {
		t.applied(entry)
	}
}

// SnapshotRestored implements [replica.Sink].
func (l *Leadership) SnapshotRestored(*fsm.Machine, uint64) {
	if t := l.current.Load(); t != nil {
		t.restored()
	}
}

// UpdateTimeHold stops cluster time in the present term, or lets it continue, as Node.Standstill says now.
func (l *Leadership) UpdateTimeHold() {
	if t := l.current.Load(); t != nil {
		t.clock.hold(l.config.Node.Standstill() != nil)
	}
}

// endOfTermTimeout is how long a term that is over waits for Raft's replies about its last entries, so that few
// goroutines outlive the term.
const endOfTermTimeout = time.Second

// Term is the leadership of one node in one term of Raft, once it is established. Its proposer, its ticker and its
// notices run until the term is over. All methods are safe for concurrent use; only ProposeTick, ReadIndex and
// WaitInFlight block.
type Term struct {
	*proposer
	replica *replica.Replica
	rounds  *raftlib.ReadRounds
	ticker  *ticker
	notices Notices

	over    context.CancelCauseFunc
	ended   <-chan struct{} // closed when the term is to end
	running sync.WaitGroup  // proposer, ticker and notices
}

// newTerm starts a term, which takes commands from now on.
func newTerm(p *proposer, rounds *raftlib.ReadRounds, config *Config) *Term {
	ctx, over := context.WithCancelCause(context.Background())
	t := &Term{
		proposer: p, replica: config.Replica, rounds: rounds, ticker: newTicker(config.Replica, p),
		over: over, ended: ctx.Done(),
	}
	t.notices = config.Node.Notices(t)
	for _, run := range []func(context.Context){p.run, t.ticker.run, t.notices.Run} {
		t.running.Go(func() { run(ctx) })
	}
	return t
}

// stop ends the term: when it returns, no further entry is made.
func (t *Term) stop() {
	t.over(raftlib.ErrTermOver)
	t.running.Wait()
}

// Number returns Raft's number of the term.
func (t *Term) Number() uint64 { return t.term }

// Over reports whether the term is to end. Its clock no longer counts then.
func (t *Term) Over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// NowMS returns cluster time. Later stamps are not lower.
func (t *Term) NowMS() int64 { return t.clock.now() }

// TimeHeld reports whether cluster time stands still.
func (t *Term) TimeHeld() bool { return t.clock.holds() }

// ReadIndex returns a read index and a reading of cluster time. A machine that has applied that index shows everything
// that was acknowledged before the call, and no session whose deadline has passed. ReadIndex blocks for a round trip to
// a quorum and, if sessions are due, until they are removed.
func (t *Term) ReadIndex(ctx context.Context) (index uint64, nowMS int64, err error) {
	index, err = t.rounds.ReadIndex(ctx)
	if err != nil {
		return 0, 0, err
	}
	// So the deadlines below are in the state at the index, or in a later state.
	if err := t.replica.Await(ctx, index); err != nil {
		return 0, 0, err
	}
	nowMS = t.clock.now()
	for {
		deadline, ok := t.replica.NextDeadline()
		if !ok || deadline > nowMS {
			if t.Over() { // the round may have confirmed a later term
				return 0, 0, raftlib.ErrTermOver
			}
			return index, nowMS, nil
		}
		// A session that is due must not show. Each entry removes a bounded number of sessions, so we log entries until
		// no session is due at nowMS.
		if index, err = t.ProposeTick(ctx); err != nil {
			return 0, 0, err
		}
	}
}

// WaitInFlight blocks until Raft has replied about all entries, at most for endOfTermTimeout.
func (t *Term) WaitInFlight() { wake.Within(endOfTermTimeout, t.inFlight.Wait) }

// applied wakes the ticker, and reports notices that an entry has made due.
func (t *Term) applied(entry *fsm.Applied) {
	t.ticker.news.Set()
	for i := range entry.Effects {
		if e := &entry.Effects[i]; e.Kind == fsm.EffectNoticeDue {
			t.notices.Due(e.Place)
		}
	}
}

// restored makes the ticker and the notices check the whole state.
func (t *Term) restored() {
	t.ticker.news.Set()
	t.notices.Restored()
}
