package watchdog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// TestWatchdogEndsAWedgedNode: only when the leader refuses without a break for
// longer than a transfer may take.
func TestWatchdogEndsAWedgedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &watchedNode{fatals: make(chan error, 10)}
		const limit = 3 * time.Second
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go Run(ctx, Config{
			Log: hclog.NewNullLogger(), Leader: node, StuckFor: func() time.Duration { return 0 },
			Space: func() (store.Space, error) { return store.Space{Free: 1 << 40}, nil },
			Keys:  func() fsm.KeysView { return fsm.KeysView{} }, WedgedAfter: limit,
		})
		for range 5 { // transfers that end, and one of a node that does not lead
			node.isLeader.Store(true)
			node.refuses.Store(true)
			time.Sleep(limit) // virtual
			node.refuses.Store(false)
			time.Sleep(time.Second) // virtual
			node.isLeader.Store(false)
			node.refuses.Store(true)
			time.Sleep(time.Minute) // virtual
		}
		if len(node.fatals) != 0 {
			t.Fatal(<-node.fatals)
		}
		node.isLeader.Store(true)
		time.Sleep(10 * time.Second) // virtual
		if len(node.fatals) != 1 {
			t.Fatalf("%d times fatal", len(node.fatals))
		}
		if err := <-node.fatals; !errors.Is(err, ErrWedged) {
			t.Error(err)
		}
	})
}

// watchedNode is a node whose state a test sets.
type watchedNode struct {
	isLeader, refuses atomic.Bool
	fatals            chan error
	spaces            []store.Space // noted
	handedOver        int
}

func (n *watchedNode) Leads() bool                                 { return n.isLeader.Load() }
func (n *watchedNode) Transferring(context.Context) bool           { return n.refuses.Load() }
func (n *watchedNode) HandOver(context.Context, store.Space) error { n.handedOver++; return nil }
func (n *watchedNode) SetSpace(now store.Space)                    { n.spaces = append(n.spaces, now) }
func (n *watchedNode) GiveBack()                                   {}
func (n *watchedNode) HoldTime()                                   {}
func (n *watchedNode) Fatal(err error)                             { n.fatals <- err }

// TestKeysAlarm: the leader says that the table of keys is nearly full, by its keys, its
// bytes or its marks, and says it again after ten minutes only.
func TestKeysAlarm(t *testing.T) {
	empty := fsm.KeysView{MostKeys: 1000, MostBytes: 10_000, MostMarks: 6000}
	for name, fill := range map[string]func(k *fsm.KeysView, percent int64){
		"keys":  func(k *fsm.KeysView, percent int64) { k.Keys = 10 * percent },
		"bytes": func(k *fsm.KeysView, percent int64) { k.Bytes = 100 * percent },
		"marks": func(k *fsm.KeysView, percent int64) { k.Marks = 60 * percent },
	} {
		var out bytes.Buffer
		now, node := empty, &watchedNode{}
		w := &watchdog{Config: Config{
			Log: hclog.New(&hclog.LoggerOptions{Output: &out}), Leader: node, Keys: func() fsm.KeysView { return now },
		}}
		lines := func() int { return strings.Count(out.String(), "nearly full") }
		start := time.Unix(0, 0)
		for i, step := range []struct {
			percent int64
			leads   bool
			after   time.Duration
			lines   int
		}{
			{0, true, 0, 0},
			{79, true, time.Second, 0},
			{80, false, 2 * time.Second, 0},
			{80, true, 3 * time.Second, 1},
			{100, true, 4 * time.Second, 1},
			{90, true, 10*time.Minute + 3*time.Second, 2},
			{79, true, time.Hour, 2},
			{81, true, 2 * time.Hour, 3},
		} {
			now = empty
			node.isLeader.Store(step.leads)
			fill(&now, step.percent)
			if w.checkKeys(start.Add(step.after)); lines() != step.lines {
				t.Errorf("%s, step %d: %d lines, want %d", name, i, lines(), step.lines)
			}
		}
	}
}

// TestWatchdogEndsANodeWhoseDiskHangs: once, and not while a write is only slow.
func TestWatchdogEndsANodeWhoseDiskHangs(t *testing.T) {
	node := &watchedNode{fatals: make(chan error, 10)}
	stuck := time.Duration(0)
	w := &watchdog{Config: Config{
		Log: hclog.NewNullLogger(), Leader: node, StuckFor: func() time.Duration { return stuck },
		Space: func() (store.Space, error) { return store.Space{Free: 1 << 40}, nil },
		Keys:  func() fsm.KeysView { return fsm.KeysView{MostKeys: 1, MostBytes: 1, MostMarks: 1} },
	}}
	for _, step := range []struct {
		stuck time.Duration
		ends  int
	}{{0, 0}, {stuckAfter, 0}, {0, 0}, {stuckAfter + time.Millisecond, 1}, {stuckAfter + time.Second, 1}} {
		stuck = step.stuck
		if w.checkAll(t.Context()); len(node.fatals) != step.ends {
			t.Fatalf("a write that takes %v: %d times fatal, want %d", step.stuck, len(node.fatals), step.ends)
		}
	}
	if err := <-node.fatals; !errors.Is(err, ErrStuck) {
		t.Error(err)
	}
}

// TestWatchdogEndsANodeWithoutItsFolder: another error of the measurement is no reason.
func TestWatchdogEndsANodeWithoutItsFolder(t *testing.T) {
	node := &watchedNode{fatals: make(chan error, 10)}
	for _, step := range []struct {
		err  error
		ends int
	}{{errors.New("slow network file system"), 0}, {fmt.Errorf("%w: /data", store.ErrGone), 1}} {
		w := &watchdog{Config: Config{Log: hclog.NewNullLogger(), Leader: node, Space: func() (store.Space, error) { return store.Space{}, step.err }}}
		if w.measureSpace(); len(node.fatals) != step.ends || len(node.spaces) > 0 {
			t.Errorf("after %v: %d times fatal, want %d", step.err, len(node.fatals), step.ends)
		}
	}
}

// TestLeaderGivesWayWhileItsDiskIsLow: at the first mark already, and not before; a node that
// does not lead has no leadership to give.
func TestLeaderGivesWayWhileItsDiskIsLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &watchedNode{fatals: make(chan error, 10)}
		room := store.Space{Free: 100}
		w := &watchdog{Config: Config{Log: hclog.NewNullLogger(), Leader: node, Space: func() (store.Space, error) { return room, nil }}}
		for i, step := range []struct {
			leads      bool
			room       store.Space
			handedOver int
		}{
			{true, store.Space{Free: 100}, 0},
			{false, store.Space{Free: 10, Low: true}, 0},
			{true, store.Space{Free: 10, Low: true}, 1},
			{true, store.Space{Free: 1, Low: true, Spent: true}, 2},
			{true, store.Space{Free: 100}, 2},
		} {
			time.Sleep(max(spaceEvery, handOverEvery)) // virtual
			node.isLeader.Store(step.leads)
			room = step.room
			if w.checkSpace(t.Context()); node.handedOver != step.handedOver || node.spaces[len(node.spaces)-1] != step.room {
				t.Errorf("step %d: handed over %d times, want %d; noted %+v", i, node.handedOver, step.handedOver, node.spaces)
			}
		}
		room, w.refusedAt = store.Space{Low: true}, time.Now()
		time.Sleep(handOverEvery) // virtual
		if w.checkSpace(t.Context()); node.handedOver != 2 {
			t.Error("handed over while Raft is in a transfer: two in succession look like one that does not end")
		}
	})
}
