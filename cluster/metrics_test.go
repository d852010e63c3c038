package cluster

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/fsm"
)

// metricsOf gathers the metrics of a node: name, and name{label=value,…}, to value. The
// registry checks that every collected figure was described, with help, and once.
func metricsOf(t *testing.T, n *testNode) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	must(t, registry.Register(n.Collector()))
	families, err := registry.Gather()
	must(t, err)
	values := map[string]float64{}
	for _, family := range families {
		if family.GetHelp() == "" || !strings.HasPrefix(family.GetName(), "signalbox_") {
			t.Errorf("%s has help %q", family.GetName(), family.GetHelp())
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, pair := range m.GetLabel() {
				labels = append(labels, pair.GetName()+"="+pair.GetValue())
			}
			key := strings.TrimPrefix(family.GetName(), "signalbox_")
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			values[key] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		early := c.all[0]
		c.begin(early)
		if got := metricsOf(t, early); got["ready"] != 0 || got["objects{kind=semaphore}"] != 0 {
			t.Errorf("before the cluster forms: %v", got)
		}
		c.begin(c.all[1:]...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		follower := c.follower()
		leader := c.leader()
		holder, waiter := c.open(follower, time.Minute), c.open(follower, time.Minute)
		c.do(follower, fsm.Acquire{Session: holder, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, fsm.OK)
		c.do(follower, fsm.ItemPut{Name: "item", Value: "v"}, fsm.OK)
		watch := follower.WatchItems("item", false)
		defer watch.Stop()
		waiting := background(t.Context(), follower, calls.Call{
			Command: fsm.Acquire{Session: waiter, Name: "db", Count: 1, TTLMS: fsm.KeepTTL}, Wait: time.Minute,
		})
		c.until("it waits", func() bool { return metricsOf(t, follower)["waits_open"] == 1 })
		dead := c.others(leader)[1]
		c.kill(dead)
		time.Sleep(5 * time.Second) // virtual
		synctest.Wait()             // what happens at this moment, a tick say, is over
		term := float64(leader.raft().CurrentTerm())
		for _, check := range []struct {
			n    *testNode
			name string
			want float64
		}{
			{leader, "ready", 1}, {leader, "raft_leader", 1}, {follower, "raft_leader", 0}, {follower, "raft_leader_known", 1},
			{leader, "raft_term", term}, {follower, "raft_term", term},
			{leader, "raft_state{state=Leader}", 1}, {leader, "raft_state{state=Follower}", 0}, {follower, "raft_state{state=Follower}", 1},
			{leader, "raft_members{voter=yes}", 3}, {leader, "raft_members{voter=no}", 0},
			{leader, "member_up{member=" + dead.id + "}", 0}, {leader, "member_up{member=" + follower.id + "}", 1},
			{leader, "raft_last_contact_seconds", 0},
			{follower, "objects{kind=semaphore}", 1}, {follower, "objects{kind=session}", 2}, {follower, "objects{kind=lease}", 1}, {follower, "objects{kind=waiting}", 1},
			{leader, "items", 1}, {follower, "items", 1}, {follower, "item_bytes", 96 + 5}, {follower, "item_watchers", 1}, {leader, "item_watchers", 0},
			{leader, "waits_open", 0}, {follower, "waits_open", 1},
			{leader, "commands_forwarded_total", 5}, {follower, "commands_forwarded_total", 0},
			{follower, "commands_applied_total{operation=open,result=ok}", 2},
			{follower, "commands_applied_total{operation=acquire,result=waiting}", 1},
			{leader, "effects_total{kind=granted}", 1}, {leader, "effects_total{kind=waiting}", 1},
			{leader, "storage_low", 0}, {leader, "state_differs", 0}, {leader, "log_write_stuck_seconds", 0}, {leader, "proposer_queue_commands", 0},
			{leader, "snapshots_begun_total", 0},
			{follower, "semaphore_permits{semaphore=db}", 1}, {follower, "semaphore_held{semaphore=db}", 1},
			{follower, "semaphore_waiting{semaphore=db}", 1}, {follower, "semaphore_grants_total{semaphore=db}", 1},
		} {
			if got, ok := metricsOf(t, check.n)[check.name]; !ok || got != check.want {
				t.Errorf("%s: %s is %v (%v), want %v", check.n.id, check.name, got, ok, check.want)
			}
		}
		c.until("the follower is shown without a lag", func() bool { // ticks may come just when it is asked
			lag, ok := metricsOf(t, leader)["member_lag_entries{member="+follower.id+"}"]
			return ok && lag == 0
		})
		before := float64(leader.raft().CommitIndex()) // ticks go on meanwhile
		values := metricsOf(t, leader)
		if values["raft_commit_index"] < before || values["applied_index"] < before || values["raft_last_index"] < before {
			t.Errorf("commit %v, applied %v, last %v; want at least %v",
				values["raft_commit_index"], values["applied_index"], values["raft_last_index"], before)
		}
		synctest.Wait()
		values = metricsOf(t, follower)
		if values["entries_applied_total"] < 5 || values["entries_applied_total"] != values["entry_commands"] {
			t.Errorf("%v entries, %v of them counted by size", values["entries_applied_total"], values["entry_commands"])
		}
		c.must(leader.raft().Snapshot().Error())
		if got := metricsOf(t, leader)["snapshots_begun_total"]; got != 1 {
			t.Errorf("%v snapshots", got)
		}
		if waited := metricsOf(t, follower)["semaphore_oldest_wait_seconds{semaphore=db}"]; waited < 4 || waited > 10 {
			t.Errorf("the first request has waited %v s", waited)
		}
		c.do(leader, fsm.EndSession{Session: holder}, fsm.OK)
		<-waiting
		if got := metricsOf(t, leader); got["semaphore_waiting{semaphore=db}"] != 0 || got["releases_total{cause=released}"] != 1 || got["wait_seconds"] != 2 {
			t.Errorf("after the hand-over %v", got)
		}
	})
}

// TestMetricsOfGroups: a semaphore with groups shows its pause, its groups and its returns.
func TestMetricsOfGroups(t *testing.T) {
	lifeBubble(t, 1, func(t *testing.T, c *lifeNodes) {
		leader := c.all[0]
		c.begin(leader)
		c.ready(leader)
		c.semaphore("db", 1)
		if got, ok := metricsOf(t, leader)["semaphore_paused{semaphore=db}"]; ok {
			t.Errorf("a semaphore without settings shows %v for its pause", got)
		}
		by := func(g fsm.Grouping) fsm.Change[fsm.Grouping] { return fsm.Change[fsm.Grouping]{Given: true, Value: g} }
		c.do(leader, fsm.PutSemaphore{Name: "pool", Permits: fsm.Change[int64]{Given: true, Value: 1}, Settings: fsm.SettingsChange{
			Groups: by(fsm.ByRequest), Paused: fsm.Change[string]{Given: true, Value: "why"}}}, fsm.OK)
		c.do(leader, fsm.GroupPut{Name: "pool", Group: "acme", Limit: 3}, fsm.OK)
		for name, want := range map[string]float64{
			"semaphore_paused{semaphore=pool}": 1, "semaphore_groups{semaphore=pool}": 1,
			"semaphore_groups_waiting{semaphore=pool}": 0, "semaphore_passed{semaphore=pool}": 0, "objects{kind=group}": 1, "objects{kind=return}": 0,
			"semaphore_returning{semaphore=pool}": 0, "semaphore_lost_holds{semaphore=pool}": 0,
		} {
			if got, ok := metricsOf(t, leader)[name]; !ok || got != want {
				t.Errorf("%s is %v (%v), want %v", name, got, ok, want)
			}
		}
	})
}
