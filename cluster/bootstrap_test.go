package cluster

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

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

var bootstrapThree = []Peer{{ID: "n1", Address: "n1:1"}, {ID: "n2", Address: "n2:1"}, {ID: "n3", Address: "n3:1"}}

// bootstrapFolders are those of the three.
var bootstrapFolders = map[string]store.FolderID{"n1": {1}, "n2": {2}, "n3": {3}}

// bootstrapPeers are the others, as one node sees them. An absent one is silent.
type bootstrapPeers struct {
	mu      sync.Mutex
	answers map[string]probeAnswer
}

func (p *bootstrapPeers) set(id string, state nodeState, peers []Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := probeAnswer{Node: id, State: state, Peers: peerList(peers), Folder: bootstrapFolders[id]}
	if state == stateEmpty {
		a.Forms = formedID(bootstrapFolders).String()
	} else {
		a.Cluster = formedID(bootstrapFolders).String()
	}
	p.answers[id] = a
}

func (p *bootstrapPeers) ask(_ context.Context, id, _ string) (probeAnswer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, ok := p.answers[id]
	if !ok {
		return probeAnswer{}, errors.New("silent")
	}
	return answer, nil
}

// bootstrapRun starts to form; the function answers what came out, or that nothing
// has yet.
func bootstrapRun(t *testing.T, p *bootstrapPeers, log hclog.Logger) func() string {
	f := &formation{self: "n1", folder: bootstrapFolders["n1"], peers: bootstrapThree, ask: p.ask, log: log,
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
	other := []Peer{{ID: "n1", Address: "n1:1"}, {ID: "n2", Address: "n2:2"}, {ID: "n3", Address: "n3:1"}}
	for name, c := range map[string]struct {
		n2, n3 nodeState // "" is silent
		list   []Peer    // of n3
		want   string
	}{
		"both empty":              {stateEmpty, stateEmpty, bootstrapThree, "bootstrap"},
		"one formed":              {stateFormed, stateEmpty, bootstrapThree, "bootstrap"},
		"both formed":             {stateFormed, stateFormed, bootstrapThree, "bootstrap"},
		"one silent":              {stateEmpty, "", nil, "waits"},
		"one formed, one silent":  {stateFormed, "", nil, "waits"},
		"both silent":             {"", "", nil, "waits"},
		"one live, one silent":    {stateLive, "", nil, "rejoin"},
		"one live, one empty":     {stateLive, stateEmpty, bootstrapThree, "rejoin"},
		"one live, another list":  {stateEmpty, stateLive, other, "rejoin"},
		"one empty, another list": {stateEmpty, stateEmpty, other, "the peer lists differ"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &bootstrapPeers{answers: map[string]probeAnswer{}}
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
		other := []Peer{{ID: "n1", Address: "n1:1"}, {ID: "n9", Address: "n9:1"}}
		p := &bootstrapPeers{answers: map[string]probeAnswer{}}
		p.set("n2", stateEmpty, bootstrapThree)
		p.set("n3", stateEmpty, other)
		o := bootstrapRun(t, p, hclog.NewNullLogger())()
		for _, want := range []string{"n1 has", "n3 has", peerList(bootstrapThree), peerList(other)} {
			if !strings.Contains(o, want) {
				t.Errorf("%q does not say %q", o, want)
			}
		}
	})
}

// TestFormationSaysWhomItWaitsFor: every 5 s, until the last one answers.
func TestFormationSaysWhomItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &bootstrapPeers{answers: map[string]probeAnswer{}}
		p.set("n2", stateEmpty, bootstrapThree)
		log := newRecordedLog()
		got := bootstrapRun(t, p, log)
		time.Sleep(21 * time.Second) // virtual
		said := log.lines("waiting for peers")
		if len(said) != 4 {
			t.Fatalf("said %d times in 21 s: %q", len(said), said)
		}
		for _, line := range said {
			if !strings.Contains(line, "n3 at n3:1: silent") || strings.Contains(line, "n2") {
				t.Errorf("said %q", line)
			}
		}
		p.set("n3", stateFormed, bootstrapThree)
		time.Sleep(formEvery) // virtual: one more round
		if o := got(); o != "bootstrap" {
			t.Fatalf("got %q", o)
		}
	})
}

// TestFirstConfigurationIsTheSameEverywhere: the order of a list does not matter.
func TestFirstConfigurationIsTheSameEverywhere(t *testing.T) {
	shuffled := []Peer{bootstrapThree[2], bootstrapThree[0], bootstrapThree[1]}
	if peerList(shuffled) != peerList(bootstrapThree) {
		t.Errorf("%q and %q", peerList(shuffled), peerList(bootstrapThree))
	}
	a, b := raft.EncodeConfiguration(firstConfiguration(shuffled)), raft.EncodeConfiguration(firstConfiguration(bootstrapThree))
	if !slices.Equal(a, b) {
		t.Error("the first entries differ")
	}
	for _, s := range firstConfiguration(shuffled).Servers {
		if s.Suffrage != raft.Voter {
			t.Errorf("%s has no vote", s.ID)
		}
	}
}

// recordedLog keeps what was logged, for tests that look for it.
type recordedLog struct {
	hclog.Logger
	mu   sync.Mutex
	text strings.Builder
}

func newRecordedLog() *recordedLog {
	l := &recordedLog{}
	l.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: l})
	return l
}

func (l *recordedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines answers those that contain a text.
func (l *recordedLog) lines(part string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}
