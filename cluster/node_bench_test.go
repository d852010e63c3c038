package cluster

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// benchFollowers returns the followers of three nodes on loopback with real files.
func benchFollowers(b *testing.B) (followers []*Node) {
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
		if _, err := n.Do(b.Context(), calls.Call{Command: fsm.CreateSemaphore{Name: "s", Permits: 1}}); err != nil {
			b.Fatal(err)
		}
	}
	for _, n := range all {
		if n.established() == nil {
			followers = append(followers, n)
		}
	}
	if len(followers) != 2 {
		b.Fatal("no node leads")
	}
	return followers
}

// benchAddress returns a free address on loopback.
func benchAddress(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// BenchmarkHandOff measures the time from a release that is sent on one node to the
// reply to the next waiter on another; both are followers. It is to be one commit, which
// it measures too.
func BenchmarkHandOff(b *testing.B) {
	followers := benchFollowers(b)
	holder, waiter := followers[0], followers[1]
	ctx := b.Context()
	session := func(n *Node) uint64 {
		reply, err := n.Do(ctx, calls.Call{Command: fsm.OpenSession{Session: n.DrawSession(), TTLMS: 3_600_000}})
		must(b, err)
		return reply.Session
	}
	first, second := session(holder), session(waiter)
	acquire := func(n *Node, session uint64, wait time.Duration) *calls.Reply {
		reply, err := n.Do(ctx, calls.Call{Command: fsm.Acquire{Session: session, Name: "s", Count: 1, TTLMS: fsm.KeepTTL}, Wait: wait})
		must(b, err)
		return reply
	}
	release := func(n *Node, session uint64) {
		if _, err := n.Do(ctx, calls.Call{Command: fsm.Release{Session: session, Name: "s"}}); err != nil {
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

// percentile returns a percentile of durations, which it sorts.
func percentile(all []time.Duration, percent int) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, len(all)*percent/100)]
}
