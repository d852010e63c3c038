package membership

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/peer"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/logtest"
)

var bootstrapThree = []probe.Peer{{ID: "n1", Address: "n1:1"}, {ID: "n2", Address: "n2:1"}, {ID: "n3", Address: "n3:1"}}

// bootstrapFolders are the folders of the three.
var bootstrapFolders = map[string]peer.ID{"n1": {1}, "n2": {2}, "n3": {3}}

// bootstrapPeers are the others, as one node sees them. An absent one is silent.
type bootstrapPeers struct {
	mu      sync.Mutex
	answers map[string]probe.Answer
}

func (p *bootstrapPeers) set(id string, state probe.State, peers []probe.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := probe.Answer{Node: id, State: state, Peers: peerList(peers), Folder: bootstrapFolders[id].String()}
	if state == probe.Empty {
		a.Forms = formedID(bootstrapFolders).String()
	} else {
		a.Cluster = formedID(bootstrapFolders).String()
	}
	p.answers[id] = a
}

func (p *bootstrapPeers) AskAll(_ context.Context, peers []probe.Peer) (replies []probe.Asked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, listed := range peers {
		a := probe.Asked{Peer: listed}
		var ok bool
		if a.Answer, ok = p.answers[listed.ID]; !ok {
			a.Err = errors.New("silent")
		}
		replies = append(replies, a)
	}
	return replies
}

// bootstrapRun starts to form; the function returns the outcome, or that it is
// not known yet.
func bootstrapRun(t *testing.T, p *bootstrapPeers, log hclog.Logger) func() string {
	f := &formation{self: "n1", folder: bootstrapFolders["n1"], others: bootstrapThree[1:], list: peerList(bootstrapThree), calls: p, log: log,
		propose: func(fsm.ClusterID) {}, waits: func(string) {}}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	outcome := make(chan string, 1)
	go func() {
		live, cluster, err := f.run(ctx)
		switch {
		case err != nil:
			outcome <- err.Error()
		case live:
			outcome <- "rejoin"
		case cluster != formedID(bootstrapFolders):
			outcome <- "bootstrap as " + cluster.String()
		default:
			outcome <- "bootstrap"
		}
	}()
	return func() string {
		synctest.Wait()
		select {
		case o := <-outcome:
			outcome <- o
			return o
		default:
			return "waits"
		}
	}
}

func TestFormationDecides(t *testing.T) {
	other := []probe.Peer{{ID: "n1", Address: "n1:1"}, {ID: "n2", Address: "n2:2"}, {ID: "n3", Address: "n3:1"}}
	for name, c := range map[string]struct {
		n2, n3 probe.State  // "" is silent
		list   []probe.Peer // of n3
		want   string
	}{
		"both empty":              {probe.Empty, probe.Empty, bootstrapThree, "bootstrap"},
		"one formed":              {probe.Formed, probe.Empty, bootstrapThree, "bootstrap"},
		"both formed":             {probe.Formed, probe.Formed, bootstrapThree, "bootstrap"},
		"one silent":              {probe.Empty, "", nil, "waits"},
		"one formed, one silent":  {probe.Formed, "", nil, "waits"},
		"both silent":             {"", "", nil, "waits"},
		"one live, one silent":    {probe.Live, "", nil, "rejoin"},
		"one live, one empty":     {probe.Live, probe.Empty, bootstrapThree, "rejoin"},
		"one live, another list":  {probe.Empty, probe.Live, other, "rejoin"},
		"one empty, another list": {probe.Empty, probe.Empty, other, "the peer lists differ"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &bootstrapPeers{answers: map[string]probe.Answer{}}
				if c.n2 != "" {
					p.set("n2", c.n2, bootstrapThree)
				}
				if c.n3 != "" {
					p.set("n3", c.n3, c.list)
				}
				got := bootstrapRun(t, p, hclog.NewNullLogger())
				if o := got(); !strings.HasPrefix(o, c.want) {
					t.Fatalf("got %q, want %q", o, c.want)
				}
				time.Sleep(time.Minute) // virtual
				if o := got(); !strings.HasPrefix(o, c.want) {
					t.Fatalf("after a minute: %q, want %q", o, c.want)
				}
			})
		})
	}
}

func TestFormationNamesBothLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := []probe.Peer{{ID: "n1", Address: "n1:1"}, {ID: "n9", Address: "n9:1"}}
		p := &bootstrapPeers{answers: map[string]probe.Answer{}}
		p.set("n2", probe.Empty, bootstrapThree)
		p.set("n3", probe.Empty, other)
		o := bootstrapRun(t, p, hclog.NewNullLogger())()
		for _, want := range []string{"n1 has", "n3 has", peerList(bootstrapThree), peerList(other)} {
			if !strings.Contains(o, want) {
				t.Errorf("%q does not say %q", o, want)
			}
		}
	})
}

// TestFormationSaysWhomItWaitsFor: every 5 s, until the last one replies.
func TestFormationSaysWhomItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &bootstrapPeers{answers: map[string]probe.Answer{}}
		p.set("n2", probe.Empty, bootstrapThree)
		log := logtest.New()
		got := bootstrapRun(t, p, log)
		time.Sleep(21 * time.Second) // virtual
		lines := log.Lines("waiting for peers")
		if len(lines) != 4 {
			t.Fatalf("said %d times in 21 s: %q", len(lines), lines)
		}
		for _, line := range lines {
			if !strings.Contains(line, "n3 at n3:1: silent") || strings.Contains(line, "n2") {
				t.Errorf("said %q", line)
			}
		}
		p.set("n3", probe.Formed, bootstrapThree)
		time.Sleep(formEvery) // virtual: one more round
		if o := got(); o != "bootstrap" {
			t.Fatalf("got %q", o)
		}
	})
}

// TestFirstConfigurationIsTheSameEverywhere: the order of a list does not matter.
func TestFirstConfigurationIsTheSameEverywhere(t *testing.T) {
	shuffled := []probe.Peer{bootstrapThree[2], bootstrapThree[0], bootstrapThree[1]}
	if peerList(shuffled) != peerList(bootstrapThree) {
		t.Errorf("%q and %q", peerList(shuffled), peerList(bootstrapThree))
	}
	a, b := raft.EncodeConfiguration(FirstConfiguration(shuffled)), raft.EncodeConfiguration(FirstConfiguration(bootstrapThree))
	if !slices.Equal(a, b) {
		t.Error("the first entries differ")
	}
	for _, s := range FirstConfiguration(shuffled).Servers {
		if s.Suffrage != raft.Voter {
			t.Errorf("%s has no vote", s.ID)
		}
	}
}

// TestFormationWaitsUntilAllProposeTheSame: else two nodes could form two clusters.
func TestFormationWaitsUntilAllProposeTheSame(t *testing.T) {
	f := &formation{self: "n1", folder: bootstrapFolders["n1"], propose: func(fsm.ClusterID) {}}
	want := formedID(bootstrapFolders)
	answer := func(id string, state probe.State, forms fsm.ClusterID) probe.Answer {
		return probe.Answer{Node: id, State: state, Folder: bootstrapFolders[id].String(), Forms: ClusterText(forms)}
	}
	for name, c := range map[string]struct {
		n2, n3 probe.Answer
		agreed bool
	}{
		"all propose it":      {answer("n2", probe.Empty, want), answer("n3", probe.Empty, want), true},
		"one proposes none":   {answer("n2", probe.Empty, want), answer("n3", probe.Empty, fsm.ClusterID{}), false},
		"one proposes others": {answer("n2", probe.Empty, want), answer("n3", probe.Empty, fsm.ClusterID{9}), false},
	} {
		f.answers = map[string]probe.Answer{"n2": c.n2, "n3": c.n3}
		if got, agreed := f.agree(""); agreed != c.agreed || got != want {
			t.Errorf("%s: %v, agreed %t", name, got, agreed)
		}
	}
	if got, agreed := f.agree(fsm.ClusterID{5}.String()); !agreed || got != (fsm.ClusterID{5}) {
		t.Errorf("beside one that has formed: %v, agreed %t", got, agreed)
	}
}

func TestFolderState(t *testing.T) {
	configuration := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration}
	for name, c := range map[string]struct {
		term uint64
		logs []*raft.Log
		want probe.State
	}{
		"nothing":         {0, nil, probe.Empty},
		"taken back":      {7, nil, probe.Live},
		"bootstrapped":    {1, []*raft.Log{configuration}, probe.Formed},
		"has voted":       {2, []*raft.Log{configuration}, probe.Formed},
		"has been led":    {2, []*raft.Log{configuration, {Index: 2, Term: 2, Type: raft.LogNoop}}, probe.Live},
		"log cut off":     {9, []*raft.Log{{Index: 8, Term: 9, Type: raft.LogNoop}}, probe.Live},
		"no first config": {9, []*raft.Log{{Index: 1, Term: 9, Type: raft.LogNoop}}, probe.Live},
	} {
		t.Run(name, func(t *testing.T) {
			s := raft.NewInmemStore()
			if c.term > 0 {
				must(t, s.SetUint64(keyCurrentTerm, c.term))
			}
			must(t, s.StoreLogs(c.logs))
			if got, err := folderState(s, s, raft.NewInmemSnapshotStore()); got != c.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
