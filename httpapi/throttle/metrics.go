package throttle

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/httpapi/exchange"
)

// gauges are throttle's four gauges, under throttle's names. They show declared semaphores only: any client may create
// other semaphores, and must not create time series with them. They show this node's own state, with its estimate of
// cluster time.
type gauges struct {
	state    exchange.State
	declared func() []string

	acquired, longest, full, pending *prometheus.Desc
}

func newGauges(state exchange.State, declared func() []string) *gauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"semaphore"}, nil)
	}
	return &gauges{
		state: state, declared: declared,
		acquired: desc("throttle_acquired", "Sum of the counts of all locks held."),
		longest:  desc("throttle_longest_pending_sec", "Whole seconds that the oldest waiter has waited; 0 without one."),
		full:     desc("throttle_max", "Full count of the semaphore."),
		pending:  desc("throttle_pending", "Sum of the counts of all locks waited for."),
	}
}

func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.acquired, g.longest, g.full, g.pending} {
		to <- d
	}
}

// Collect takes time in proportion to the declared semaphores and their waiters.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	reading, err := g.state.Read(context.Background(), calls.Consistency{Stale: true})
	if err != nil {
		return // a stale read is local and can't fail
	}
	if g.declared == nil {
		return
	}
	for _, name := range g.declared() {
		var s fsm.SemaphoreView
		var known bool
		var pending, longestMS, full int64
		g.state.View(func(m *fsm.Machine) {
			if s, known = m.Semaphore(name); !known {
				return
			}
			full, _, _ = numbersOf(m, name)
			var sinceMS int64
			if pending, sinceMS = m.Queued(name); pending > 0 {
				longestMS = max(reading.NowMS, m.NowMS()) - sinceMS
			}
		})
		if !known {
			continue // deleted, or not made yet
		}
		gauge := func(d *prometheus.Desc, value int64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), name)
		}
		gauge(g.acquired, s.Held)
		gauge(g.longest, longestMS/1000)
		gauge(g.full, full)
		gauge(g.pending, pending)
	}
}
