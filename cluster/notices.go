package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
)

const (
	// noticeKept is how long a notice is tried for after it was due, in cluster
	// time.
	noticeKept = 10 * time.Minute
	// noticeTimeout bounds one attempt.
	noticeTimeout = 10 * time.Second
	// noticePause is the pause after the first attempt that failed. It doubles with
	// each, up to noticePauseMost.
	noticePause     = time.Second
	noticePauseMost = 15 * time.Second
	// noticeStamp is how long nothing may have been logged before a courier has
	// cluster time go on. Together with an attempt and a pause it is what one stamp
	// makes up for, so that the ten minutes are over in time on an idle cluster too.
	noticeStamp = maxStampStep - noticeTimeout - noticePauseMost
)

// Notice is what somebody whose down was refused is told: there is something
// again, or the semaphore is gone.
type Notice = fsm.NoticeView

// Notifier brings notices to their addresses.
type Notifier interface {
	// Notify makes one attempt, and returns soon after ctx has ended. nil: it was
	// delivered; else it is tried again. The same notice may come more than once,
	// also from another node: its id stays. Safe for concurrent use.
	Notify(ctx context.Context, n Notice) error
	// Host answers which host and port an address leads to, alike in all its
	// spellings: few attempts to one are made at once. It asks nobody and does not
	// block.
	Host(address string) string
}

// noNotifier stands for a notifier on a node that has none.
type noNotifier struct{}

var (
	errNoNotifier = errors.New("this node delivers no notices")
	// errNoTurn is why a notice was not delivered before its first attempt.
	errNoTurn = errors.New("too many before it were slow to fail: there was no attempt")
	errTooOld = errors.New("it has been due for too long")
)

func (noNotifier) Notify(context.Context, Notice) error { return errNoNotifier }

func (noNotifier) Host(string) string { return "" }

// courier delivers the notices that are due, during one reign: each until it is
// delivered, or has been due for ten minutes, and then has it removed through the
// log. What is not removed when the reign ends is the next leader's: so each is
// delivered at least once.
//
// One goroutine, run, and one for each notice that is due; the machine bounds
// their number.
type courier struct {
	log      hclog.Logger
	machine  *machine
	clock    *clock
	notifier Notifier
	figures  *figures
	// stamp has cluster time go on: it logs an entry.
	stamp func(ctx context.Context) error
	// done removes a notice through the log.
	done func(ctx context.Context, id uint64) error

	turns *turns
	news  chan struct{} // has room for one: look at what follows

	mu       sync.Mutex
	due      []uint64        // became due, and run has not seen to it yet
	look     bool            // all of the machine's notices are to be looked at
	underWay map[uint64]bool // has a goroutine; guarded by mu
}

// hireCourier makes the courier of a reign.
func (n *Node) hireCourier(p *proposer) *courier {
	return &courier{
		log: n.log, machine: n.machine, clock: p.clock, notifier: n.config.Notifier, figures: n.life.figures,
		stamp: func(ctx context.Context) error {
			if p.idleFor() < noticeStamp {
				return nil
			}
			_, err := p.tick(ctx)
			return err
		},
		done: func(ctx context.Context, id uint64) error {
			_, err := n.do(ctx, Call{Command: fsm.NoticeDone{IDs: []uint64{id}}})
			return err
		},
		turns: newTurns(), news: make(chan struct{}, 1), underWay: map[uint64]bool{},
	}
}

// poke tells what an entry made due. It does not block.
func (c *courier) poke(effects []fsm.Effect) {
	for i := range effects {
		if effects[i].Kind == fsm.EffectNoticeDue {
			c.add(effects[i].Place)
		}
	}
}

func (c *courier) add(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = append(c.due, id)
	signal(c.news)
}

// lookAtAll has everything seen to that is due, whatever was told so far.
func (c *courier) lookAtAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look = true
	signal(c.news)
}

// run delivers until ctx ends, and returns once no attempt is under way.
func (c *courier) run(ctx context.Context) {
	var delivering sync.WaitGroup
	defer delivering.Wait()
	for {
		select {
		case <-c.news:
		case <-ctx.Done():
			return
		}
		for _, id := range c.take() {
			delivering.Go(func() {
				c.deliver(ctx, id)
				c.drop(id)
			})
		}
	}
}

// take answers what is due and not under way yet; it is from now on.
func (c *courier) take() []uint64 {
	c.mu.Lock()
	due, look := c.due, c.look
	c.due, c.look = nil, false
	c.mu.Unlock()
	if look {
		c.machine.view(func(m *fsm.Machine) {
			for _, n := range m.DueNotices() {
				due = append(due, n.ID)
			}
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var fresh []uint64
	for _, id := range due {
		if !c.underWay[id] {
			c.underWay[id] = true
			fresh = append(fresh, id)
		}
	}
	return fresh
}

func (c *courier) drop(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.underWay, id)
}

// deliver tries one notice again and again, and then has it removed.
func (c *courier) deliver(ctx context.Context, id uint64) {
	last := errNoTurn
	for wait := noticePause; ; wait = min(2*wait, noticePauseMost) {
		n, due := c.notice(id)
		if !due {
			return // removed by another reign's word
		}
		err := c.attempt(ctx, n)
		if err == nil {
			break
		}
		if errors.Is(err, errTooOld) {
			c.figures.noticesGivenUp.Inc()
			c.log.Warn("a notice was given up", "semaphore", n.Semaphore, "id", id, "error", last)
			break
		}
		if ctx.Err() == nil { // else the reign ended, not the attempt
			c.figures.noticesFailed.Inc()
			last = err
		}
		c.log.Debug("a notice was not delivered", "semaphore", n.Semaphore, "id", id, "error", err)
		if pause(ctx, wait) != nil {
			return
		}
		if err := c.stamp(ctx); err != nil {
			c.log.Debug("cluster time was not moved", "error", err)
		}
	}
	c.remove(ctx, id)
}

func (c *courier) notice(id uint64) (n Notice, due bool) {
	c.machine.view(func(m *fsm.Machine) { n, due = m.DueNotice(id) })
	return n, due
}

// attempt tries once, when there is room for it, with what is available then. It
// answers errTooOld if it is too late by then.
func (c *courier) attempt(ctx context.Context, n Notice) error {
	leave, err := c.turns.enter(ctx, c.notifier.Host(n.URL))
	if err != nil {
		return err
	}
	defer leave()
	n, due := c.notice(n.ID)
	if !due {
		return nil
	}
	if c.clock.now()-n.DueMS >= noticeKept.Milliseconds() {
		return errTooOld
	}
	ctx, cancel := context.WithTimeout(ctx, noticeTimeout)
	defer cancel()
	err = c.notifier.Notify(ctx, n)
	if err == nil {
		c.figures.noticesDelivered.Inc()
	}
	return err
}

// remove has a notice forgotten, which may take several attempts: another
// delivery would be the price.
func (c *courier) remove(ctx context.Context, id uint64) {
	for {
		err := c.done(ctx, id)
		if err == nil {
			return
		}
		c.log.Debug("a notice was not removed", "id", id, "error", err)
		if pause(ctx, noticePause) != nil {
			return
		}
	}
}
