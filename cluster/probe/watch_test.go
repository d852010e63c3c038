package probe

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/test/memnet"
)

// watched is the node n1, whose members a test sets.
type watched struct {
	members atomic.Pointer[[]string]
	rounds  chan map[string]Seen
	ended   time.Time // when the last round did
}

func (w *watched) Servers() (servers []raft.Server) {
	for _, id := range *w.members.Load() {
		servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id + ":1")})
	}
	return servers
}
func (w *watched) Committed() uint64 { return 10 }
func (w *watched) Round(seen map[string]Seen) {
	w.ended = time.Now()
	w.rounds <- seen
}

// TestWatchKnowsThePresentMembers: it asks every other member in each round, notes
// those that don't reply, and forgets those that are not members any more.
func TestWatchKnowsThePresentMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		from, to := open(t, n, "n1"), open(t, n, "n2")
		subject := &watched{rounds: make(chan map[string]Seen)}
		subject.members.Store(&[]string{"n1", "n2", "n3"})
		w := NewWatch(from.Calls, subject)
		ctx, cancel := context.WithCancel(t.Context())
		time.Sleep(70 * time.Millisecond) // virtual: at no moment that nodes share
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx)
		}()
		seen := <-subject.rounds
		if len(seen) != 2 || !seen["n2"].Up() || seen["n2"].Lag != 10 || seen["n3"].Up() || !seen["n3"].Failing {
			t.Errorf("in the first round: %+v", seen)
		}
		to.silent.Store(true)
		n.Reset("n1", "n2")
		if seen = <-subject.rounds; seen["n2"].Up() || seen["n2"].Answer.Node != "n2" {
			t.Errorf("a silent node: %+v", seen["n2"])
		}
		subject.members.Store(&[]string{"n1"})
		<-subject.rounds // may have begun before
		if seen = <-subject.rounds; len(seen) != 0 {
			t.Errorf("nodes that are not members any more: %+v", seen)
		}
		if at := subject.ended; !at.Equal(at.Truncate(WatchEvery)) {
			t.Errorf("a round of all nodes was at %v", at)
		}
		cancel()
		<-ended
	})
}
