package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/backup"
	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/offline"
	"github.com/signalbox/signalbox/cluster/probe"
	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// sceneDiskCommands are the commands of scripts about disks that are full or hang, about folders of nodes
// that do not run, and about what is written to the log.
var sceneDiskCommands = map[string]func(s *scene, t *testing.T, words []string) []string{
	// disk low|spent|ok [N…]: the free room on disks; without nodes on all disks, until the leader and all nodes have noticed.
	"disk": func(s *scene, t *testing.T, words []string) []string {
		low, spent := words[0] != "ok", words[0] == "spent"
		for _, n := range s.list(words[1:]) {
			s.disks[n.id].full.Store(low)
			s.disks[n.id].spent.Store(spent)
		}
		if len(words) == 1 {
			s.fullDisks(s.disks, low, spent)
		}
		return nil
	},
	// failing N: the node can't learn how much room its disk has.
	"failing": func(s *scene, _ *testing.T, words []string) []string {
		s.disks[words[0]].failing.Store(true)
		return nil
	},
	// hang N, unhang N: the writes of the node's log, in a cluster that is "hanging".
	"hang":   func(s *scene, _ *testing.T, words []string) []string { s.hung[words[0]].hang(); return nil },
	"unhang": func(s *scene, _ *testing.T, words []string) []string { s.hung[words[0]].release(); return nil },
	// renewing SESSION D through N…: a client renews its session every two seconds for so long, in turn at these nodes.
	"renewing": func(s *scene, _ *testing.T, words []string) []string {
		d, err := time.ParseDuration(words[1])
		s.must(err)
		refused, last := s.renewing(s.sessions[words[0]], d, s.list(words[3:])...)
		switch {
		case refused == 0:
			return []string{"all renewals are taken"}
		case refused < int(d/(2*time.Second))*14/15:
			return []string{fmt.Sprintf("%d renewals are refused, the last: %v", refused, last)}
		}
		return []string{"renewals are refused: " + outcomeName(last)}
	},
	// entries N [MIN..MAX]: so many entries are logged since the last `entries`.
	"entries": func(s *scene, _ *testing.T, words []string) []string {
		before := s.entries
		last, err := s.node(words[0]).store.Logs().LastIndex()
		s.must(err)
		s.entries = last
		return s.between("entries", words[1:], int64(s.entries-before))
	},
	// now N [MIN..MAX]: so much cluster time, in ms, has passed at the leader since the last `now`.
	"now": func(s *scene, _ *testing.T, words []string) []string {
		before := s.nowMS
		s.nowMS = s.node(words[0]).established().NowMS()
		return s.between("ms of cluster time", words[1:], s.nowMS-before)
	},
	// inspect N…: what the folders of nodes hold that do not run, the first the furthest.
	"inspect": func(s *scene, _ *testing.T, words []string) (lines []string) {
		var before *offline.Report
		for _, id := range words {
			n := s.node(id)
			path := n.store.Path()
			s.must(n.store.Close())
			report, err := offline.Inspect(path, 1)
			s.must(err)
			n.store = s.openFolder(n, path)
			lines = append(lines, fmt.Sprintf("%s holds %d leases", id, report.Latest.MostLeases[0].Leases))
			if before != nil && (before.Folder.LastTerm < report.Folder.LastTerm || before.Folder.LastIndex <= report.Folder.LastIndex) {
				lines = append(lines, id+" is not behind")
			}
			before = report
		}
		return lines
	},
	// recover N: the folder of a node that does not run becomes a new cluster's. It prints what the nodes that run reply.
	"recover": func(s *scene, t *testing.T, words []string) []string {
		n := s.node(words[0])
		s.label(n)
		path := n.store.Path()
		s.must(n.store.Close())
		s.net.Rejoin(n.id)
		lines, err := s.recovered(n, path)
		n.store = s.openFolder(n, path)
		if err != nil {
			text := runningTerm.ReplaceAllString(err.Error(), "in term T of cluster C")
			return []string{"refused: " + cutFolder.ReplaceAllString(text, "")}
		}
		return append(lines, "recovered")
	},
	// clusters: of which cluster the nodes that run are, by their folders, states and streams.
	"clusters": func(s *scene, _ *testing.T, _ []string) (lines []string) {
		for _, n := range s.list(nil) {
			var state fsm.ClusterID
			n.View(func(m *fsm.Machine) { state = m.ClusterID() })
			if want := n.Status().Cluster; n.store.ClusterID() != want || state.String() != want || n.joining.Cluster() != state {
				lines = append(lines, fmt.Sprintf("the folder says %s, the state %v, and the streams %v", n.store.ClusterID(), state, n.joining.Cluster()))
			}
			lines = append(lines, fmt.Sprintf("%s is of %s", n.id, n.Status().Cluster))
		}
		return lines
	},
	// agree: waits until all nodes have the same state.
	"agree": func(s *scene, _ *testing.T, _ []string) []string { s.agree(); return nil },
	// dies-restoring N: the node dies while it restores the last backup.
	"dies-restoring": func(s *scene, _ *testing.T, words []string) []string {
		s.diesRestoring(s.node(words[0]), s.file)
		return nil
	},
	// forget-log N: of a node that does not run, all entries but the last.
	"forget-log": func(s *scene, _ *testing.T, words []string) []string {
		logs := s.node(words[0]).store.Logs()
		last, err := logs.LastIndex()
		s.must(err)
		s.must(logs.DeleteRange(1, last-1))
		s.entries = last
		return nil
	},
}

// runningTerm and cutFolder are what differs from run to run in the reply of a node to a recovery.
var (
	runningTerm = regexp.MustCompile(`in term \d+ of cluster [^ ]*, with entries up to \d+`)
	cutFolder   = regexp.MustCompile(` with folder [0-9a-f]*$`)
)

// between is a line about a number that is not within the bounds of a script, if it names any.
func (s *scene) between(what string, words []string, number int64) []string {
	if len(words) == 0 {
		return nil
	}
	low, high, _ := strings.Cut(words[0], "..")
	from, err := strconv.ParseInt(low, 10, 64)
	s.must(err)
	to, err := strconv.ParseInt(high, 10, 64)
	s.must(err)
	if number < from || number > to {
		return []string{fmt.Sprintf("%d %s, not %s", number, what, words[0])}
	}
	return nil
}

func (s *scene) recovered(n *testNode, path string) (lines []string, err error) {
	config := offline.Config{Folder: path, Network: s.net.Host(n.id)}
	for _, member := range s.all {
		config.Peers = append(config.Peers, probe.Peer{ID: member.id, Address: member.id + ":8711"})
	}
	plan, err := offline.Prepare(s.t.Context(), config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	for _, other := range plan.Others {
		if s.node(other.ID).up {
			lines = append(lines, other.ID+": "+other.Found)
		}
	}
	_, err = plan.Carry(s.t.Context())
	return lines, err
}

// diesRestoring kills a node in the middle of a restore: Raft has stored the snapshot of the
// backup, and not yet the entry after it.
func (c *nodes) diesRestoring(n *testNode, file []byte) {
	c.t.Helper()
	config := n.raft().GetConfiguration()
	c.must(config.Error())
	term := n.raft().CurrentTerm()
	c.kill(n)
	_, state, err := backup.Read(bytes.NewReader(file))
	c.must(err)
	by := fsm.Succession{}
	n.View(func(m *fsm.Machine) { by.Own, by.Index = m.StateHeader(), m.Index()+1000 })
	c.must(state.Succeed(by))
	sink, err := n.store.Snapshots().Create(raft.SnapshotVersionMax, by.Index, term, config.Configuration(), config.Index(), nil)
	c.must(err)
	c.must(replica.WriteSnapshot(sink, by.Index, state.Freeze()))
	c.must(sink.Close())
}

// sceneDiskConditions are conditions about disks and about time that stands still.
var sceneDiskConditions = map[string]func(s *scene, n *testNode, words []string) bool{
	"low": func(_ *scene, n *testNode, _ []string) bool { return n.running.Load().space().Low },
	"standing": func(_ *scene, n *testNode, _ []string) bool {
		return n.established() != nil && n.established().TimeHeld()
	},
	"stuck": func(_ *scene, n *testNode, _ []string) bool { return n.store.StuckFor() > 0 },
	// N sees-low MEMBER, N sees-spent MEMBER
	"sees-low":   func(_ *scene, n *testNode, words []string) bool { return memberOf(n, words[0]).Low },
	"sees-spent": func(_ *scene, n *testNode, words []string) bool { return memberOf(n, words[0]).Spent },
	// N ahead: its newest snapshot is ahead of its log.
	"ahead": func(s *scene, n *testNode, _ []string) bool {
		kept, err := n.store.Snapshots().List()
		s.must(err)
		return len(kept) > 0 && kept[0].Index > n.raft().LastIndex()
	},
	// N lacks NAME: a semaphore.
	"lacks": func(_ *scene, n *testNode, words []string) bool { _, ok := stale(n, words[0]); return !ok },
}

func memberOf(n *testNode, id string) Member {
	for _, m := range n.Status().Members {
		if m.ID == id {
			return m
		}
	}
	return Member{}
}

// watchdogDisk is the free space of one node.
type watchdogDisk struct{ full, spent, failing atomic.Bool }

func (d *watchdogDisk) space() (store.Space, error) {
	switch {
	case d.failing.Load():
		return store.Space{}, errors.New("no answer")
	case d.spent.Load():
		return store.Space{Free: 1 << 10, Low: true, Spent: true}, nil
	case d.full.Load():
		return store.Space{Free: 1 << 20, Low: true}, nil
	}
	return store.Space{Free: 1 << 40}, nil
}

// watchdogDisks gives each node a disk.
func watchdogDisks(c *lifeNodes) map[string]*watchdogDisk {
	disks := map[string]*watchdogDisk{}
	c.setups = append(c.setups, func(config *Config) {
		if disks[config.NodeID] == nil {
			disks[config.NodeID] = &watchdogDisk{}
		}
		config.space = disks[config.NodeID].space
	})
	return disks
}

// fullDisks sets the mark that all disks have reached, and waits until it is seen.
func (c *lifeNodes) fullDisks(disks map[string]*watchdogDisk, low, spent bool) {
	for _, d := range disks {
		d.full.Store(low)
		d.spent.Store(spent)
	}
	c.until("the mark is noticed", func() bool {
		for _, n := range c.all {
			if now := n.running.Load().space(); now.Low != (low || spent) || now.Spent != spent {
				return false
			}
		}
		return c.leader().established().TimeHeld() == spent
	})
}

// renewing renews a session every two seconds, through whichever nodes are named, and
// returns how often it was refused, and why last.
func (c *lifeNodes) renewing(session uint64, during time.Duration, on ...*testNode) (refused int, last error) {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < during; {
		for _, n := range on {
			time.Sleep(2 * time.Second) // virtual: the pace of a client
			reply, err := n.Do(c.t.Context(), calls.Call{Command: fsm.Renew{Renewals: []fsm.Renewal{{Session: session, TTLMS: fsm.KeepTTL}}}})
			if err != nil {
				refused, last = refused+1, err
			} else if reply.Each[0].Code != fsm.OK {
				c.t.Fatalf("the session is lost: %v", reply.Each[0].Code)
			}
		}
	}
	return refused, last
}

// hungLogs makes a log's writes wait.
type hungLogs struct {
	raft.LogStore
	mu   sync.Mutex
	gate chan struct{} // nil: they don't
}

// hangingLogs gives each node a log whose writes may hang.
func hangingLogs(c *lifeNodes) map[string]*hungLogs {
	logs := map[string]*hungLogs{}
	c.wrap = func(id string) func(raft.LogStore) raft.LogStore {
		if logs[id] == nil {
			logs[id] = &hungLogs{}
		}
		return logs[id].wrap
	}
	return logs
}

func (h *hungLogs) wrap(below raft.LogStore) raft.LogStore {
	h.LogStore = below
	return h
}

func (h *hungLogs) hang() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = make(chan struct{})
}

func (h *hungLogs) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gate != nil {
		close(h.gate)
		h.gate = nil
	}
}

func (h *hungLogs) pass() {
	h.mu.Lock()
	gate := h.gate
	h.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (h *hungLogs) StoreLog(entry *raft.Log) error {
	h.pass()
	return h.LogStore.StoreLog(entry)
}

func (h *hungLogs) StoreLogs(entries []*raft.Log) error {
	h.pass()
	return h.LogStore.StoreLogs(entries)
}
