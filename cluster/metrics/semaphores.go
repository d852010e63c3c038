package metrics

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/fsm"
)

// Others is the label of all semaphores without separate metrics, and of a semaphore with this name.
const Others = "other"

// State shows the state of this node.
type State interface {
	// View calls read with the state, which read must not keep.
	View(read func(*fsm.Machine))
	// EstimateMS returns cluster time as this node estimates it.
	EstimateMS() int64
}

// Semaphores has separate metrics for a limited number of semaphores, because any client may create semaphores and each
// takes several time series. At the start of the node these are the first semaphores by name. A later semaphore gets
// separate metrics when it is created, if there is room. A deleted semaphore makes room for the next new one.
type Semaphores struct {
	bound            int
	state            State
	granted, expired *prometheus.CounterVec
	others           *semaphore
	gauges           []semaphoreGauge
	settings         []semaphoreGauge // of a semaphore with settings

	mu    sync.Mutex // guards known against readers in other goroutines; the apply goroutine alone changes it
	known map[string]*semaphore
}

// semaphoreGauge is a gauge that is read from the state when Prometheus asks.
type semaphoreGauge struct {
	desc *prometheus.Desc
	read func(s *fsm.SemaphoreView, lines *shownLines) float64
}

// shownLines is how the lines of a semaphore stand.
type shownLines struct {
	oldestMS int64 // how long the first waiting request has waited
	fsm.LinesView
}

func newSemaphores(bound int, state State) *Semaphores {
	gauge := func(name, help string, read func(s *fsm.SemaphoreView, lines *shownLines) float64) semaphoreGauge {
		return semaphoreGauge{prometheus.NewDesc("signalbox_semaphore_"+name, help, []string{"semaphore"}, nil), read}
	}
	n := &Semaphores{
		bound: bound, state: state, known: map[string]*semaphore{},
		granted: vector("semaphore_grants_total", "Requests that were granted permits of the semaphore.", "semaphore"),
		expired: vector("semaphore_expiries_total", "Leases on the semaphore that ended because their session was not renewed in time.", "semaphore"),
		gauges: []semaphoreGauge{
			gauge("permits", "Permits of the semaphore.", func(s *fsm.SemaphoreView, _ *shownLines) float64 { return float64(s.Permits) }),
			gauge("held", "Permits that leases hold.", func(s *fsm.SemaphoreView, _ *shownLines) float64 { return float64(s.Held) }),
			gauge("waiting", "Requests that wait for the semaphore.", func(s *fsm.SemaphoreView, _ *shownLines) float64 { return float64(s.Waiters) }),
			gauge("oldest_wait_seconds", "How long the first of them has waited, in cluster time; 0 without one.",
				func(_ *fsm.SemaphoreView, lines *shownLines) float64 { return seconds(lines.oldestMS) }),
		},
		settings: []semaphoreGauge{
			gauge("paused", "1 while the semaphore is paused.", func(s *fsm.SemaphoreView, _ *shownLines) float64 {
				if s.Settings.Paused == "" {
					return 0
				}
				return 1
			}),
			gauge("groups", "Groups that are in use or have limits of their own.", func(s *fsm.SemaphoreView, _ *shownLines) float64 { return float64(s.Groups) }),
			gauge("groups_waiting", "Groups for which requests wait.", func(_ *fsm.SemaphoreView, lines *shownLines) float64 { return float64(lines.Groups) }),
			gauge("passed", "Grants in a row that passed the request that waits longest, in a semaphore whose groups share permits.",
				func(_ *fsm.SemaphoreView, lines *shownLines) float64 { return float64(lines.Passed) }),
			gauge("returning", "Permits that no lease holds and that come back later.", func(s *fsm.SemaphoreView, _ *shownLines) float64 { return float64(s.Returning) }),
			gauge("lost_holds", "Lost leases whose permits have not come back.", func(s *fsm.SemaphoreView, _ *shownLines) float64 { return float64(s.Lost) }),
		},
	}
	n.others = n.counters(Others)
	return n
}

func (n *Semaphores) counters(name string) *semaphore {
	return &semaphore{n.granted.WithLabelValues(name), n.expired.WithLabelValues(name)}
}

// add gives a semaphore separate metrics if there is room.
func (n *Semaphores) add(name string) {
	if len(n.known) == n.bound || name == Others {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[name] = n.counters(name)
}

// remove removes the separate metrics of a semaphore.
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

// restored adapts the names to a restored state: semaphores that still exist keep their counters.
func (n *Semaphores) restored(state *fsm.Machine) {
	for _, name := range n.names() {
		if _, exists := state.Semaphore(name); !exists {
			n.remove(name)
		}
	}
	for _, s := range state.Semaphores("", "", n.bound+1) { // one more, because a name may be Others
		if n.known[s.Name] == nil {
			n.add(s.Name)
		}
	}
}

// names returns the names of the semaphores with separate metrics.
func (n *Semaphores) names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.known))
}

// Describe implements [prometheus.Collector].
func (n *Semaphores) Describe(to chan<- *prometheus.Desc) {
	n.granted.Describe(to)
	n.expired.Describe(to)
	for _, g := range slices.Concat(n.gauges, n.settings) {
		to <- g.desc
	}
}

// Collect implements [prometheus.Collector]. It locks the state for one semaphore at a time.
func (n *Semaphores) Collect(to chan<- prometheus.Metric) {
	n.granted.Collect(to)
	n.expired.Collect(to)
	for _, name := range n.names() {
		var s fsm.SemaphoreView
		var exists bool
		var lines shownLines
		nowMS := n.state.EstimateMS()
		n.state.View(func(m *fsm.Machine) {
			s, exists = m.Semaphore(name)
			lines.LinesView = m.Lines(name)
			for _, first := range m.Waiters(name, fsm.LinePlace{}, 1) {
				lines.oldestMS = max(0, nowMS-first.EnqueuedMS)
			}
		})
		if !exists {
			continue // deleted since names was called
		}
		shown := n.gauges
		if s.Settings != (fsm.Settings{}) {
			shown = slices.Concat(shown, n.settings)
		}
		for _, g := range shown {
			to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.read(&s, &lines), name)
		}
	}
}
