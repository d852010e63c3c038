package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/store"
)

const (
	// watchdogEvery is how often the watchdog looks.
	watchdogEvery = 250 * time.Millisecond
	// spaceEvery is how often it asks for the free space.
	spaceEvery = time.Second
	// stuckAfter is how long a write of the log may hang before the process ends:
	// what hangs that long does not come back, and a new start finds out.
	stuckAfter = 30 * time.Second
	// giveUpEvery is how often a leader without room tries to hand over.
	giveUpEvery = 5 * time.Second
)

// errStuck ends a process whose disk hangs.
var errStuck = errors.New("the disk hangs")

// errWedged ends a process whose Raft is wedged.
var errWedged = errors.New("a transfer of leadership does not end")

// watchdog looks after what Raft does not: a disk that hangs or runs full, and a
// transfer of leadership that never ends. All functions are called from one
// goroutine; only spaceNow is for any.
type watchdog struct {
	log hclog.Logger
	// stuckFor is how long the write of the log under way has taken.
	stuckFor func() time.Duration
	// space is how much room there is.
	space func() (store.Space, error)
	// leads reports that this node leads.
	leads func() bool
	// handOver gives leadership up, to another node that has more room than that.
	handOver func(ctx context.Context, has store.Space) error
	// transferring reports that Raft refuses entries because of a transfer.
	transferring func() bool
	// wedgedAfter is how long a transfer may take: three election timeouts.
	wedgedAfter time.Duration
	// giveBack lets other nodes carry the commands that wait at this one, if its disk
	// hangs.
	giveBack func()
	// stand stops cluster time, or lets it go on, as the leader's state asks for.
	stand func()
	fatal func(error)

	room atomic.Pointer[store.Space] // nil until it was measured

	askedAt   time.Time // for the space
	gaveUpAt  time.Time // when leadership was last offered
	refusedAt time.Time // since when Raft refuses entries; zero: it does not
	barked    bool      // fatal was called
}

// run looks until ctx ends.
func (w *watchdog) run(ctx context.Context) {
	for {
		w.look(ctx)
		if pause(ctx, watchdogEvery) != nil {
			return
		}
	}
}

// look does one round.
func (w *watchdog) look(ctx context.Context) {
	w.giveBack()
	if stuck := w.stuckFor(); stuck > stuckAfter {
		w.bark(fmt.Errorf("%w: a write of the log has not returned for %v", errStuck, stuck.Round(time.Second)))
	}
	w.lookForSpace(ctx)
	w.stand()
	w.lookForWedge()
}

// spaceNow returns the room as it was measured last.
func (w *watchdog) spaceNow() store.Space {
	if room := w.room.Load(); room != nil {
		return *room
	}
	return store.Space{}
}

// bark ends the process, once.
func (w *watchdog) bark(err error) {
	if !w.barked {
		w.barked = true
		w.fatal(err)
	}
}

// lookForSpace keeps room, and gives leadership up while it is low: a leader
// whose next write finds no room would lose it the hard way.
func (w *watchdog) lookForSpace(ctx context.Context) {
	if now := time.Now(); now.Sub(w.askedAt) >= spaceEvery {
		w.askedAt = now
		w.measure()
	}
	if !w.spaceNow().Low || !w.leads() || time.Since(w.gaveUpAt) < giveUpEvery {
		return
	}
	w.gaveUpAt = time.Now()
	if err := w.handOver(ctx, w.spaceNow()); err != nil {
		w.log.Warn("the disk is nearly full, and leadership could not be handed over", "error", err)
	}
}

func (w *watchdog) measure() {
	now, err := w.space()
	if err != nil {
		w.log.Warn("the free space could not be found out", "error", err)
		return // as before
	}
	was := w.spaceNow()
	w.room.Store(&now)
	switch {
	case now.Spent && !was.Spent:
		w.log.Error("the disk is full down to the reserve: no writes are taken, and cluster time stands still while this node leads", "free_bytes", now.Free)
	case now.Low && !was.Low, was.Spent && now.Low && !now.Spent:
		w.log.Error("the disk is nearly full: only what keeps or ends leases is taken", "free_bytes", now.Free)
	case was.Low && !now.Low:
		w.log.Info("there is room on the disk again", "free_bytes", now.Free)
	}
}

// lookForWedge finds a leader whose flag of a transfer under way is stuck: it
// keeps the leadership, sends heartbeats, and refuses every write (raft#696).
func (w *watchdog) lookForWedge() {
	switch {
	case !w.leads() || !w.transferring():
		w.refusedAt = time.Time{}
	case w.refusedAt.IsZero():
		w.refusedAt = time.Now()
	case time.Since(w.refusedAt) > w.wedgedAfter:
		w.bark(fmt.Errorf("%w: this node leads and refuses all writes since %v", errWedged, time.Since(w.refusedAt).Round(time.Second)))
	}
}
