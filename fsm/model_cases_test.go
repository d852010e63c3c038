package fsm

import "testing"

// Cases that random sequences meet too seldom to rely on, beside the model.

func plain(commands ...Command) (made []modelCommand) {
	for _, c := range commands {
		made = append(made, modelCommand{command: c})
	}
	return made
}

// TestHeadsOfSeveralLinesGoByPlace: permits that one command frees in several lines are
// granted by place, not in the order in which they were freed.
func TestHeadsOfSeveralLinesGoByPlace(t *testing.T) {
	b := newBeside(t)
	names := []string{"a", "b", "c", "d"}
	for i, name := range names {
		b.apply(0, plain(CreateSemaphore{Name: name, Permits: 1}, OpenSession{Session: uint64(i) + 1, TTLMS: 1000},
			OpenSession{Session: 9, TTLMS: 1000}, Acquire{Session: 9, Name: name, Count: 1, TTLMS: KeepTTL})...)
	}
	line := []string{"c", "a", "d", "b"} // in the order of their places
	for i, name := range line {
		b.apply(0, plain(Acquire{Session: uint64(i) + 1, Name: name, Count: 1, TTLMS: KeepTTL})...)
	}
	applied := b.apply(0, plain(EndSession{Session: 9})...)
	if len(applied.Conclusions) != len(line) {
		t.Fatalf("%d waits ended", len(applied.Conclusions))
	}
	for i, c := range applied.Conclusions {
		if g := c.Result.Grants[0]; c.Place != uint64(i)+1 || g.Semaphore != line[i] || g.Token != uint64(len(names)+i)+1 {
			t.Errorf("grant %d: place %d, %s, token %d", i, c.Place, g.Semaphore, g.Token)
		}
	}
}

// TestPoolPassesTheOldest1000Times: two groups that use less than the group of the oldest request
// pass it in turn; then it is granted all the same.
func TestPoolPassesTheOldest1000Times(t *testing.T) {
	b := newBeside(t)
	ask := func(sessionID uint64, group string) Command {
		return Acquire{Session: sessionID, Name: "pool", Group: group, Count: 1, TTLMS: KeepTTL}
	}
	b.apply(0, plain(CreateSemaphore{Name: "pool", Permits: 2, Settings: SettingsChange{Groups: given(ByRequest)}})...)
	for id := range uint64(4) {
		b.apply(0, plain(OpenSession{Session: id + 1, TTLMS: MaxTTLMS})...)
	}
	b.apply(0, plain(ask(1, "a"), ask(2, "b"), ask(3, "a"), ask(4, "c"))...) // 3 is the oldest that waits
	turns := []struct {
		session uint64
		group   string
	}{{2, "b"}, {4, "c"}}
	for passed := range 2000 {
		last := turns[passed%2]
		applied := b.apply(0, plain(Release{Session: last.session, Name: "pool", Group: last.group}, ask(last.session, last.group))...)
		if len(applied.Conclusions) != 1 {
			t.Fatalf("%d grants after %d", len(applied.Conclusions), passed)
		}
		if applied.Conclusions[0].Result.Session == 3 {
			if passed != mostPassed {
				t.Fatalf("the oldest was passed %d times", passed)
			}
			return
		}
	}
	t.Fatal("the oldest was never granted")
}

// TestListIsDeliveredInTurn: a delivery begins after the entry delivered last, so that a
// busy semaphore at the front of a list does not starve the others.
func TestListIsDeliveredInTurn(t *testing.T) {
	b := newBeside(t)
	add := func(name string) Command { return ListAdd{Session: 1, Name: name, Count: 1} }
	b.apply(0, plain(OpenSession{Session: 1, TTLMS: 1000}, CreateSemaphore{Name: "a"}, CreateSemaphore{Name: "b", Permits: 9},
		CreateSemaphore{Name: "c", Permits: 9}, add("a"), add("b"))...)
	first := b.apply(0, plain(ListDeliver{Session: 1})...).Commands[0].Result.Completed
	second := b.apply(0, plain(Up{Name: "a", Count: 1}, add("c"), ListDeliver{Session: 1})...).Commands[2].Result.Completed
	if len(first) != 1 || first[0].Semaphore != "b" {
		t.Fatalf("delivered first: %s", show(first))
	}
	if len(second) != 2 || second[0].Semaphore != "c" || second[1].Semaphore != "a" {
		t.Fatalf("delivered second: %s", show(second))
	}
}
