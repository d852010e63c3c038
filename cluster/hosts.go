package cluster

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/election"
	"github.com/signalbox/signalbox/cluster/forward"
	"github.com/signalbox/signalbox/cluster/lead"
	"github.com/signalbox/signalbox/cluster/membership"
	"github.com/signalbox/signalbox/cluster/notices"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/watchdog"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// stallLimit is how long a write of the local log may hang before this node stops
// holding its followers: see Transport.
const stallLimit = 2 * time.Second

// A leader whose disk hangs does not know that it leads no more: Raft's main loop
// waits for the write. Its followers elect another one, since this node stops
// holding them (see Transport). Meanwhile the commands that wait for their place in
// the log go to the next leader, and only those that were given to Raft are without
// an outcome.

// hung reports whether a write of the log takes so long that this node can't lead.
func (r *running) hung() bool { return r.stuckFor() > r.times.Of(stallLimit) }

// stuckFor returns how long the oldest entry has waited for the disk, or the oldest write
// under way has taken.
func (r *running) stuckFor() time.Duration { return max(r.store.StuckFor(), r.entries.WaitingFor()) }

// stuckFor is running's, or that of the store before Raft runs.
func stuckFor(n *Node) time.Duration {
	if r := n.running.Load(); r != nil {
		return r.stuckFor()
	}
	return n.config.Store.StuckFor()
}

// established returns this node's term as leader, or nil, also before Raft runs.
func (r *running) established() *lead.Term {
	if r == nil {
		return nil
	}
	return r.leadership.Established()
}

// space returns how much room there was when it was measured last: before Raft runs, a
// Space that is neither low nor spent.
func (r *running) space() (last store.Space) {
	if r != nil && r.room.Load() != nil {
		last = *r.room.Load()
	}
	return last
}

// forwardingNode implements [forward.Host].
type forwardingNode struct{ *Node }

var _ forward.Host = forwardingNode{}

// Leading is nil while this node's disk hangs: it can't carry commands.
func (n forwardingNode) Leading() forward.Term {
	if r := n.running.Load(); r != nil && !r.hung() {
		if t := r.leadership.Established(); t != nil {
			return t
		}
	}
	return nil
}

// Leader may name this node, which then refuses while it does not lead in the term. While
// this node's disk hangs and Raft takes it for the leader, the others are believed.
func (n forwardingNode) Leader() (address, id string, term uint64) {
	r := n.running.Load()
	if r == nil {
		return "", "", 0
	}
	at, leader := r.raft.LeaderWithID()
	term = r.raft.CurrentTerm()
	if string(leader) == n.config.NodeID && r.hung() {
		return r.members.LeaderElsewhere(term)
	}
	return string(at), string(leader), term
}

func (n forwardingNode) Dial(ctx context.Context, address string) (net.Conn, error) {
	return n.joining.Port().Dial(ctx, peer.StreamForward, address)
}

// leadingNode implements [lead.Host], with running.
type leadingNode struct {
	*running
	node *Node
}

var _ lead.Host = leadingNode{}

// ClusterID returns the id of the folder's cluster.
func (n leadingNode) ClusterID() fsm.ClusterID { return n.node.joining.Cluster() }

// Notices has notices delivered.
func (n leadingNode) Notices(t *lead.Term) lead.Notices {
	return notices.NewSender(notices.Config{
		Notifier: n.node.config.Notifier, Replica: n.node.replica, Term: t, Host: noticesHost{n.node}, Logger: n.node.log,
	})
}

// Jumps is for a node whose folder was put back: it may have given out higher numbers.
func (r *running) Jumps() bool { return r.store.Restored() != 0 }

func (r *running) Outcast() bool { return r.halted() == outcome.ErrNoLeader }

func (r *running) LeadershipChanged() { r.router.Look() }

func (r *running) RaftRefused(term uint64) {
	r.refusedAt.Store(time.Now().UnixNano())
	r.router.Drop(term)
}

// A leader that can take no writes must not let cluster time go on: renewals would
// be refused while leases end. So there are two marks. Below the first one, the
// watermark, a leader refuses commands that let the state grow, and takes those that
// keep or end leases. Below the second one, the reserve, while the members' states
// differ, and while this node is among nodes of another cluster, it takes no command
// and time stands still, as without a leader.

func (r *running) Refuses(command []byte) error {
	if err := r.Standstill(); err != nil {
		return err
	}
	if r.space().Low && fsm.OpOf(command).MayGrow() {
		return outcome.ErrStorageFull
	}
	return nil
}

// JoinsQueue implements [lead.Admission] by this node's state.
func (n leadingNode) JoinsQueue(command []byte) (joins bool) {
	if name, session := fsm.MayWait(command); name != "" {
		n.node.replica.View(func(m *fsm.Machine) { joins = m.JoinsQueue(name, session) })
	}
	return joins
}

func (r *running) Standstill() error {
	why := r.halted()
	if why == nil && r.space().Spent {
		return outcome.ErrStorageFull
	}
	return why
}

// halted returns why the membership lets this node take no command, or nil.
func (r *running) halted() error {
	if why := r.halt.Load(); why != nil {
		return *why
	}
	return nil
}

// restoringNode implements [backup.Host].
type restoringNode struct{ *running }

var _ backup.Host = restoringNode{}

func (n restoringNode) Interrupt(ctx context.Context, work func(nowMS int64) error) error {
	return n.leadership.Interrupt(ctx, work)
}

func (n restoringNode) Hold(ctx context.Context, level uint32) (done func(), err error) {
	return n.members.Changes().Hold(ctx, level)
}

// Refuses is for a state that may be larger than the one before.
func (n restoringNode) Refuses() error {
	if n.space().Low {
		return outcome.ErrStorageFull
	}
	return n.Standstill()
}

// noticesHost is the node as the sender of its notices sees it.
type noticesHost struct{ node *Node }

// RemoveNotice implements [notices.Host].
func (h noticesHost) RemoveNotice(ctx context.Context, id uint64) error {
	return (&asked{node: h.node, call: Call{Command: fsm.NoticeDone{IDs: []uint64{id}}}}).do(ctx)
}

// NoticeDelivered implements [notices.Host], as the following do.
func (h noticesHost) NoticeDelivered() { h.node.metrics.NoticesDelivered.Inc() }
func (h noticesHost) NoticeFailed()    { h.node.metrics.NoticesFailed.Inc() }
func (h noticesHost) NoticeGivenUp()   { h.node.metrics.NoticesGivenUp.Inc() }

// running is what its watchdog looks after.
var _ watchdog.Host = (*running)(nil)

func (r *running) Leads() bool { return r.leadership.Established() != nil }

func (r *running) GiveBack() {
	t := r.leadership.Established()
	if t == nil || !r.hung() {
		return
	}
	r.router.Drop(t.Number()) // first, so that the commands aren't sent here at once
	t.GiveBack()
	r.router.Look()
}

func (r *running) SetSpace(now store.Space) { r.room.Store(&now) }

func (r *running) HandOver(ctx context.Context, has store.Space) error {
	return r.members.GiveWay(ctx, has.Spent)
}

func (r *running) HoldTime() { r.leadership.HoldTime() }

// Transferring asks Raft only if Raft has refused an entry lately. The entry with which
// it asks is an empty one, and harmless if it is taken.
func (r *running) Transferring(ctx context.Context) bool {
	t := r.leadership.Established()
	refused := r.refusedAt.Load()
	if t == nil || refused == 0 || time.Since(time.Unix(0, refused)) > 2*time.Second {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := t.Tick(ctx)
	return outcome.Transferring(err)
}

func (r *running) Fatal(err error) { r.die(err) }

// electingNode implements [election.Host].
type electingNode struct {
	*running
	node *Node
}

var _ election.Host = electingNode{}

func (n electingNode) Able() error {
	if n.node.calls.draining.Err() != nil {
		return outcome.ErrDraining
	}
	return cmp.Or(n.halted(), n.transport.Campaigns())
}

func (n electingNode) LastEntry() (term, index uint64) {
	stats := n.raft.Stats()
	number := func(name string) uint64 {
		value, _ := strconv.ParseUint(stats[name], 10, 64)
		return value
	}
	if covered := number("last_snapshot_index"); covered > number("last_log_index") {
		return number("last_snapshot_term"), covered
	}
	return number("last_log_term"), number("last_log_index")
}

func (n electingNode) Ask(ctx context.Context, voter raft.Server, q election.Question) (election.Reply, error) {
	return n.members.AskVoter(ctx, voter, q)
}

func (n electingNode) Dial(ctx context.Context, id string) error {
	server, _ := membership.Find(n.members.Servers(), id)
	conn, err := n.node.config.Network.Dial(ctx, peer.PlainAddress(server.Address))
	if err != nil {
		return err
	}
	return conn.Close()
}

func (n electingNode) Campaign() error {
	err := n.transport.Campaign(raft.ServerID(n.node.config.NodeID))
	if err == nil {
		n.node.metrics.EarlyCampaigns.Inc()
	}
	return err
}

// streamEnded passes on that a Raft stream from another process has ended.
func (n *Node) streamEnded(from peer.Hello) {
	if r := n.running.Load(); r != nil {
		r.election.StreamEnded(election.Process{Node: from.Node, Incarnation: from.Incarnation})
	}
}

// memberNode is a node as its membership sees it.
type memberNode struct{ node *Node }

var _ membership.Host = memberNode{}

func (h memberNode) Applied() uint64 { return h.node.replica.Index() }

func (h memberNode) Level() uint32 { return h.node.replica.Level() }

func (h memberNode) ClusterID() (id fsm.ClusterID) {
	h.node.View(func(m *fsm.Machine) { id = m.ClusterID() })
	return id
}

func (h memberNode) Draining() bool { return h.node.calls.draining.Err() != nil }

func (h memberNode) Space() (low, spent bool) {
	space := h.node.running.Load().space()
	return space.Low, space.Spent
}

func (h memberNode) Halted(why error) { h.node.halt.Store(&why) }

func (h memberNode) Leads() bool { return h.node.running.Load().established() != nil }

func (h memberNode) Reaches(ctx context.Context, id string) bool {
	return h.node.running.Load().transport.Reaches(ctx, raft.ServerID(id))
}

func (h memberNode) Judge(ctx context.Context, q election.Question) election.Reply {
	r := h.node.running.Load()
	if r == nil {
		return election.Reply{}
	}
	return r.election.Judge(ctx, q)
}

func (h memberNode) Fatal(err error) { h.node.fatal(err) }

// Propose puts a command into the log in this node's present term, or not at all.
func (h memberNode) Propose(ctx context.Context, command fsm.Command) error {
	n := h.node
	t := n.running.Load().established()
	if t == nil {
		return outcome.ErrNotLeader
	}
	return n.router.CarryHere(ctx, t, n.requests.Build(command, fsm.Envelope{}, lead.ClassOf(command.Op()), nil))
}
