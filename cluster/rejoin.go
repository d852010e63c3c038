package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

const (
	// rejoinEvery is how often a node asks to be taken back.
	rejoinEvery = 500 * time.Millisecond
)

// The keys under which Raft keeps its vote. It exports none of them.
var (
	keyCurrentTerm  = []byte("CurrentTerm")
	keyLastVoteTerm = []byte("LastVoteTerm")
	keyLastVoteCand = []byte("LastVoteCand")
)

// readmission takes a node whose folder is empty back into a cluster that is
// alive, with Raft closed until the leader has committed that this node has no
// vote. Without that, what was committed with this node's old vote or old log
// could be outvoted with its new, empty ones.
//
// Once that is committed, any majority that could elect a leader contains a node
// that knows it, so that this node may follow; when it has caught up, the leader
// makes it a voter again (see promotion).
type readmission struct {
	self    string
	address string // as advertised
	peers   []Peer // as listed, this node included
	ask     func(ctx context.Context, id, address string) (probeAnswer, error)
	call    func(ctx context.Context, address string, q probeRequest) (probeReply, error)
	log     hclog.Logger
	// waits hears why this node is not in yet.
	waits func(why string)

	saidAt time.Time
}

// admittance is the leader's word that this node has no vote.
type admittance struct {
	term   uint64 // the leader's
	leader string // its address
	// cluster is the id of the cluster that has taken this node back.
	cluster fsm.ClusterID
}

// run asks until the leader has done it, or ctx ends.
func (r *readmission) run(ctx context.Context) (admittance, error) {
	r.log.Warn("the data folder is empty but the cluster is alive: this node rejoins", "node", r.self)
	r.saidAt = time.Now()
	for {
		admitted, err := r.try(ctx)
		if err == nil {
			r.log.Info("the leader has made this node a non-voter; catching up", "leader", admitted.leader, "term", admitted.term)
			return admitted, nil
		}
		r.waits("this node waits to be taken back by the cluster: " + err.Error())
		if time.Since(r.saidAt) >= formLogEvery {
			r.saidAt = time.Now()
			r.log.Warn("waiting to be taken back by the cluster", "reason", err)
		}
		if err := pause(ctx, rejoinEvery); err != nil {
			return admittance{}, err
		}
	}
}

// try looks for the leader and asks it once.
func (r *readmission) try(ctx context.Context) (admittance, error) {
	leader, err := r.findLeader(ctx)
	if err != nil {
		return admittance{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeCallTimeout)
	defer cancel()
	reply, err := r.call(ctx, leader, probeRequest{Kind: probeRejoin, ID: r.self, Address: r.address, Level: fsm.FeatureLevel})
	switch {
	case errors.Is(err, errNotMember):
		return admittance{}, fmt.Errorf("the cluster has no member %s: add it with PUT /v1/cluster/members/%s on another node", r.self, r.self)
	case err != nil:
		return admittance{}, fmt.Errorf("asked the leader at %s: %w", leader, err)
	}
	cluster, err := fsm.ParseClusterID(reply.Cluster)
	if err != nil || reply.Term == 0 || cluster == (fsm.ClusterID{}) {
		return admittance{}, fmt.Errorf("asked the leader at %s: %w", leader, errProbeMalformed)
	}
	return admittance{term: reply.Term, leader: leader, cluster: cluster}, nil
}

// findLeader asks all peers and believes the one with the highest term, if all of
// them are of one cluster.
func (r *readmission) findLeader(ctx context.Context) (address string, err error) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	var term uint64
	var live, silent []string
	answers := map[string]probeAnswer{}
	for _, p := range r.peers {
		if p.ID == r.self {
			continue
		}
		asking.Go(func() {
			answer, err := r.ask(ctx, p.ID, p.Address)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, fmt.Sprintf("%s (%v)", p.ID, err))
				return
			}
			live = append(live, p.ID)
			answers[p.ID] = answer
			if answer.LeaderAddress != "" && answer.Term >= term {
				term, address = answer.Term, answer.LeaderAddress
			}
		})
	}
	asking.Wait()
	if _, err := oneCluster(answers); err != nil {
		return "", err
	}
	if address == "" {
		slices.Sort(live)
		slices.Sort(silent)
		return "", fmt.Errorf("no leader: a majority of the voters but this one must be up; answering [%s], silent [%s]",
			strings.Join(live, ", "), strings.Join(silent, ", "))
	}
	return address, nil
}

// keep stores, before Raft opens, that this node is in the leader's term and has
// voted for it, so that it can't vote again in a term in which it may have voted
// before it lost its folder. The term comes last: once it is there the folder is
// not empty any more, and the node opens Raft at once when it is started again.
func (a admittance) keep(stable raft.StableStore) error {
	if err := stable.SetUint64(keyLastVoteTerm, a.term); err != nil {
		return err
	}
	if err := stable.Set(keyLastVoteCand, []byte(a.leader)); err != nil {
		return err
	}
	return stable.SetUint64(keyCurrentTerm, a.term)
}
