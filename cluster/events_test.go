package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/fsm"
)

// eventsEntry is an entry with so many effects.
func eventsEntry(index uint64, effects int) *fsm.Applied {
	a := &fsm.Applied{Index: index, NowMS: int64(index) * 10}
	for i := range effects {
		a.Effects = append(a.Effects, fsm.Effect{Kind: fsm.EffectGranted, Semaphore: "a", Count: int64(i + 1)})
	}
	return a
}

// eventsOf tells a page as "index.ordinal …, next".
func eventsOf(page EventPage) string {
	var told []string
	for _, e := range page.Entries {
		for i := range e.Effects {
			told = append(told, fmt.Sprintf("%d.%d", e.Index, e.Before+i+1))
		}
	}
	return fmt.Sprintf("%s; next %d.%d", strings.Join(told, " "), page.Next.Index, page.Next.Ordinal)
}

func TestHistoryGoesOnAfterAnyEvent(t *testing.T) {
	h := newEventHistory(100, 1<<20)
	for index, effects := range []int{0, 2, 0, 3, 1, 0} { // a tick has none
		if index > 0 {
			h.deliver(eventsEntry(uint64(index), effects))
		}
	}
	for _, c := range []struct {
		after EventID
		want  string
	}{
		{EventID{}, "1.1 1.2 3.1 3.2 3.3 4.1; next 5.0"},
		{EventID{1, 0}, "3.1 3.2 3.3 4.1; next 5.0"},
		{EventID{1, 1}, "1.2 3.1 3.2 3.3 4.1; next 5.0"},
		{EventID{1, 2}, "3.1 3.2 3.3 4.1; next 5.0"},
		{EventID{2, 7}, "3.1 3.2 3.3 4.1; next 5.0"}, // never was, and harmless
		{EventID{3, 2}, "3.3 4.1; next 5.0"},
		{EventID{3, 3}, "4.1; next 5.0"},
		{EventID{4, 1}, "; next 5.0"},
		{EventID{5, 0}, "; next 5.0"},
		{EventID{6, 2}, "; next 6.2"}, // another node was further
	} {
		page, err := h.after(c.after)
		if err != nil || eventsOf(page) != c.want || page.News == nil {
			t.Errorf("after %v: %s, %v; want %s", c.after, eventsOf(page), err, c.want)
		}
	}
	h.deliver(eventsEntry(6, 3))
	if page, err := h.after(EventID{6, 2}); err != nil || eventsOf(page) != "6.3; next 6.0" {
		t.Errorf("once it has come: %s, %v", eventsOf(page), err)
	}
}

// TestHistoryComesInPages: whoever reads page by page reads all, and once.
func TestHistoryComesInPages(t *testing.T) {
	h := newEventHistory(100_000, 1<<30)
	want := 0
	for index := uint64(1); index <= 300; index++ {
		effects := int(index * 7 % 40)
		h.deliver(eventsEntry(index, effects))
		want += effects
	}
	at, got, pages := EventID{}, 0, 0
	for last := (EventID{}); ; pages++ {
		page, err := h.after(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			if e.Index <= last.Index {
				t.Fatalf("entry %d after %d", e.Index, last.Index)
			}
			last.Index = e.Index
			got += len(e.Effects)
		}
		if at = page.Next; page.News != nil {
			break
		}
		if len(page.Entries) > eventPageEntries {
			t.Fatalf("a page of %d entries", len(page.Entries))
		}
	}
	if got != want || pages < 5 || at.Index != 300 {
		t.Errorf("%d events of %d in %d pages, up to %d", got, want, pages, at.Index)
	}
}

// TestHistoryIsBounded: by events and by bytes, and says what is gone.
func TestHistoryIsBounded(t *testing.T) {
	for name, h := range map[string]*eventHistory{
		"events": newEventHistory(10, 1<<30), "bytes": newEventHistory(1<<30, 11*(entryBytes+effectBytes+1)),
	} {
		for index := uint64(1); index <= 1000; index++ {
			h.deliver(eventsEntry(index, 1))
			if h.events > h.maxEvents || h.bytes > h.maxBytes || len(h.entries) > 30 {
				t.Fatalf("%s: %d events, %d bytes, %d entries", name, h.events, h.bytes, len(h.entries))
			}
		}
		for i, e := range h.entries[:cap(h.entries)] {
			if held := e.Effects != nil; held != (i >= h.head && i < len(h.entries)) {
				t.Errorf("%s: entry %d of %d holds its effects: %v", name, i, len(h.entries), held)
			}
		}
		if _, err := h.after(EventID{Index: h.floor - 1}); !errors.Is(err, ErrHistoryGone) {
			t.Errorf("%s: before the floor: %v", name, err)
		}
		if _, err := h.after(EventID{h.floor, 1}); !errors.Is(err, ErrHistoryGone) {
			t.Errorf("%s: within what is gone: %v", name, err)
		}
		if page, err := h.after(EventID{Index: h.floor}); err != nil || len(page.Entries) < 10 || page.Entries[0].Index != h.floor+1 {
			t.Errorf("%s: after the floor: %s, %v", name, eventsOf(page), err)
		}
	}
	h := newEventHistory(10, 1<<30)
	h.deliver(eventsEntry(1, 11)) // beyond the bound by itself
	if _, err := h.after(EventID{}); !errors.Is(err, ErrHistoryGone) || h.events != 0 || h.bytes != 0 {
		t.Errorf("%v, with %d events of %d bytes", err, h.events, h.bytes)
	}
	long := eventsEntry(2, 1)
	long.Effects[0].Metadata = []fsm.Pair{{Key: "k", Value: strings.Repeat("v", 1000)}}
	h.deliver(long)
	if h.bytes < 1000 {
		t.Errorf("metadata counts %d bytes", h.bytes)
	}
}

// TestHistoryAfterARestore: the machine has jumped over what led there, and also
// when it has jumped back.
func TestHistoryAfterARestore(t *testing.T) {
	for name, to := range map[string]uint64{"on": 20, "back": 3} {
		h := newEventHistory(100, 1<<20)
		for index := uint64(1); index <= 9; index++ {
			h.deliver(eventsEntry(index, 1))
		}
		page, _ := h.after(EventID{Index: 9})
		h.restored(to)
		for _, id := range []EventID{{}, {3, 0}, {8, 1}, {9, 0}, {9, 1}} {
			if _, err := h.after(id); !errors.Is(err, ErrHistoryGone) {
				t.Errorf("%s: after %v: %v", name, id, err)
			}
		}
		h.wake()
		select {
		case <-page.News:
		default:
			t.Errorf("%s: who waits is not told", name)
		}
		h.deliver(eventsEntry(21, 1))
		if page, err := h.after(EventID{Index: 20}); err != nil || eventsOf(page) != "21.1; next 21.0" {
			t.Errorf("%s: %s, %v", name, eventsOf(page), err)
		}
	}
}

// TestHistoryWakesAtItsPace: all who wait, at once the first time, then not for
// each entry.
func TestHistoryWakesAtItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newEventHistory(10_000, 1<<30)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go h.run(ctx)
		const wait = 10
		var wakes atomic.Int64
		for range wait {
			go func() {
				for at := (EventID{}); ctx.Err() == nil; wakes.Add(1) {
					page, err := h.after(at)
					if at = page.Next; err != nil || page.News == nil {
						t.Errorf("after %v: %v", at, err)
						return
					}
					select {
					case <-page.News:
					case <-ctx.Done():
					}
				}
			}()
		}
		synctest.Wait()
		for index := uint64(1); index <= 2000; index++ {
			h.deliver(eventsEntry(index, 1))
			time.Sleep(eventPace / 20) // virtual: between two entries
		}
		synctest.Wait()
		if woken := wakes.Load() / wait; woken < 95 || woken > 105 {
			t.Errorf("woken %d times in 100 paces", woken)
		}
	})
}

// TestEventsAfterARestart: a node that starts again has the history since its
// snapshot, under the same ids, and says that the rest is gone.
func TestEventsAfterARestart(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		holder := taken(c, "db")
		n := c.others(c.leader())[0]
		_, at := c.read(n, "db")
		before, err := n.EventsAfter(EventID{})
		c.must(err)
		c.must(n.raft.Snapshot().Error())
		c.kill(n)
		c.do(c.leader(), fsm.Release{Session: holder, Name: "db"}, fsm.OK)
		c.revive(n)
		_, later := c.read(n, "db")
		if _, err := n.EventsAfter(EventID{}); !errors.Is(err, ErrHistoryGone) {
			t.Errorf("what a snapshot has jumped over: %v", err)
		}
		mine, err := n.EventsAfter(EventID{Index: at.Index})
		c.must(err)
		others, err := c.leader().EventsAfter(EventID{Index: at.Index})
		c.must(err)
		if got := eventsOf(mine); got != eventsOf(others) || !strings.Contains(got, ".1") || later.Index <= at.Index {
			t.Errorf("after the restart %s, elsewhere %s", got, eventsOf(others))
		}
		if len(before.Entries) == 0 {
			t.Error("there was nothing to lose")
		}
	})
}
