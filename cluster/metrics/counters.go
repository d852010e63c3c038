package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/fsm"
)

// Counters count what the applied entries do. All methods are safe for concurrent use, except Applied and
// SnapshotRestored, which only the apply goroutine may call.
type Counters struct {
	config Config

	entries   prometheus.Counter
	commands  counters[commandOutcome]
	effects   counters[fsm.EffectKind]
	released  counters[fsm.Cause]
	batches   prometheus.Histogram
	waited    prometheus.Histogram
	held      prometheus.Histogram
	forwarded prometheus.Counter
	passing   prometheus.Counter
	snapshots prometheus.CounterFunc
	restores  prometheus.Counter
	named     *Semaphores

	NoticesDelivered, NoticesFailed, NoticesGivenUp prometheus.Counter
	// EarlyCampaigns counts the campaigns that package cluster/election began.
	EarlyCampaigns prometheus.Counter
}

// Config connects the counters with their node.
type Config struct {
	Origin    uint64        // the origin in the request ids of this node's callers, see package requests
	Leads     func() bool   // reports whether the node leads
	Snapshots func() uint64 // returns how many snapshots have been begun
	// Semaphores bounds the number of names with separate metrics.
	Semaphores int
	State      State
}

// New returns counters at zero. The caller registers All.
func New(config Config) *Counters {
	m := &Counters{
		config:  config,
		entries: counter("entries_applied_total", "Entries of the log that this node's state machine has applied."),
		commands: newCounters(
			vector("commands_applied_total", "Commands that this node's state machine has applied, by operation and result.", "operation", "result"),
			func(c commandOutcome) []string { return []string{c.op.String(), c.code.String()} },
		),
		effects: newCounters(
			vector("effects_total", "Changes that commands and time have made in this node's state machine, by kind.", "kind"),
			func(kind fsm.EffectKind) []string { return []string{kind.String()} },
		),
		released: newCounters(
			vector("releases_total", "Times that leases gave permits back, by cause; expired: the session was not renewed in time.", "cause"),
			func(cause fsm.Cause) []string { return []string{cause.String()} },
		),
		batches: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "signalbox_entry_commands", Help: "Commands in one entry of the log; 0 in a tick.",
			Buckets: []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
		}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "signalbox_wait_seconds", Help: "How long requests waited for what they were granted, in cluster time; 0 if they did not wait.",
			Buckets: []float64{0, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600},
		}),
		held: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "signalbox_hold_seconds", Help: "How long leases had held permits that they gave back, in cluster time.",
			Buckets: []float64{0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 4 * 3600, 24 * 3600},
		}),
		forwarded: counter("commands_forwarded_total", "Commands of other nodes' callers that this node, as the leader, has applied."),
		passing:   counter("grants_passing_total", "Grants that passed the request that waits longest, in semaphores whose groups share permits."),
		snapshots: prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "signalbox_snapshots_begun_total", Help: "Snapshots of the state machine that this node has begun to write."},
			func() float64 { return float64(config.Snapshots()) },
		),
		restores: counter("snapshots_restored_total", "Snapshots that this node's state machine was restored from."),
		named:    newSemaphores(config.Semaphores, config.State),

		NoticesDelivered: counter("notices_delivered_total", "Notices to callbacks that this node, as the leader, has delivered."),
		NoticesFailed:    counter("notice_attempts_failed_total", "Attempts of this node, as the leader, to deliver a notice that failed."),
		EarlyCampaigns:   counter("raft_early_campaigns_total", "Campaigns of this node that did not wait for a time-out of Raft: the process of the leader had ended, or a majority of the voters knew no leader."),
		NoticesGivenUp:   counter("notices_given_up_total", "Notices that this node, as the leader, has given up to deliver."),
	}
	for _, cause := range []fsm.Cause{fsm.CauseExpired, fsm.CauseEnded, fsm.CauseRevoked, fsm.CauseDeleted, fsm.CauseResized} {
		m.released.counterOf(cause) // starts at 0, so that a rate sees the first release
	}
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "signalbox_" + name, Help: help})
}

func vector(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "signalbox_" + name, Help: help}, labels)
}

// commandOutcome is an operation and its result.
type commandOutcome struct {
	op   fsm.Op
	code fsm.Code
}

// counters holds the counters of a vector by a key that determines their labels. It looks a counter up by its labels
// only once, because that takes ten times as long as counting. Only the apply goroutine calls counterOf.
type counters[K comparable] struct {
	vec    *prometheus.CounterVec
	labels func(K) []string
	known  map[K]prometheus.Counter
}

func newCounters[K comparable](vec *prometheus.CounterVec, labels func(K) []string) counters[K] {
	return counters[K]{vec: vec, labels: labels, known: map[K]prometheus.Counter{}}
}

func (c *counters[K]) counterOf(key K) prometheus.Counter {
	counter, known := c.known[key]
	if !known {
		counter = c.vec.WithLabelValues(c.labels(key)...)
		c.known[key] = counter
	}
	return counter
}

// semaphore has the counters of one semaphore, or of all semaphores without separate metrics.
type semaphore struct{ granted, expired prometheus.Counter }

// countersOf returns the counters of a semaphore; semaphores without separate metrics share their counters. Only the
// apply goroutine calls it.
func (n *Semaphores) countersOf(name string) *semaphore {
	if s := n.known[name]; s != nil {
		return s
	}
	return n.others
}

// All returns the collectors of the counters.
func (m *Counters) All() []prometheus.Collector {
	return []prometheus.Collector{m.entries, m.commands.vec, m.effects.vec, m.released.vec, m.batches, m.waited, m.held, m.forwarded, m.passing,
		m.snapshots, m.restores, m.named, m.NoticesDelivered, m.NoticesFailed, m.NoticesGivenUp, m.EarlyCampaigns}
}

// Applied implements [replica.Sink]: it counts the commands and changes of an entry.
func (m *Counters) Applied(entry *fsm.Applied) {
	m.entries.Inc()
	m.batches.Observe(float64(len(entry.Commands)))
	m.passing.Add(float64(entry.Passing))
	foreign := 0
	for i := range entry.Commands {
		c := &entry.Commands[i]
		m.commands.counterOf(commandOutcome{c.Op, c.Result.Code}).Inc()
		if c.Request.Origin != 0 && c.Request.Origin != m.config.Origin {
			foreign++
		}
	}
	if foreign > 0 && m.config.Leads() {
		m.forwarded.Add(float64(foreign))
	}
	for i := range entry.Effects {
		m.count(&entry.Effects[i], entry.NowMS)
	}
}

// count counts one change. nowMS is the cluster time of its entry.
func (m *Counters) count(e *fsm.Effect, nowMS int64) {
	m.effects.counterOf(e.Kind).Inc()
	switch e.Kind {
	case fsm.EffectCreated:
		m.named.add(e.Semaphore)
	case fsm.EffectDeleted:
		m.named.remove(e.Semaphore)
	case fsm.EffectGranted:
		m.waited.Observe(seconds(nowMS - e.SinceMS))
		m.named.countersOf(e.Semaphore).granted.Inc()
	case fsm.EffectReleased:
		if e.Count == 0 {
			return // the revocation was counted already
		}
		m.held.Observe(seconds(nowMS - e.SinceMS))
		m.released.counterOf(e.Cause).Inc()
		if e.Cause == fsm.CauseExpired {
			m.named.countersOf(e.Semaphore).expired.Inc()
		}
	}
}

func seconds(ms int64) float64 { return float64(ms) / 1000 }

// SnapshotRestored implements [replica.Sink].
func (m *Counters) SnapshotRestored(state *fsm.Machine, _ uint64) {
	m.restores.Inc()
	m.named.restored(state)
}
