package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/store/logs"
	"github.com/signalbox/signalbox/test/storetest"
)

// remembering is a state machine that remembers the commands that it applied.
type remembering struct {
	mu      sync.Mutex
	applied []string
	changed chan struct{} // closed at the next change
}

func newRemembering() *remembering { return &remembering{changed: make(chan struct{})} }

func (r *remembering) become(applied []string) {
	r.applied = applied
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *remembering) Apply(log *raft.Log) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.become(append(r.applied, string(log.Data)))
	return nil
}

func (r *remembering) Snapshot() (raft.FSMSnapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all bytes.Buffer
	for _, command := range r.applied {
		fmt.Fprintln(&all, command)
	}
	return &frozen{all.Bytes()}, nil
}

func (r *remembering) Restore(reader io.ReadCloser) error {
	content, err := io.ReadAll(reader)
	if err != nil {
		return err
	}
	var applied []string
	for _, line := range bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n")) {
		applied = append(applied, string(line))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.become(applied)
	return nil
}

// wait returns when n commands are applied.
func (r *remembering) wait(t *testing.T, n int) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		r.mu.Lock()
		got, changed := len(r.applied), r.changed
		r.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%d commands are applied, want %d", got, n)
		}
	}
}

type frozen struct{ content []byte }

func (f *frozen) Persist(sink raft.SnapshotSink) error {
	_, err := sink.Write(f.content)
	return errors.Join(err, sink.Close()) // Raft closes it once more
}

func (*frozen) Release() {}

// member is a Raft node on a store, and on real loopback connections: only those
// encode entries.
type member struct {
	*raft.Raft
	machine   *remembering
	transport *raft.NetworkTransport
}

func startMember(t *testing.T, s *Store) *member {
	t.Helper()
	transport, err := raft.NewTCPTransport("127.0.0.1:0", nil, 2, time.Second, io.Discard)
	storetest.Must(t, err)
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(s.NodeID())
	config.HeartbeatTimeout, config.ElectionTimeout, config.LeaderLeaseTimeout = 200*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	config.CommitTimeout = 5 * time.Millisecond
	config.TrailingLogs = 1
	config.Logger = hclog.NewNullLogger()
	m := &member{machine: newRemembering(), transport: transport}
	if s.Empty() && s.NodeID() == "n1" {
		first := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: transport.LocalAddr()}}}
		storetest.Must(t, raft.BootstrapCluster(config, s.Logs(), s.Stable(), s.Snapshots(), transport, first))
	}
	if m.Raft, err = raft.NewRaft(config, m.machine, s.Logs(), s.Stable(), s.Snapshots(), transport); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *member) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(m.Shutdown().Error(), m.transport.Close()); err != nil {
		t.Error(err)
	}
}

// lead returns when the member leads.
func (m *member) lead(t *testing.T) {
	t.Helper()
	for {
		select {
		case leads := <-m.LeaderCh():
			if leads {
				return
			}
		case <-time.After(20 * time.Second):
			t.Fatal("it doesn't win")
		}
	}
}

func (m *member) apply(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		storetest.Must(t, m.Apply(fmt.Appendf(nil, "command %d", i), time.Second).Error())
	}
}

// TestChecksumsTravelToFollowers runs real Raft on two stores: what the follower
// has stored carries the leader's checksum, and one spoilt on the way is refused.
func TestChecksumsTravelToFollowers(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(...func(*Options)) *Store) {
		leaderStore, followerStore := open(), open(func(o *Options) { o.NodeID = "n2" })
		leader, follower := startMember(t, leaderStore), startMember(t, followerStore)
		defer leader.stop(t)
		defer follower.stop(t)
		leader.lead(t)
		storetest.Must(t, leader.AddVoter("n2", follower.transport.LocalAddr(), 0, 0).Error())
		leader.apply(t, 1, 20)
		follower.machine.wait(t, 20)
		last := leader.LastIndex()
		kinds := map[raft.LogType]bool{}
		for index := uint64(1); index <= last; index++ {
			var here, there raft.Log
			if err := errors.Join(leaderStore.Logs().GetLog(index, &here), followerStore.Logs().GetLog(index, &there)); err != nil {
				t.Fatalf("entry %d: %v", index, err)
			}
			if len(here.Extensions) == 0 || !bytes.Equal(here.Extensions, there.Extensions) {
				t.Errorf("entry %d has the extensions %x on the leader and %x on the follower", index, here.Extensions, there.Extensions)
			}
			kinds[here.Type] = true
		}
		for _, kind := range []raft.LogType{raft.LogCommand, raft.LogNoop, raft.LogConfiguration} {
			if !kinds[kind] {
				t.Errorf("there was no entry of kind %v: the test shows less than it says", kind)
			}
		}
		var spoilt raft.Log
		storetest.Must(t, leaderStore.Logs().GetLog(last, &spoilt))
		spoilt.Data = append(bytes.Clone(spoilt.Data), 'X')
		storetest.WantError(t, followerStore.Logs().StoreLog(&spoilt), logs.ErrBadEntry)
	})
}

// TestRaftRestartsFromSnapshotAndLog: snapshot, cut log, more entries, restart;
// then a follower that needs the snapshot.
func TestRaftRestartsFromSnapshotAndLog(t *testing.T) {
	folder := t.TempDir()
	s := openStore(t, folder)
	m := startMember(t, s)
	m.lead(t)
	m.apply(t, 1, 50)
	storetest.Must(t, m.Snapshot().Error())
	m.apply(t, 51, 60)
	m.stop(t)
	closeStore(t, s)

	s = openStore(t, folder)
	if first, err := s.Logs().FirstIndex(); err != nil || first < 50 {
		t.Fatalf("the log begins at %d, error %v: it was not cut", first, err)
	}
	m = startMember(t, s)
	defer m.stop(t)
	m.lead(t)
	m.machine.wait(t, 60)

	followerFolder := t.TempDir()
	node2 := func(o *Options) { o.NodeID = "n2" }
	followerStore := openStore(t, followerFolder, node2)
	follower := startMember(t, followerStore)
	storetest.Must(t, m.AddVoter("n2", follower.transport.LocalAddr(), 0, 0).Error())
	m.apply(t, 61, 65)
	follower.machine.wait(t, 65)
	follower.machine.mu.Lock()
	applied := follower.machine.applied
	follower.machine.mu.Unlock()
	for i, command := range applied[:65] {
		if want := fmt.Sprintf("command %d", i+1); command != want {
			t.Fatalf("command %d on the follower is %q", i+1, command)
		}
	}
	follower.stop(t)
	closeStore(t, followerStore)
	followerStore = openStore(t, followerFolder, node2)
	if listed, err := followerStore.Snapshots().List(); err != nil || len(listed) != 1 || followerStore.Empty() {
		t.Errorf("the follower has the snapshots %v, error %v", listed, err)
	}
}
