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
	// checkEvery is how often the watchdog checks the node.
	checkEvery = 200 * time.Millisecond
	// spaceEvery is how often it measures the free space.
	spaceEvery = time.Second
	// stuckAfter is how long a write of the log may hang before the process ends, because such a write never returns.
	stuckAfter = 30 * time.Second
	// handOverEvery is how often a leader without room tries to hand leadership over.
	handOverEvery = 5 * time.Second
	// keysAlarmEvery is the shortest time between warnings about a full table of keys; keysAlarmPercent is how full it
	// is then.
	keysAlarmEvery   = 10 * time.Minute
	keysAlarmPercent = 80
)

var (
	// ErrStuck ends a process whose disk hangs.
	ErrStuck = errors.New("the disk hangs")
	// ErrWedged ends a process whose Raft refuses all entries because of a transfer that does not end.
	ErrWedged = errors.New("a transfer of leadership does not end")
)

// Leader is the node that a watchdog protects, mostly while it leads. Only HandOver and Transferring block.
type Leader interface {
	// Leads reports whether the node leads.
	Leads() bool
	// GiveBack lets other nodes carry the commands that wait at this node, if its disk hangs.
	GiveBack()
	// SetSpace stores the measured room on the disk.
	SetSpace(now store.Space)
	// HandOver transfers leadership to a node with more room than has.
	HandOver(ctx context.Context, has store.Space) error
	// HoldTime stops cluster time, or lets it go on, as the state of the leader requires.
	HoldTime()
	// Transferring reports whether Raft refuses entries because of a transfer.
	Transferring(ctx context.Context) bool
	// Fatal ends the process.
	Fatal(err error)
}

// Config has the parts that a watchdog checks. All fields are needed.
type Config struct {
	Log    hclog.Logger
	Leader Leader
	// StuckFor returns how long the oldest log write has been pending.
	StuckFor func() time.Duration
	// Space measures the room on the disk.
	Space func() (store.Space, error)
	// Keys returns how full the table of idempotency keys is.
	Keys func() fsm.KeysView
	// WedgedAfter is how long Raft may refuse entries because of one transfer.
	WedgedAfter time.Duration
}

// Run checks a node repeatedly, until ctx ends.
func Run(ctx context.Context, config Config) {
	w := &watchdog{Config: config}
	for {
		w.checkAll(ctx)
		if wake.Pause(ctx, wake.Next(checkEvery)) != nil {
			return
		}
	}
}

// watchdog is the state of Run. Only its goroutine uses it.
type watchdog struct {
	Config

	room       store.Space // the last measurement
	measuredAt time.Time   // when the room was last measured
	handOverAt time.Time   // when a transfer was last tried
	refusedAt  time.Time   // when Raft began to refuse entries; zero: it accepts entries
	alarmedAt  time.Time   // when the warning about the keys was last logged; zero: never
	dead       bool        // Fatal was called
}

// checkAll makes all checks once.
func (w *watchdog) checkAll(ctx context.Context) {
	w.Leader.GiveBack()
	if stuck := w.StuckFor(); stuck > stuckAfter {
		w.die(fmt.Errorf("%w: a write of the log has not returned for %v", ErrStuck, stuck.Round(time.Second)))
	}
	w.checkTransfer(ctx)
	w.checkSpace(ctx)
	w.Leader.HoldTime()
	w.checkKeys(time.Now())
}

// die ends the process, once.
func (w *watchdog) die(err error) {
	if !w.dead {
		w.dead = true
		w.Leader.Fatal(err)
	}
}

// checkSpace measures the room, and hands leadership over while it is low, before a write of the leader fails for
// want of room.
func (w *watchdog) checkSpace(ctx context.Context) {
	if now := time.Now(); now.Sub(w.measuredAt) >= spaceEvery {
		w.measuredAt = now
		w.measureSpace()
	}
	if !w.room.Low || !w.Leader.Leads() || time.Since(w.handOverAt) < handOverEvery {
		return
	}
	if !w.refusedAt.IsZero() {
		return // two transfers in succession would look like a single endless transfer
	}
	w.handOverAt = time.Now()
	if err := w.Leader.HandOver(ctx, w.room); err != nil {
		w.Log.Warn("the disk is nearly full, and leadership could not be handed over", "error", err)
	}
}

// measureSpace measures the room, and logs when it crosses a mark.
func (w *watchdog) measureSpace() {
	now, err := w.Space()
	if errors.Is(err, store.ErrGone) {
		w.die(err)
	}
	if err != nil {
		w.Log.Warn("the free space could not be found out", "error", err)
		return // the last measurement stays in use
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

// checkTransfer ends the process of a leader whose Raft has a transfer under way that never ends: the node keeps the
// leadership, sends heartbeats, and refuses every write (raft#696).
func (w *watchdog) checkTransfer(ctx context.Context) {
	switch {
	case !w.Leader.Leads() || !w.Leader.Transferring(ctx):
		w.refusedAt = time.Time{}
	case w.refusedAt.IsZero():
		w.refusedAt = time.Now()
	case time.Since(w.refusedAt) > w.WedgedAfter:
		w.die(fmt.Errorf("%w: this node leads and has refused all writes for %v", ErrWedged, time.Since(w.refusedAt).Round(time.Second)))
	}
}

// checkKeys logs a warning on a leader whose table of idempotency keys is nearly full. A full table refuses requests
// with new keys.
func (w *watchdog) checkKeys(now time.Time) {
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
