package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/metrics"
	"github.com/signalbox/signalbox/fsm"
)

// emptyState is a state without semaphores.
type emptyState struct{}

func (emptyState) View(read func(*fsm.Machine)) { read(fsm.New()) }
func (emptyState) EstimateMS() int64            { return 0 }

// gathered returns the metrics by name{label=value}. A histogram has its count under
// its name, and its sum under name_sum.
func gathered(t *testing.T, m *metrics.Counters) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m.All()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			key := strings.TrimPrefix(family.GetName(), "signalbox_")
			for _, label := range metric.GetLabel() {
				key += "{" + label.GetName() + "=" + label.GetValue() + "}"
			}
			values[key] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			if h := metric.GetHistogram(); h != nil {
				values[key+"_sum"] = h.GetSampleSum()
			}
		}
	}
	return values
}

func newCounters(semaphores int) *metrics.Counters {
	return metrics.New(metrics.Config{
		Leads: func() bool { return false }, Snapshots: func() uint64 { return 0 }, Semaphores: semaphores, State: emptyState{},
	})
}

func check(t *testing.T, m *metrics.Counters, want map[string]float64) {
	t.Helper()
	got := gathered(t, m)
	for name, value := range want {
		if found, shown := got[name]; found != value || !shown {
			t.Errorf("%s is %v (shown: %v), want %v", name, found, shown, value)
		}
	}
}

func TestWaitsAndHolds(t *testing.T) {
	m := newCounters(1)
	m.Applied(&fsm.Applied{NowMS: 10_000, Effects: []fsm.Effect{
		{Kind: fsm.EffectGranted, Semaphore: "a", Count: 1, SinceMS: 10_000},
		{Kind: fsm.EffectGranted, Semaphore: "a", Count: 1, SinceMS: 7_500},
	}})
	m.Applied(&fsm.Applied{NowMS: 20_000, Passing: 3, Effects: []fsm.Effect{
		{Kind: fsm.EffectReleased, Cause: fsm.CauseEnded, Semaphore: "a", Count: 1, SinceMS: 10_000},
		{Kind: fsm.EffectReleased, Cause: fsm.CauseRevoked, Semaphore: "a", Count: 1, SinceMS: 10_000},
		{Kind: fsm.EffectReleased, Cause: fsm.CauseEnded, Semaphore: "a", Count: 0, SinceMS: 10_000}, // the revoked one leaves
	}})
	check(t, m, map[string]float64{
		"wait_seconds": 2, "wait_seconds_sum": 2.5, "hold_seconds": 2, "hold_seconds_sum": 20,
		"releases_total{cause=released}": 1, "releases_total{cause=revoked}": 1, "releases_total{cause=expired}": 0, "grants_passing_total": 3,
	})
}

func TestSemaphoresHaveABoundedNumberOfMetrics(t *testing.T) {
	m := newCounters(2)
	granted := func(names ...string) {
		entry := &fsm.Applied{}
		for _, name := range names {
			entry.Effects = append(entry.Effects, fsm.Effect{Kind: fsm.EffectGranted, Semaphore: name, Count: 1},
				fsm.Effect{Kind: fsm.EffectReleased, Cause: fsm.CauseExpired, Semaphore: name, Count: 1})
		}
		m.Applied(entry)
	}
	changed := func(kind fsm.EffectKind, names ...string) {
		entry := &fsm.Applied{}
		for _, name := range names {
			entry.Effects = append(entry.Effects, fsm.Effect{Kind: kind, Semaphore: name})
		}
		m.Applied(entry)
	}
	changed(fsm.EffectCreated, metrics.Others, "b", "a", "c")
	granted(metrics.Others, "a", "a", "b", "c")
	check(t, m, map[string]float64{
		"semaphore_grants_total{semaphore=a}": 2, "semaphore_grants_total{semaphore=b}": 1, "semaphore_grants_total{semaphore=other}": 2,
		"semaphore_expiries_total{semaphore=a}": 2, "semaphore_expiries_total{semaphore=other}": 2,
	})
	changed(fsm.EffectDeleted, "a", "c")
	changed(fsm.EffectCreated, "d", "e")
	granted("c", "d", "e")
	check(t, m, map[string]float64{"semaphore_grants_total{semaphore=d}": 1, "semaphore_grants_total{semaphore=other}": 4})
	for name := range gathered(t, m) {
		for _, gone := range []string{"=a}", "=c}", "=e}"} {
			if strings.HasSuffix(name, gone) {
				t.Errorf("%s is shown", name)
			}
		}
	}
	m.SnapshotRestored(fsm.New(), 1)
	for name := range gathered(t, m) {
		if strings.HasPrefix(name, "semaphore_") && !strings.HasSuffix(name, "=other}") {
			t.Errorf("after a restore of an empty state %s is shown", name)
		}
	}
}
