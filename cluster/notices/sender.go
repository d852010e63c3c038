package notices

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// keptFor is how long after its due time a notice is tried, in cluster time.
	keptFor = 10 * time.Minute
	// attemptTimeout bounds one attempt.
	attemptTimeout = 10 * time.Second
	// pauseFirst is the pause after the first failed attempt. It doubles with each further failure, up to pauseMost.
	pauseFirst = time.Second
	pauseMost  = 15 * time.Second
	// stampAfter is how long the log may be idle before a sender logs an entry to advance cluster time. One entry moves
	// cluster time by at most replica.MaxStampStep, which is stampAfter plus an attempt plus a pause, so keptFor ends
	// in time on an idle cluster.
	stampAfter = replica.MaxStampStep - attemptTimeout - pauseMost
)

// Notifier brings notices to their addresses. Its methods are called concurrently.
type Notifier interface {
	// Notify makes one attempt, and returns soon after ctx has ended. Without an error the notice was delivered;
	// otherwise it is tried again. The same notice may come more than once, also from another node: its id stays the
	// same.
	Notify(ctx context.Context, n fsm.NoticeView) error
	// Host returns the host and port of an address, equal for all spellings of the address: concurrent attempts to one
	// host are limited. It does not block.
	Host(address string) string
}

// Term is the term during which a sender works.
type Term interface {
	// NowMS returns cluster time.
	NowMS() int64
	// IdleFor returns how long ago the last entry was made.
	IdleFor() time.Duration
	// ProposeTick blocks until an entry that got its cluster time after the call is applied.
	ProposeTick(ctx context.Context) (index uint64, err error)
}

// Results receives the results of the attempts. All methods are safe for concurrent use.
type Results interface {
	// RemoveNotice removes a notice through the log.
	RemoveNotice(ctx context.Context, id uint64) error
	// NoticeDelivered, NoticeFailed and NoticeGivenUp count a delivery, a failed attempt, and a notice that is given
	// up.
	NoticeDelivered()
	NoticeFailed()
	NoticeGivenUp()
}

// Config says how a sender delivers notices. All fields but Notifier are needed.
type Config struct {
	// Notifier delivers the notices; nil: each attempt fails.
	Notifier Notifier
	Replica  *replica.Replica // has the notices
	Term     Term
	Results  Results
	Logger   hclog.Logger
}

// noNotifier is the notifier of a node without one.
type noNotifier struct{}

var (
	errNoNotifier = errors.New("this node delivers no notices")
	// errNoTurn is logged with a notice that was given up without an attempt.
	errNoTurn = errors.New("too many before it were slow to fail: there was no attempt")
	errTooOld = errors.New("it has been due for too long")
)

func (noNotifier) Notify(context.Context, fsm.NoticeView) error { return errNoNotifier }

func (noNotifier) Host(string) string { return "" }

// Sender delivers the notices that are due, during one term. It tries each notice until it is delivered or has been due
// for ten minutes, and then removes it through the log. It uses one goroutine, Run, and another for each due notice;
// the state machine bounds their number. All methods are safe for concurrent use.
type Sender struct {
	config  Config
	limiter *limiter
	news    wake.Signal // due or all has changed

	mu       sync.Mutex
	due      []uint64        // ids of notices that have become due and that Run does not know yet
	all      bool            // Run has to read all due notices of the replica
	underWay map[uint64]bool // ids of notices that have a goroutine
}

// NewSender returns the sender of a term. It knows no notices before Due or Restored is called.
func NewSender(config Config) *Sender {
	if config.Notifier == nil {
		config.Notifier = noNotifier{}
	}
	return &Sender{config: config, limiter: newLimiter(), news: wake.NewSignal(), underWay: map[uint64]bool{}}
}

// Due adds a notice that an entry made due. It does not block.
func (s *Sender) Due(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = append(s.due, id)
	s.news.Set()
}

// Restored makes the sender read all due notices of the replica, at the beginning of a term and after a snapshot. It
// does not block.
func (s *Sender) Restored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = true
	s.news.Set()
}

// Run delivers notices until ctx ends. It returns after the last attempt has ended.
func (s *Sender) Run(ctx context.Context) {
	var delivering sync.WaitGroup
	defer delivering.Wait()
	for wake.Until(ctx, s.news) == nil {
		for _, id := range s.takeDue() {
			delivering.Go(func() {
				s.deliver(ctx, id)
				s.forget(id)
			})
		}
	}
}

// takeDue returns the due notices that have no goroutine yet, and marks them as having one.
func (s *Sender) takeDue() (fresh []uint64) {
	s.mu.Lock()
	due, all := s.due, s.all
	s.due, s.all = nil, false
	s.mu.Unlock()
	if all {
		s.config.Replica.View(func(m *fsm.Machine) {
			for _, n := range m.DueNotices() {
				due = append(due, n.ID)
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range due {
		if !s.underWay[id] {
			s.underWay[id] = true
			fresh = append(fresh, id)
		}
	}
	return fresh
}

func (s *Sender) forget(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.underWay, id)
}

// deliver tries one notice repeatedly, and then removes it.
func (s *Sender) deliver(ctx context.Context, id uint64) {
	last := errNoTurn
	for pause := pauseFirst; ; pause = min(2*pause, pauseMost) {
		n, due := s.notice(id)
		if !due {
			return // removed by another leader
		}
		err := s.attempt(ctx, n)
		if err == nil {
			break
		}
		if errors.Is(err, errTooOld) {
			s.config.Results.NoticeGivenUp()
			s.config.Logger.Warn("a notice was given up", "semaphore", n.Semaphore, "id", id, "error", last)
			break
		}
		if ctx.Err() == nil { // otherwise the attempt failed because the term ended
			s.config.Results.NoticeFailed()
			last = err
		}
		s.config.Logger.Debug("a notice was not delivered", "semaphore", n.Semaphore, "id", id, "error", err)
		if wake.Pause(ctx, pause) != nil {
			return
		}
		s.stamp(ctx)
	}
	s.remove(ctx, id)
}

// stamp advances cluster time by an entry if the log has been idle.
func (s *Sender) stamp(ctx context.Context) {
	if s.config.Term.IdleFor() < stampAfter {
		return
	}
	if _, err := s.config.Term.ProposeTick(ctx); err != nil {
		s.config.Logger.Debug("cluster time was not moved", "error", err)
	}
}

// notice returns a notice with the permits that are available now, if the notice is due.
func (s *Sender) notice(id uint64) (n fsm.NoticeView, due bool) {
	s.config.Replica.View(func(m *fsm.Machine) { n, due = m.DueNotice(id) })
	return n, due
}

// attempt waits until the limits allow an attempt, and makes it. It returns errTooOld if the notice is too old by then.
func (s *Sender) attempt(ctx context.Context, n fsm.NoticeView) error {
	leave, err := s.limiter.acquire(ctx, s.config.Notifier.Host(n.URL))
	if err != nil {
		return err
	}
	defer leave()
	n, due := s.notice(n.ID)
	if !due {
		return nil
	}
	if s.config.Term.NowMS()-n.DueMS >= keptFor.Milliseconds() {
		return errTooOld
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err = s.config.Notifier.Notify(ctx, n)
	if err == nil {
		s.config.Results.NoticeDelivered()
	}
	return err
}

// remove removes a notice and repeats this until it succeeds, because the next leader would otherwise deliver the
// notice again.
func (s *Sender) remove(ctx context.Context, id uint64) {
	for {
		err := s.config.Results.RemoveNotice(ctx, id)
		if err == nil {
			return
		}
		s.config.Logger.Debug("a notice was not removed", "id", id, "error", err)
		if wake.Pause(ctx, pauseFirst) != nil {
			return
		}
	}
}

const (
	// atOnce bounds the concurrent attempts.
	atOnce = 32
	// toHost bounds the concurrent attempts to one host.
	toHost = 4
)

// limiter limits the concurrent attempts, in all and to each host. A host that accepts connections and never replies
// then delays only its own notices. Safe for concurrent use.
type limiter struct {
	all *semaphore.Weighted

	mu    sync.Mutex
	hosts map[string]*hostLimit // hosts with an attempt under way or waiting
}

// hostLimit limits the concurrent attempts to one host.
type hostLimit struct {
	*semaphore.Weighted
	users int // guarded by limiter.mu
}

func newLimiter() *limiter {
	return &limiter{all: semaphore.NewWeighted(atOnce), hosts: map[string]*hostLimit{}}
}

// acquire blocks until the limits allow an attempt to a host, in the order of the calls, or until ctx ends. Without an
// error the caller must call leave at the end of the attempt.
func (l *limiter) acquire(ctx context.Context, host string) (leave func(), err error) {
	limit := l.useHost(host)
	if err := limit.Acquire(ctx, 1); err != nil {
		l.leaveHost(host)
		return nil, err
	}
	if err := l.all.Acquire(ctx, 1); err != nil {
		limit.Release(1)
		l.leaveHost(host)
		return nil, err
	}
	return func() {
		l.all.Release(1)
		limit.Release(1)
		l.leaveHost(host)
	}, nil
}

// useHost counts an attempt to a host that is under way or waits, and returns the host's limit.
func (l *limiter) useHost(host string) *hostLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.hosts[host]
	if limit == nil {
		limit = &hostLimit{Weighted: semaphore.NewWeighted(toHost)}
		l.hosts[host] = limit
	}
	limit.users++
	return limit
}

// leaveHost ends an attempt to a host, and forgets the host after its last attempt.
func (l *limiter) leaveHost(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit := l.hosts[host]; limit.users > 1 {
		limit.users--
		return
	}
	delete(l.hosts, host)
}
