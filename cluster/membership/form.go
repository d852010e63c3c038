package membership

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

const (
	// formEvery is how often a node with an empty folder asks its peers.
	formEvery = 250 * time.Millisecond
	// formSoon replaces formEvery in the first 3 s (formHurry) after the start, because nodes often start together, and
	// in the 3 s after the last peer has replied for the first time.
	formSoon  = 25 * time.Millisecond
	formHurry = 3 * time.Second
	// rejoinEvery is how often a node asks the leader to admit it again.
	rejoinEvery = 500 * time.Millisecond
	// formLogEvery is how often a node logs why it is not in its cluster yet.
	formLogEvery = 5 * time.Second
)

// peerList returns a list of peers as text, sorted by id, so that equal lists give equal texts.
func peerList(peers []probe.Peer) string {
	entries := make([]string, len(peers))
	for i, p := range peers {
		entries[i] = p.ID + "=" + p.Address
	}
	slices.Sort(entries)
	return strings.Join(entries, ",")
}

// FirstConfiguration returns the configuration in which all listed peers are voters. The result depends only on the set
// of peers, because each node writes it as the first entry of its log.
func FirstConfiguration(peers []probe.Peer) raft.Configuration {
	var c raft.Configuration
	for _, p := range peers {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Address)})
	}
	slices.SortFunc(c.Servers, func(a, b raft.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return c
}

// asker asks nodes for their state; [probe.Calls] implements it.
type asker interface {
	AskAll(ctx context.Context, peers []probe.Peer) []probe.Asked
}

// formation finds out, before Raft runs, whether a node with an empty folder forms a new cluster or is a member that
// has lost its folder. Only the other nodes know. A voter that has lost its record of its votes must not vote: it could
// vote twice in a term.
type formation struct {
	self   string
	folder peer.ID
	others []probe.Peer // as listed, without this node
	list   string       // of all peers, see peerList
	calls  asker
	log    hclog.Logger
	// propose publishes the cluster id that this node proposes to its peers.
	propose func(fsm.ClusterID)
	// waits publishes why the cluster can't form yet.
	waits func(why string)

	answers  map[string]probe.Answer // the last reply of each peer
	errs     map[string]error        // by peer: the error of the last question, or nil after a reply
	loggedAt time.Time
}

// run asks all listed peers. It returns live = true once a peer is live, or the id of the new cluster once all peers
// have replied and are empty or formed. It fails when ctx ends, and when a peer has another list: two lists would make
// two clusters.
//
// A reply may be out of date by the time the last peer replies. That is safe: if the other nodes have formed their
// cluster in the meantime, this node, which was empty before it asked, has not voted in it yet.
//
// Two nodes cannot form with different ids. The id is made of the ids of all folders. A node forms only when all empty
// nodes propose the same id as the node itself, or with the id of a node that has formed. A folder that is lost in the
// meantime never comes back, so its id cannot count in two clusters.
func (f *formation) run(ctx context.Context) (live bool, cluster fsm.ClusterID, err error) {
	began, replied := time.Now(), false
	f.answers, f.errs, f.loggedAt = map[string]probe.Answer{}, map[string]error{}, began
	for {
		f.askAll(ctx)
		live, complete := f.judge()
		found, conflict := oneCluster(f.answers)
		switch {
		case conflict != nil:
			f.waits(conflict.Error())
		case live:
			return true, fsm.ClusterID{}, nil
		case complete:
			if err := f.checkLists(); err != nil {
				return false, fsm.ClusterID{}, err
			}
			if cluster, agreed := f.agree(found); agreed {
				return false, cluster, nil
			}
		}
		f.logProgress(conflict)
		if complete && !replied {
			began, replied = time.Now(), true
		}
		pause := formEvery
		if time.Since(began) < formHurry {
			pause = formSoon
		}
		if err := wake.Pause(ctx, pause); err != nil {
			return false, fsm.ClusterID{}, err
		}
	}
}

// oneCluster returns the id of the cluster to which the nodes that replied belong, or "" if all are empty. If they
// belong to different clusters it fails, and this node must not enter any of them.
func oneCluster(answers map[string]probe.Answer) (string, error) {
	first := ""
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		a := answers[id]
		switch {
		case a.State == probe.Empty || a.Cluster == "":
		case first == "":
			first = id
		case answers[first].Cluster != a.Cluster:
			return "", fmt.Errorf("the listed peers belong to different clusters: %s to %s, and %s to %s: correct the list, or give the wrong one an empty folder",
				first, answers[first].Cluster, id, a.Cluster)
		}
	}
	if first == "" {
		return "", nil
	}
	return answers[first].Cluster, nil
}

// agree returns the id of the new cluster: the id of the peers that have formed (found), else the id that all nodes
// propose. ok is false while their proposals differ.
func (f *formation) agree(found string) (fsm.ClusterID, bool) {
	if found != "" {
		cluster, err := fsm.ParseClusterID(found)
		return cluster, err == nil && cluster != (fsm.ClusterID{})
	}
	folders := map[string]peer.ID{f.self: f.folder}
	for id, answer := range f.answers {
		folder, err := folderOf(&answer)
		if err != nil {
			return fsm.ClusterID{}, false
		}
		folders[id] = folder
	}
	cluster := formedID(folders)
	f.propose(cluster)
	for _, answer := range f.answers {
		if answer.Forms != cluster.String() {
			return cluster, false
		}
	}
	return cluster, true
}

func folderOf(a *probe.Answer) (id peer.ID, err error) {
	if len(a.Folder) != hex.EncodedLen(len(id)) {
		return id, probe.ErrMalformed
	}
	_, err = hex.Decode(id[:], []byte(a.Folder))
	return id, err
}

func (f *formation) askAll(ctx context.Context) {
	for _, p := range f.calls.AskAll(ctx, f.others) {
		if f.errs[p.ID] = p.Err; p.Err == nil {
			f.answers[p.ID] = p.Answer
		}
	}
}

func (f *formation) judge() (live, complete bool) {
	complete = true
	for _, p := range f.others {
		answer, ok := f.answers[p.ID]
		live = live || answer.State == probe.Live
		complete = complete && ok
	}
	return live, complete
}

func (f *formation) checkLists() error {
	for _, id := range slices.Sorted(maps.Keys(f.answers)) {
		if remote := f.answers[id].Peers; remote != f.list {
			return fmt.Errorf("the peer lists differ: %s has %q, %s has %q; start all nodes with the same list of peers", f.self, f.list, id, remote)
		}
	}
	return nil
}

// logProgress logs every 5 s which peers have not replied, or why the cluster can't form.
func (f *formation) logProgress(conflict error) {
	if time.Since(f.loggedAt) < formLogEvery {
		return
	}
	f.loggedAt = time.Now()
	if conflict != nil {
		f.log.Error("this node stays out", "reason", conflict)
		return
	}
	if err := f.checkLists(); err != nil {
		f.log.Warn("a peer has another list", "error", err)
	}
	var silent []string
	for _, p := range f.others {
		if _, ok := f.answers[p.ID]; !ok {
			silent = append(silent, fmt.Sprintf("%s at %s: %v", p.ID, p.Address, f.errs[p.ID]))
		}
	}
	f.log.Info("waiting for peers: the first start needs all of them once", "silent", silent)
}

// folderState returns whether the folder is empty, or how much Raft has stored in it. It reads the log rather than the
// machine: after a restart the machine is behind the log, and a node that took part in Raft must never count as new.
func folderState(logs raft.LogStore, stable raft.StableStore, snapshots raft.SnapshotStore) (probe.State, error) {
	some, err := raft.HasExistingState(logs, stable, snapshots)
	if err != nil {
		return "", fmt.Errorf("look into the data folder: %w", err)
	}
	if !some {
		return probe.Empty, nil
	}
	last, err := logs.LastIndex()
	if err != nil {
		return "", fmt.Errorf("look into the log: %w", err)
	}
	if last != 1 {
		return probe.Live, nil // also if the log is empty because the node was admitted again
	}
	var first raft.Log
	if err := logs.GetLog(1, &first); err != nil {
		return "", fmt.Errorf("read the first entry of the log: %w", err)
	}
	if first.Type == raft.LogConfiguration && first.Term == 1 {
		return probe.Formed, nil
	}
	return probe.Live, nil
}

// Raft stores its term and its vote under these keys, but does not export them.
var (
	keyCurrentTerm  = []byte("CurrentTerm")
	keyLastVoteTerm = []byte("LastVoteTerm")
	keyLastVoteCand = []byte("LastVoteCand")
)

// readmission asks the leader of a living cluster to admit this node again after it lost its folder. Raft stays closed
// until the leader has committed that this node has no vote. Otherwise this node could vote twice in a term, or help to
// elect a leader that lacks committed entries, since this node's lost log may have counted for their majority.
//
// Every later majority contains a node that knows this commit, so this node can then safely follow. When it has caught
// up, the leader makes it a voter again (see promotion).
type readmission struct {
	self   probe.Peer   // as advertised
	others []probe.Peer // as listed, without this node
	calls  *probe.Calls
	log    hclog.Logger
	// waits publishes why this node is not in the cluster yet.
	waits func(why string)

	loggedAt time.Time
}

// admittance is the leader's confirmation that this node has no vote.
type admittance struct {
	term   uint64 // the leader's term
	leader string // the leader's address
	// cluster is the id of the cluster that has admitted this node.
	cluster fsm.ClusterID
}

// run asks until the leader has admitted this node, or ctx ends.
func (r *readmission) run(ctx context.Context) (admittance, error) {
	r.log.Warn("the data folder is empty but the cluster is alive: this node rejoins", "node", r.self.ID)
	r.loggedAt = time.Now()
	for {
		admitted, err := r.askLeader(ctx)
		if err == nil {
			r.log.Info("the leader has made this node a non-voter; catching up", "leader", admitted.leader, "term", admitted.term)
			return admitted, nil
		}
		r.waits("this node waits to be taken back by the cluster: " + err.Error())
		if time.Since(r.loggedAt) >= formLogEvery {
			r.loggedAt = time.Now()
			r.log.Warn("waiting to be taken back by the cluster", "reason", err)
		}
		if err := wake.Pause(ctx, rejoinEvery); err != nil {
			return admittance{}, err
		}
	}
}

// askLeader finds the leader and asks it once.
func (r *readmission) askLeader(ctx context.Context) (admittance, error) {
	leader, err := r.findLeader(ctx)
	if err != nil {
		return admittance{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, probe.CallTimeout)
	defer cancel()
	reply, err := r.calls.Call(ctx, leader, probe.Request{Kind: probe.Rejoin, ID: r.self.ID, Address: r.self.Address, Level: fsm.FeatureLevel})
	switch {
	case errors.Is(err, probe.ErrNotMember):
		return admittance{}, fmt.Errorf("the cluster has no member %s: add it on a node that is one", r.self.ID)
	case err != nil:
		return admittance{}, fmt.Errorf("asked the leader at %s: %w", leader, err)
	}
	cluster, err := fsm.ParseClusterID(reply.Cluster)
	if err != nil || reply.Term == 0 || cluster == (fsm.ClusterID{}) {
		return admittance{}, fmt.Errorf("asked the leader at %s: %w", leader, probe.ErrMalformed)
	}
	return admittance{term: reply.Term, leader: leader, cluster: cluster}, nil
}

// findLeader asks all peers and returns the leader's address from the reply with the highest term. It fails if the
// replies come from different clusters.
func (r *readmission) findLeader(ctx context.Context) (address string, err error) {
	var term uint64
	var live, silent []string
	answers := map[string]probe.Answer{}
	for _, p := range r.calls.AskAll(ctx, r.others) {
		if p.Err != nil {
			silent = append(silent, fmt.Sprintf("%s (%v)", p.ID, p.Err))
			continue
		}
		live = append(live, p.ID)
		answers[p.ID] = p.Answer
		if p.Answer.LeaderAddress != "" && p.Answer.Term >= term {
			term, address = p.Answer.Term, p.Answer.LeaderAddress
		}
	}
	if _, err := oneCluster(answers); err != nil {
		return "", err
	}
	if address == "" {
		slices.Sort(live)
		slices.Sort(silent)
		return "", fmt.Errorf("no leader: a majority of the voters but this one must be up; replying [%s], silent [%s]",
			strings.Join(live, ", "), strings.Join(silent, ", "))
	}
	return address, nil
}

// storeVote stores, before Raft opens, the leader's term and a vote for the leader. So the node can't vote a second
// time in a term in which it may have voted before it lost its folder. The current term is written last because it
// marks the folder as not empty: the next start then opens Raft at once.
func (a admittance) storeVote(stable raft.StableStore) error {
	if err := stable.SetUint64(keyLastVoteTerm, a.term); err != nil {
		return err
	}
	if err := stable.Set(keyLastVoteCand, []byte(a.leader)); err != nil {
		return err
	}
	return stable.SetUint64(keyCurrentTerm, a.term)
}
