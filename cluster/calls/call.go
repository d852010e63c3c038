package calls

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/client/cells"
	"github.com/signalbox/signalbox/cluster/forward"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/cluster/requests"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// Call is one command for the cluster's machine.
type Call struct {
	Command fsm.Command
	// Key is the idempotency key with its scope, or "".
	Key string
	// Owner is the identity for which the command acts, or ""; Trace is a trace context that grants pass on. Both as in
	// [fsm.Envelope].
	Owner, Trace string
	// Limits bound what the owner has, see [fsm.OwnerLimits].
	Limits fsm.OwnerLimits
	// Wait is how long this call listens when the result is Waiting, or NothingReady for a ListDeliver; with 0 it
	// returns at once. For a one-shot acquire or down it should be the command's WaitMS.
	Wait time.Duration
	// Queued is called once when the call begins to listen, with the index of the entry that made it wait; it may be
	// nil. The goroutine of Do calls it, so it must not block. DoMany does not call it.
	Queued func(index uint64)

	listed bool // by DoMany
}

// class returns the class of the call's command.
func (c *Call) class() lead.Class {
	if c.listed {
		return lead.ClassListed
	}
	return lead.ClassOf(c.Command.Op())
}

// renewals returns the renewals of a call that may share their command with others.
func (c *Call) renewals() []fsm.Renewal {
	renew, renews := c.Command.(fsm.Renew)
	if !renews || c.Key != "" || c.Trace != "" || len(renew.Renewals) > renewalsTogether {
		return nil
	}
	return renew.Renewals
}

// Reply is the result of a call. NowMS, WaitedMS and WaitingMS are milliseconds
// of cluster time.
type Reply struct {
	fsm.Result
	Index uint64 // of the entry that brought the result
	// NowMS is cluster time at that entry: a lease lasts max(0, DeadlineMS - NowMS) longer.
	NowMS int64
	// WaitedMS is the time from the entry of this call to the grant; 0 if the session held it already.
	WaitedMS int64
	// WaitingMS is, in a Waiting result, the time since the request was queued.
	WaitingMS int64
}

const (
	// drawnIDs bounds the ids that nodes draw, since JavaScript keeps integers exact only below 2^53.
	drawnIDs = 1 << 53
	// MaxCell is the highest Config.Cell.
	MaxCell = cells.MaxNumber
	// redraws is how often a call draws another id before it gives up. With a million sessions, one first draw in nine
	// billion collides, and one in 140 million with a cell.
	redraws = 8
)

// Config has what an Executor needs of its node.
type Config struct {
	Log      hclog.Logger
	Cell     int          // of the session ids that are drawn; 0 without cells
	Times    wake.Stretch // of the time-outs between nodes
	Requests *requests.Registry
	Replica  *replica.Replica
	Router   *forward.Router
	// LastContact returns how long ago this node heard from the leader; 0 on the leader, negative before the first time.
	LastContact func() time.Duration
	Stopping    context.Context // ends when the node closes
}

// Executor carries out the calls and reads of one node's callers. Safe for concurrent use.
type Executor struct {
	config   Config
	renewals *renewals
	active   *activeCalls
}

// New returns the executor of a node.
func New(c Config) *Executor {
	e := &Executor{config: c, active: newActiveCalls()}
	e.renewals = newRenewals(e.submitRenewals)
	return e
}

// DrawSession returns a random session id from 1 to 2^53-1, see Config.Cell.
func (e *Executor) DrawSession() uint64 {
	for {
		var drawn [8]byte
		_, _ = rand.Read(drawn[:]) // never fails
		id := binary.BigEndian.Uint64(drawn[:]) % drawnIDs
		if e.config.Cell != 0 {
			id = uint64(e.config.Cell)*cells.IDsPerCell + id%cells.IDsPerCell
		}
		if id != 0 {
			return id
		}
	}
}

// Do carries a command to the leader and blocks until it is committed and applied: the result survives as long as a
// majority of disks.
//
// While there is no leader the command waits here, up to 5 s. A call with a Waiting result listens for call.Wait. After
// that, an ordinary session's request keeps its place, and Do returns Waiting, confirmed by a read index. The machine
// ends the wait of a one-shot, and Do listens a little longer for this. When ctx ends, Do ends a one-shot without a key
// in the background. A node that drains ends the waits: see Drain.
//
// A ListDeliver without a ready entry listens for call.Wait, and then returns NothingReady; the list keeps its entries.
//
// Do fails with an error of package outcome, which says what is known about the command, or with the cause of ctx. If
// the end of an ordinary session's wait could not be confirmed, Do returns the error and the Waiting reply from when
// the request was queued. With any other error the reply is empty.
func (e *Executor) Do(ctx context.Context, call Call) (*Reply, error) {
	if !e.active.enter() {
		return &Reply{}, outcome.ErrDraining
	}
	defer e.active.running.Done()
	if mine := call.renewals(); len(mine) > 0 {
		return e.renewals.renew(ctx, call.Owner, mine)
	}
	a := &pendingCall{executor: e, call: call}
	return &a.Reply, a.do(ctx)
}

// Submit does the work of Do for a command of this node itself, also while the node drains. It does not wait for
// grants.
func (e *Executor) Submit(ctx context.Context, command fsm.Command) error {
	return (&pendingCall{executor: e, call: Call{Command: command}}).do(ctx)
}

// submitRenewals proposes the gathered renewals.
func (e *Executor) submitRenewals(owner string, renew fsm.Renew) (Reply, error) {
	a := &pendingCall{executor: e, call: Call{Command: renew, Owner: owner}}
	err := a.do(e.config.Stopping)
	if errors.Is(err, context.Canceled) { // the node's context, not a caller's
		err = outcome.ErrOutcomeUnknown
	}
	return a.Reply, err
}

// Draining reports whether Drain was called.
func (e *Executor) Draining() bool { return e.active.draining.Err() != nil }

// Drain ends the waits of callers and refuses further calls. It blocks until every call has returned, or until ctx
// ends, and then fails with the cause. Node.Drain of package cluster says what each call returns.
func (e *Executor) Drain(ctx context.Context) error { return e.active.drain(ctx) }

// build makes the request of a call.
func (e *Executor) build(call *Call) *requests.Request {
	var l *requests.Listener
	if call.Wait > 0 {
		l = requests.NewListener(fsm.Wants(call.Command))
	}
	frame := fsm.Envelope{Key: call.Key, Owner: call.Owner, Trace: call.Trace}
	if call.Command.Op().MayTake() {
		frame.Limits = call.Limits
	}
	return e.config.Requests.Build(call.Command, frame, call.class(), l)
}

// submit carries one command to the leader and sets its reply.
func (e *Executor) submit(ctx context.Context, call *Call, q *requests.Request, reply *Reply) error {
	return e.setReply(ctx, call, e.config.Router.Submit(ctx, []*requests.Request{q})[0], reply)
}

// setReply sets the reply of a call, which is empty if there is an error. It ends a one-shot whose caller is gone or
// may never learn its id.
func (e *Executor) setReply(ctx context.Context, call *Call, got *requests.Settlement, reply *Reply) error {
	err := got.Err()
	listens := call.Wait > 0 && got.Result.Code == fsm.Waiting // pendingCall.listen handles it
	unheard := err == nil && ctx.Err() != nil && !listens
	if unheard {
		err = context.Cause(ctx)
	}
	if err != nil {
		if unheard || got.Fate == outcome.Unknown {
			e.abandon(call)
		}
		*reply = Reply{}
		return err
	}
	*reply = Reply{Result: got.Result, Index: got.Index, NowMS: got.NowMS}
	return nil
}

// DoMany carries commands to the leader in their order, in one round trip, and blocks until each is applied. It returns
// a reply and an error for each call, in the same order. It ignores Call.Wait. After the first error, a call that was
// certainly not applied has ErrNotTried; any other call has its own outcome. In a list of renewals alone, many renewals
// share one command, and so its error.
func (e *Executor) DoMany(ctx context.Context, list []Call) ([]Reply, []error) {
	replies, errs := make([]Reply, len(list)), make([]error, len(list))
	fail := func(first error) ([]Reply, []error) {
		for i := range errs {
			errs[i] = outcome.ErrNotTried
		}
		if len(errs) > 0 {
			errs[0] = first
		}
		return replies, errs
	}
	if !e.active.enter() {
		return fail(outcome.ErrDraining)
	}
	defer e.active.running.Done()
	if areRenewals(list) {
		e.renewMany(ctx, list, replies, errs)
		return replies, errs
	}
	reqs := make([]*requests.Request, len(list))
	list = slices.Clone(list) // the caller's list must not change
	for i := range list {
		list[i].Wait, list[i].listed = 0, true
		reqs[i] = e.build(&list[i])
	}
	var queued []*Reply
	for i, settled := range e.config.Router.Submit(ctx, reqs) {
		errs[i] = e.setReply(ctx, &list[i], settled, &replies[i])
		if errs[i] == nil && replies[i].Code == fsm.SessionIDTaken {
			again := &pendingCall{executor: e, call: list[i]}
			errs[i] = again.do(ctx)
			replies[i] = again.Reply
		}
		if errs[i] == nil && replies[i].Code == fsm.Waiting {
			queued = append(queued, &replies[i])
		}
	}
	fillWaiting(ctx, e.config.Replica, queued...)
	return replies, errs
}

// abandon ends the one-shot session of a call without an idempotency key, since no other caller knows its id. It runs
// in the background. It spares a session with a derived id: the client's next request derives the same id, and may
// already have the lease. The EndSession stays behind the command on every path to the log, so that it finds the
// session. If the EndSession fails, the session ends at its deadline.
func (e *Executor) abandon(call *Call) {
	session := fsm.OneShotOf(call.Command)
	if session == 0 || session >= fsm.DerivedSessions || call.Key != "" {
		return
	}
	e.active.running.Go(func() {
		// The same class, so that the end does not overtake the command.
		end := e.config.Requests.Build(fsm.EndSession{Session: session}, fsm.Envelope{Owner: call.Owner, Trace: call.Trace}, call.class(), nil)
		err := e.config.Router.Submit(e.config.Stopping, []*requests.Request{end})[0].Err()
		if err != nil && !errors.Is(err, context.Canceled) {
			e.config.Log.Debug("an abandoned one-shot was left to its deadline", "session", session, "error", err)
		}
	})
}

// pendingCall is a call, with its reply as far as it is known. It is on the heap, since a goroutine that waits keeps
// its stack, which doubles at 8 KiB.
type pendingCall struct {
	executor *Executor
	call     Call
	Reply    // while the call waits: from when its request was queued
}

// do proposes the command and, if the result is Waiting, listens for its conclusion: see Executor.Do.
func (a *pendingCall) do(ctx context.Context) error {
	if list, ok := a.call.Command.(fsm.ListDeliver); ok && a.call.Wait > 0 {
		return a.awaitEntry(ctx, list.Session)
	}
	l, err := a.proposeWithID(ctx)
	if err != nil || a.Code != fsm.Waiting {
		return err
	}
	if l == nil {
		fillWaiting(ctx, a.executor.config.Replica, &a.Reply)
		return nil
	}
	a.reportQueued()
	return a.listen(ctx, l)
}

// reportQueued reports that the call begins to listen.
func (a *pendingCall) reportQueued() {
	if a.call.Queued != nil {
		a.call.Queued(a.Index)
	}
}

// proposeWithID proposes the call's command. If the drawn session id exists already, it draws another id and proposes again. It
// returns the listener of a call that may wait.
func (a *pendingCall) proposeWithID(ctx context.Context) (*requests.Listener, error) {
	for range redraws {
		q := a.executor.build(&a.call)
		if err := a.executor.submit(ctx, &a.call, q, &a.Reply); err != nil {
			return nil, err
		}
		if a.Code == fsm.SessionIDTaken && fsm.Redraw(&a.call.Command, a.executor.DrawSession()) {
			continue
		}
		return q.Listener, nil
	}
	return nil, a.fail(outcome.ErrNotApplied)
}

// fail empties the reply, and returns err.
func (a *pendingCall) fail(err error) error {
	a.Reply = Reply{}
	return err
}

// activeCalls counts the calls under way, so that a node that drains knows when the last call has returned. A call may
// leave background work, which running counts as well.
type activeCalls struct {
	running  sync.WaitGroup
	draining context.Context // ends when no further call may begin
	end      context.CancelFunc
	mu       sync.Mutex // no call begins while drain ends draining
}

func newActiveCalls() *activeCalls {
	c := &activeCalls{}
	c.draining, c.end = context.WithCancel(context.Background())
	return c
}

// enter begins a call, unless the node drains. The caller ends it, by running.Done.
func (c *activeCalls) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining.Err() != nil {
		return false
	}
	c.running.Add(1)
	return true
}

// drain refuses further calls, ends the waits of the calls under way, and blocks until all have returned, or until ctx
// ends; then it fails with the cause.
func (c *activeCalls) drain(ctx context.Context) error {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	return wake.Await(ctx, func() error { c.running.Wait(); return nil })
}
