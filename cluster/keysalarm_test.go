package cluster

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/signalbox/signalbox/fsm"
)

// TestKeysAlarm: the leader says that the table of keys is nearly full, by its keys, its
// bytes or its marks, and says it again after ten minutes only.
func TestKeysAlarm(t *testing.T) {
	empty := fsm.KeysView{MostKeys: 1000, MostBytes: 10_000, MostMarks: 6000}
	for name, fill := range map[string]func(k *fsm.KeysView, percent int64){
		"keys":  func(k *fsm.KeysView, percent int64) { k.Keys = 10 * percent },
		"bytes": func(k *fsm.KeysView, percent int64) { k.Bytes = 100 * percent },
		"marks": func(k *fsm.KeysView, percent int64) { k.Marks = 60 * percent },
	} {
		var out bytes.Buffer
		now, leads := empty, true
		a := &keysAlarm{log: hclog.New(&hclog.LoggerOptions{Output: &out}), leads: func() bool { return leads }, keys: func() fsm.KeysView { return now }}
		lines := func() int { return strings.Count(out.String(), "nearly full") }
		start := time.Unix(0, 0)
		for i, step := range []struct {
			percent int64
			leads   bool
			after   time.Duration
			lines   int
		}{
			{0, true, 0, 0},
			{79, true, time.Second, 0},
			{80, false, 2 * time.Second, 0},
			{80, true, 3 * time.Second, 1},
			{100, true, 4 * time.Second, 1},
			{90, true, 10*time.Minute + 3*time.Second, 2},
			{79, true, time.Hour, 2},
			{81, true, 2 * time.Hour, 3},
		} {
			now, leads = empty, step.leads
			fill(&now, step.percent)
			if a.look(start.Add(step.after)); lines() != step.lines {
				t.Errorf("%s, step %d: %d lines, want %d", name, i, lines(), step.lines)
			}
		}
	}
}

// TestKeysGauges: how full the table of keys is, and how full it may be, on every node.
func TestKeysGauges(t *testing.T) {
	lifeBubble(t, 3, func(t *testing.T, c *lifeNodes) {
		c.begin(c.all...)
		c.ready(c.all...)
		c.semaphore("db", 1)
		once := func(key string, command fsm.Command) {
			if got, err := c.leader().Do(t.Context(), Call{Command: command, Key: key}); err != nil || got.Code != fsm.OK {
				t.Fatalf("%s: %v, %v", key, got.Code, err)
			}
		}
		once("a", fsm.AcquireOnce{Name: "db", Count: 1, TTLMS: 60_000, Session: 7})
		once("b", fsm.Up{Name: "db", Count: 1})
		once("", fsm.EndSession{Session: 7})
		for _, n := range c.all {
			c.until("it has applied that", func() bool { return metricsOf(t, n)["idempotency_keys{of=marks}"] == 1 })
			got := metricsOf(t, n)
			if got["idempotency_keys{of=keys}"] != 1 || got["idempotency_keys{of=bytes}"] < 128 || got["idempotency_keys_limit{of=keys}"] != 1_000_000 ||
				got["idempotency_keys_limit{of=bytes}"] != 256<<20 || got["idempotency_keys_limit{of=marks}"] != 6_000_000 {
				t.Errorf("%s: %v", n.id, got)
			}
		}
	})
}
