package cluster

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// benchClients is how many callers write at once.
const benchClients = 256

// benchCluster is three nodes on loopback with real files.
func benchCluster(b *testing.B) (leader *Node, followers []*Node) {
	b.Helper()
	var peers []Peer
	for i := range 3 {
		peers = append(peers, Peer{ID: fmt.Sprintf("n%d", i+1), Address: benchAddress(b)})
	}
	var all []*Node
	for _, p := range peers {
		s, err := store.Open(store.Options{Folder: b.TempDir(), NodeID: p.ID, Journal: true})
		must(b, err)
		b.Cleanup(func() { _ = s.Close() })
		n, err := Start(b.Context(), Config{NodeID: p.ID, Peers: peers, Bind: p.Address, Store: s})
		must(b, err)
		b.Cleanup(func() { _ = n.Close(b.Context()) })
		all = append(all, n)
	}
	for _, n := range all { // each knows a leader, and has what it wrote
		if _, err := n.Do(b.Context(), Call{Command: fsm.CreateSemaphore{Name: "s", Permits: 1}}); err != nil {
			b.Fatal(err)
		}
	}
	for _, n := range all {
		if n.established() != nil {
			leader = n
		} else {
			followers = append(followers, n)
		}
	}
	if leader == nil {
		b.Fatal("nobody leads")
	}
	return leader, followers
}

// benchAddress returns a free address on loopback.
func benchAddress(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// benchWrites makes so many writes through nodes, by many callers, and returns
// how many a second.
func benchWrites(b *testing.B, through []*Node, count int) float64 {
	b.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	began := time.Now()
	for client := range benchClients {
		n := through[client%len(through)]
		group.Go(func() {
			for next.Add(1) <= int64(count) {
				reply, err := n.Do(b.Context(), Call{Command: fsm.Up{Name: "s", Count: 1}})
				if err != nil || reply.Code != fsm.OK {
					b.Errorf("%v, %v", reply.Code, err)
					return
				}
			}
		})
	}
	group.Wait()
	return float64(count) / time.Since(began).Seconds()
}

// BenchmarkWrites compares, in one run, single writes through the leader and
// through followers, with the leader's again at the end, since the machine is not
// alone.
func BenchmarkWrites(b *testing.B) {
	leader, followers := benchCluster(b)
	benchWrites(b, []*Node{leader}, 20_000) // warm
	b.ResetTimer()
	var direct, through float64
	for range 3 {
		direct += benchWrites(b, []*Node{leader}, max(b.N/6, benchClients)) / 3
		through += benchWrites(b, followers[:1], max(b.N/6, benchClients)) / 3
	}
	b.ReportMetric(direct, "leader-writes/s")
	b.ReportMetric(through, "follower-writes/s")
	b.ReportMetric(through/direct, "follower/leader")
}

// BenchmarkDoMany compares lists of 1,000 with single writes, through the leader
// and through a follower.
func BenchmarkDoMany(b *testing.B) {
	leader, followers := benchCluster(b)
	list := make([]Call, 1000)
	for i := range list {
		list[i].Command = fsm.Up{Name: "s", Count: 1}
	}
	many := func(n *Node, clients int) float64 {
		lists := max(b.N/len(list)/2, 4*clients)
		var next atomic.Int64
		var group sync.WaitGroup
		began := time.Now()
		for range clients {
			group.Go(func() {
				for next.Add(1) <= int64(lists) {
					_, errs := n.DoMany(b.Context(), append([]Call(nil), list...))
					for _, err := range errs {
						if err != nil {
							b.Error(err)
							return
						}
					}
				}
			})
		}
		group.Wait()
		return float64(lists*len(list)) / time.Since(began).Seconds()
	}
	b.ResetTimer()
	single := benchWrites(b, []*Node{leader}, 50_000)
	b.ReportMetric(single, "single-writes/s")
	b.ReportMetric(many(leader, 8), "leader-listed/s")
	b.ReportMetric(many(followers[0], 8), "follower-listed/s")
}

// BenchmarkHandOff measures the time from a release that is sent on one node to the
// reply to the next waiter on another; both are followers. It is to be one commit, which
// it measures too.
func BenchmarkHandOff(b *testing.B) {
	_, followers := benchCluster(b)
	holder, waiter := followers[0], followers[1]
	ctx := b.Context()
	session := func(n *Node) uint64 {
		reply, err := n.Do(ctx, Call{Command: fsm.OpenSession{Session: n.DrawSession(), TTLMS: 3_600_000}})
		must(b, err)
		return reply.Session
	}
	first, second := session(holder), session(waiter)
	acquire := func(n *Node, session uint64, wait time.Duration) *Reply {
		reply, err := n.Do(ctx, Call{Command: fsm.Acquire{Session: session, Name: "s", Count: 1, TTLMS: fsm.KeepTTL}, Wait: wait})
		must(b, err)
		return reply
	}
	release := func(n *Node, session uint64) {
		if _, err := n.Do(ctx, Call{Command: fsm.Release{Session: session, Name: "s"}}); err != nil {
			b.Fatal(err)
		}
	}
	var gaps, commits []time.Duration
	b.ResetTimer()
	for range b.N {
		acquire(holder, first, 0)
		granted := make(chan time.Time, 1)
		go func() {
			acquire(waiter, second, time.Minute)
			granted <- time.Now()
		}()
		for waiting := false; !waiting; {
			changed, stop := holder.Changed("s")
			holder.View(func(m *fsm.Machine) {
				view, _ := m.Semaphore("s")
				waiting = view.Waiters == 1
			})
			if !waiting {
				<-changed
			}
			stop()
		}
		sent := time.Now()
		release(holder, first)
		gaps = append(gaps, (<-granted).Sub(sent))
		sent = time.Now()
		release(waiter, second)
		commits = append(commits, time.Since(sent))
	}
	b.ReportMetric(float64(percentile(gaps, 50).Microseconds()), "p50-µs")
	b.ReportMetric(float64(percentile(gaps, 99).Microseconds()), "p99-µs")
	b.ReportMetric(float64(percentile(commits, 50))/float64(percentile(gaps, 50)), "commit/hand-off")
}

// BenchmarkReads measures linearizable reads through a follower.
func BenchmarkReads(b *testing.B) {
	leader, followers := benchCluster(b)
	for name, n := range map[string]*Node{"leader": leader, "follower": followers[0]} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(benchClients / 2)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := n.Read(b.Context(), Consistency{}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// percentile returns a percentile of durations, which it sorts.
func percentile(all []time.Duration, percent int) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*percent/100)]
}
