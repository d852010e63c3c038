package replica

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/store"
)

// tickEntry is an entry without commands.
func tickEntry(index uint64) *raft.Log {
	return &raft.Log{Index: index, Term: 3, Type: raft.LogCommand, Data: EncodeTermEntry(3, int64(index)*500, nil), AppendedAt: time.Now()}
}

// TestAWeekOfTicksAsksForSnapshots: the log of an idle cluster with one session over a
// week is never more at once than a restart applies in about a second.
func TestAWeekOfTicksAsksForSnapshots(t *testing.T) {
	m := newFedReplica()
	var last, largest uint64
	index := uint64(0)
	m.asked = func() {
		largest, last = max(largest, index-last), index
		if _, err := m.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	const week = 7 * 24 * 3600 * 2
	for index = 1; index <= week; index++ {
		m.Apply(tickEntry(index))
	}
	if largest = max(largest, week-last); largest > snapshotCost/entryCost || last == 0 {
		t.Errorf("up to %d ticks without a snapshot, the last one at %d", largest, last)
	}
}

// TestEntryCostIsWhatATickTakes: on the disk a tick takes more than its own bytes by
// far, and no more than it is counted as.
func TestEntryCostIsWhatATickTakes(t *testing.T) {
	const ticks = 20_000
	folder := t.TempDir()
	s, err := store.Open(store.Options{Folder: folder, NodeID: "n1", Journal: true})
	must(t, err)
	batch := make([]*raft.Log, ticks)
	for i := range batch {
		batch[i] = tickEntry(uint64(i + 1))
	}
	bare := len(batch[ticks-1].Data)
	for i := 0; i < ticks; i += 100 {
		must(t, s.Logs().StoreLogs(batch[i:i+100]))
	}
	if err := s.Close(); err != nil { // brings what is in the journal to raft.db
		t.Fatal(err)
	}
	used := usedBytes(t, filepath.Join(folder, "raft.db"))
	each := used / ticks
	t.Logf("a tick of %d bytes takes %d on the disk", bare, each)
	if each > int64(bare+entryCost) || each < int64(4*bare) {
		t.Errorf("a tick of %d bytes takes %d on the disk, and is counted as %d", bare, each, bare+entryCost)
	}
}

// usedBytes returns up to where a file holds anything but zeros: bbolt makes its
// files larger than they need to be.
func usedBytes(t *testing.T, path string) int64 {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	used := len(content)
	for used > 0 && content[used-1] == 0 {
		used--
	}
	return int64(used)
}

// TestSnapshotsGrowRarerWithTheState: a snapshot of so many bytes is not due again
// before half as many more are in the log; the same after a restart from it.
func TestSnapshotsGrowRarerWithTheState(t *testing.T) {
	m := newFedReplica()
	m.meter.base = 1 << 20
	calls := 0
	m.asked = func() { calls++ }
	index := uint64(0)
	until := func(m *fedReplica) (ticks int64) {
		for before := calls; calls == before; ticks++ {
			index++
			m.Apply(tickEntry(index))
		}
		return ticks
	}
	each := int64(len(tickEntry(1000).Data) + entryCost)
	if small := until(m) * each; small > 1<<20+16<<10 {
		t.Errorf("of a small state a snapshot is due after %d", small)
	}
	for i := range 40_000 {
		index++
		m.Apply(entryOf(index, 3, 3, fsm.CreateSemaphore{Name: "a semaphore with a name " + string(rune('a'+i%26)) + time.Duration(i).String()}))
	}
	written := snapshotOf(t, m)
	restored := newFedReplica()
	restored.meter.base = 1 << 20
	restored.asked = m.asked
	must(t, restored.Restore(sourceOf(written)))
	size := restored.meter.size.Load()
	if size < 1<<20 || size != int64(len(written)) || m.meter.size.Load() != size {
		t.Fatalf("a snapshot of %d bytes, written as %d, restored as %d", len(written), m.meter.size.Load(), size)
	}
	for name, m := range map[string]*fedReplica{"written": m, "restored": restored} {
		start := index
		if cost := until(m) * each; cost < 1<<20+size/2-16<<10 || cost > 1<<20+size/2+16<<10 { // a tick's stamp takes a byte more or less
			t.Errorf("%s: with a snapshot of %d bytes the next is due after %d", name, size, cost)
		}
		index = start
	}
}

// TestPreparedStateIsNotReadAgain, if the snapshot that Raft gives is of this state.
func TestPreparedStateIsNotReadAgain(t *testing.T) {
	stateAt := func(index uint64, name string) *fsm.Machine {
		m := newFedReplica()
		m.Apply(entryOf(index, 3, 3, fsm.CreateSemaphore{Name: name, Permits: 1}))
		return m.state
	}
	for name, c := range map[string]struct {
		index uint64
		state *fsm.Machine
		taken bool
	}{
		"the same": {9, stateAt(9, "a"), true}, "another index": {10, stateAt(9, "a"), false},
		"another state": {9, stateAt(9, "b"), false}, "an earlier one": {9, stateAt(8, "a"), false},
	} {
		from, r := newFedReplica(), newFedReplica()
		from.Apply(entryOf(9, 3, 3, fsm.CreateSemaphore{Name: "a", Permits: 1}))
		snapshot := snapshotOf(t, from)
		taken, forget := r.Prepare(c.index, c.state)
		must(t, r.Restore(sourceOf(snapshot)))
		closed := false
		select {
		case <-taken:
			closed = true
		default:
		}
		if closed != c.taken || (r.state == c.state) != c.taken {
			t.Errorf("%s: taken %v, the prepared state is there: %v", name, closed, r.state == c.state)
		}
		if _, found := valueOf(r.Replica, "a"); !found || r.meter.size.Load() != int64(len(snapshot)) {
			t.Errorf("%s: the state is not that of the snapshot", name)
		}
		forget()
	}
}

// TestRestoreBeginsTheCountAnew: the entries before a snapshot that came from the leader
// don't count for a restart.
func TestRestoreBeginsTheCountAnew(t *testing.T) {
	m := newFedReplica()
	calls := 0
	m.asked = func() { calls++ }
	written := snapshotOf(t, m)
	m.meter.base = 10*int64(len(tickEntry(10).Data)+entryCost) - int64(len(written))/snapshotShare
	for index := range uint64(9) {
		m.Apply(tickEntry(index + 1))
	}
	must(t, m.Restore(sourceOf(written)))
	for index := range uint64(9) {
		if m.Apply(tickEntry(index + 1)); calls != 0 {
			t.Fatalf("asked for a snapshot %d entries after a restore", index+1)
		}
	}
	m.Apply(tickEntry(10))
	if m.Apply(tickEntry(11)); calls != 1 {
		t.Errorf("asked %d times after enough entries", calls)
	}
}
