package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/election"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// Node is the part of the node that its membership calls. All methods are safe for concurrent use. Only Reaches,
// Propose and Judge block.
type Node interface {
	// Applied returns the index of the last entry that the node's machine has applied.
	Applied() uint64
	// Level returns the feature level in force in the machine's state.
	Level() uint32
	// ClusterID returns the cluster's id in the machine's state, or zero before the first term.
	ClusterID() fsm.ClusterID
	// Draining reports whether the node is about to stop.
	Draining() bool
	// Space reports whether the disk was nearly full at the last measurement, and whether only the reserve was left.
	Space() (low, spent bool)
	// Leads reports whether the node is the leader and its machine has applied the first entry of its term.
	Leads() bool
	// Reaches reports whether a member receives the entries that this leader sends. It blocks for up to 1 s.
	Reaches(ctx context.Context, id string) bool
	// Propose logs a command in the node's present term and blocks until it is applied; it never logs it in a later
	// term. It fails with outcome.ErrNotLeader if the node does not lead.
	Propose(ctx context.Context, command fsm.Command) error
	// Halted records why this node must refuse commands as the leader: outcome.ErrNoLeader while it is among nodes of
	// another cluster, outcome.ErrSplitState or outcome.ErrStorageFull. With nil, it may accept commands.
	Halted(why error)
	// Judge replies to a candidate that asks whether this node agrees to its campaign. It blocks for up to 1 s.
	Judge(ctx context.Context, q election.Question) election.Reply
	// Fatal ends the process, with err as the reason.
	Fatal(err error)
}

// Folder is a node's data folder; package store implements it.
type Folder interface {
	Logs() raft.LogStore
	Stable() raft.StableStore
	Snapshots() raft.SnapshotStore
	// ClusterID returns the id of the cluster that the folder belongs to, or "" if it belongs to no cluster yet.
	// SetClusterID stores the id.
	ClusterID() string
	SetClusterID(id string) error
	// RestoredTerm returns the term in the folder when it was restored, or 0 if the folder was not restored.
	// SetRestoredTerm stores the term.
	RestoredTerm() uint64
	SetRestoredTerm(term uint64) error
}

// Config says how a node joins its cluster. All fields are needed.
type Config struct {
	Self           probe.Peer
	Peers          []probe.Peer // as listed, this node included
	Folder         Folder
	FolderID       peer.ID
	Network        peer.Network
	Bind           string // address of the peer port
	Security       peer.Security
	FolderRestored bool // the operator has restored the folder from a backup or a copy before this start
	Hashes         Hashes
	Times          wake.Stretch
	Node           Node
	Logger         hclog.Logger
	Stopping       context.Context // its end cancels requests to and from other nodes
}

// Joining is a node before its Raft runs: its port, its identity, and its questions to other nodes. Form waits until
// the node has formed its cluster with the listed peers, or a living cluster has admitted the node again. Start then
// returns the node's Members. Safe for concurrent use.
type Joining struct {
	config         Config
	log            hclog.Logger
	found          probe.State // the folder's state at the start
	folderRestored bool        // restored before this start, or before an earlier start whose record remains

	identity *identity
	port     *peer.Port
	calls    *probe.Calls
	configs  *configurationLog

	members  atomic.Pointer[Members] // nil until Raft runs
	delayed  atomic.Pointer[string]  // why this node has not entered its cluster yet
	proposal atomic.Pointer[fsm.ClusterID]
}

// Open reads the state of the data folder and opens the peer port, which refuses all streams until Serve.
func Open(config Config) (*Joining, error) {
	s := config.Folder
	found, err := folderState(s.Logs(), s.Stable(), s.Snapshots())
	if err != nil {
		return nil, err
	}
	j := &Joining{
		config: config, log: config.Logger, found: found, folderRestored: config.FolderRestored || s.RestoredTerm() != 0,
		configs: newConfigurationLog(s.Snapshots()),
	}
	j.identity = &identity{
		node: config.Self.ID, address: config.Self.Address, folder: config.FolderID, incarnation: rand.Uint64() | 1, // not 0

		roster: j, evidence: newEvidence(config.Self.ID, config.Peers),
	}
	if err := j.bindFromFolder(); err != nil {
		return nil, err
	}
	j.port, err = peer.OpenPort(peer.Config{
		Network: config.Network, Bind: config.Bind, Advertise: config.Self.Address, Identity: j.identity, Times: config.Times,
		Security: config.Security, Logger: config.Logger,
	})
	if err != nil {
		return nil, err
	}
	j.calls = probe.NewCalls(j.dialProbe, config.Self.ID, config.Times, func() *probe.StateHash { return latestHash(config.Hashes) })
	return j, nil
}

// dialProbe opens a probe stream: see probe.Dial.
func (j *Joining) dialProbe(ctx context.Context, id, address string) (net.Conn, error) {
	return j.port.DialNode(ctx, peer.StreamProbe, address, cmp.Or(id, j.memberAt(address)))
}

func (j *Joining) bindFromFolder() error {
	if j.found == probe.Empty {
		j.identity.bindNone()
		return nil
	}
	cluster, err := fsm.ParseClusterID(j.config.Folder.ClusterID())
	if err != nil {
		return fmt.Errorf("the cluster of the data folder: %w", err)
	}
	j.identity.bind(cluster)
	return nil
}

// Serve accepts probe streams, so that other nodes can ask this node.
func (j *Joining) Serve() {
	j.port.Handle(peer.StreamProbe, probe.NewServer(j.config.Stopping, j, j.log).Handle)
}

// AsksPeers reports whether Form asks other nodes; if so it may block for long.
func (j *Joining) AsksPeers() bool { return j.found == probe.Empty && len(j.config.Peers) > 1 }

// Form blocks until the node's Raft may run, or ctx ends. If the folder is not empty, Raft may run at once. Otherwise
// the node waits until it forms a cluster with its peers, or until a living cluster admits it again.
func (j *Joining) Form(ctx context.Context) error {
	switch {
	case j.found != probe.Empty:
		return nil
	case !j.AsksPeers():
		return j.bindFolder(formedID(map[string]peer.ID{j.config.Self.ID: j.identity.folder}))
	}
	delay := func(reason string) { j.delayed.Store(&reason) }
	f := &formation{
		self: j.config.Self.ID, folder: j.identity.folder, others: j.identity.listed, list: peerList(j.config.Peers),
		calls: j.calls, log: j.log,
		propose: func(id fsm.ClusterID) { j.proposal.Store(&id) }, waits: delay,
	}
	live, cluster, err := f.run(ctx)
	if err != nil {
		return err
	}
	if !live {
		return j.bindFolder(cluster)
	}
	r := &readmission{self: j.config.Self, others: j.identity.listed, calls: j.calls, log: j.log, waits: delay}
	admitted, err := r.run(ctx)
	if err != nil {
		return err
	}
	// The term is stored last because the folder no longer counts as empty once it has a term.
	if err := j.config.Folder.SetClusterID(admitted.cluster.String()); err != nil {
		return err
	}
	if err := admitted.storeVote(j.config.Folder.Stable()); err != nil {
		return fmt.Errorf("store the term of the leader: %w", err)
	}
	j.identity.bind(admitted.cluster)
	return nil
}

func (j *Joining) bindFolder(cluster fsm.ClusterID) error {
	if err := j.config.Folder.SetClusterID(cluster.String()); err != nil {
		return err
	}
	j.identity.bind(cluster)
	return nil
}

// Start returns the members of a node whose Raft runs now.
func (j *Joining) Start(r Raft) *Members {
	m := newMembers(r, j)
	j.delayed.Store(nil)
	j.members.Store(m)
	return m
}

// TermBegan implements [replica.ClusterSink]: it is called after the first entry of each term is applied.
func (j *Joining) TermBegan(entry *fsm.Applied) {
	j.checkCluster(j.config.Node.ClusterID())
	j.clearRestored(entry)
}

// SnapshotRestored implements [replica.ClusterSink]: it is called after the state was read from a snapshot.
func (j *Joining) SnapshotRestored(state *fsm.Machine, _ uint64) {
	j.checkCluster(state.ClusterID())
	j.configs.noteRestore()
}

// checkCluster ends the process if the state and the folder belong to different clusters. The state has no id before
// the first term.
func (j *Joining) checkCluster(cluster fsm.ClusterID) {
	if bound := j.identity.bound(); cluster != bound && cluster != (fsm.ClusterID{}) {
		j.config.Node.Fatal(fmt.Errorf("the data folder belongs to cluster %v, and the state in it to cluster %v: move the folder away and start this node again, and it rejoins", bound, cluster))
	}
}

// Configured implements [replica.ClusterSink]: it is called with the entry of each committed configuration.
func (j *Joining) Configured(entry *raft.Log) { j.configs.addEntry(entry) }

// Port returns the node's port. The caller closes it.
func (j *Joining) Port() *peer.Port { return j.port }

// Identity returns what the node tells about itself, and which nodes it accepts.
func (j *Joining) Identity() peer.Identity { return j.identity }

// Cluster returns the id of the node's cluster, or zero while the node belongs to no cluster.
func (j *Joining) Cluster() fsm.ClusterID { return j.identity.bound() }

// Delayed returns why the node has not entered its cluster yet, or "".
func (j *Joining) Delayed() string { return text(&j.delayed) }

// LastRefusal returns the last refusal of this node by a peer of its cluster if it is at most 10 s old, else "".
func (j *Joining) LastRefusal() string { return j.identity.refusedBy() }

// Configuration returns the latest committed configuration that the node knows, or index 0 without a known
// configuration. The caller must not change servers.
func (j *Joining) Configuration() (index uint64, servers []raft.Server) {
	index, servers, _ = j.configs.current()
	return index, servers
}

// Servers returns the members of the latest configuration in this node's log, or nil before its Raft runs.
func (j *Joining) Servers() []raft.Server {
	if m := j.members.Load(); m != nil {
		return m.Servers()
	}
	return nil
}

// memberAt implements [roster].
func (j *Joining) memberAt(address string) string {
	for _, s := range j.Servers() {
		if string(s.Address) == address || peer.PlainAddress(s.Address) == address {
			return string(s.ID)
		}
	}
	for _, p := range j.config.Peers {
		if p.Address == address {
			return p.ID
		}
	}
	return ""
}

// admits implements [roster]. Without the latest configuration, a node accepts every valid certificate, since the
// leader may be a member that this node does not know yet.
func (j *Joining) admits(node string) bool {
	if slices.ContainsFunc(j.config.Peers, func(p probe.Peer) bool { return p.ID == node }) {
		return true
	}
	m := j.members.Load()
	if m == nil {
		return false
	}
	servers := m.Servers()
	_, ok := Find(servers, node)
	return ok || len(servers) == 0 || m.outdated()
}

// admittedFolder implements [roster] with the latest configuration in this node's log. It returns ok = false if that
// configuration is out of date: with it the node would refuse a leader that has since been admitted with a new
// folder, and could not catch up. When it dials, a node still checks the folder's id in the member's address (see
// peer.MarkAddress).
func (j *Joining) admittedFolder(node string) (peer.ID, bool) {
	m := j.members.Load()
	if m == nil {
		return peer.ID{}, false
	}
	server, _ := Find(m.Servers(), node)
	_, folder := peer.SplitAddress(server.Address)
	return folder, folder != (peer.ID{}) && !m.outdated()
}

// Describe implements [probe.Responder]. It reads j.members before the cluster's id because the node sets them in the
// other order. A reply from the moment in between would otherwise describe a formed node without an id.
func (j *Joining) Describe(q *probe.Request) probe.Answer {
	m := j.members.Load()
	a := probe.Answer{
		Node: j.config.Self.ID, Incarnation: j.identity.incarnation, Peers: peerList(j.config.Peers), Knows: fsm.FeatureLevel,
		State: j.found, Folder: j.identity.folder.String(), Cluster: ClusterText(j.identity.bound()), Restored: j.folderRestored,
	}
	a.Draining = j.config.Node.Draining()
	a.StorageLow, a.StorageSpent = j.config.Node.Space()
	if proposal := j.proposal.Load(); proposal != nil {
		a.Forms = ClusterText(*proposal)
	}
	if m != nil {
		return m.describe(a, q)
	}
	return a
}

// CarryOut implements [probe.Responder].
func (j *Joining) CarryOut(ctx context.Context, q *probe.Request, conn net.Conn) (probe.Reply, error) {
	if m := j.members.Load(); m != nil {
		return m.carryOut(ctx, q, conn)
	}
	return probe.Reply{}, outcome.ErrNotLeader
}

// restoredTerms is added to the term of a restored folder. It exceeds the number of elections since the copy was made.
const restoredTerms = 1 << 32

// PrepareRestored records that the folder was restored, if Config.FolderRestored is set. It fails while a member is
// alive whose folder was not restored, because this node may have acknowledged entries to that member that its folder
// no longer has.
func (j *Joining) PrepareRestored(ctx context.Context) error {
	if !j.config.FolderRestored {
		return nil
	}
	if j.found == probe.Empty {
		return errors.New("the data folder is empty: it can't have been restored")
	}
	if err := j.checkRestored(ctx); err != nil {
		return err
	}
	s := j.config.Folder
	if s.RestoredTerm() != 0 {
		return nil // an earlier start has recorded it
	}
	term, err := s.Stable().GetUint64(keyCurrentTerm)
	if err != nil {
		return fmt.Errorf("look into the data folder: %w", err)
	}
	// Other copies may hold later entries of this term. If the next leader used the same term, its entries could have
	// the same index and term as different entries in those copies.
	if err := s.Stable().SetUint64(keyCurrentTerm, term+restoredTerms); err != nil {
		return fmt.Errorf("skip the terms since the copy was made: %w", err)
	}
	return s.SetRestoredTerm(term)
}

// checkRestored asks all listed peers, and returns an error if a peer is alive whose folder was not restored.
func (j *Joining) checkRestored(ctx context.Context) error {
	var errs []error
	for _, p := range j.calls.AskAll(ctx, j.identity.listed) {
		switch {
		case peer.RefusedFor(p.Err, peer.RefusedIncarnation), peer.RefusedFor(p.Err, peer.RefusedFolder):
			errs = append(errs, p.Err)
		case p.Err == nil && p.Answer.State != probe.Empty && !p.Answer.Restored:
			errs = append(errs, fmt.Errorf("member %s at %s is alive and its folder was not restored: stop all members and restore each, or start this one with an empty folder", p.ID, p.Address))
		}
	}
	return errors.Join(errs...)
}

// clearRestored clears the record of the restore when the machine applies the first entry of a leader elected after it.
// In this entry, the machine's counters jump ahead.
func (j *Joining) clearRestored(entry *fsm.Applied) {
	s := j.config.Folder
	if since := s.RestoredTerm(); !entry.Jump || since == 0 || entry.Term <= since {
		return
	}
	if err := s.SetRestoredTerm(0); err != nil { // after an error, the counters jump again in the next term, which is harmless
		j.log.Warn("the folder still counts as restored", "error", err)
	}
}
