package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

// applying is a sink that is called with each entry.
type applying func(*fsm.Applied)

func (s applying) Applied(entry *fsm.Applied)            { s(entry) }
func (s applying) SnapshotRestored(*fsm.Machine, uint64) {}

// TestSinksAreInTheirOrder: see sinks for the reasons.
func TestSinksAreInTheirOrder(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *nodes) {
		want := []string{
			"cluster.applying", "*metrics.Counters", "*requests.Registry", "*lead.Leadership", "*forward.Router",
		}
		var got []string
		for _, s := range sinks(c.all[0].Node, c.all[0].running.Load().leadership) {
			got = append(got, fmt.Sprintf("%T", s))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the sinks are %v, want %v", got, want)
		}
	}, func(c *Config) { c.firstSink = applying(func(*fsm.Applied) {}) })
}
