package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// ofLast returns the result of an entry's last command.
func ofLast(applied *Applied) Result { return applied.Commands[len(applied.Commands)-1].Result }

// refusedBy fails the test unless a limit refused the last command.
func (b *bounded) refusedBy(rule Rule, commands ...Command) {
	b.t.Helper()
	b.index++
	if r := ofLast(b.m.Apply(b.index, EncodeEntry(0, encodeAll(plain(commands...))))); r.Code != LimitReached || r.Rule != rule {
		b.t.Errorf("%s: %s, want a refusal by %v", show(commands[len(commands)-1]), show(r), rule)
	}
}

func (b *bounded) ok(commands ...Command) *Applied {
	b.t.Helper()
	applied := b.apply(commands...)
	for i := range applied.Commands {
		if r := applied.Commands[i].Result; r.Code != OK {
			b.t.Fatalf("%s: %s", show(commands[i]), show(r))
		}
	}
	return applied
}

// TestItemsAreBounded: limits refuse only what adds to items.
func TestItemsAreBounded(t *testing.T) {
	b := newBounded(t)
	b.ok(OpenSession{Session: 1, TTLMS: MaxTTLMS}, ItemPut{Name: "free"}, ItemPut{Name: "delayed"},
		OpenHolder{Session: 2, TTLMS: MaxTTLMS, DelayMS: 1000}, ItemAcquire{Name: "delayed", Session: 2}, EndSession{Session: 2}, ItemDelete{Name: "delayed"})
	var acquires []Command
	for i := range maxSessionItems {
		acquires = append(acquires, ItemAcquire{Name: fmt.Sprint("item ", i), Value: "value", Session: 1})
	}
	b.fill(acquires...)
	b.refusedBy(RuleSessionItems, ItemAcquire{Name: "free", Session: 1})
	b.refusedBy(RuleSessionItems, ItemAcquire{Name: "new", Session: 1})
	b.ok(ItemAcquire{Name: "item 7", Value: "again", Session: 1}, ItemRelease{Name: "item 8", Session: 1}, ItemAcquire{Name: "free", Session: 1})

	live := b.m.items.live
	b.m.items.live = maxItems
	b.refusedBy(RuleItems, ItemPut{Name: "new"})
	b.refusedBy(RuleItems, ItemPut{Name: "new", Version: Change[uint64]{Given: true}})
	b.m.Apply(b.index+1, EncodeEntry(0, encodeAll(plain(ItemPut{Name: "free", Value: "x"}, ItemPut{Name: "delayed"})))) // the tombstone's place
	b.index++
	if _, made := b.m.Item("delayed"); !made {
		t.Error("a shade has no place for its item")
	}
	b.m.items.live = live

	room := b.m.itemBytes
	b.m.itemBytes = maxItemBytes - itemOverhead - 10
	b.refusedBy(RuleItemBytes, ItemPut{Name: "12345", Value: "123456"})
	b.refusedBy(RuleItemBytes, OpenHolder{Session: 3, TTLMS: 1000, About: "12345678901"})
	b.m.itemBytes = maxItemBytes - 5
	b.refusedBy(RuleItemBytes, ItemPut{Name: "free", Value: "1234567"})
	b.refusedBy(RuleItemBytes, ItemRelease{Name: "free", Value: "1234567", Session: 1})
	b.index++
	for _, c := range b.m.Apply(b.index, EncodeEntry(0, encodeAll(plain(ItemPut{Name: "free", Value: "123456"}, ItemRelease{Name: "free", Session: 1}, EndSession{Session: 1})))).Commands {
		if c.Result.Code != OK {
			t.Errorf("%v without room: %s", c.Op, show(c.Result))
		}
	}
	b.m.itemBytes -= maxItemBytes - 5 - room
	if err := b.m.check(); err != nil {
		t.Error(err)
	}
}

// TestValuesAreAnyBytes up to their bound.
func TestValuesAreAnyBytes(t *testing.T) {
	b := newBounded(t)
	largest := strings.Repeat("\xff", MaxValueBytes)
	for value, code := range map[string]Code{largest: OK, largest + "x": Malformed, "\x00": OK} {
		r := ofLast(b.apply(ItemPut{Name: "a", Value: value}))
		if view, _ := b.m.Item("a"); r.Code != code || code == OK && view.Value != value {
			t.Errorf("%d bytes: %v", len(value), r.Code)
		}
	}
	if r := ofLast(b.apply(OpenHolder{Session: 1, TTLMS: 1, About: largest[:MaxAboutBytes+1]})); r.Code != Malformed {
		t.Errorf("an about of other bytes: %v", r.Code)
	}
}

// TestDeletesOfAFolder: the last ones are remembered by name, those before them by the highest
// number, which is the index of every other name in the folder. A restored machine and a frozen
// copy have the same.
func TestDeletesOfAFolder(t *testing.T) {
	b := newBounded(t)
	name := func(i int) string { return fmt.Sprintf("p/%03d", i) }
	number := map[int]uint64{}
	remove := func(i int) {
		number[i] = b.ok(ItemPut{Name: name(i)}, ItemDelete{Name: name(i)}).Commands[1].Result.Version
	}
	var copies []*Frozen
	var kept [][]byte
	index := func(want map[string]uint64) {
		t.Helper()
		for name, n := range want {
			got := b.m.ItemIndex(name)
			if prefix, ok := strings.CutSuffix(name, "*"); ok {
				got = b.m.ItemsIndex(prefix)
			}
			if got != n {
				t.Errorf("%s: index %d, want %d", name, got, n)
			}
		}
		copies = append(copies, b.m.Freeze())
		kept = append(kept, snapshotOf(t, b.m.Freeze()))
	}
	for i := range maxFolderNames {
		remove(i)
	}
	index(map[string]uint64{name(0): number[0], "p/00*": number[9], "p/never": 0, "p/*": number[63], "p*": number[63], "q*": 0})
	remove(0) // again: the others stay
	index(map[string]uint64{name(0): number[0], name(1): number[1], "p/never": 0})
	remove(64)
	index(map[string]uint64{name(0): number[0], name(1): number[1], name(2): number[2], "p/never": number[1], "p/01*": number[19]})
	remove(65)
	index(map[string]uint64{name(1): number[2], name(2): number[2], name(3): number[3], "p/never": number[2], "p/064*": number[64], "p/9*": number[2]})
	b.ok(ItemPut{Name: name(3)})
	index(map[string]uint64{name(3): b.m.changes})
	for i, frozen := range copies {
		if !bytes.Equal(snapshotOf(t, frozen), kept[i]) {
			t.Errorf("copy %d changed while the machine went on", i)
		}
	}
}

// TestDeletesAreBounded: of too many names or folders, the folder with the oldest last delete is
// forgotten.
func TestDeletesAreBounded(t *testing.T) {
	for what, folder := range map[string]func(i int) string{
		"folders": func(i int) string { return fmt.Sprintf("%07d/a", i) },
		"names":   func(i int) string { return fmt.Sprintf("%07d/%d", i/2, i%2) },
	} {
		m := New()
		index := uint64(0)
		remove := func(from, to int) {
			var commands []Command
			for i := from; i < to; i++ {
				commands = append(commands, ItemPut{Name: folder(i)}, ItemDelete{Name: folder(i)})
			}
			index++
			m.Apply(index, EncodeEntry(0, encodeAll(plain(commands...))))
		}
		for i := 0; i < maxFolders; i += 1000 {
			remove(i, i+1000)
		}
		remove(0, 1) // it is the youngest now
		next := 1
		if what == "names" {
			next = 2
		}
		if m.ItemIndex(folder(next)) == 0 || m.deletedNames != maxDeletedNames {
			t.Fatalf("%s: %d names are remembered, the first of them not", what, m.deletedNames)
		}
		remove(maxFolders, maxFolders+1)
		if m.ItemIndex(folder(0)) == 0 || m.ItemIndex(folder(next)) != 0 || m.ItemIndex(folder(maxFolders)) == 0 || m.deletedNames > maxDeletedNames {
			t.Errorf("%s: of %d names another one is forgotten", what, m.deletedNames)
		}
		if err := m.check(); err != nil {
			t.Error(what, err)
		}
		looks, highest := 0, uint64(0)
		for from := ""; looks == 0 || from != ""; looks++ {
			var index uint64
			index, from = m.DeletesIndex("0", from)
			highest = max(highest, index)
		}
		if want := (m.folders.live + folderLooks - 1) / folderLooks; looks != want || highest != m.ItemIndex(folder(maxFolders)) || highest != m.ItemsIndex("0") {
			t.Errorf("%s: %d looks at %d folders, want %d; the last delete is %d", what, looks, m.folders.live, want, highest)
		}
	}
}

// TestOldDeletesAreForgotten ten minutes after the last one of their folder, also by a machine
// that was restored meanwhile.
func TestOldDeletesAreForgotten(t *testing.T) {
	b := newBeside(t)
	remove := func(stampMS int64, name string) {
		b.apply(stampMS, plain(ItemPut{Name: name}, ItemDelete{Name: name})...)
	}
	remove(0, "p/1")
	remove(1000, "x")
	remove(2000, "p/2")
	b.machine = reread(t, b.machine)
	for stampMS, want := range map[int64]string{600_999: "2 1 3", 601_000: "2 0 0"} {
		m := reread(t, b.machine)
		m.Apply(b.index+1, EncodeEntry(stampMS, nil))
		if want == "2 1 3" {
			if m.ItemIndex("p/1") != 2 || m.ItemIndex("x") != 4 || m.ItemIndex("p/2") != 6 {
				t.Errorf("at %d: %d, %d, %d", stampMS, m.ItemIndex("p/1"), m.ItemIndex("x"), m.ItemIndex("p/2"))
			}
		} else if m.ItemIndex("p/1") != 2 || m.ItemIndex("x") != 0 {
			t.Errorf("at %d: %d, %d", stampMS, m.ItemIndex("p/1"), m.ItemIndex("x"))
		}
	}
	b.apply(602_000)
	if b.machine.ItemIndex("p/1") != 0 || b.machine.ItemsIndex("") != 6 {
		t.Errorf("at the end: %d, of all %d", b.machine.ItemIndex("p/1"), b.machine.ItemsIndex(""))
	}
}

// TestItemDeleteAllIsBounded: one removes 8,192 items, and the next one the rest.
func TestItemDeleteAllIsBounded(t *testing.T) {
	b := newBounded(t)
	var commands []Command
	for i := range maxDeletedAtOnce + 1 {
		commands = append(commands, ItemPut{Name: fmt.Sprintf("p/%05d", i)})
	}
	b.fill(append(commands, ItemPut{Name: "q"})...)
	for i, want := range []Result{{Value: maxDeletedAtOnce, More: true}, {Value: 1}, {}} {
		got := ofLast(b.apply(ItemDeleteAll{Prefix: "p/"}))
		if got.Value != want.Value || got.More != want.More || (got.Version != 0) != (want.Value > 0) {
			t.Errorf("%d: %s", i, show(got))
		}
	}
	if counts := b.m.ItemCounts(); counts.Items != 1 || counts.Deletes != maxFolderNames {
		t.Errorf("%+v", counts)
	}
	if cost := Cost(ItemDeleteAll{}, SessionSize{}); cost < EntryWeight {
		t.Errorf("two share an entry: cost %d", cost)
	}
}

// TestItemsEndWithTheirSession: the largest session ends in one step, whatever the budget, and
// its items count as work and as records. Then the tombstones go, 8,192 an entry.
func TestItemsEndWithTheirSession(t *testing.T) {
	const sessions = 3
	b := newBounded(t)
	var commands []Command
	for s := range uint64(sessions) {
		commands = append(commands, OpenHolder{Session: s + 1, TTLMS: 5000, DeleteItems: true, DelayMS: 1000})
		for i := range maxSessionItems {
			commands = append(commands, ItemAcquire{Name: fmt.Sprintf("%d/%04d", s, i), Session: s + 1})
		}
	}
	b.fill(commands...)
	if size := b.m.SessionSize(1); size.Records != maxSessionItems || Cost(EndSession{Session: 1}, size) <= EntryWeight {
		t.Errorf("the size of a session: %+v", size)
	}
	for left := sessions - 1; left >= 0; left-- {
		b.index++
		applied := b.m.Apply(b.index, EncodeEntry(5000, nil))
		if applied.MoreDue != (left > 0) || b.m.sessions.live != left || len(b.m.tombstoneOf) != (sessions-left)*maxSessionItems || len(applied.Effects) != maxSessionItems+1 {
			t.Fatalf("%d sessions and %d shades are left after %d effects", b.m.sessions.live, len(b.m.tombstoneOf), len(applied.Effects))
		}
	}
	b.ok(ItemPut{Name: "0/0000"}) // in the place of a tombstone, with its delay
	for _, want := range []int{sessions*maxSessionItems - 1 - maxTombstonesDropped, 0} {
		b.index++
		applied := b.m.Apply(b.index, EncodeEntry(6000, nil))
		if len(b.m.tombstoneOf) != want || applied.MoreDue != (want > 0) {
			t.Fatalf("%d shades are left, more due: %v", len(b.m.tombstoneOf), applied.MoreDue)
		}
	}
	if counts := b.m.ItemCounts(); counts.Items != 1 || counts.Bytes != 96+6 {
		t.Errorf("%+v", counts)
	}
}

// TestItemsOfASucceededState: no client takes an item for one of the followed state, every
// waiting reader learns that there is another state, and delays are as long as they were.
func TestItemsOfASucceededState(t *testing.T) {
	file, _ := lived(1, 5, 1000, OpenHolder{Session: 1, TTLMS: 5000, DelayMS: 4000}, ItemAcquire{Name: "p/held", Session: 1},
		ItemAcquire{Name: "p/gone", Session: 1}, OpenHolder{Session: 2, TTLMS: 9000}, ItemAcquire{Name: "q", Session: 2}, EndSession{Session: 1}, ItemDelete{Name: "p/gone"})
	other, _ := lived(1, 9, 600_000, ItemPut{Name: "a"}, ItemPut{Name: "a", Value: "two"}, ItemPut{Name: "a", Value: "three"})
	for name, followed := range map[string]*Machine{"of items": other, "without items": New()} {
		m := reread(t, file)
		if err := m.Succeed(Succession{Own: followed.StateHeader(), Index: 20, NowMS: 601_000}); err != nil {
			t.Fatal(name, err)
		}
		changes := max(file.changes, followed.changes) + 1<<32
		for _, item := range []string{"p/held", "q"} {
			view, _ := m.Item(item)
			if was, _ := file.Item(item); view.Version != changes || view.Created != was.Created || view.Session != was.Session {
				t.Errorf("%s: %s is %+v", name, item, view)
			}
		}
		for _, index := range []uint64{m.ItemIndex("a"), m.ItemIndex("p/held"), m.ItemsIndex("x"), m.ItemsIndex(""), m.HoldersIndex(), m.changes} {
			if index != changes {
				t.Errorf("%s: index %d, want %d", name, index, changes)
			}
		}
		for item, want := range map[string]int64{"p/held": 4000, "p/gone": 4000, "q": 0} {
			if left := m.delayOf(item); left != want {
				t.Errorf("%s: the delay of %s is %d", name, item, left)
			}
		}
		first := StartTerm{Term: 2, Leader: "n2", Limits: DefaultLimits(), Cluster: m.ClusterID()}
		m.Apply(21, EncodeEntry(605_000, encodeAll(plain(first))))
		if counts := m.ItemCounts(); counts.Shades != 0 || counts.Items != 2 || m.check() != nil {
			t.Errorf("%s: %+v, %v", name, counts, m.check())
		}
	}
	ended := reread(t, file)
	if err := ended.Succeed(Succession{Own: other.StateHeader(), Index: 20, EndSessions: true}); err != nil {
		t.Fatal(err)
	}
	if view, _ := ended.Item("q"); view.Session != 0 || view.Version <= file.changes {
		t.Errorf("after the end of all sessions: %+v", view)
	}
	old, _ := lived(2, 5, 0)
	old.changes = maxSucceeded + 1
	if old.Succeed(Succession{Own: other.StateHeader(), Index: 20}) == nil {
		t.Error("a state with more changes than any cluster makes is taken")
	}
}

// TestChangesPassLostJumps, as TestJumpsPassLostJumps: no version is given twice.
func TestChangesPassLostJumps(t *testing.T) {
	before := New()
	put := func(m *Machine, commands ...Command) uint64 {
		applied := m.Apply(m.Index()+1, EncodeEntry(0, encodeAll(plain(append(commands, ItemPut{Name: "a"})...))))
		return ofLast(applied).Version
	}
	lost := reread(t, before)
	if err := lost.Succeed(Succession{Own: lost.StateHeader(), Index: 9}); err != nil {
		t.Fatal(err)
	}
	succeeded := put(lost)
	first := StartTerm{Term: 1, Leader: "n1", Limits: DefaultLimits(), Jump: true}
	putBack := put(reread(t, before), first)
	recovered := reread(t, before)
	recovered.Recovered(ClusterID{2})
	last := put(recovered)
	if never := put(reread(t, before)); never >= succeeded || succeeded >= putBack || putBack >= last || recovered.ItemIndex("b") != last-1 {
		t.Errorf("versions %d, %d after a restore, %d after a jump, %d after a recovery", never, succeeded, putBack, last)
	}
}

// TestPropertyIndexes: no index of a name or a prefix falls while deletes are remembered, and
// every change of one below it moves it.
func TestPropertyIndexes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSequence(t)
		s.g.setup()
		s.g.ops, s.g.index = itemOps, 0
		indexes := map[string]uint64{}
		for range 60 {
			e := s.g.entry()
			e.stampMS = min(e.stampMS, 500_000)
			e.bytes = restamped(e)
			changed := map[string]bool{}
			for _, effect := range s.step(e).Effects {
				changed[effect.Item] = effect.Item != ""
			}
			for _, name := range drawnItems {
				now, was := s.machine.ItemIndex(name), indexes[name]
				if now < was || (now > was) != changed[name] && s.machine.jumped < now {
					s.fail(fmt.Errorf("index of %q: %d after %d, changed: %v", name, now, was, changed[name]))
				}
				indexes[name] = now
			}
			for _, prefix := range drawnPrefixes {
				below := slices.ContainsFunc(drawnItems, func(name string) bool { return changed[name] && strings.HasPrefix(name, prefix) })
				now, was := s.machine.ItemsIndex(prefix), indexes[prefix+"*"]
				if now < was || below && now == was {
					s.fail(fmt.Errorf("index below %q: %d after %d, changed: %v", prefix, now, was, below))
				}
				indexes[prefix+"*"] = now
			}
		}
	})
}

// restamped encodes an entry again, with its stamp.
func restamped(e sentEntry) []byte {
	d := newDecoder(e.bytes)
	d.Byte()
	d.Int()
	count := d.Count(1)
	var commands [][]byte
	for range count {
		commands = append(commands, d.Bytes(d.Uint()))
	}
	return EncodeEntry(e.stampMS, commands)
}
