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

// stallLimit is how long a write of the local log may hang before this node stops sending to its followers, see
// raftlib.Transport.
const stallLimit = 2 * time.Second

// A leader whose disk hangs does not notice that it no longer leads, because Raft's main loop waits for the write. This
// node stops sending to its followers, so they elect another leader. The commands in its queue then go to that leader;
// only commands that Raft has accepted have no outcome yet.

// hung reports whether a write of the log takes so long that this node cannot lead.
func (r *raftParts) hung() bool { return r.stuckFor() > r.times.Of(stallLimit) }

// stuckFor returns how long the oldest entry has waited for the disk, or how long the oldest write under way has taken,
// if that is longer.
func (r *raftParts) stuckFor() time.Duration { return max(r.store.StuckFor(), r.entries.WaitingFor()) }

// stuckFor returns how long the oldest log write has been pending; before Raft runs, as the store reports it.
func stuckFor(n *Node) time.Duration {
	if r := n.running.Load(); r != nil {
		return r.stuckFor()
	}
	return n.config.Store.StuckFor()
}

// established returns this node's term as leader. It returns nil if this node does not lead, or before Raft runs.
func (r *raftParts) established() *lead.Term {
	if r == nil {
		return nil
	}
	return r.leadership.Established()
}

// space returns the room on the disk as it was last measured. Before Raft runs it returns a Space that is neither low
// nor spent.
func (r *raftParts) space() (last store.Space) {
	if r != nil && r.room.Load() != nil {
		last = *r.room.Load()
	}
	return last
}

// A leader that accepts no writes must stop cluster time: otherwise leases would end while it refuses their renewals.
// So there are two marks. Below the first mark, the watermark, a leader refuses commands that let the state grow, and
// accepts commands that keep or end leases. Below the second mark, the reserve, it accepts no command and time stands
// still, as without a leader. The same holds while the members' states differ, and while this node is among nodes of
// another cluster.

// refuses returns why a leader refuses a command, by either mark, or nil.
func (r *raftParts) refuses(command []byte) error {
	if err := r.standstill(); err != nil {
		return err
	}
	if r.space().Low && fsm.OpOf(command).MayGrow() {
		return outcome.ErrStorageFull
	}
	return nil
}

// standstill returns why a leader refuses all commands, by the second mark, or nil.
func (r *raftParts) standstill() error {
	why := r.halted()
	if why == nil && r.space().Spent {
		return outcome.ErrStorageFull
	}
	return why
}

// halted returns why the membership makes this node refuse all commands, or nil.
func (r *raftParts) halted() error {
	if why := r.halt.Load(); why != nil {
		return *why
	}
	return nil
}

// The rest of the file is one adapter for each interface through which a package below sees the node.

// forwardNode implements [forward.Node].
type forwardNode struct{ *Node }

var _ forward.Node = forwardNode{}

// Leading returns nil while this node's disk hangs, since its log cannot store commands then.
func (n forwardNode) Leading() forward.Term {
	if r := n.running.Load(); r != nil && !r.hung() {
		if t := r.leadership.Established(); t != nil {
			return t
		}
	}
	return nil
}

// Leader may return this node, which then refuses commands while it does not lead in the returned term. If this node's
// disk hangs while Raft takes it for the leader, Leader returns the leader that the other members report.
func (n forwardNode) Leader() (address, id string, term uint64) {
	r := n.running.Load()
	if r == nil {
		return "", "", 0
	}
	leaderAddress, leader := r.raft.LeaderWithID()
	term = r.raft.CurrentTerm()
	if string(leader) == n.config.NodeID && r.hung() {
		return r.members.LeaderElsewhere(term)
	}
	return string(leaderAddress), string(leader), term
}

func (n forwardNode) Dial(ctx context.Context, address string) (net.Conn, error) {
	return n.joining.Port().Dial(ctx, peer.StreamForward, address)
}

// leadNode implements [lead.Node].
type leadNode struct {
	*raftParts
	node *Node
}

var _ lead.Node = leadNode{}

// ClusterID returns the id of the cluster in the data folder.
func (n leadNode) ClusterID() fsm.ClusterID { return n.node.joining.Cluster() }

// Jumps returns true for a node whose folder was restored: the node may have used higher numbers before.
func (n leadNode) Jumps() bool { return n.store.RestoredTerm() != 0 }

func (n leadNode) Refuses(command []byte) error { return n.refuses(command) }

func (n leadNode) Standstill() error { return n.standstill() }

func (n leadNode) InForeignCluster() bool { return n.halted() == outcome.ErrNoLeader }

func (n leadNode) RaftRefused(term uint64) {
	n.refusedAt.Store(time.Now().UnixNano())
	n.router.Drop(term)
}

func (n leadNode) Notices(t *lead.Term) lead.Notices {
	return notices.NewSender(notices.Config{
		Notifier: n.node.config.Notifier, Replica: n.node.replica, Term: t, Results: noticeResults{n.node}, Logger: n.node.log,
	})
}

// noticeResults implements [notices.Results].
type noticeResults struct{ node *Node }

var _ notices.Results = noticeResults{}

func (n noticeResults) RemoveNotice(ctx context.Context, id uint64) error {
	return n.node.Submit(ctx, fsm.NoticeDone{IDs: []uint64{id}})
}

func (n noticeResults) NoticeDelivered() { n.node.metrics.NoticesDelivered.Inc() }
func (n noticeResults) NoticeFailed()    { n.node.metrics.NoticesFailed.Inc() }
func (n noticeResults) NoticeGivenUp()   { n.node.metrics.NoticesGivenUp.Inc() }

// backupLeadership implements [backup.Leadership].
type backupLeadership struct{ *raftParts }

var _ backup.Leadership = backupLeadership{}

func (l backupLeadership) Leads() bool { return l.established() != nil }

func (l backupLeadership) Interrupt(ctx context.Context, work func(nowMS int64) error) error {
	return l.leadership.Interrupt(ctx, work)
}

func (l backupLeadership) Hold(ctx context.Context, level uint32) (done func(), err error) {
	return l.members.Changes().Hold(ctx, level)
}

// Refuses also fails below the first mark, since the restored state may be larger than the present state.
func (l backupLeadership) Refuses() error {
	if l.space().Low {
		return outcome.ErrStorageFull
	}
	return l.standstill()
}

// watchedLeader implements [watchdog.Leader].
type watchedLeader struct{ *raftParts }

var _ watchdog.Leader = watchedLeader{}

func (l watchedLeader) Leads() bool { return l.established() != nil }

func (l watchedLeader) GiveBack() {
	t := l.established()
	if t == nil || !l.hung() {
		return
	}
	l.router.Drop(t.Number()) // first, so that the commands are not sent to this node again
	t.GiveBack()
	l.router.Notify()
}

func (l watchedLeader) SetSpace(now store.Space) { l.room.Store(&now) }

func (l watchedLeader) HandOver(ctx context.Context, has store.Space) error {
	return l.members.GiveWay(ctx, has.Spent)
}

func (l watchedLeader) HoldTime() { l.leadership.UpdateTimeHold() }

// Transferring asks Raft only if Raft has refused an entry lately. It logs an empty entry for that, which is harmless
// if Raft accepts it.
func (l watchedLeader) Transferring(ctx context.Context) bool {
	t := l.established()
	refused := l.refusedAt.Load()
	if t == nil || refused == 0 || time.Since(time.Unix(0, refused)) > 2*time.Second {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := t.ProposeTick(ctx)
	return outcome.Transferring(err)
}

func (l watchedLeader) Fatal(err error) { l.die(err) }

// electionCandidate implements [election.Candidate].
type electionCandidate struct {
	*raftParts
	node *Node
}

var _ election.Candidate = electionCandidate{}

func (c electionCandidate) Able() error {
	if c.node.Draining() {
		return outcome.ErrDraining
	}
	return cmp.Or(c.halted(), c.transport.CampaignRefusal())
}

func (c electionCandidate) LastEntry() (term, index uint64) {
	stats := c.raft.Stats()
	number := func(name string) uint64 {
		value, _ := strconv.ParseUint(stats[name], 10, 64)
		return value
	}
	if covered := number("last_snapshot_index"); covered > number("last_log_index") {
		return number("last_snapshot_term"), covered
	}
	return number("last_log_term"), number("last_log_index")
}

func (c electionCandidate) Ask(ctx context.Context, voter raft.Server, q election.Question) (election.Reply, error) {
	return c.members.AskVoter(ctx, voter, q)
}

func (c electionCandidate) Identify(ctx context.Context, id string) (incarnation uint64, err error) {
	server, _ := membership.Find(c.members.Servers(), id)
	conn, err := c.node.joining.Port().DialNode(ctx, peer.StreamProbe, string(server.Address), id)
	if err != nil {
		return 0, err
	}
	return peer.HelloOf(conn).Incarnation, conn.Close()
}

func (c electionCandidate) Campaign() error {
	err := c.transport.Campaign(raft.ServerID(c.node.config.NodeID))
	if err == nil {
		c.node.metrics.EarlyCampaigns.Inc()
	}
	return err
}

// streamEnded reports the end of a Raft stream from another process to the election.
func (n *Node) streamEnded(from peer.Hello) {
	if r := n.running.Load(); r != nil {
		r.election.StreamEnded(election.Process{Node: from.Node, Incarnation: from.Incarnation})
	}
}

// membershipNode implements [membership.Node].
type membershipNode struct{ node *Node }

var _ membership.Node = membershipNode{}

func (h membershipNode) Applied() uint64 { return h.node.replica.Index() }

func (h membershipNode) Level() uint32 { return h.node.replica.Level() }

func (h membershipNode) ClusterID() (id fsm.ClusterID) {
	h.node.View(func(m *fsm.Machine) { id = m.ClusterID() })
	return id
}

func (h membershipNode) Draining() bool { return h.node.Draining() }

func (h membershipNode) Space() (low, spent bool) {
	space := h.node.running.Load().space()
	return space.Low, space.Spent
}

func (h membershipNode) Halted(why error) { h.node.halt.Store(&why) }

func (h membershipNode) Leads() bool { return h.node.running.Load().established() != nil }

func (h membershipNode) Reaches(ctx context.Context, id string) bool {
	return h.node.running.Load().transport.Reaches(ctx, raft.ServerID(id))
}

func (h membershipNode) Judge(ctx context.Context, q election.Question) election.Reply {
	r := h.node.running.Load()
	if r == nil {
		return election.Reply{}
	}
	return r.election.Judge(ctx, q)
}

func (h membershipNode) Fatal(err error) { h.node.fatal(err) }

func (h membershipNode) Propose(ctx context.Context, command fsm.Command) error {
	n := h.node
	t := n.running.Load().established()
	if t == nil {
		return outcome.ErrNotLeader
	}
	return n.router.SubmitHere(ctx, t, n.requests.Build(command, fsm.Envelope{}, lead.ClassOf(command.Op()), nil))
}
