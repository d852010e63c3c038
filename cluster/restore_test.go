package cluster

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// backupOf returns the bytes of a backup that a node makes.
func (c *nodes) backupOf(n *testNode) []byte {
	c.t.Helper()
	b, err := n.Backup(c.t.Context())
	c.must(err)
	var out bytes.Buffer
	c.must(b.Write(&out))
	return out.Bytes()
}

// restoring restores a backup on a node, in the background.
func restoring(ctx context.Context, n *testNode, file []byte, endSessions bool) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := n.Restore(ctx, bytes.NewReader(file), backup.Order{EndSessions: endSessions})
		done <- err
	}()
	return done
}

// acquire acquires one permit and returns the token.
func (c *nodes) acquire(n *testNode, session uint64, name string) uint64 {
	c.t.Helper()
	return c.do(n, fsm.Acquire{Session: session, Name: name, Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK).Grants[0].Token
}

// TestRefusedRestoreChangesNothing: on a follower, of another cluster's backup, of a damaged file in each part of
// it, of a newer one.
func TestRefusedRestoreChangesNothing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 9)
		file := c.backupOf(c.leader())
		c.semaphore("later", 9)
		leader, term := c.leader(), c.leader().established()
		hash := leader.Status().StateHash
		if _, err := c.follower().Restore(t.Context(), bytes.NewReader(file), backup.Order{}); !errors.Is(err, outcome.ErrNotLeader) {
			t.Errorf("on a follower: %v", err)
		}
		if _, err := leader.Restore(t.Context(), bytes.NewReader(file), backup.Order{From: &fsm.ClusterID{1}}); !errors.Is(err, outcome.ErrBackupRefused) {
			t.Errorf("of another cluster than the caller names: %v", err)
		}
		for at := 0; at < len(file); at += 7 {
			damaged := bytes.Clone(file)
			damaged[at] ^= 0x10
			for _, bad := range [][]byte{damaged, file[:at]} {
				if _, err := leader.Restore(t.Context(), bytes.NewReader(bad), backup.Order{}); !errors.Is(err, outcome.ErrBackupRefused) {
					t.Errorf("byte %d: %v", at, err)
				}
			}
		}
		if leader.established() != term || leader.Status().StateHash != hash {
			t.Error("a refused backup has changed something")
		}
	})
}

// TestRestoreTwiceAtATimeIsRefused, and a node that is about to close does not hang.
func TestRestoreTwiceAtATimeIsRefused(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		c.semaphore("db", 9)
		file := c.backupOf(c.leader())
		blocked := newSlowReader(file)
		first := make(chan error, 1)
		go func() {
			_, err := c.all[0].Restore(t.Context(), blocked, backup.Order{})
			first <- err
		}()
		<-blocked.reading
		if err := <-restoring(t.Context(), c.all[0], file, false); !errors.Is(err, outcome.ErrRestoring) {
			t.Errorf("the second one: %v", err)
		}
		close(blocked.go_)
		c.must(<-first)
		c.must(<-restoring(t.Context(), c.leader(), file, true))
	})
}

// slowReader reads once it may.
type slowReader struct {
	*bytes.Reader
	reading chan struct{} // closed at the first Read
	go_     chan struct{}
}

func newSlowReader(file []byte) *slowReader {
	return &slowReader{bytes.NewReader(file), make(chan struct{}), make(chan struct{})}
}

func (r *slowReader) Read(p []byte) (int, error) {
	select {
	case <-r.reading:
	default:
		close(r.reading)
	}
	<-r.go_
	return r.Reader.Read(p)
}

// cutAtSnapshot cuts one node off from the moment on at which it sends a snapshot.
type cutAtSnapshot struct {
	mu    sync.Mutex
	armed string // the node's id
	cut   bool
}

func (f *cutAtSnapshot) setup(config *Config) {
	id := config.NodeID
	config.fault = func(_ raft.ServerID, request any) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, ok := request.(*raft.InstallSnapshotRequest); f.armed == id && (ok || f.cut) {
			f.cut = true
			return errors.New("cut off")
		}
		return nil
	}
}

func (f *cutAtSnapshot) arm(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.cut = id, false
}

// TestLeaderThatIsCutOffWhileRestoring: the state is in force everywhere or nowhere. If no other
// node has got it, no caller of the old leader ever sees it.
func TestLeaderThatIsCutOffWhileRestoring(t *testing.T) {
	cut := &cutAtSnapshot{}
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 9)
		file := c.backupOf(c.leader())
		c.semaphore("later", 9)
		old := c.leader()
		cut.arm(old.id)
		done := restoring(t.Context(), old, file, false)
		next := c.leader(old)
		c.do(next, fsm.Up{Name: "later", Count: 1}, fsm.OK)
		if _, found := machineValue(old.replica, "later"); !found {
			t.Error("the old leader shows a state that no majority has")
		}
		if err := <-done; !errors.Is(err, outcome.ErrOutcomeUnknown) {
			t.Errorf("the restore: %v", err)
		}
		if got, _ := machineValue(next.replica, "later"); got != 10 {
			t.Errorf("the next leader has %d", got)
		}
		_, err := old.Read(t.Context(), calls.Consistency{})
		t.Logf("old leader's read: %v; %+v", err, old.Checks())
		if err == nil {
			t.Error("the old leader confirms reads")
		}
	}, cut.setup)
}

// TestRestoreWhileTheLeaderChanges: whatever becomes of it, all nodes agree in the end, and
// no token is given twice.
func TestRestoreWhileTheLeaderChanges(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		c.semaphore("db", 1<<40)
		session := c.open(c.leader(), time.Hour)
		seen, outcomes := map[uint64]bool{}, map[bool]int{}
		give := func() {
			token := c.acquire(c.leader(), session, "db")
			if seen[token] {
				t.Errorf("token %d is given twice", token)
			}
			seen[token] = true
			c.do(c.leader(), fsm.Release{Session: session, Name: "db"}, fsm.OK)
		}
		give()
		c.semaphore("mark", 0)
		file := c.backupOf(c.leader())
		var mark int64 // since the last restore; 0 in the backup
		for round := range 12 {
			give()
			mark++
			old := c.leader()
			c.do(old, fsm.Up{Name: "mark", Count: 1}, fsm.OK)
			if round%4 == 3 { // the change comes first
				c.must(old.TransferLeadership(t.Context(), ""))
			}
			done := restoring(t.Context(), old, file, false)
			time.Sleep(time.Duration(round) * time.Millisecond) // virtual: in each phase of it
			if err := c.leader().TransferLeadership(t.Context(), ""); err != nil {
				t.Logf("round %d: transfer: %v", round, err)
			}
			err := <-done
			c.until("all are ready", func() bool { return c.all[0].Ready() && c.all[1].Ready() && c.all[2].Ready() })
			found, _ := c.read(c.leader(), "mark")
			restored := found.Available == 0
			switch {
			case !restored && found.Available != mark:
				t.Errorf("round %d: the mark is %d, neither 0 nor %d", round, found.Available, mark)
			case err == nil && !restored, err != nil && restored && !errors.Is(err, outcome.ErrOutcomeUnknown):
				t.Errorf("round %d: the restore reported %v, but the backup is in force: %t", round, err, restored)
			}
			outcomes[restored]++
			mark = found.Available
			for _, n := range c.all {
				if view, _ := c.read(n, "mark"); view.Available != mark {
					t.Errorf("round %d: the mark is %d on %s, and %d on the leader", round, view.Available, n.id, mark)
				}
			}
			give()
		}
		if outcomes[true] == 0 || outcomes[false] == 0 {
			t.Errorf("of the restores %d are in force and %d are not: it proves little", outcomes[true], outcomes[false])
		}
		c.agree()
	})
}

// agree waits until all nodes have the same state.
func (c *nodes) agree() {
	c.t.Helper()
	c.until("all nodes agree", func() bool {
		first := c.all[0].Status()
		for _, n := range c.all[1:] {
			if s := n.Status(); s.AppliedIndex != first.AppliedIndex || s.StateHash != first.StateHash {
				return false
			}
		}
		return true
	})
}
