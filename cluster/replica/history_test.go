package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
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

// eventsOf writes a page as "index.ordinal …, next".
func eventsOf(page EventPage) string {
	var reports []string
	for _, e := range page.Entries {
		for i := range e.Effects {
			reports = append(reports, fmt.Sprintf("%d.%d", e.Index, e.Before+i+1))
		}
	}
	return fmt.Sprintf("%s; next %d.%d", strings.Join(reports, " "), page.Next.Index, page.Next.Ordinal)
}

func TestHistoryGoesOnAfterAnyEvent(t *testing.T) {
	h := newHistory(100, 1<<20)
	for index, effects := range []int{0, 2, 0, 3, 1, 0} { // a tick has no effects
		if index > 0 {
			h.applied(eventsEntry(uint64(index), effects))
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
	h.applied(eventsEntry(6, 3))
	if page, err := h.after(EventID{6, 2}); err != nil || eventsOf(page) != "6.3; next 6.0" {
		t.Errorf("once it has come: %s, %v", eventsOf(page), err)
	}
}

// TestHistoryComesInPages: a reader of all pages reads every event once.
// TestHistoryIsReadBackwards: page by page, each entry once, and no further than it goes.
func TestHistoryIsReadBackwards(t *testing.T) {
	h := newHistory(200, 1<<20)
	for index := range uint64(300) {
		h.applied(eventsEntry(index+1, 1))
	}
	want := uint64(300)
	for page := h.before(1 << 63); len(page) > 0; page = h.before(page[0].Index) {
		for _, e := range slices.Backward(page) {
			if e.Index != want || len(page) > eventPageEntries {
				t.Fatalf("entry %d in a page of %d, want %d", e.Index, len(page), want)
			}
			want--
		}
	}
	if want != 100 {
		t.Errorf("the oldest entry was %d", want+1)
	}
}

func TestHistoryComesInPages(t *testing.T) {
	h := newHistory(100_000, 1<<30)
	want := 0
	for index := uint64(1); index <= 300; index++ {
		effects := int(index * 7 % 40)
		h.applied(eventsEntry(index, effects))
		want += effects
	}
	at, got, pages := EventID{}, 0, 0
	for last := (EventID{}); ; pages++ {
		page, err := h.after(at)
		must(t, err)
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

// TestHistoryIsBounded: by events and by bytes; a reader of forgotten ones gets an error.
func TestHistoryIsBounded(t *testing.T) {
	for name, h := range map[string]*history{
		"events": newHistory(10, 1<<30), "bytes": newHistory(1<<30, 11*(entryBytes+effectBytes+1)),
	} {
		for index := uint64(1); index <= 1000; index++ {
			h.applied(eventsEntry(index, 1))
			if h.events > h.maxEvents || h.bytes > h.maxBytes || len(h.entries) > 30 {
				t.Fatalf("%s: %d events, %d bytes, %d entries", name, h.events, h.bytes, len(h.entries))
			}
		}
		for i, e := range h.entries[:cap(h.entries)] {
			if held := e.Effects != nil; held != (i >= h.head && i < len(h.entries)) {
				t.Errorf("%s: entry %d of %d holds its effects: %v", name, i, len(h.entries), held)
			}
		}
		if _, err := h.after(EventID{Index: h.floor - 1}); !errors.Is(err, outcome.ErrHistoryGone) {
			t.Errorf("%s: before the floor: %v", name, err)
		}
		if _, err := h.after(EventID{h.floor, 1}); !errors.Is(err, outcome.ErrHistoryGone) {
			t.Errorf("%s: within what is gone: %v", name, err)
		}
		if page, err := h.after(EventID{Index: h.floor}); err != nil || len(page.Entries) < 10 || page.Entries[0].Index != h.floor+1 {
			t.Errorf("%s: after the floor: %s, %v", name, eventsOf(page), err)
		}
	}
	h := newHistory(10, 1<<30)
	h.applied(eventsEntry(1, 11)) // alone beyond the bound
	if _, err := h.after(EventID{}); !errors.Is(err, outcome.ErrHistoryGone) || h.events != 0 || h.bytes != 0 {
		t.Errorf("%v, with %d events of %d bytes", err, h.events, h.bytes)
	}
	long := eventsEntry(2, 1)
	long.Effects[0].Details = &fsm.EffectDetails{Metadata: []fsm.Pair{{Key: "k", Value: strings.Repeat("v", 1000)}}}
	h.applied(long)
	if h.bytes != entryBytes+effectBytes+detailsBytes+1002 {
		t.Errorf("metadata counts %d bytes", h.bytes)
	}
}

// TestHistoryAfterARestore: the state has jumped over the entries that led to it, and
// also when it has jumped back.
func TestHistoryAfterARestore(t *testing.T) {
	for name, to := range map[string]uint64{"on": 20, "back": 3} {
		h := newHistory(100, 1<<20)
		for index := uint64(1); index <= 9; index++ {
			h.applied(eventsEntry(index, 1))
		}
		page, _ := h.after(EventID{Index: 9})
		h.restored(to)
		for _, id := range []EventID{{}, {3, 0}, {8, 1}, {9, 0}, {9, 1}} {
			if _, err := h.after(id); !errors.Is(err, outcome.ErrHistoryGone) {
				t.Errorf("%s: after %v: %v", name, id, err)
			}
		}
		h.news.Ring()
		select {
		case <-page.News:
		default:
			t.Errorf("%s: a waiting reader is not woken", name)
		}
		h.applied(eventsEntry(21, 1))
		if page, err := h.after(EventID{Index: 20}); err != nil || eventsOf(page) != "21.1; next 21.0" {
			t.Errorf("%s: %s, %v", name, eventsOf(page), err)
		}
	}
}

// TestHistoryWakesAtItsPace: all readers that wait, at once the first time, then not
// for each entry.
func TestHistoryWakesAtItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(10_000, 1<<30)
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
			h.applied(eventsEntry(index, 1))
			time.Sleep(eventPace / 20) // virtual: between two entries
		}
		synctest.Wait()
		if woken := wakes.Load() / wait; woken < 95 || woken > 105 {
			t.Errorf("woken %d times in 100 paces", woken)
		}
	})
}

// hashOf makes recognisable hashes.
func hashOf(b byte) [16]byte { return [16]byte{b} }

func allOf(h *Hashes) (all []stateHash) {
	for index, hash := range h.All() {
		all = append(all, stateHash{index, hash})
	}
	return all
}

func TestHashesKeepsTheLastEntryAtOrBelow(t *testing.T) {
	for name, c := range map[string]struct {
		noted []uint64 // indexes of the machine's entries; the hash is the position + 1
		want  []stateHash
	}{
		"an entry at the index":      {[]uint64{4095, 4096, 4097}, []stateHash{{4096, hashOf(2)}}},
		"raft's own at the index":    {[]uint64{4094, 4099}, []stateHash{{4096, hashOf(1)}}},
		"both":                       {[]uint64{4095, 4097, 8192}, []stateHash{{4096, hashOf(1)}, {8192, hashOf(3)}}},
		"next entry is at the next":  {[]uint64{4090, 8192}, []stateHash{{4096, hashOf(1)}, {8192, hashOf(2)}}},
		"nothing before":             {[]uint64{5000}, nil},
		"nothing before, at it":      {[]uint64{4096}, []stateHash{{4096, hashOf(1)}}},
		"the index itself, then far": {[]uint64{4096, 8191}, []stateHash{{4096, hashOf(1)}}},
	} {
		t.Run(name, func(t *testing.T) {
			var h Hashes
			for i, index := range c.noted {
				h.note(index, hashOf(byte(i+1)))
			}
			if got := allOf(&h); !slices.Equal(got, c.want) {
				t.Errorf("kept %v, want %v", got, c.want)
			}
		})
	}
}

func TestHashesForgets(t *testing.T) {
	var h Hashes
	for k := range uint64(100) {
		h.note((k+1)*HashEvery, hashOf(byte(k)))
	}
	kept := allOf(&h)
	if len(kept) != HashesKept || kept[len(kept)-1].index != 100*HashEvery || kept[0].index != (100-HashesKept+1)*HashEvery {
		t.Fatalf("kept %v", kept)
	}
	h.restored(0, [16]byte{})
	h.note(101*HashEvery+5, hashOf(1)) // the snapshot hides the entry before it
	if got := allOf(&h); len(got) != 0 {
		t.Fatalf("kept %v over a restore", got)
	}
}

// TestHashesOfTheLastEntries: each of the last entries' hashes can be asked for, and
// not of an index that was jumped over.
func TestHashesOfTheLastEntries(t *testing.T) {
	var h Hashes
	if index, _ := h.Latest(); index != 0 {
		t.Errorf("without an entry the latest is at %d", index)
	}
	h.note(7, hashOf(7))
	h.note(9, hashOf(9)) // 8 was Raft's own
	h.note(7+HashEvery, hashOf(1))
	for index, want := range map[uint64]byte{7: 0, 8: 0, 9: 9, 7 + HashEvery: 1, 0: 0} {
		if hash, known := h.At(index); known != (want != 0) || known && hash != hashOf(want) {
			t.Errorf("at %d: %x, %v", index, hash, known)
		}
	}
	h.restored(50, hashOf(50))
	if index, hash := h.Latest(); index != 50 || hash != hashOf(50) {
		t.Errorf("after a restore the latest is %x at %d", hash, index)
	}
	if _, known := h.At(9); known {
		t.Error("a hash from before the restore is known")
	}
}
