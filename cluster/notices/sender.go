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
	// kept is how long a notice is tried for after it was due, in cluster time.
	kept = 10 * time.Minute
	// attemptTimeout bounds one attempt.
	attemptTimeout = 10 * time.Second
	// pauseFirst is the pause after the first attempt that failed. It doubles with
	// each, up to pauseMost.
	pauseFirst = time.Second
	pauseMost  = 15 * time.Second
	// stampAfter is how long the log may be without an entry before a sender makes
	// cluster time go on. With an attempt and a pause it is as much as one stamp makes
	// up for, so that the ten minutes are over in time on an idle cluster too.
	stampAfter = replica.MaxStampStep - attemptTimeout - pauseMost
)

// Notifier brings notices to their addresses. Its methods are called concurrently.
type Notifier interface {
	// Notify makes one attempt, and returns soon after ctx has ended. Without an error
	// the notice was delivered; otherwise it is tried again. The same notice may come
	// more than once, also from another node: its id stays.
	Notify(ctx context.Context, n fsm.NoticeView) error
	// Host returns the host and port that an address leads to, alike for all its
	// spellings: only a few attempts to one host are made at once. It does not block.
	Host(address string) string
}

// Term is the leadership during which a sender works.
type Term interface {
	// NowMS returns cluster time.
	NowMS() int64
	// IdleFor returns how long ago the last entry was made.
	IdleFor() time.Duration
	// Tick blocks until an entry that was stamped after the call is applied.
	Tick(ctx context.Context) (index uint64, err error)
}

// Results takes in what became of notices. All methods are safe for concurrent use.
type Results interface {
	// RemoveNotice removes a notice through the log.
	RemoveNotice(ctx context.Context, id uint64) error
	// NoticeDelivered, NoticeFailed and NoticeGivenUp count: a delivery, an attempt
	// that failed, and a notice that is not tried any more.
	NoticeDelivered()
	NoticeFailed()
	NoticeGivenUp()
}

// Config says how notices are sent. All fields but Notifier are needed.
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
	// errNoTurn is why a notice without an attempt was not delivered.
	errNoTurn = errors.New("too many before it were slow to fail: there was no attempt")
	errTooOld = errors.New("it has been due for too long")
)

func (noNotifier) Notify(context.Context, fsm.NoticeView) error { return errNoNotifier }

func (noNotifier) Host(string) string { return "" }

// Sender delivers the notices that are due, during one term: it tries each one until
// it is delivered, or has been due for ten minutes, and then has it removed through
// the log. It has one goroutine, Run, and one for each notice that is due; the state
// machine bounds their number. All methods are safe for concurrent use.
type Sender struct {
	config  Config
	limiter *limiter
	news    wake.Signal // Run has to look at the fields below

	mu       sync.Mutex
	due      []uint64        // have become due, and Run does not know yet
	all      bool            // the replica's notices are all to be looked at
	underWay map[uint64]bool // have a goroutine
}

// NewSender returns the sender of a term. It knows no notices yet, see Restored.
func NewSender(config Config) *Sender {
	if config.Notifier == nil {
		config.Notifier = noNotifier{}
	}
	return &Sender{config: config, limiter: newLimiter(), news: wake.NewSignal(), underWay: map[uint64]bool{}}
}

// Due takes in a notice that an entry made due. It does not block.
func (s *Sender) Due(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = append(s.due, id)
	s.news.Set()
}

// Restored makes the sender look at all notices that are due in the replica: at the
// begin of a term, and after a snapshot. It does not block.
func (s *Sender) Restored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = true
	s.news.Set()
}

// Run delivers until ctx ends. It returns once no attempt is under way.
func (s *Sender) Run(ctx context.Context) {
	var delivering sync.WaitGroup
	defer delivering.Wait()
	for wake.Until(ctx, s.news) == nil {
		for _, id := range s.take() {
			delivering.Go(func() {
				s.deliver(ctx, id)
				s.drop(id)
			})
		}
	}
}

// take returns the notices that are due and not under way yet; they are from now on.
func (s *Sender) take() (fresh []uint64) {
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

func (s *Sender) drop(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.underWay, id)
}

// deliver tries one notice again and again, and then has it removed.
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
		if ctx.Err() == nil { // otherwise the term ended, not the attempt
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

// stamp makes cluster time go on if no entry has done so lately.
func (s *Sender) stamp(ctx context.Context) {
	if s.config.Term.IdleFor() < stampAfter {
		return
	}
	if _, err := s.config.Term.Tick(ctx); err != nil {
		s.config.Logger.Debug("cluster time was not moved", "error", err)
	}
}

// notice returns a notice with the permits that are available now, if it is due.
func (s *Sender) notice(id uint64) (n fsm.NoticeView, due bool) {
	s.config.Replica.View(func(m *fsm.Machine) { n, due = m.DueNotice(id) })
	return n, due
}

// attempt tries once, when it is the notice's turn. It returns errTooOld if it is too
// late by then.
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
	if s.config.Term.NowMS()-n.DueMS >= kept.Milliseconds() {
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

// remove has a notice removed, which may take several attempts: without it the notice
// would be delivered again.
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
	// atOnce bounds the attempts under way.
	atOnce = 32
	// toHost bounds those to one host.
	toHost = 4
)

// limiter is the room for attempts. A host that accepts and never replies takes up a
// small part of it: its notices wait for each other, and the others go past them.
// Safe for concurrent use.
type limiter struct {
	all *semaphore.Weighted

	mu    sync.Mutex
	hosts map[string]*hostLimit // that an attempt is in, or waits for
}

// hostLimit is the room for the attempts to one host.
type hostLimit struct {
	*semaphore.Weighted
	users int // guarded by limiter.mu
}

func newLimiter() *limiter {
	return &limiter{all: semaphore.NewWeighted(atOnce), hosts: map[string]*hostLimit{}}
}

// acquire blocks, first come first served, until there is room for an attempt to a
// host, or ctx ends. Without an error the caller has to call leave at the end of the
// attempt.
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

// useHost counts an attempt to a host, which may have to wait.
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

// leaveHost forgets a host with the last attempt to it.
func (l *limiter) leaveHost(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit := l.hosts[host]; limit.users > 1 {
		limit.users--
		return
	}
	delete(l.hosts, host)
}
