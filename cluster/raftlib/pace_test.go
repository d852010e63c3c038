package raftlib

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// paceEntries makes so many entries of that many bytes.
func paceEntries(count, size int) (entries []*raft.Log) {
	for i := range count {
		entries = append(entries, &raft.Log{Index: uint64(i + 1), Data: make([]byte, size)})
	}
	return entries
}

// TestPaceLearnsFromTimeOuts: after failures an append gets smaller, down to one
// entry, and after successes larger again.
func TestPaceLearnsFromTimeOuts(t *testing.T) {
	p := &pace{aim: appendAim, budget: appendFirst}
	entries := paceEntries(16, 256<<10)
	last := len(p.fit(entries))
	if last != 3 {
		t.Errorf("%d entries at first", last)
	}
	for range 10 {
		sent := p.fit(entries)
		if len(sent) == 0 || len(sent) > last {
			t.Fatalf("%d entries after %d", len(sent), last)
		}
		last = len(sent)
		p.noteMessage(sent, 2*time.Second, errors.New("i/o timeout"))
	}
	if last != 1 || p.budget != appendMin {
		t.Errorf("%d entries, %d bytes after ten time-outs", last, p.budget)
	}
	for range 12 {
		p.noteMessage(p.fit(entries), time.Millisecond, nil)
	}
	if got := len(p.fit(entries)); got != 16 {
		t.Errorf("%d entries after successes", got)
	}
	p.noteMessage(p.fit(entries), 4*appendAim, nil)
	if got := len(p.fit(entries)); got != 4 {
		t.Errorf("%d entries after an append of 4 MiB that took four times the aim", got)
	}
	for range 10 { // a slow disk, or a peer that is gone
		p.noteMessage(paceEntries(1, 10), time.Second, nil)
		p.noteMessage(nil, 2*time.Second, errors.New("i/o timeout"))
	}
	if got := len(p.fit(entries)); got != 4 {
		t.Errorf("%d entries after slow heartbeats", got)
	}
}

// TestPaceKnowsTheLatency: on a link that is fast and far, the bytes are not what takes
// long, and after failures the budget grows again.
func TestPaceKnowsTheLatency(t *testing.T) {
	const far = 2 * appendAim
	p := &pace{aim: appendAim, budget: appendFirst}
	entries := paceEntries(128, 256<<10)
	p.noteMessage(nil, far, nil) // a heartbeat
	for range 5 {
		p.noteMessage(p.fit(entries), far+appendAim/10, nil)
	}
	if p.budget != appendMax {
		t.Errorf("%d bytes on a fast link", p.budget)
	}
	for range 10 {
		p.noteMessage(p.fit(entries), far, errors.New("connection refused"))
	}
	for range 10 {
		p.noteMessage(p.fit(entries), far+appendAim/10, nil)
	}
	if p.budget != appendMax {
		t.Errorf("%d bytes after failures", p.budget)
	}
	p.noteMessage(p.fit(entries), far+4*appendAim, nil)
	if p.budget > appendMax/3 {
		t.Errorf("%d bytes after an append that took long beyond the latency", p.budget)
	}
}

// TestCatchUpOnASlowLink: a follower that has missed 32 MiB gets them over a link of
// 1,500 KiB/s, which loses a burst now and then, nearly as fast as the link allows,
// and goes on following meanwhile.
func TestCatchUpOnASlowLink(t *testing.T) {
	for name, loss := range map[string]float64{"whole": 0, "lossy": 0.001} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startNodes(t)
				defer c.stop()
				leader := c.leader()
				rest := c.others(leader)
				away := rest[0]
				c.apply(leader, "before", c.nodes...)
				term := leader.raft.CurrentTerm()
				c.net.Isolate(string(away.id))
				entry := string(bytes.Repeat([]byte("x"), 256<<10))
				const count, rate = 128, 1500 << 10
				for range count {
					c.apply(leader, entry, leader, rest[1])
				}
				c.net.Bandwidth(string(leader.id), string(away.id), rate)
				c.net.Loss(string(leader.id), string(away.id), loss, 1)
				c.net.Rejoin(string(away.id))
				healed := time.Now()
				away.fsm.await(t, leader.raft.LastIndex())
				ideal := time.Second * count * (256 << 10) / rate
				took := time.Since(healed)
				t.Logf("%d entries of 256 KiB at 1,500 KiB/s took %v; the link needs %v", count, took, ideal)
				if limit := ideal*3/2 + 11*time.Second; took > limit { // Raft retries after up to 10.24 s
					t.Errorf("it took more than %v", limit)
				}
				if got := leader.raft.CurrentTerm(); got != term || leader.raft.State() != raft.Leader {
					t.Errorf("term %d has become %d", term, got)
				}
			})
		})
	}
}

// TestSmallEntriesShareAppends: a follower that has missed many small entries gets them
// in few appends, each of which costs it a synced write.
func TestSmallEntriesShareAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var appends atomic.Int64
		var away atomic.Pointer[raftNode]
		c := startNodes(t, func(_ *raft.Config, config *TransportConfig, _ *raftNode) {
			config.Fault = func(peer raft.ServerID, request any) error {
				if r, ok := request.(*raft.AppendEntriesRequest); ok && len(r.Entries) > 0 && away.Load() != nil && peer == away.Load().id {
					appends.Add(1)
				}
				return nil
			}
		})
		defer c.stop()
		leader := c.leader()
		rest := c.others(leader)
		away.Store(rest[0])
		c.apply(leader, "before", c.nodes...)
		c.net.Isolate(string(rest[0].id))
		const missed = 2000
		var last raft.ApplyFuture
		for range missed {
			last = leader.raft.Apply([]byte("small"), 0)
		}
		c.must(last.Error())
		time.Sleep(15 * time.Second) // virtual: attempts in vain end
		appends.Store(0)
		c.net.Rejoin(string(rest[0].id))
		rest[0].fsm.await(t, leader.raft.LastIndex())
		if got := appends.Load(); got > missed/100 {
			t.Errorf("%d entries took %d appends", missed, got)
		}
	})
}
