package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox/signalbox/fsm"
)

// newsOf takes the signal of a watch, and returns its index if the signal was set, else 0.
func newsOf(t *testing.T, w *ItemWatch) uint64 {
	t.Helper()
	select {
	case <-w.News():
		return w.Index()
	default:
		return 0
	}
}

// TestItemChangesWakeTheirWatchers: a change wakes the watches of the item's name and of all
// prefixes of it, others never, and gives its number.
func TestItemChangesWakeTheirWatchers(t *testing.T) {
	r := newFedReplica()
	watches := map[string]*ItemWatch{}
	for _, name := range []string{"a", "a/b", "a/b/c", "a/b/cd", "b"} {
		watches[name], watches[name+"*"] = r.WatchItems(name, false), r.WatchItems(name, true)
	}
	watches["*"] = r.WatchItems("", true)
	second := r.WatchItems("a/", true)
	woken := func() (all string) {
		for _, name := range []string{"*", "a", "a*", "a/b", "a/b*", "a/b/c", "a/b/c*", "a/b/cd", "a/b/cd*", "b", "b*"} {
			if number := newsOf(t, watches[name]); number != 0 {
				all += fmt.Sprintf("%s=%d ", name, number)
			}
		}
		return strings.TrimSpace(all)
	}
	changed := func(name string, number uint64) fsm.Effect {
		return fsm.Effect{Kind: fsm.EffectItemChanged, Item: name, Version: number}
	}
	for _, step := range []struct {
		effects []fsm.Effect
		want    string
	}{
		{[]fsm.Effect{changed("a/b/c", 7)}, "*=7 a*=7 a/b*=7 a/b/c=7 a/b/c*=7"},
		{[]fsm.Effect{changed("ab", 8), changed("zz", 9)}, "*=9 a*=8"},
		{[]fsm.Effect{{Kind: fsm.EffectItemDeleted, Item: "b", Version: 10}}, "*=10 b=10 b*=10"},
		{[]fsm.Effect{{Kind: fsm.EffectGranted, Semaphore: "a"}}, ""},
	} {
		r.notifySinks(&fsm.Applied{Effects: step.effects})
		if got := woken(); got != step.want {
			t.Errorf("%+v woke %s, want %s", step.effects, got, step.want)
		}
	}
	second.Stop()
	watches["a/b"].Stop()
	watches["a/b*"].Stop()
	watches["a/b*"].Stop()
	r.notifySinks(&fsm.Applied{Effects: []fsm.Effect{changed("a/b", 11)}})
	if got := woken(); got != "*=11 a*=11" || newsOf(t, second) != 7 || len(r.items.names) != 4 || r.items.below.Len() != 5 || r.ItemWatchers() != 9 {
		t.Errorf("after three stops a change woke %s; %d names and %d prefixes are watched by %d watches", got, len(r.items.names), r.items.below.Len(), r.ItemWatchers())
	}
}

// TestItemWatchesAreWokenByARestore: a snapshot, or a jump of the numbers, may be a change of
// any item.
func TestItemWatchesAreWokenByARestore(t *testing.T) {
	r := newFedReplica()
	feed := func(index uint64, command fsm.Command) {
		t.Helper()
		if err := r.Apply(entryOf(index, 1, 1, command)); err != nil {
			t.Fatal(err)
		}
	}
	feed(1, fsm.StartTerm{Term: 1, Leader: "n1", Cluster: fsm.ClusterID{7}, Level: fsm.FeatureLevel, Limits: fsm.DefaultLimits()})
	feed(2, fsm.ItemPut{Name: "a", Value: "1"})
	single, all := r.WatchItems("other", false), r.WatchItems("p/", true)
	must(t, r.Restore(sourceOf(snapshotOf(t, r))))
	if got := []uint64{newsOf(t, single), newsOf(t, all)}; got[0] != 1 || got[1] != 1 {
		t.Errorf("a restore of a state with one change set %d, want 1 1", got)
	}
	feed(3, fsm.StartTerm{Term: 1, Leader: "n1", Cluster: fsm.ClusterID{7}, Jump: true})
	if got := []uint64{newsOf(t, single), newsOf(t, all)}; got[0] < 1<<32 || got[1] != got[0] {
		t.Errorf("a jump of the numbers set %d", got)
	}
}

// TestHoldersChanged: an open or an end of a session that open-holder opened, a jump of the numbers and a
// restore close the channel; other entries do not.
func TestHoldersChanged(t *testing.T) {
	r := newFedReplica()
	start := fsm.StartTerm{Term: 1, Leader: "n1", Cluster: fsm.ClusterID{7}, Level: fsm.FeatureLevel, Limits: fsm.DefaultLimits()}
	jump := start
	jump.Jump = true
	for i, step := range []struct {
		command fsm.Command
		closes  bool
	}{
		{start, false}, {fsm.OpenHolder{Session: 1, TTLMS: 60_000}, true}, {fsm.OpenSession{Session: 2, TTLMS: 60_000}, false},
		{fsm.ItemPut{Name: "a", Value: "1"}, false}, {fsm.EndSession{Session: 2}, false}, {fsm.EndSession{Session: 1}, true}, {jump, true},
		{nil, true}, // a restore
	} {
		changed := r.HoldersChanged()
		if step.command == nil {
			must(t, r.Restore(sourceOf(snapshotOf(t, r))))
		} else if err := r.Apply(entryOf(uint64(i)+1, 1, 1, step.command)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
			if !step.closes {
				t.Errorf("%T closed the channel", step.command)
			}
		default:
			if step.closes {
				t.Errorf("%T did not close the channel", step.command)
			}
		}
	}
}
