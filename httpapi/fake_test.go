package httpapi

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/fsm"
)

// machineNode is a Node over a real state machine: each command is one entry,
// stamped by a clock that only tests move. So routes are tested on what the
// machine really answers.
type machineNode struct {
	mu       sync.RWMutex
	machine  *fsm.Machine
	nowMS    int64
	index    uint64
	sequence uint64
	drawn    uint64
	waits    map[*fakeWait]bool
	moved    *sync.Cond // on mu: waits or watchers changed
	watchers map[string][]chan struct{}

	fail     error // what every call answers, when set
	failFrom int   // DoMany: the call from which on fail is answered
	panics   bool
	calls    []cluster.Call
	status   cluster.Status
	checks   []cluster.Check
	history  []cluster.EventEntry
	floor    uint64        // events up to it are gone
	news     chan struct{} // closed at the next entry
	asked    []string      // what Members was asked for
	lastRead cluster.Consistency
	lagging  bool // stale reads never reach an index
}

type fakeWait struct {
	session, place uint64
	wants          []fsm.Want
	beganMS, endMS int64
	reply          chan cluster.Reply
}

func newMachineNode() *machineNode {
	n := &machineNode{machine: fsm.NewAtLevel(fsm.FeatureLevel), waits: map[*fakeWait]bool{}, watchers: map[string][]chan struct{}{}, drawn: 1000,
		news: make(chan struct{})}
	n.moved = sync.NewCond(&n.mu)
	n.checks = []cluster.Check{{Name: "leader", OK: true}, {Name: "caught-up", OK: true}}
	n.status = cluster.Status{Node: "n1", Leader: "n1", Term: 3, Members: []cluster.Member{
		{ID: "n1", Address: "n1:8711", Voter: true, Leader: true}, {ID: "n2", Address: "n2:8711", Voter: true, LastContact: -1}}}
	return n
}

// apply puts commands into one entry. Callers hold mu.
func (n *machineNode) apply(encoded ...[]byte) *fsm.Applied {
	n.index++
	applied := n.machine.Apply(n.index, fsm.EncodeEntry(n.nowMS, encoded))
	n.history = append(n.history, cluster.EventEntry{Index: n.index, NowMS: applied.NowMS, Effects: applied.Effects})
	close(n.news)
	n.news = make(chan struct{})
	for _, c := range applied.Conclusions {
		for w := range n.waits {
			if w.place == c.Place {
				n.finish(w, c.Result)
			}
		}
	}
	for _, e := range applied.Effects {
		for _, watcher := range n.watchers[e.Semaphore] {
			close(watcher)
		}
		delete(n.watchers, e.Semaphore)
	}
	return applied
}

func (n *machineNode) finish(w *fakeWait, r fsm.Result) {
	delete(n.waits, w)
	w.reply <- cluster.Reply{Result: r, Index: n.index, NowMS: n.machine.NowMS(), WaitedMS: n.nowMS - w.beganMS}
	n.moved.Broadcast()
}

// start applies a call, and registers its wait where it waits.
func (n *machineNode) start(call cluster.Call) (cluster.Reply, *fakeWait) {
	n.calls = append(n.calls, call)
	n.sequence++
	id := fsm.RequestID{Origin: 1, Sequence: n.sequence}
	wait := &fakeWait{beganMS: n.nowMS, endMS: n.nowMS + call.Wait.Milliseconds(), reply: make(chan cluster.Reply, 1)}
	applied := n.apply(fsm.Envelope{Request: id, Key: call.Key}.Encode(call.Command))
	r := applied.Commands[0].Result
	reply := cluster.Reply{Result: r, Index: n.index, NowMS: n.machine.NowMS()}
	if r.Code != fsm.Waiting {
		return reply, nil
	}
	reply.WaitingMS = n.waitingMS(r.Session, r.Place)
	wait.session, wait.place = r.Session, r.Place
	for _, c := range applied.Conclusions {
		if c.Place == r.Place {
			reply.Result = c.Result
			return reply, nil
		}
	}
	if call.Wait == 0 {
		return reply, nil
	}
	n.waits[wait] = true
	n.moved.Broadcast()
	return reply, wait
}

func (n *machineNode) waitingMS(session, place uint64) int64 {
	s, _ := n.machine.Session(session)
	for _, w := range s.Waiting {
		if w.Place == place {
			return n.nowMS - w.EnqueuedMS
		}
	}
	return 0
}

func (n *machineNode) Do(ctx context.Context, call cluster.Call) (cluster.Reply, error) {
	if n.panics {
		panic("secret of the inside")
	}
	n.mu.Lock()
	if n.fail != nil {
		defer n.mu.Unlock()
		return cluster.Reply{}, n.fail
	}
	reply, wait := n.start(call)
	n.mu.Unlock()
	if wait == nil {
		return reply, nil
	}
	select {
	case reply = <-wait.reply:
		return reply, nil
	case <-ctx.Done():
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.waits, wait)
		n.moved.Broadcast()
		return cluster.Reply{}, ctx.Err()
	}
}

func (n *machineNode) DoMany(_ context.Context, calls []cluster.Call) ([]cluster.Reply, []error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	replies, errs := make([]cluster.Reply, len(calls)), make([]error, len(calls))
	for i, call := range calls {
		switch {
		case n.fail != nil && i == n.failFrom:
			errs[i] = n.fail
		case n.fail != nil && i > n.failFrom:
			errs[i] = cluster.ErrNotTried
		default:
			replies[i], _ = n.start(call)
		}
	}
	return replies, errs
}

func (n *machineNode) DrawSession() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drawn++
	return n.drawn
}

// advance moves cluster time and ends what is due then.
func (n *machineNode) advance(ms int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nowMS += ms
	for n.apply().MoreDue {
	}
	for w := range n.waits {
		if w.endMS <= n.nowMS {
			r, _ := n.machine.Outcome(w.session, w.place, w.wants)
			delete(n.waits, w)
			w.reply <- cluster.Reply{Result: r, Index: n.index, NowMS: n.machine.NowMS(), WaitingMS: n.waitingMS(w.session, w.place)}
		}
	}
	n.moved.Broadcast()
}

// awaitWaits blocks until this many calls wait.
func (n *machineNode) awaitWaits(count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.waits) != count {
		n.moved.Wait()
	}
}

// awaitWatcher blocks until somebody watches a semaphore.
func (n *machineNode) awaitWatcher(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.watchers[name]) == 0 {
		n.moved.Wait()
	}
}

func (n *machineNode) Read(_ context.Context, c cluster.Consistency) (cluster.Reading, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lastRead = c
	if n.lagging && c.MinIndex > 0 {
		return cluster.Reading{}, cluster.ErrBehind
	}
	if n.fail != nil && !c.Stale {
		return cluster.Reading{}, n.fail
	}
	return cluster.Reading{Index: n.index, NowMS: n.nowMS, Stale: c.Stale, LastContact: 42 * time.Millisecond}, nil
}

func (n *machineNode) View(read func(m *fsm.Machine)) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	read(n.machine)
}

func (n *machineNode) Changed(name string) (<-chan struct{}, func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := make(chan struct{})
	n.watchers[name] = append(n.watchers[name], changed)
	n.moved.Broadcast()
	return changed, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for i, other := range n.watchers[name] {
			if other == changed {
				n.watchers[name] = append(n.watchers[name][:i], n.watchers[name][i+1:]...)
				return
			}
		}
	}
}

// EventsAfter has all events that are not gone, in one page.
func (n *machineNode) EventsAfter(after cluster.EventID) (cluster.EventPage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if after.Index < n.floor {
		return cluster.EventPage{}, cluster.ErrHistoryGone
	}
	page := cluster.EventPage{Next: cluster.EventID{Index: n.index}, News: n.news}
	for _, e := range n.history[min(uint64(len(n.history)), max(after.Index, 1)-1):] { // the first is that of index 1
		if e.Index == after.Index && after.Ordinal > 0 && after.Ordinal < len(e.Effects) {
			e.Before, e.Effects = after.Ordinal, e.Effects[after.Ordinal:]
			page.Entries = append(page.Entries, e)
		} else if e.Index > after.Index {
			page.Entries = append(page.Entries, e)
		}
	}
	if after.Index > n.index {
		page.Next = after
	}
	return page, nil
}

func (n *machineNode) Status() cluster.Status {
	n.mu.RLock()
	defer n.mu.RUnlock()
	s := n.status
	s.AppliedIndex, s.StateHash = n.index, n.machine.Hash()
	return s
}

func (n *machineNode) ask(what string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, what)
	return n.fail
}

func (n *machineNode) AddMember(_ context.Context, id, address string) error {
	return n.ask("add " + id + " " + address)
}
func (n *machineNode) RemoveMember(_ context.Context, id string) error { return n.ask("remove " + id) }
func (n *machineNode) RaiseLevel(_ context.Context, level uint32) error {
	return n.ask("raise " + strconv.Itoa(int(level)))
}
func (n *machineNode) TransferLeadership(_ context.Context, id string) error {
	return n.ask("transfer " + id)
}

func (n *machineNode) Checks() []cluster.Check {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return append([]cluster.Check(nil), n.checks...)
}

func (n *machineNode) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// state tells all semaphores, leases, waiters, sessions and wait lists, and nothing that
// moves with every entry: what must be the same after a refusal.
func (n *machineNode) state(t *testing.T) string {
	t.Helper()
	n.mu.RLock()
	defer n.mu.RUnlock()
	all := []any{n.machine.Sessions(0, 1<<20)}
	for _, s := range n.machine.Sessions(0, 1<<20) {
		all = append(all, n.machine.WaitList(s.ID))
	}
	for _, s := range n.machine.Semaphores("", "", 1<<20) {
		all = append(all, s, n.machine.Holders(s.Name, 1<<20), n.machine.Waiters(s.Name, 1<<20))
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
