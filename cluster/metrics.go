package cluster

import (
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/fsm"
)

// figures are counted as things happen. All are safe for concurrent use.
type figures struct {
	entries   prometheus.Counter
	commands  *prometheus.CounterVec // by operation and result
	effects   *prometheus.CounterVec // by kind
	batches   prometheus.Histogram
	forwarded prometheus.Counter
	snapshots prometheus.Counter
	restores  prometheus.Counter

	noticesDelivered, noticesFailed, noticesGivenUp prometheus.Counter
}

// newFigures makes them, all zero and registered nowhere.
func newFigures() *figures {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "signalbox_" + name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "signalbox_" + name, Help: help}, labels)
	}
	return &figures{
		entries:  counter("entries_applied_total", "Entries of the log that this node's state machine has applied."),
		commands: vec("commands_applied_total", "Commands that this node's state machine has applied, by operation and result.", "operation", "result"),
		effects:  vec("effects_total", "Changes that commands and time have made in this node's state machine, by kind.", "kind"),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "signalbox_entry_commands", Help: "Commands in one entry of the log; 0 in a tick.",
			Buckets: []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, batchCommands},
		}),
		forwarded: counter("commands_forwarded_total", "Commands of other nodes' callers that this node, as the leader, has applied."),
		snapshots: counter("snapshots_begun_total", "Snapshots of the state machine that this node has begun to write."),
		restores:  counter("snapshots_restored_total", "Snapshots that this node's state machine was restored from."),

		noticesDelivered: counter("notices_delivered_total", "Notices to callbacks that this node, as the leader, has delivered."),
		noticesFailed:    counter("notice_attempts_failed_total", "Attempts of this node, as the leader, to deliver a notice that failed."),
		noticesGivenUp:   counter("notices_given_up_total", "Notices that this node, as the leader, has given up to deliver."),
	}
}

// all lists them.
func (f *figures) all() []prometheus.Collector {
	return []prometheus.Collector{f.entries, f.commands, f.effects, f.batches, f.forwarded, f.snapshots, f.restores,
		f.noticesDelivered, f.noticesFailed, f.noticesGivenUp}
}

// applied counts what an entry did. origin is this node's own.
func (f *figures) applied(entry *fsm.Applied, origin uint64, leads bool) {
	f.entries.Inc()
	f.batches.Observe(float64(len(entry.Commands)))
	foreign := 0
	for i := range entry.Commands {
		c := &entry.Commands[i]
		f.commands.WithLabelValues(c.Op.String(), c.Result.Code.String()).Inc()
		if c.Request.Origin != 0 && c.Request.Origin != origin {
			foreign++
		}
	}
	if leads {
		f.forwarded.Add(float64(foreign))
	}
	for i := range entry.Effects {
		f.effects.WithLabelValues(entry.Effects[i].Kind.String()).Inc()
	}
}

// gauge is read off when it is asked for.
type gauge struct {
	desc   *prometheus.Desc
	values func(emit func(value float64, labels ...string))
}

// collector implements prometheus.Collector for one node.
type collector struct {
	figures  *figures
	refusals *refusals
	gauges   []gauge
}

// Collector answers all of this node's figures, for one registry. Their names
// begin with "signalbox_". Collecting does not block for longer than a read of the
// machine does.
func (n *Node) Collector() prometheus.Collector {
	return &collector{figures: n.life.figures, refusals: n.port.refusals, gauges: n.life.gauges()}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, g := range c.gauges {
		descs <- g.desc
	}
	for _, f := range c.figures.all() {
		f.Describe(descs)
	}
	c.refusals.count.Describe(descs)
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	for _, g := range c.gauges {
		g.values(func(value float64, labels ...string) {
			metrics <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, labels...)
		})
	}
	for _, f := range c.figures.all() {
		f.Collect(metrics)
	}
	c.refusals.count.Collect(metrics)
}

// gauges lists what is read off a node, each with its help text.
func (l *life) gauges() []gauge {
	n := l.node
	gauges := []gauge{
		single("applied_index", "Index up to which this node's state machine has applied the log.",
			func() float64 { return float64(n.machine.progress.reached.Load()) }),
		single("cluster_time_seconds", "Cluster time as this node estimates it.",
			func() float64 { return float64(n.machine.estimateMS()) / 1000 }),
		single("ready", "1 if this node is ready, else 0.", func() float64 { return truth(n.Ready()) }),
		single("waits_open", "Calls on this node that wait to be granted something.", func() float64 { return float64(n.waits.open()) }),
		single("proposer_queue_commands", "Commands that wait on this node, as the leader, to be logged.",
			func() float64 {
				if reign := n.established(); reign != nil {
					return float64(reign.proposer.waiting())
				}
				return 0
			}),
		single("log_write_stuck_seconds", "How long the write of the log that is under way has taken.",
			func() float64 { return n.config.Store.StuckFor().Seconds() }),
		single("storage_free_bytes", "Free bytes on the disk of the data folder.", func() float64 { return float64(l.watchdog.spaceNow().Free) }),
		single("storage_low", "1 while this node, if it leads, takes only what keeps or ends leases because the disk is nearly full, else 0.",
			func() float64 { return truth(l.watchdog.spaceNow().Low) }),
		single("storage_reserve_reached", "1 while the disk is full down to the reserve, so that this node takes no writes if it leads, else 0.",
			func() float64 { return truth(l.watchdog.spaceNow().Spent) }),
		single("cluster_time_held", "1 while this node leads and holds cluster time because no writes can be taken, else 0.",
			func() float64 { return truth(l.node.established() != nil && l.standstill() != nil) }),
		single("state_differs", "1 while the members' states differ without a majority and writes are refused, else 0.",
			func() float64 { return truth(l.split.Load() != nil) }),
		{describe("idempotency_keys", "What the table of idempotency keys has: keys, their bytes, marks of keys whose lease is over.", "of"), l.emitKeys},
		{describe("idempotency_keys_limit", "What it may have. Beyond it requests with new keys are refused.", "of"), l.emitKeyLimits},
		{describe("objects", "Objects in the state machine, by kind.", "kind"), l.emitObjects},
		{describe("member_up", "1 if the other member answered when it was asked last, else 0.", "member"),
			l.eachMember(func(s peerSeen) float64 { return truth(s.up()) })},
		{describe("member_lag_entries", "By how many entries the other member's state machine trailed when it answered last.", "member"),
			l.eachMember(func(s peerSeen) float64 { return float64(s.lag) })},
	}
	return append(gauges, l.raftGauges()...)
}

// raftGauges lists what is read off Raft; without Raft there is nothing to read.
func (l *life) raftGauges() []gauge {
	of := func(name, help string, read func(r *raft.Raft) float64) gauge {
		return gauge{describe(name, help), func(emit func(float64, ...string)) {
			if r := l.raft(); r != nil {
				emit(read(r))
			}
		}}
	}
	return []gauge{
		of("raft_leader", "1 if this node leads, else 0.", func(r *raft.Raft) float64 { return truth(r.State() == raft.Leader) }),
		of("raft_leader_known", "1 if this node knows a leader, else 0.", func(r *raft.Raft) float64 {
			_, id := r.LeaderWithID()
			return truth(id != "")
		}),
		of("raft_term", "Raft's current term.", func(r *raft.Raft) float64 { return float64(r.CurrentTerm()) }),
		of("raft_commit_index", "Index of the last entry that this node knows to be committed.",
			func(r *raft.Raft) float64 { return float64(r.CommitIndex()) }),
		of("raft_last_index", "Index of the last entry in this node's log.", func(r *raft.Raft) float64 { return float64(r.LastIndex()) }),
		of("raft_last_contact_seconds", "How long ago this node heard from the leader; 0 on the leader, -1 before the first time.",
			func(*raft.Raft) float64 {
				contact := l.node.lastContact()
				if contact < 0 {
					return -1
				}
				return contact.Seconds()
			}),
		{describe("raft_state", "1 for the state that Raft is in.", "state"), l.emitState},
		{describe("raft_members", "Members of the latest configuration, by whether they vote.", "voter"), l.emitMembers},
	}
}

func (l *life) emitObjects(emit func(float64, ...string)) {
	var semaphores, sessions, leases, waiting int
	l.node.View(func(m *fsm.Machine) { semaphores, sessions, leases, waiting = m.Counts() })
	emit(float64(semaphores), "semaphore")
	emit(float64(sessions), "session")
	emit(float64(leases), "lease")
	emit(float64(waiting), "waiting")
}

func (l *life) eachMember(read func(peerSeen) float64) func(emit func(float64, ...string)) {
	return func(emit func(float64, ...string)) {
		for id, seen := range l.watch.all() {
			emit(read(seen), id)
		}
	}
}

func (l *life) emitState(emit func(float64, ...string)) {
	r := l.raft()
	if r == nil {
		return
	}
	now := r.State()
	for _, state := range []raft.RaftState{raft.Follower, raft.Candidate, raft.Leader, raft.Shutdown} {
		emit(truth(state == now), state.String())
	}
}

func (l *life) emitMembers(emit func(float64, ...string)) {
	servers := l.servers()
	voting := len(votersOf(servers))
	emit(float64(voting), "yes")
	emit(float64(len(servers)-voting), "no")
}

func single(name, help string, read func() float64) gauge {
	return gauge{describe(name, help), func(emit func(float64, ...string)) { emit(read()) }}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("signalbox_"+name, help, labels, nil)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// open answers how many callers of this node wait.
func (w *waits) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := 0
	for _, listeners := range w.callers {
		count += len(listeners)
	}
	return count
}
