package apitest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster"
	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// Node is a cluster node over a real state machine: each command is one entry,
// stamped by a clock that only tests move. So routes are tested against the machine's
// own results.
type Node struct {
	mu       sync.RWMutex
	machine  *fsm.Machine
	nowMS    int64
	Index    uint64
	sequence uint64
	Drawn    uint64
	waits    map[*fakeWait]bool
	moved    *sync.Cond // on mu: waits or watchers changed
	Watchers map[string][]chan struct{}
	items    *replica.ItemWatches
	Reads    atomic.Int64 // calls of Read and View

	Fail      error // the error of every call, when set
	FailFrom  int   // DoMany: the first call that fails
	Panics    bool
	Calls     []calls.Call
	StatusNow cluster.Status
	ChecksNow []cluster.Check
	history   []replica.EventEntry
	Floor     uint64        // events up to it are gone
	news      chan struct{} // closed at the next entry
	Asked     []string      // what Members was asked for
	LastRead  calls.Consistency
	Lagging   bool // stale reads never reach an index
}

type fakeWait struct {
	session, place uint64
	wants          []fsm.Want
	beganMS, endMS int64
	reply          chan calls.Reply
}

// ClusterID is the id of the cluster that a Node says it is of.
const ClusterID = "c0000000000000000000000000000001"

// NewNode returns a Node without semaphores, that leads.
func NewNode() *Node {
	n := &Node{machine: fsm.New(), waits: map[*fakeWait]bool{}, Watchers: map[string][]chan struct{}{}, Drawn: 1000,
		items: replica.NewItemWatches(), news: make(chan struct{})}
	n.moved = sync.NewCond(&n.mu)
	n.ChecksNow = []cluster.Check{{Name: "leader", OK: true}, {Name: "caught-up", OK: true}}
	n.StatusNow = cluster.Status{Node: "n1", Cluster: ClusterID, Leader: "n1", Term: 3, Members: []cluster.Member{
		{ID: "n1", Address: "n1:8711", Voter: true, Leader: true, State: cluster.MemberUp}, {ID: "n2", Address: "n2:8711", Voter: true, State: cluster.MemberUnknown, LastContact: -1}}}
	return n
}

// Clear takes away all that the node has, and was asked for.
func (n *Node) Clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	*n.machine = *fsm.New()
	n.Index, n.history, n.Calls, n.Asked = 0, nil, nil, nil
}

// Apply puts commands into one entry. Callers hold mu.
func (n *Node) Apply(encoded ...[]byte) *fsm.Applied {
	n.Index++
	applied := n.machine.Apply(n.Index, fsm.EncodeEntry(n.nowMS, encoded))
	n.history = append(n.history, replica.EventEntry{Index: n.Index, NowMS: applied.NowMS, Effects: applied.Effects})
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
		for _, watcher := range n.Watchers[e.Semaphore] {
			close(watcher)
		}
		delete(n.Watchers, e.Semaphore)
	}
	n.items.Applied(applied.Effects)
	return applied
}

func (n *Node) finish(w *fakeWait, r fsm.Result) {
	delete(n.waits, w)
	w.reply <- calls.Reply{Result: r, Index: n.Index, NowMS: n.machine.NowMS(), WaitedMS: n.nowMS - w.beganMS}
	n.moved.Broadcast()
}

// start applies a call, and registers its wait where it waits.
func (n *Node) start(call calls.Call) (calls.Reply, *fakeWait) {
	n.Calls = append(n.Calls, call)
	n.sequence++
	id := fsm.RequestID{Origin: 1, Sequence: n.sequence}
	wait := &fakeWait{beganMS: n.nowMS, endMS: n.nowMS + call.Wait.Milliseconds(), reply: make(chan calls.Reply, 1)}
	applied := n.Apply(fsm.Envelope{Request: id, Key: call.Key, Owner: call.Owner, Limits: call.Limits}.Encode(call.Command))
	r := applied.Commands[0].Result
	reply := calls.Reply{Result: r, Index: n.Index, NowMS: n.machine.NowMS()}
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

func (n *Node) waitingMS(session, place uint64) int64 {
	s, _ := n.machine.Session(session)
	for _, w := range s.Waiting {
		if w.Place == place {
			return n.nowMS - w.EnqueuedMS
		}
	}
	return 0
}

// Do implements exchange.Node.
func (n *Node) Do(ctx context.Context, call calls.Call) (*calls.Reply, error) {
	if n.Panics {
		panic("secret of the inside")
	}
	n.mu.Lock()
	if n.Fail != nil {
		defer n.mu.Unlock()
		return &calls.Reply{}, n.Fail
	}
	reply, wait := n.start(call)
	n.mu.Unlock()
	if wait == nil {
		return &reply, nil
	}
	select {
	case reply = <-wait.reply:
		return &reply, nil
	case <-ctx.Done():
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.waits, wait)
		n.moved.Broadcast()
		return &calls.Reply{}, ctx.Err()
	}
}

// DoMany implements exchange.Node.
func (n *Node) DoMany(_ context.Context, list []calls.Call) ([]calls.Reply, []error) {
	if n.Panics {
		panic("secret of the inside")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	replies, errs := make([]calls.Reply, len(list)), make([]error, len(list))
	for i, call := range list {
		switch {
		case n.Fail != nil && i == n.FailFrom:
			errs[i] = n.Fail
		case n.Fail != nil && i > n.FailFrom:
			errs[i] = outcome.ErrNotTried
		default:
			replies[i], _ = n.start(call)
		}
	}
	return replies, errs
}

// DrawSession returns 1001, 1002, ….
func (n *Node) DrawSession() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Drawn++
	return n.Drawn
}

// Advance moves cluster time and ends the waits and leases that are due then.
func (n *Node) Advance(ms int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nowMS += ms
	for n.Apply().MoreDue {
	}
	for w := range n.waits {
		if w.endMS <= n.nowMS {
			r, _ := n.machine.Outcome(w.session, w.place, w.wants)
			delete(n.waits, w)
			w.reply <- calls.Reply{Result: r, Index: n.Index, NowMS: n.machine.NowMS(), WaitingMS: n.waitingMS(w.session, w.place)}
		}
	}
	n.moved.Broadcast()
}

// AwaitWaits blocks until this many calls wait.
func (n *Node) AwaitWaits(count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.waits) != count {
		n.moved.Wait()
	}
}

// AwaitWatcher blocks until somebody watches a semaphore.
func (n *Node) AwaitWatcher(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.Watchers[name]) == 0 {
		n.moved.Wait()
	}
}

// Read implements exchange.Node.
func (n *Node) Read(_ context.Context, c calls.Consistency) (calls.Reading, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.LastRead = c
	n.Reads.Add(1)
	if n.Lagging && c.MinIndex > 0 {
		return calls.Reading{}, outcome.ErrBehind
	}
	if n.Fail != nil && !c.Stale {
		return calls.Reading{}, n.Fail
	}
	return calls.Reading{Index: n.Index, NowMS: n.nowMS, Stale: c.Stale, LastContact: 42 * time.Millisecond}, nil
}

// View implements exchange.Node.
func (n *Node) View(read func(m *fsm.Machine)) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	n.Reads.Add(1)
	read(n.machine)
}

// HoldersChanged implements exchange.Node.
func (n *Node) HoldersChanged() <-chan struct{} {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.news // at any entry
}

// WatchItems implements exchange.Node.
func (n *Node) WatchItems(name string, below bool) *replica.ItemWatch {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.moved.Broadcast()
	return n.items.Watch(name, below)
}

// Changed implements exchange.Node.
func (n *Node) Changed(name string) (<-chan struct{}, func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	changed := make(chan struct{})
	n.Watchers[name] = append(n.Watchers[name], changed)
	n.moved.Broadcast()
	return changed, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for i, other := range n.Watchers[name] {
			if other == changed {
				n.Watchers[name] = append(n.Watchers[name][:i], n.Watchers[name][i+1:]...)
				return
			}
		}
	}
}

// EventsBefore has all events that are not gone, in one page.
func (n *Node) EventsBefore(index uint64) []replica.EventEntry {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var page []replica.EventEntry
	for _, entry := range n.history {
		if entry.Index > n.Floor && entry.Index < index {
			page = append(page, entry)
		}
	}
	return page
}

// EventsAfter has all events that are not gone, in one page.
func (n *Node) EventsAfter(after replica.EventID) (replica.EventPage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if after.Index < n.Floor {
		return replica.EventPage{Next: replica.EventID{Index: n.Floor}}, outcome.ErrHistoryGone
	}
	page := replica.EventPage{Next: replica.EventID{Index: n.Index}, News: n.news}
	for _, e := range n.history[min(uint64(len(n.history)), max(after.Index, 1)-1):] { // the first has index 1
		if e.Index == after.Index && after.Ordinal > 0 && after.Ordinal < len(e.Effects) {
			e.Before, e.Effects = after.Ordinal, e.Effects[after.Ordinal:]
			page.Entries = append(page.Entries, e)
		} else if e.Index > after.Index && len(e.Effects) > 0 {
			page.Entries = append(page.Entries, e)
		}
	}
	if after.Index > n.Index {
		page.Next = after
	}
	return page, nil
}

// Status returns StatusNow, and what the state machine is at.
func (n *Node) Status() cluster.Status {
	n.mu.RLock()
	defer n.mu.RUnlock()
	s := n.StatusNow
	s.AppliedIndex, s.StateHash = n.Index, n.machine.Hash()
	return s
}

func (n *Node) ask(what string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Asked = append(n.Asked, what)
	return n.Fail
}

// AddMember notes the call in Asked.
func (n *Node) AddMember(_ context.Context, id, address string) error {
	return n.ask("add " + id + " " + address)
}

// RemoveMember notes the call in Asked.
func (n *Node) RemoveMember(_ context.Context, id string) error { return n.ask("remove " + id) }

// RaiseLevel notes the call in Asked.
func (n *Node) RaiseLevel(_ context.Context, level uint32) error {
	return n.ask("raise " + strconv.Itoa(int(level)))
}

// TransferLeadership notes the call in Asked.
func (n *Node) TransferLeadership(_ context.Context, id string) error {
	return n.ask("transfer " + id)
}

// Backup implements exchange.Node.
func (n *Node) Backup(context.Context) (*backup.Backup, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Fail != nil {
		return nil, n.Fail
	}
	return backup.Of(n.machine.Freeze(), time.UnixMilli(1_767_225_600_000)), nil
}

// Restore notes the call in Asked, and reads the whole backup.
func (n *Node) Restore(_ context.Context, from io.Reader, order backup.Order) (backup.Restored, error) {
	if err := n.ask(fmt.Sprintf("restore, end sessions: %v", order.EndSessions)); err != nil {
		return backup.Restored{}, err
	}
	h, _, err := backup.Read(from)
	if err != nil {
		return backup.Restored{}, err
	}
	if want := cmp.Or(order.From, (*fsm.ClusterID)(&h.Cluster)); *want != h.Cluster {
		return backup.Restored{}, fmt.Errorf("%w: it is of cluster %x, and not of %s", outcome.ErrBackupRefused, h.Cluster, want)
	}
	return backup.Restored{Index: h.Index + 1000, From: h}, nil
}

// Checks returns ChecksNow.
func (n *Node) Checks() []cluster.Check {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return append([]cluster.Check(nil), n.ChecksNow...)
}

// Set changes the node's fields under its lock.
func (n *Node) Set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

// State is StateOf the node.
func (n *Node) State(t *testing.T) string { return StateOf(t, n) }

// StateOf returns all semaphores, leases, waiters, sessions, wait lists and items as text,
// without the values that every entry moves. A refusal must leave it unchanged.
func StateOf(t *testing.T, node exchange.Node) (text string) {
	t.Helper()
	node.View(func(m *fsm.Machine) {
		all := []any{m.Sessions(0, 1<<20)}
		for _, s := range m.Sessions(0, 1<<20) {
			all = append(all, m.WaitList(s.ID))
		}
		for _, s := range m.Semaphores("", "", 1<<20) {
			all = append(all, s, m.Holders(s.Name, 0, 1<<20), m.Waiters(s.Name, fsm.LinePlace{}, 1<<20))
		}
		for i := range m.ItemsAfter("", "") {
			all = append(all, i)
		}
		encoded, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		text = string(encoded)
	})
	return text
}
