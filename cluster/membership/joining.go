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

// Node is the node as its membership sees it. All methods are safe for concurrent use. Only Reaches, Propose and Judge
// block.
type Node interface {
	// Applied returns the index of the last entry that the node's machine has applied.
	Applied() uint64
	// Level returns the feature level in force, as far as the machine knows.
	Level() uint32
	// ClusterID returns the cluster's id in the machine's state, or zero before the first term.
	ClusterID() fsm.ClusterID
	// Draining reports whether the node is about to stop.
	Draining() bool
	// Space reports whether the node's disk was nearly full when it was measured last,
	// and whether only its reserve was left.
	Space() (low, spent bool)
	// Leads reports whether the node leads an established term.
	Leads() bool
	// Reaches reports whether a member receives the entries that this node sends as the leader. It blocks for up to 1
	// s.
	Reaches(ctx context.Context, id string) bool
	// Propose logs a command in the node's present term, or not at all, and blocks until it is applied. It fails with
	// outcome.ErrNotLeader if the node does not lead.
	Propose(ctx context.Context, command fsm.Command) error
	// Halted notes why this node must refuse commands as the leader: outcome.ErrNoLeader while it is among nodes of
	// another cluster, outcome.ErrSplitState or outcome.ErrStorageFull. nil: it may accept commands.
	Halted(why error)
	// Judge replies to a candidate that asks whether this voter agrees. It blocks for up to 1 s.
	Judge(ctx context.Context, q election.Question) election.Reply
	// Fatal ends the process, with err as the reason.
	Fatal(err error)
}

// Folder is a node's data folder, as package store has it.
type Folder interface {
	Logs() raft.LogStore
	Stable() raft.StableStore
	Snapshots() raft.SnapshotStore
	// ClusterID returns the id of the cluster that the folder belongs to, or "" if it belongs to no cluster yet.
	// SetClusterID stores the id.
	ClusterID() string
	SetClusterID(id string) error
	// RestoredTerm returns the term that the folder had when it was put back, or 0 if it was not. SetRestoredTerm
	// stores the term.
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
	Bind           string // of the peer port
	Security       peer.Security
	FolderRestored bool // the folder was put back from a backup or a copy before this start
	Hashes         Hashes
	Times          wake.Stretch
	Node           Node
	Logger         hclog.Logger
	Stopping       context.Context // ends the requests to other nodes, and from them
}

// Joining is a node before its Raft runs: its port, its identity, and its questions to other nodes. It finds out the
// state of the data folder. Then it forms the cluster with the listed peers, or has a living cluster admit the node
// again. Start then makes the node's Members. Safe for concurrent use.
type Joining struct {
	config         Config
	log            hclog.Logger
	found          probe.State // of the folder at the start
	folderRestored bool        // the folder was put back, now or before an earlier start

	identity *identity
	port     *peer.Port
	calls    *probe.Calls
	configs  *configurationLog

	members  atomic.Pointer[Members] // nil until Raft runs
	delayed  atomic.Pointer[string]  // why this node could not come into its cluster yet
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
	if err := j.setStanding(); err != nil {
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

// setStanding sets the standing of the identity from the data folder.
func (j *Joining) setStanding() error {
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

// AsksPeers reports whether Form asks other nodes, which may block for long.
func (j *Joining) AsksPeers() bool { return j.found == probe.Empty && len(j.config.Peers) > 1 }

// Form blocks until the node's Raft may run, or ctx ends. With a folder that is not empty Raft may run at once. With an
// empty folder, the node waits until it forms a cluster with its peers, or until a living cluster admits it again.
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
	// The term is stored last: with it the folder is not empty any more.
	if err := j.config.Folder.SetClusterID(admitted.cluster.String()); err != nil {
		return err
	}
	if err := admitted.storeVote(j.config.Folder.Stable()); err != nil {
		return fmt.Errorf("store the term of the leader: %w", err)
	}
	j.identity.bind(admitted.cluster)
	return nil
}

// bindFolder stores the id of the cluster that the node forms.
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

// TermBegan is called in the apply goroutine after the first entry of a term. It implements [replica.ClusterSink].
func (j *Joining) TermBegan(entry *fsm.Applied) {
	j.checkCluster(j.config.Node.ClusterID())
	j.clearRestored(entry)
}

// SnapshotRestored is called in the apply goroutine after the state was read from a snapshot. It implements
// [replica.ClusterSink].
func (j *Joining) SnapshotRestored(state *fsm.Machine, _ uint64) {
	j.checkCluster(state.ClusterID())
	j.configs.noteRestore()
}

// checkCluster ends the process if the state belongs to another cluster than the folder. A state before its first term
// has no id yet.
func (j *Joining) checkCluster(cluster fsm.ClusterID) {
	if bound := j.identity.bound(); cluster != bound && cluster != (fsm.ClusterID{}) {
		j.config.Node.Fatal(fmt.Errorf("the data folder belongs to cluster %v, and the state in it to cluster %v: move the folder away and start this node again, and it rejoins", bound, cluster))
	}
}

// Configured is called in the apply goroutine with the entry of a committed configuration. It implements
// [replica.ClusterSink].
func (j *Joining) Configured(entry *raft.Log) { j.configs.addEntry(entry) }

// Port returns the node's port. The caller closes it.
func (j *Joining) Port() *peer.Port { return j.port }

// Identity returns the node's description of itself on its streams.
func (j *Joining) Identity() peer.Identity { return j.identity }

// Cluster returns the id of the node's cluster, or zero while the node belongs to no cluster.
func (j *Joining) Cluster() fsm.ClusterID { return j.identity.bound() }

// Delayed returns why the node could not come into its cluster yet, or "".
func (j *Joining) Delayed() string { return text(&j.delayed) }

// Outcast returns how a peer of the node's cluster refused it lately, or "".
func (j *Joining) Outcast() string { return j.identity.refusedBy() }

// Configuration returns the latest committed configuration that the node knows; index 0 before it knows a
// configuration. The caller must not change servers.
func (j *Joining) Configuration() (index uint64, servers []raft.Server) {
	index, servers, _ = j.configs.current()
	return index, servers
}

// Servers returns the members of this node's latest configuration, or nil before its Raft runs.
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

// admits implements [roster]. A node that does not have the latest configuration admits every node with a certificate,
// since the leader may be a node that was added later.
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

// admittedFolder implements [roster], from the latest configuration in this node's log. A node whose configuration is
// out of date does not use it: it would refuse a leader that was since admitted with another folder, and so could not
// catch up while that node leads. It still checks the nodes that it dials by the marks in their addresses.
func (j *Joining) admittedFolder(node string) (peer.ID, bool) {
	m := j.members.Load()
	if m == nil {
		return peer.ID{}, false
	}
	server, _ := Find(m.Servers(), node)
	_, folder := peer.SplitAddress(server.Address)
	return folder, folder != (peer.ID{}) && !m.outdated()
}

// Describe implements [probe.Responder]. It reads members first, since a node gets its cluster's id before its members.
// In the other order, a reply that is made while the cluster forms could describe a node that has formed but has no id.
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

// restoredTerms is added to the term of a restored folder: more than the elections that can have been held since the
// copy was made.
const restoredTerms = 1 << 32

// NoteRestored records that the folder was put back, if it was. It fails while a member is alive whose folder was not
// put back: this node's folder lacks entries that it has acknowledged to that member.
func (j *Joining) NoteRestored(ctx context.Context) error {
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
		return nil // recorded by an earlier start
	}
	term, err := s.Stable().GetUint64(keyCurrentTerm)
	if err != nil {
		return fmt.Errorf("look into the data folder: %w", err)
	}
	// Other copies may hold later entries of this term. The next leader must not get a term in which entries exist that
	// this folder lacks.
	if err := s.Stable().SetUint64(keyCurrentTerm, term+restoredTerms); err != nil {
		return fmt.Errorf("skip the terms since the copy was made: %w", err)
	}
	return s.SetRestoredTerm(term)
}

// checkRestored asks all listed peers, and returns an error if one is alive whose folder was not put back.
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

// clearRestored clears the record of a restored folder once the first leader after the restore has made the machine's
// counters jump, with an entry of a later term than the folder had when it was put back.
func (j *Joining) clearRestored(entry *fsm.Applied) {
	s := j.config.Folder
	if since := s.RestoredTerm(); !entry.Jump || since == 0 || entry.Term <= since {
		return
	}
	if err := s.SetRestoredTerm(0); err != nil { // the next term jumps again, which is harmless
		j.log.Warn("the folder still counts as restored", "error", err)
	}
}
