package metrics

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/fsm"
)

// Others is the label of all semaphores that have no metrics of their own, among them one
// of this name.
const Others = "other"

// State shows the state of this node.
type State interface {
	// View calls read with the state, which read must not keep.
	View(read func(*fsm.Machine))
	// EstimateMS returns cluster time as this node estimates it.
	EstimateMS() int64
}

// Semaphores are the metrics of each of the first so many semaphores: the first ones by
// name when the node starts, after that as they are created. The number bounds the time
// series, as any client may create semaphores. One that is deleted makes room for the next
// that is created.
type Semaphores struct {
	most             int
	state            State
	granted, expired *prometheus.CounterVec
	others           *semaphore
	gauges           []semaphoreGauge

	mu    sync.Mutex // guards known against readers in other goroutines; the apply goroutine alone changes it
	known map[string]*semaphore
}

// semaphoreGauge is read off the state when it is asked for.
type semaphoreGauge struct {
	desc *prometheus.Desc
	read func(s *fsm.SemaphoreView, oldestMS int64) float64
}

func newSemaphores(most int, state State) *Semaphores {
	gauge := func(name, help string, read func(s *fsm.SemaphoreView, oldestMS int64) float64) semaphoreGauge {
		return semaphoreGauge{prometheus.NewDesc("signalbox_semaphore_"+name, help, []string{"semaphore"}, nil), read}
	}
	n := &Semaphores{
		most: most, state: state, known: map[string]*semaphore{},
		granted: vector("semaphore_grants_total", "Requests that were granted permits of the semaphore.", "semaphore"),
		expired: vector("semaphore_expiries_total", "Leases on the semaphore that ended because their session was not renewed in time.", "semaphore"),
		gauges: []semaphoreGauge{
			gauge("permits", "Permits of the semaphore.", func(s *fsm.SemaphoreView, _ int64) float64 { return float64(s.Permits) }),
			gauge("held", "Permits that leases hold.", func(s *fsm.SemaphoreView, _ int64) float64 { return float64(s.Held) }),
			gauge("waiting", "Requests that wait for the semaphore.", func(s *fsm.SemaphoreView, _ int64) float64 { return float64(s.Waiters) }),
			gauge("oldest_wait_seconds", "How long the first of them has waited, in cluster time; 0 without one.",
				func(_ *fsm.SemaphoreView, oldestMS int64) float64 { return seconds(oldestMS) }),
		},
	}
	n.others = n.counters(Others)
	return n
}

func (n *Semaphores) counters(name string) *semaphore {
	return &semaphore{n.granted.WithLabelValues(name), n.expired.WithLabelValues(name)}
}

// add gives a semaphore metrics of its own if there is room.
func (n *Semaphores) add(name string) {
	if len(n.known) == n.most || name == Others {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = n.counters(name)
}

// remove ends the metrics of a semaphore.
func (n *Semaphores) remove(name string) {
	if n.known[name] == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, name)
	n.granted.DeleteLabelValues(name)
	n.expired.DeleteLabelValues(name)
}

// restored follows a jump of the state: names that are still there keep their counters.
func (n *Semaphores) restored(state *fsm.Machine) {
	for _, name := range n.names() {
		if _, exists := state.Semaphore(name); !exists {
			n.remove(name)
		}
	}
	for _, s := range state.Semaphores("", "", n.most+1) { // one may be called as the others are
		if n.known[s.Name] == nil {
			n.add(s.Name)
		}
	}
}

// names lists the semaphores that have metrics of their own.
func (n *Semaphores) names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.known))
}

// Describe implements [prometheus.Collector].
func (n *Semaphores) Describe(to chan<- *prometheus.Desc) {
	n.granted.Describe(to)
	n.expired.Describe(to)
	for _, g := range n.gauges {
		to <- g.desc
	}
}

// Collect implements [prometheus.Collector]. The state is held for one semaphore at a time.
func (n *Semaphores) Collect(to chan<- prometheus.Metric) {
	n.granted.Collect(to)
	n.expired.Collect(to)
	for _, name := range n.names() {
		var s fsm.SemaphoreView
		var exists bool
		var oldestMS int64
		nowMS := n.state.EstimateMS()
		n.state.View(func(m *fsm.Machine) {
			s, exists = m.Semaphore(name)
			for _, first := range m.Waiters(name, 0, 1) {
				oldestMS = max(0, nowMS-first.EnqueuedMS)
			}
		})
		if !exists {
			continue // deleted in this moment
		}
		for _, g := range n.gauges {
			to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.read(&s, oldestMS), name)
		}
	}
}
