package raftlib

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

var acksThree = []raft.ServerID{"n1", "n2", "n3"}

// acksExpect checks, inside a bubble, whether n1 has a quorum of three.
func acksExpect(t *testing.T, c *AckClock, term uint64, since Stamp, want bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // virtual
	defer cancel()
	err := c.Wait(ctx, term, since, acksThree, "n1")
	if want && err != nil {
		t.Errorf("no quorum in term %d since %d: %v", term, since, err)
	}
	if !want && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a quorum in term %d since %d: %v", term, since, err)
	}
}

func TestAckClockQuorum(t *testing.T) {
	five := []raft.ServerID{"n1", "n2", "n3", "n4", "n5"}
	type acked struct {
		peer raft.ServerID
		term uint64
		late bool // sent after the wait's moment
	}
	for _, test := range []struct {
		name   string
		voters []raft.ServerID
		self   raft.ServerID
		acks   []acked
		want   bool
	}{
		{"alone", []raft.ServerID{"n1"}, "n1", nil, true},
		{"no voters", nil, "n1", nil, false},
		{"none of two", five[:2], "n1", nil, false},
		{"one of two", five[:2], "n1", []acked{{"n2", 3, true}}, true},
		{"one of three", five[:3], "n1", []acked{{"n3", 3, true}}, true},
		{"sent before", five[:3], "n1", []acked{{"n2", 3, false}, {"n3", 3, false}}, false},
		{"an earlier term", five[:3], "n1", []acked{{"n2", 2, true}, {"n3", 2, true}}, false},
		{"a later term", five[:3], "n1", []acked{{"n2", 4, true}, {"n3", 4, true}}, false},
		{"an older reply comes last", five[:3], "n1", []acked{{"n2", 3, true}, {"n2", 3, false}}, true},
		{"a reply of an older term comes last", five[:3], "n1", []acked{{"n2", 3, true}, {"n2", 2, true}}, true},
		{"half of four", five[:4], "n1", []acked{{"n2", 3, true}}, false},
		{"more than half of four", five[:4], "n1", []acked{{"n2", 3, true}, {"n3", 3, true}}, true},
		{"two of five", five, "n1", []acked{{"n2", 3, true}}, false},
		{"three of five", five, "n1", []acked{{"n2", 3, true}, {"n5", 3, true}}, true},
		{"a peer that does not vote", five[:3], "n1", []acked{{"n4", 3, true}}, false},
		{"self does not vote", five[1:3], "n1", []acked{{"n2", 3, true}}, false},
		{"self does not vote, both others do", five[1:3], "n1", []acked{{"n2", 3, true}, {"n3", 3, true}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewAckClock()
				early := c.Now()
				since := c.Now()
				for _, a := range test.acks {
					sent := early
					if a.late {
						sent = since
					}
					c.Record(a.peer, a.term, sent)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := c.Wait(ctx, 3, since, test.voters, test.self)
				if test.want != (err == nil) {
					t.Fatalf("got %v", err)
				}
			})
		})
	}
}

func TestAckClockStampsRise(t *testing.T) {
	c := NewAckClock()
	var mu sync.Mutex
	var all []Stamp
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				s := c.Now()
				mu.Lock()
				all = append(all, s)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(all)
	if got := len(slices.Compact(all)); got != 800 {
		t.Fatalf("%d different stamps of 800", got)
	}
}

func TestAckClockWakesManyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewAckClock()
		since := c.Now()
		results := make(chan error, 1000)
		for range cap(results) {
			go func() { results <- c.Wait(t.Context(), 3, since, acksThree, "n1") }()
		}
		synctest.Wait()
		c.Record("n2", 3, since-1)
		synctest.Wait()
		if got := len(results); got != 0 {
			t.Fatalf("%d waits ended on an old acknowledgement", got)
		}
		start := time.Now()
		c.Record("n2", 3, since)
		for range cap(results) {
			must(t, <-results)
		}
		if took := time.Since(start); took != 0 {
			t.Fatalf("the waits polled: they took %v", took)
		}
	})
}

func TestAckClockEndTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewAckClock()
		since := c.Now()
		results := make(chan error, 2)
		for _, term := range []uint64{3, 4} {
			go func() { results <- c.Wait(t.Context(), term, since, acksThree, "n1") }()
		}
		synctest.Wait()
		c.EndTerm(3)
		if err := <-results; !errors.Is(err, ErrTermOver) {
			t.Fatalf("a wait in a term that is over: %v", err)
		}
		synctest.Wait()
		if len(results) != 0 {
			t.Fatal("the next term's wait ended too")
		}
		c.EndTerm(2) // late news of an older term
		c.Record("n2", 3, since)
		if err := c.Wait(t.Context(), 3, since, acksThree, "n1"); !errors.Is(err, ErrTermOver) {
			t.Fatalf("a quorum in a term that is over: %v", err)
		}
		c.EndTerm(math.MaxUint64)
		if err := <-results; !errors.Is(err, ErrTermOver) {
			t.Fatalf("a wait at shutdown: %v", err)
		}
	})
}

// TestAcksAreStampedWhenSent: a reply counts as of the sending of its request, and
// only in the request's term.
func TestAcksAreStampedWhenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 1)
		replies := make(chan uint64)
		arrived := make(chan struct{})
		go func() {
			for {
				select {
				case rpc := <-to.Consumer():
					arrived <- struct{}{}
					rpc.Respond(&raft.AppendEntriesResponse{Term: <-replies}, nil)
				case <-t.Context().Done():
					return
				}
			}
		}()
		exchange := func(term, replyTerm uint64) (before, during Stamp) {
			before = from.config.Acks.Now()
			done := make(chan error)
			go func() {
				var reply raft.AppendEntriesResponse
				done <- from.AppendEntries("n2", "n2:1", &raft.AppendEntriesRequest{Term: term}, &reply)
			}()
			<-arrived
			during = from.config.Acks.Now()
			replies <- replyTerm
			must(t, <-done)
			return before, during
		}
		before, during := exchange(7, 7)
		acksExpect(t, from.config.Acks, 7, before, true)
		acksExpect(t, from.config.Acks, 7, during, false)
		before, _ = exchange(8, 9) // the peer has gone on to a later term
		acksExpect(t, from.config.Acks, 8, before, false)
		acksExpect(t, from.config.Acks, 9, before, false)
	})
}
