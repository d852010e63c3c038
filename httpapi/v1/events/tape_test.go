package events

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
)

// An entry is encoded once for all streams, and the state is read for it once. If a stream needs only the last events of
// an entry, they count as another entry. The size of what is kept is bounded.
func TestTapeTellsOnce(t *testing.T) {
	views := 0
	tape := &eventCache{view: func(read func(*fsm.Machine)) { views++; read(fsm.New()) }, entries: map[*fsm.Effect]*encodedEntry{}}
	whole := replica.EventEntry{Index: 7, Effects: []fsm.Effect{{Kind: fsm.EffectDeleted, Semaphore: "a"}, {Kind: fsm.EffectDeleted, Semaphore: "b"}}}
	missed := replica.EventEntry{Index: 7, Before: 1, Effects: whole.Effects[1:]}
	for range 1000 {
		got := tape.encoded([]replica.EventEntry{whole, missed})
		text := func(e *encodedEntry, i int) string { return string(e.events[i].text) }
		if text(got[0], 1) != text(got[1], 0) || !strings.HasPrefix(text(got[1], 0), "id: 7.2\nevent: deleted\n") || len(got[1].events) != 1 {
			t.Fatalf("%q and %d events", text(got[1], 0), len(got[1].events))
		}
	}
	if views != 2 {
		t.Errorf("the state was looked at %d times for two entries", views)
	}
	for i := range 40 {
		tape.encoded([]replica.EventEntry{{Index: uint64(8 + i), Effects: []fsm.Effect{{Kind: fsm.EffectDeleted, Semaphore: fmt.Sprint(i, strings.Repeat("x", 1<<20))}}}})
	}
	if len(tape.entries) != 15 || len(tape.order) != 15 || tape.bytes > tapeBytes {
		t.Errorf("%d entries of more than a MiB are kept, %d bytes", len(tape.entries), tape.bytes)
	}
}
