package raftlib

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestLeaderWritesBesideItsFollowers: while the leader's disk works, the followers have an
// entry already; it is committed only when the leader's disk has it, too.
func TestLeaderWritesBesideItsFollowers(t *testing.T) {
	inLedNodes(t, func(t *testing.T, c *raftNodes, leader *raftNode) {
		leader.logs.hang()
		future := leader.raft.Apply([]byte("open"), 0)
		time.Sleep(100 * time.Millisecond) // virtual: the followers store it
		for _, n := range c.others(leader) {
			if last, _ := n.logs.LastIndex(); last != leader.raft.LastIndex() {
				t.Errorf("%s has entries up to %d, the leader up to %d", n.id, last, leader.raft.LastIndex())
			}
		}
		if stored, _ := leader.logs.LastIndex(); stored != leader.raft.LastIndex()-1 || leader.raft.CommitIndex() != stored {
			t.Errorf("%d is committed, and %d is on the leader's disk", leader.raft.CommitIndex(), stored)
		}
		leader.logs.release()
		c.must(future.Error())
	})
}

// TestLoneVoterWaitsForItsDisk: also when the other members have no vote, and when the others have
// just been removed: no success is needed to commit then.
func TestLoneVoterWaitsForItsDisk(t *testing.T) {
	inLedNodes(t, func(t *testing.T, c *raftNodes, leader *raftNode) {
		others := c.others(leader)
		c.must(leader.raft.DemoteVoter(others[0].id, 0, 0).Error())
		waits := func(what string, begin func() interface{ Error() error }) {
			t.Helper()
			leader.logs.hang()
			done := make(chan error, 1)
			future := begin()
			go func() { done <- future.Error() }()
			time.Sleep(100 * time.Millisecond) // virtual
			if len(done) > 0 {
				t.Errorf("%s was done without the disk", what)
			}
			leader.logs.release()
			c.must(<-done)
		}
		waits("a removal down to one", func() interface{ Error() error } { return leader.raft.RemoveServer(others[1].id, 0, 0) })
		waits("a write", func() interface{ Error() error } { return leader.raft.Apply([]byte("alone"), 0) })
	})
}

// TestRemovalWaitsForEntriesBefore: a configuration with a lone voter commits everything before it, so
// it is not in force before that is on the disk.
func TestRemovalWaitsForEntriesBefore(t *testing.T) {
	inLedNodes(t, func(t *testing.T, c *raftNodes, leader *raftNode) {
		others := c.others(leader)
		c.must(leader.raft.RemoveServer(others[0].id, 0, 0).Error())
		leader.logs.hang()
		c.net.Partition(string(leader.id), string(others[1].id))
		write := leader.raft.Apply([]byte("open"), 0)
		removal := leader.raft.RemoveServer(others[1].id, 0, 0)
		time.Sleep(100 * time.Millisecond) // virtual
		if stored, _ := leader.logs.LastIndex(); leader.raft.CommitIndex() > stored {
			t.Errorf("%d is committed, and %d is on the disk", leader.raft.CommitIndex(), stored)
		}
		leader.logs.release()
		c.must(errors.Join(write.Error(), removal.Error()))
	})
}

// TestDeposedLeaderReportsOnlyStoredEntries: a message of the next leader with entries that are
// in the queue here has no success before they are on the disk.
func TestDeposedLeaderReportsOnlyStoredEntries(t *testing.T) {
	inLedNodes(t, func(t *testing.T, c *raftNodes, old *raftNode) {
		next := c.others(old)[0]
		old.logs.hang()
		old.raft.Apply([]byte("open"), 0)
		time.Sleep(100 * time.Millisecond) // virtual: the followers store it
		c.net.Isolate(string(c.others(old)[1].id))
		last := next.raft.LastIndex()
		var entry raft.Log
		c.must(next.logs.GetLog(last, &entry))
		request := raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(next.id), Addr: []byte(next.trans.LocalAddr())},
			Term:      entry.Term + 1, PrevLogEntry: last - 1, PrevLogTerm: entry.Term, Entries: []*raft.Log{&entry},
		}
		done := make(chan raft.AppendEntriesResponse, 1)
		go func() {
			var reply raft.AppendEntriesResponse
			if err := next.trans.NetworkTransport.AppendEntries(old.id, old.trans.LocalAddr(), &request, &reply); err == nil {
				done <- reply
			}
		}()
		time.Sleep(time.Second) // virtual
		early := len(done) > 0
		old.logs.release()
		if early {
			t.Errorf("the old leader replied %+v, and its disk ends before the entry", <-done)
		} else if reply := <-done; !reply.Success {
			t.Errorf("once the disk has it: %+v", reply)
		}
		c.net.Rejoin(string(c.others(old)[1].id))
		c.apply(c.leader(), "after", c.nodes...)
	})
}

// logSource is a Raft with one other voter.
type logSource struct {
	state  atomic.Uint32
	commit atomic.Uint64
}

func (h *logSource) CommitIndex() uint64 { return h.commit.Load() }

func (h *logSource) State() raft.RaftState { return raft.RaftState(h.state.Load()) }

func (h *logSource) GetConfiguration() raft.ConfigurationFuture { return h }

func (h *logSource) Configuration() raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{ID: "n1"}, {ID: "n2"}}}
}

func (h *logSource) Error() error  { return nil }
func (h *logSource) Index() uint64 { return 0 }

// hangingLog returns the log of a leader whose disk hangs until release, with an entry that waits.
func hangingLog(t *testing.T) (l *Log, disk *fakeLogs, host *logSource, died *atomic.Bool) {
	disk, host, died = newFakeLogs(), &logSource{}, &atomic.Bool{}
	host.state.Store(uint32(raft.Leader))
	l = NewLog(LogConfig{Storage: disk, Self: "n1", Fatal: func(error) { died.Store(true) }})
	l.Attach(host)
	disk.hang()
	must(t, l.StoreLog(&raft.Log{Index: 7, Data: []byte("seven")}))
	t.Cleanup(func() { disk.release(); _ = l.Close() })
	return l, disk, host, died
}

// whileHung reports whether do returns while the disk hangs, and returns what it
// returns once that is released.
func whileHung(disk *fakeLogs, do func() error) (early bool, err error) {
	done := make(chan error, 1)
	go func() { done <- do() }()
	synctest.Wait()
	early = len(done) > 0
	disk.release()
	return early, <-done
}

// TestLogWaitsForTheQueue wherever something would be reported or done that relies on entries of the queue.
func TestLogWaitsForTheQueue(t *testing.T) {
	var got raft.Log
	for name, test := range map[string]struct {
		state raft.RaftState
		do    func(l *Log) error
		waits bool
	}{
		"a leader reads":               {raft.Leader, func(l *Log) error { return l.GetLog(7, &got) }, false},
		"a follower reads":             {raft.Follower, func(l *Log) error { return l.GetLog(7, &got) }, true},
		"a leader stores more":         {raft.Leader, func(l *Log) error { return l.StoreLog(&raft.Log{Index: 8}) }, false},
		"a leader stores a membership": {raft.Leader, func(l *Log) error { return l.StoreLog(&raft.Log{Index: 8, Type: raft.LogConfiguration}) }, true},
		"a follower stores":            {raft.Follower, func(l *Log) error { return l.StoreLog(&raft.Log{Index: 8}) }, true},
		"a candidate stores":           {raft.Candidate, func(l *Log) error { return l.StoreLog(&raft.Log{Index: 8}) }, true},
		"a cut":                        {raft.Follower, func(l *Log) error { return l.DeleteRange(7, 7) }, true},
		"a cut before it":              {raft.Leader, func(l *Log) error { return l.DeleteRange(1, 6) }, false},
		"a success for it":             {raft.Leader, func(l *Log) error { return l.WaitDurable(7, time.Hour) }, true},
		"a success before it":          {raft.Leader, func(l *Log) error { return l.WaitDurable(6, time.Hour) }, false},
		"a snapshot behind it":         {raft.Leader, func(l *Log) error { return createSnapshot(l, 9) }, true},
		"a snapshot before it":         {raft.Leader, func(l *Log) error { return createSnapshot(l, 6) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, disk, host, _ := hangingLog(t)
				host.state.Store(uint32(test.state))
				if last, err := l.LastIndex(); last != 7 || err != nil {
					t.Errorf("the log ends at %d, %v", last, err)
				}
				if first, err := l.FirstIndex(); first != 7 || err != nil {
					t.Errorf("the log begins at %d, %v", first, err)
				}
				early, err := whileHung(disk, func() error { return test.do(l) })
				if early == test.waits || err != nil {
					t.Errorf("it returned before the disk did: %t, %v", early, err)
				}
			})
		})
	}
}

// TestFollowerStoresBehindTheQueue: never before what its own leadership has left.
func TestFollowerStoresBehindTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, disk, host, _ := hangingLog(t)
		synctest.Wait() // the writer is at the gate, which is open for those that come later
		disk.mu.Lock()
		hung, open := disk.gate, make(chan struct{})
		close(open)
		disk.gate = open
		disk.mu.Unlock()
		host.state.Store(uint32(raft.Follower))
		done := make(chan error, 1)
		go func() { done <- l.StoreLog(&raft.Log{Index: 8}) }()
		synctest.Wait()
		if last, _ := disk.LastIndex(); last != 0 || len(done) > 0 {
			t.Errorf("entry %d is stored before the one that waits", last)
		}
		close(hung)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestSuccessesWaitForTheOwnDisk for entries and snapshots. Replies to heartbeats and refusals don't wait.
func TestSuccessesWaitForTheOwnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := transportPair(t, 1)
		var indexes []uint64
		from.config.Log = &ownLog{durable: func(index uint64) error {
			indexes = append(indexes, index)
			return ErrNotStored
		}}
		var success atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for {
				select {
				case rpc := <-to.Consumer():
					if _, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
						_, _ = io.Copy(io.Discard, rpc.Reader)
						rpc.Respond(&raft.InstallSnapshotResponse{Success: success.Load()}, nil)
					} else {
						rpc.Respond(&raft.AppendEntriesResponse{Success: success.Load()}, nil)
					}
				case <-ctx.Done():
					return
				}
			}
		}()
		send := func(entries []*raft.Log, snapshot uint64) (err error) {
			if snapshot > 0 {
				request := raft.InstallSnapshotRequest{LastLogIndex: snapshot, Size: 1}
				return from.InstallSnapshot("n2", "n2:1", &request, &raft.InstallSnapshotResponse{}, strings.NewReader("x"))
			}
			return from.AppendEntries("n2", "n2:1", &raft.AppendEntriesRequest{Entries: entries}, &raft.AppendEntriesResponse{})
		}
		for _, waits := range []bool{true, false} {
			success.Store(waits)
			for _, index := range []uint64{3, 9} {
				var entries []*raft.Log
				snapshot := index
				if index == 3 {
					entries, snapshot = paceEntries(3, 1), 0
				}
				if err := send(entries, snapshot); errors.Is(err, ErrNotStored) != waits || !waits && err != nil {
					t.Errorf("success %t for %d: %v", waits, index, err)
				}
			}
			if err := send(nil, 0); err != nil {
				t.Errorf("a heartbeat: %v", err)
			}
		}
		if !slices.Equal(indexes, []uint64{3, 9}) {
			t.Errorf("asked for %v", indexes)
		}
	})
}

// ownLog is a log that has everything on the disk, unless told otherwise.
type ownLog struct {
	durable func(index uint64) error
	failed  error
}

func (l *ownLog) WaitDurable(index uint64, _ time.Duration) error {
	if l.durable == nil {
		return nil
	}
	return l.durable(index)
}

func (l *ownLog) Failed() error { return l.failed }

func createSnapshot(l *Log, index uint64) error {
	_, err := l.Snapshots(raft.NewInmemSnapshotStore()).Create(1, index, 1, raft.Configuration{}, 0, nil)
	return err
}

// TestLogGivesUpOnAHungDisk: a success is not held for ever, the watch sees how long the queue waits,
// and Close is bounded.
func TestLogGivesUpOnAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _, _ := hangingLog(t)
		if err := l.WaitDurable(7, 3*time.Second); !errors.Is(err, ErrNotStored) {
			t.Errorf("a success for an entry that is not on the disk: %v", err)
		}
		if waits := l.WaitingFor(); waits != 3*time.Second {
			t.Errorf("the entry waits since %v", waits)
		}
		if err := l.Close(); !errors.Is(err, ErrNotStored) {
			t.Errorf("closed with %v", err)
		}
		if err := l.WaitDurable(7, time.Hour); err == nil {
			t.Error("a success for an entry that was given up")
		}
	})
}

// TestLogQueueIsBounded by bytes: then a leader waits for its disk.
func TestLogQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, disk, _, _ := hangingLog(t)
		large := func(index uint64) *raft.Log { return &raft.Log{Index: index, Data: make([]byte, maxQueued/2)} }
		must(t, l.StoreLog(large(8)))
		if early, err := whileHung(disk, func() error { return l.StoreLog(large(9)) }); early || err != nil {
			t.Errorf("the queue took twice its bound: %t, %v", early, err)
		}
		if err := l.WaitDurable(9, time.Hour); err != nil {
			t.Error(err)
		}
		if l.bytes != 0 || len(l.queue) != 0 {
			t.Errorf("%d bytes in %d entries are left", l.bytes, len(l.queue))
		}
	})
}

// TestDeposedLeaderOnAFullDiskGoesOn: a read of an entry that is not on the disk fails, so that
// Raft's main loop is free for votes; one of a committed entry waits for room.
func TestDeposedLeaderOnAFullDiskGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, disk, host, _ := hangingLog(t)
		disk.fail = func() error { return errFakeFull }
		disk.failing.Store(true)
		disk.release()
		synctest.Wait()
		host.state.Store(uint32(raft.Follower))
		host.commit.Store(6)
		read := make(chan error, 2)
		go func() { read <- l.GetLog(7, &raft.Log{}) }()
		time.Sleep(time.Minute) // virtual
		if len(read) == 0 {
			t.Error("a read of an entry that may not be committed waits for room")
		} else if err := <-read; !errors.Is(err, errFakeFull) || !errors.Is(l.Failed(), errFakeFull) {
			t.Errorf("it returned %v while the log says %v", err, l.Failed())
		}
		host.commit.Store(7)
		go func() { read <- l.GetLog(7, &raft.Log{}) }()
		time.Sleep(time.Minute) // virtual
		if len(read) > 0 {
			t.Fatalf("a read of a committed entry returned %v, and Raft would panic", <-read)
		}
		disk.failing.Store(false)
		if err := <-read; err != nil || l.Failed() != nil {
			t.Errorf("once there is room: %v, %v", err, l.Failed())
		}
	})
}

// TestFailedWriteOfALeader ends the process at once, unless the disk is full: then no entry is taken
// until there is room.
func TestFailedWriteOfALeader(t *testing.T) {
	for name, test := range map[string]struct {
		fails error
		dies  bool
	}{
		"full": {errFakeFull, false}, "broken": {io.ErrUnexpectedEOF, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, disk, _, died := hangingLog(t)
				disk.fail = func() error { return test.fails }
				disk.failing.Store(true)
				disk.release()
				if err := l.WaitDurable(7, time.Hour); !errors.Is(err, test.fails) || died.Load() != test.dies {
					t.Errorf("%v, and the process ends: %t", err, died.Load())
				}
				time.Sleep(time.Minute) // virtual
				if err := l.StoreLog(&raft.Log{Index: 8}); !errors.Is(err, test.fails) {
					t.Errorf("another entry: %v", err)
				}
				if waits := l.WaitingFor(); waits != 0 {
					t.Errorf("it counts as hung since %v", waits)
				}
				disk.failing.Store(false)
				time.Sleep(2 * fullAgain) // virtual
				if err := l.WaitDurable(7, time.Hour); (err != nil) != test.dies {
					t.Errorf("once there is room: %v", err)
				}
				if last, _ := disk.LastIndex(); (last == 7) == test.dies {
					t.Errorf("the disk ends at %d", last)
				}
			})
		})
	}
}
