package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

const (
	// formEvery is how often a node with an empty folder asks its peers.
	formEvery = 250 * time.Millisecond
	// formLogEvery is how often it says whom it waits for.
	formLogEvery = 5 * time.Second
)

// peerList writes a list of peers in one form, by id: two nodes have the same list
// if it gives the same text.
func peerList(peers []Peer) string {
	entries := make([]string, len(peers))
	for i, p := range peers {
		entries[i] = p.ID + "=" + p.Address
	}
	slices.Sort(entries)
	return strings.Join(entries, ",")
}

// firstConfiguration has all listed peers as voters. All nodes must make the same
// one of the same list, since each writes it as the first entry of its log.
func firstConfiguration(peers []Peer) raft.Configuration {
	var c raft.Configuration
	for _, p := range peers {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Address)})
	}
	slices.SortFunc(c.Servers, func(a, b raft.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return c
}

// formation finds out what a node with an empty folder is: part of a cluster that
// forms, or a member that has lost its folder. The two look alike from inside, so
// it asks the others, with Raft closed: a voter that has forgotten its votes must
// not cast them again.
type formation struct {
	self   string
	folder store.FolderID
	peers  []Peer // all, this node included
	ask    func(ctx context.Context, id, address string) (probeAnswer, error)
	log    hclog.Logger
	// propose is called with the id that the cluster shall have; the probe then shows it to peers.
	propose func(fsm.ClusterID)
	// waits hears why the cluster can't form yet.
	waits func(why string)

	answers map[string]probeAnswer // the last of each peer that has answered
	errs    map[string]error       // why one did not answer last
	saidAt  time.Time
}

// run asks all listed peers until one is live, or all have answered and none is.
// live is true in the first case; in the second, cluster is the id with which the
// cluster forms. It fails when ctx ends, and when a peer that is part of the forming
// cluster has another list: two lists would make two clusters.
//
// An answer may be old when the last one comes. That does no harm: this node was
// empty before it asked, so if the others have gone on without it, it has never
// voted in what they have made. Nor can two nodes form with different ids: each has
// seen that all empty ones propose its own id, which comes from the folders of all,
// or takes the id of one that has formed; and a folder that is lost meanwhile comes
// never back.
func (f *formation) run(ctx context.Context) (live bool, cluster fsm.ClusterID, err error) {
	f.answers, f.errs, f.saidAt = map[string]probeAnswer{}, map[string]error{}, time.Now()
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
		f.say(conflict)
		if err := pause(ctx, formEvery); err != nil {
			return false, fsm.ClusterID{}, err
		}
	}
}

// oneCluster returns the id of the cluster that nodes have said they belong to, ""
// if none has, and fails if they belong to different ones: no node may come in
// anywhere then.
func oneCluster(answers map[string]probeAnswer) (string, error) {
	first := ""
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		a := answers[id]
		switch {
		case a.State == stateEmpty || a.Cluster == "":
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

// agree returns the id with which the cluster forms, once it is the same on all
// nodes: that of the peers that have formed, zero if they were set up by a release
// without ids, else the one that all propose.
func (f *formation) agree(found string) (fsm.ClusterID, bool) {
	if found != "" {
		cluster, err := fsm.ParseClusterID(found)
		return cluster, err == nil
	}
	folders := map[string]store.FolderID{f.self: f.folder}
	for id, answer := range f.answers {
		if answer.State == stateFormed {
			return fsm.ClusterID{}, true
		}
		folders[id] = answer.Folder
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

// clusterText is an id as probe messages have it: "" for zero.
func clusterText(id fsm.ClusterID) string {
	if id == (fsm.ClusterID{}) {
		return ""
	}
	return id.String()
}

// others are the listed peers but this node.
func (f *formation) others() []Peer {
	return slices.DeleteFunc(slices.Clone(f.peers), func(p Peer) bool { return p.ID == f.self })
}

// askAll asks every peer once, all at the same time.
func (f *formation) askAll(ctx context.Context) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range f.others() {
		asking.Go(func() {
			answer, err := f.ask(ctx, p.ID, p.Address)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.errs[p.ID] = err
				return
			}
			delete(f.errs, p.ID)
			f.answers[p.ID] = answer
		})
	}
	asking.Wait()
}

// judge reports whether some peer is live, and whether all have answered.
func (f *formation) judge() (live, complete bool) {
	complete = true
	for _, p := range f.others() {
		answer, ok := f.answers[p.ID]
		live = live || answer.State == stateLive
		complete = complete && ok
	}
	return live, complete
}

// checkLists compares the lists of all peers with this node's.
func (f *formation) checkLists() error {
	own := peerList(f.peers)
	for _, id := range slices.Sorted(maps.Keys(f.answers)) {
		if theirs := f.answers[id].Peers; theirs != own {
			return fmt.Errorf("the peer lists differ: %s has %q, %s has %q; start all nodes with the same --peers", f.self, own, id, theirs)
		}
	}
	return nil
}

// say logs, every 5 s, whom this node waits for, or why it can't go on.
func (f *formation) say(conflict error) {
	if time.Since(f.saidAt) < formLogEvery {
		return
	}
	f.saidAt = time.Now()
	if conflict != nil {
		f.log.Error("this node stays out", "reason", conflict)
		return
	}
	if err := f.checkLists(); err != nil {
		f.log.Warn("a peer has another list", "error", err)
	}
	var silent []string
	for _, p := range f.others() {
		if _, ok := f.answers[p.ID]; !ok {
			silent = append(silent, fmt.Sprintf("%s at %s: %v", p.ID, p.Address, f.errs[p.ID]))
		}
	}
	f.log.Info("waiting for peers: the first start needs all of them once", "silent", silent)
}

// pause blocks for a time, or until ctx ends with its cause.
func pause(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// folderState answers how far the node with these stores has come. It looks at
// the log rather than at the machine: after a restart the machine knows less than
// the log, and a node that took part must never count as one that did not.
func folderState(logs raft.LogStore, stable raft.StableStore, snapshots raft.SnapshotStore) (nodeState, error) {
	some, err := raft.HasExistingState(logs, stable, snapshots)
	if err != nil {
		return "", fmt.Errorf("look into the data folder: %w", err)
	}
	if !some {
		return stateEmpty, nil
	}
	last, err := logs.LastIndex()
	if err != nil {
		return "", fmt.Errorf("look into the log: %w", err)
	}
	if last != 1 {
		return stateLive, nil // also the empty log of a node that was taken back
	}
	var first raft.Log
	if err := logs.GetLog(1, &first); err != nil {
		return "", fmt.Errorf("read the first entry of the log: %w", err)
	}
	if first.Type == raft.LogConfiguration && first.Term == 1 {
		return stateFormed, nil
	}
	return stateLive, nil
}
