package watchdog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
	"github.com/signalbox/signalbox/store"
)

const (
	// lookEvery is how often the watchdog looks.
	lookEvery = 200 * time.Millisecond
	// spaceEvery is how often it asks for the free space.
	spaceEvery = time.Second
	// stuckAfter is how long a write of the log may hang before the process ends: a
	// write that hangs that long does not come back, and a new start finds out why.
	stuckAfter = 30 * time.Second
	// giveUpEvery is how often a leader without room tries to hand over.
	giveUpEvery = 5 * time.Second
	// keysAlarmEvery is how often the alarm about the table of keys may be repeated,
	// and keysAlarmPercent how full the table is then.
	keysAlarmEvery   = 10 * time.Minute
	keysAlarmPercent = 80
)

var (
	// ErrStuck ends a process whose disk hangs.
	ErrStuck = errors.New("the disk hangs")
	// ErrWedged ends a process whose Raft is wedged.
	ErrWedged = errors.New("a transfer of leadership does not end")
)

// Leader is the node that a watchdog protects, mostly while it leads. Only HandOver and Transferring block.
type Leader interface {
	// Leads reports whether the node leads.
	Leads() bool
	// GiveBack lets other nodes carry the commands that wait at this one, if its disk
	// hangs.
	GiveBack()
	// SetSpace notes how much room there is, as it was just measured.
	SetSpace(now store.Space)
	// HandOver gives leadership to another node that has more room than that.
	HandOver(ctx context.Context, has store.Space) error
	// HoldTime stops cluster time, or lets it go on, as the leader's state asks for.
	HoldTime()
	// Transferring reports whether Raft refuses entries because of a transfer.
	Transferring(ctx context.Context) bool
	// Fatal ends the process.
	Fatal(err error)
}

// Config names the parts that a watchdog checks. All fields are needed.
type Config struct {
	Log    hclog.Logger
	Leader Leader
	// StuckFor returns how long the write of the log under way has taken.
	StuckFor func() time.Duration
	// Space returns how much room there is.
	Space func() (store.Space, error)
	// Keys returns how full the table of idempotency keys is.
	Keys func() fsm.KeysView
	// WedgedAfter is the longest that Raft may refuse entries because of one transfer.
	WedgedAfter time.Duration
}

// Run looks after a node until ctx ends.
func Run(ctx context.Context, config Config) {
	w := &watchdog{Config: config}
	for {
		w.look(ctx)
		if wake.Pause(ctx, wake.Next(lookEvery)) != nil {
			return
		}
	}
}

// watchdog is the state of Run, for its goroutine alone.
type watchdog struct {
	Config

	room      store.Space // as it was measured last
	askedAt   time.Time   // for the space
	gaveUpAt  time.Time   // when leadership was last offered
	refusedAt time.Time   // since when Raft refuses entries; zero: it does not
	alarmedAt time.Time   // when the alarm about the keys was last given; zero: never
	dead      bool        // Fatal was called
}

// look does one round.
func (w *watchdog) look(ctx context.Context) {
	w.Leader.GiveBack()
	if stuck := w.StuckFor(); stuck > stuckAfter {
		w.die(fmt.Errorf("%w: a write of the log has not returned for %v", ErrStuck, stuck.Round(time.Second)))
	}
	w.lookForWedge(ctx)
	w.lookForSpace(ctx)
	w.Leader.HoldTime()
	w.lookForKeys(time.Now())
}

// die ends the process, once.
func (w *watchdog) die(err error) {
	if !w.dead {
		w.dead = true
		w.Leader.Fatal(err)
	}
}

// lookForSpace keeps room, and gives leadership up while it is low: a leader
// whose next write finds no room would lose it the hard way.
func (w *watchdog) lookForSpace(ctx context.Context) {
	if now := time.Now(); now.Sub(w.askedAt) >= spaceEvery {
		w.askedAt = now
		w.measure()
	}
	if !w.room.Low || !w.Leader.Leads() || time.Since(w.gaveUpAt) < giveUpEvery {
		return
	}
	if !w.refusedAt.IsZero() {
		return // two transfers in succession would look like a single endless transfer
	}
	w.gaveUpAt = time.Now()
	if err := w.Leader.HandOver(ctx, w.room); err != nil {
		w.Log.Warn("the disk is nearly full, and leadership could not be handed over", "error", err)
	}
}

// measure asks for the free space and notes in the log when it passes a mark.
func (w *watchdog) measure() {
	now, err := w.Space()
	if err != nil {
		w.Log.Warn("the free space could not be found out", "error", err)
		return // the last one stands
	}
	before := w.room
	w.room = now
	w.Leader.SetSpace(now)
	switch {
	case now.Spent && !before.Spent:
		w.Log.Error("the disk is full down to the reserve: no writes are taken, and cluster time stands still while this node leads", "free_bytes", now.Free)
	case now.Low && !before.Low, before.Spent && now.Low && !now.Spent:
		w.Log.Error("the disk is nearly full: only what keeps or ends leases is taken", "free_bytes", now.Free)
	case before.Low && !now.Low:
		w.Log.Info("there is room on the disk again", "free_bytes", now.Free)
	}
}

// lookForWedge finds a leader whose flag of a transfer under way is stuck: it
// keeps the leadership, sends heartbeats, and refuses every write (raft#696).
func (w *watchdog) lookForWedge(ctx context.Context) {
	switch {
	case !w.Leader.Leads() || !w.Leader.Transferring(ctx):
		w.refusedAt = time.Time{}
	case w.refusedAt.IsZero():
		w.refusedAt = time.Now()
	case time.Since(w.refusedAt) > w.WedgedAfter:
		w.die(fmt.Errorf("%w: this node leads and has refused all writes for %v", ErrWedged, time.Since(w.refusedAt).Round(time.Second)))
	}
}

// lookForKeys writes a line to the log of a leader whose table of idempotency keys is
// nearly full: beyond it, requests with new keys are refused.
func (w *watchdog) lookForKeys(now time.Time) {
	if !w.Leader.Leads() || !w.alarmedAt.IsZero() && now.Sub(w.alarmedAt) < keysAlarmEvery {
		return
	}
	k := w.Keys()
	full := func(count, limit int64) bool { return float64(count)*100 >= float64(limit)*keysAlarmPercent }
	if full(k.Keys, k.MostKeys) || full(k.Bytes, k.MostBytes) || full(k.Marks, k.MostMarks) {
		w.alarmedAt = now
		w.Log.Warn("the table of idempotency keys is nearly full: requests with new keys are refused once it is",
			"keys", k.Keys, "most_keys", k.MostKeys, "bytes", k.Bytes, "most_bytes", k.MostBytes, "marks", k.Marks, "most_marks", k.MostMarks)
	}
}
