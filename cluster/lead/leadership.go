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
	// barrierTimeout bounds how long a new leader's machine may take to catch up
	// with the log before the leader tries again: after a restart it may have much to
	// apply.
	barrierTimeout = 30 * time.Second
	// landTimeout bounds how long an interruption waits for Raft's replies about the last
	// entries before it.
	landTimeout = 10 * time.Second
	// firstEntryTimeout bounds the first entry of a term.
	firstEntryTimeout = 5 * time.Second
	// beginAgain is the pause before a leader that could not begin tries again.
	beginAgain = 100 * time.Millisecond
)

// Raft is the part of Raft that a leader needs.
type Raft interface {
	raftlib.ReadSource
	State() raft.RaftState
	Apply(entry []byte, timeout time.Duration) raft.ApplyFuture
	Barrier(timeout time.Duration) raft.Future
}

// Host is the node as its leadership sees it. No method blocks; all are safe for
// concurrent use.
type Host interface {
	Admission
	// ClusterID returns the id of the data folder's cluster, for a state that has no id yet.
	ClusterID() fsm.ClusterID
	// Jumps reports whether the counters must skip numbers that may have been given out.
	Jumps() bool
	// Outcast reports that the node finds itself among nodes of another cluster: it
	// serves no caller then, though Raft may take it for a leader.
	Outcast() bool
	// Standstill returns why a leader must take no command at all and cluster time
	// must stand still, or nil.
	Standstill() error
	// Notices returns what delivers the notices that are due in a term.
	Notices(t *Term) Notices
	// LeadershipChanged notes that a term is established, or over.
	LeadershipChanged()
}

// Notices delivers the notices that are due, during one term. Due and Restored are called
// in the apply goroutine and must not block.
type Notices interface {
	// Run works until ctx ends, with the term. When it returns, the work is over.
	Run(ctx context.Context)
	// Due notes a notice that has become due, Restored that any may be.
	Due(id uint64)
	Restored()
}

// Config says how a node leads. All fields are needed.
type Config struct {
	Log     hclog.Logger
	Self    raft.ServerID
	Host    Host
	Replica *replica.Replica
	Acks    *raftlib.AckClock
	Pulse   *Pulse
	Limits  fsm.Limits // go out with the first entry of each term
	// QueueSize bounds the commands that wait for the log.
	QueueSize int
	// ReadTimeout bounds one exchange with the peers that confirms reads.
	ReadTimeout time.Duration
	// Clock is the node's monotonic clock, by which cluster time passes; nil: time.Now.
	Clock func() time.Time
	// Tracer learns of the logged commands with a trace context; nil: none does.
	Tracer Tracer
}

// Leadership begins a term when this node wins an election and ends it when the node
// loses. One goroutine, Run, does both, one after the other, so there are never two
// proposers. It is a sink of the replica's feed. All methods are safe for concurrent
// use.
type Leadership struct {
	config  Config
	news    wake.Signal // look again
	current atomic.Pointer[Term]
	pauses  chan pause

	interrupted uint64 // the term that was interrupted last, unless it is known to be lost; Run's alone
}

// pause is what a caller of Interrupt does without a term.
type pause struct {
	ctx  context.Context
	work func(nowMS int64) error
	done chan error // has room for one
}

// New returns the leadership of a node that does not lead yet.
func New(config Config) *Leadership {
	if config.Clock == nil {
		config.Clock = time.Now
	}
	return &Leadership{config: config, news: wake.NewSignal(), pauses: make(chan pause)}
}

// Drain empties Raft's notifications until they are closed, and does no more: a
// reader that is late would stop Raft's main loop.
func (l *Leadership) Drain(notifications <-chan bool) {
	for range notifications {
		l.news.Set()
	}
}

// Established returns the term that this node leads in, or nil while it does not
// lead, or can't yet: before that, its machine has to apply the first entry of the term.
func (l *Leadership) Established() *Term {
	if l.config.Host.Outcast() {
		return nil
	}
	return l.current.Load()
}

// established returns the number of the established term, or 0.
func (l *Leadership) established() uint64 {
	if t := l.Established(); t != nil {
		return t.term
	}
	return 0
}

// Run begins and ends terms until ctx ends. It returns once the last is over.
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
		if l.interrupted != 0 && (!leads || l.interrupted != number) { // end did not see that one
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

// Interrupt does work while this node leads and no term runs: no entry is made, no read is
// confirmed, and all entries made before are applied. work gets cluster time. The term goes on
// after it with another first entry, if Raft still takes this node for its leader. Interrupt
// fails with outcome.ErrNotLeader if no term is established here, and with
// outcome.ErrNotApplied if the entries before do not return in time; the work is not done
// then. It blocks until the work is done, whether ctx ends meanwhile or not.
func (l *Leadership) Interrupt(ctx context.Context, work func(nowMS int64) error) error {
	p := pause{ctx: ctx, work: work, done: make(chan error, 1)}
	select {
	case l.pauses <- p:
		return <-p.done
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// interrupt stops the term, without the end of its number: the next one has the same.
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
	l.config.Host.LeadershipChanged()
	l.news.Set() // begin again
	if !wake.Within(landTimeout, t.flying.Wait) {
		return fmt.Errorf("%w: entries are under way", outcome.ErrNotApplied)
	}
	return p.work(t.clock.now())
}

// begin establishes a term: the machine catches up with everything that earlier
// leaders may have acknowledged, the first entry names the term, and from its
// stamp on time is this node's.
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
	c.hold(l.config.Host.Standstill() != nil)
	t := newTerm(newProposer(number, c, r, l.config.QueueSize, l.config.Host, l.config.Pulse, l.config.Tracer), rounds, &l.config)
	l.current.Store(t)
	l.HoldTime()
	t.restored() // from now on every entry is reported: look at the earlier ones
	log.Info("leading", "term", number)
	l.config.Host.LeadershipChanged()
	return true
}

// logFirstEntry logs the entry that names the term, past the proposer, which does not
// run yet.
func (l *Leadership) logFirstEntry(ctx context.Context, r Raft, term uint64, c *clock) error {
	first := fsm.Envelope{}.Encode(l.firstEntry(term))
	ctx, cancel := context.WithTimeout(ctx, firstEntryTimeout)
	defer cancel()
	entry := replica.EncodeEntry(term, c.stamp(), [][]byte{first})
	return wake.Await(ctx, func() error {
		future := r.Apply(entry, enqueueTimeout)
		if err := future.Error(); err != nil {
			return err
		}
		err, _ := future.Response().(error)
		return err
	})
}

// firstEntry returns the first command of a term. A state that has no cluster id yet
// gets one, and begins at the highest level of this program. Any other state keeps its
// level: another member may know no higher one.
func (l *Leadership) firstEntry(term uint64) fsm.StartTerm {
	host := l.config.Host
	first := fsm.StartTerm{Term: term, Leader: string(l.config.Self), Limits: l.config.Limits, Jump: host.Jumps()}
	l.config.Replica.View(func(m *fsm.Machine) { first.Cluster, first.Level = m.ClusterID(), m.FeatureLevel() })
	if first.Cluster == (fsm.ClusterID{}) {
		first.Cluster, first.Level = host.ClusterID(), fsm.FeatureLevel
	}
	return first
}

// end ends the present term, if there is one, and waits until it makes no further
// entry. Callers of earlier entries may still wait for Raft.
func (l *Leadership) end() {
	t := l.current.Swap(nil)
	if t == nil {
		return
	}
	l.config.Acks.EndTerm(t.term)
	t.stop()
	l.config.Log.Info("no longer leading", "term", t.term)
	l.config.Host.LeadershipChanged()
}

// Applied implements [replica.Sink]: the ticker and the notices of the present term look at the entry.
func (l *Leadership) Applied(entry *fsm.Applied) {
	if t := l.current.Load(); t != nil {
		t.applied(entry)
	}
}

// Restored implements [replica.Sink].
func (l *Leadership) Restored(*fsm.Machine, uint64) {
	if t := l.current.Load(); t != nil {
		t.restored()
	}
}

// HoldTime makes cluster time stand still in the present term, or go on, as the host
// says now.
func (l *Leadership) HoldTime() {
	if t := l.current.Load(); t != nil {
		t.clock.hold(l.config.Host.Standstill() != nil)
	}
}

// landPatience is how long a term that is over waits for Raft's replies about its
// last entries, so that few goroutines outlive it.
const landPatience = time.Second

// Term is one node's leadership in one term of Raft, once it is established. Its
// proposer, its ticker and its notices run until it is over. All methods are safe for
// concurrent use; only Tick, Confirm and Land block.
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

// newTerm starts a term: from now on it takes commands.
func newTerm(p *proposer, rounds *raftlib.ReadRounds, config *Config) *Term {
	ctx, over := context.WithCancelCause(context.Background())
	t := &Term{
		proposer: p, replica: config.Replica, rounds: rounds, ticker: newTicker(config.Replica, p),
		over: over, ended: ctx.Done(),
	}
	t.notices = config.Host.Notices(t)
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

// Over reports whether the term is to end, so that its clock does not count.
func (t *Term) Over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// NowMS returns cluster time. Later stamps are not before it.
func (t *Term) NowMS() int64 { return t.clock.now() }

// TimeHeld reports whether cluster time stands still.
func (t *Term) TimeHeld() bool { return t.clock.holds() }

// Confirm returns a read index and a reading of cluster time: a machine that has
// applied that index shows everything that was acknowledged before the call, and
// no session whose deadline has passed. It blocks for a round trip to a quorum and, when
// sessions are due, until they are removed.
func (t *Term) Confirm(ctx context.Context) (index uint64, nowMS int64, err error) {
	index, err = t.rounds.Confirm(ctx)
	if err != nil {
		return 0, 0, err
	}
	// Deadlines are those of the state at the index, or of a later one.
	if err := t.replica.Await(ctx, index); err != nil {
		return 0, 0, err
	}
	nowMS = t.clock.now()
	for {
		deadline, ok := t.replica.NextDeadline()
		if !ok || deadline > nowMS {
			if t.Over() { // the round may have been that of a later one
				return 0, 0, raftlib.ErrTermOver
			}
			return index, nowMS, nil
		}
		// A session that is due but still there must not show: an entry removes it,
		// and a bounded number at a time. What the machine shows then is exact at nowMS.
		if index, err = t.Tick(ctx); err != nil {
			return 0, 0, err
		}
	}
}

// Land blocks until Raft has replied about all entries, but not for long.
func (t *Term) Land() { wake.Within(landPatience, t.flying.Wait) }

// applied has the ticker and the notices look at an entry.
func (t *Term) applied(entry *fsm.Applied) {
	t.ticker.news.Set()
	for i := range entry.Effects {
		if e := &entry.Effects[i]; e.Kind == fsm.EffectNoticeDue {
			t.notices.Due(e.Place)
		}
	}
}

// restored has them look at the whole state.
func (t *Term) restored() {
	t.ticker.news.Set()
	t.notices.Restored()
}
