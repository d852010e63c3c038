//go:build unix

package fsm

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// pages is a machine with one semaphore, for sessions that come and go.
type pages struct {
	*testing.T
	m     *Machine
	index uint64
	last  uint64 // session opened
}

func newPages(t *testing.T, permits int64) *pages {
	p := &pages{T: t, m: New()}
	p.apply(CreateSemaphore{Name: "db", Permits: permits})
	return p
}

func (p *pages) apply(c Command) {
	p.Helper()
	p.index++
	applied := p.m.Apply(p.index, EncodeEntry(int64(p.index), [][]byte{Envelope{}.Encode(c)}))
	if code := applied.Commands[0].Result.Code; code != OK && code != Waiting {
		p.Fatalf("%+v: %v", c, code)
	}
}

// join has a new session acquire, or wait.
func (p *pages) join() (sessionID uint64) {
	p.last++
	p.apply(OpenSession{Session: p.last, TTLMS: MaxTTLMS})
	p.apply(Acquire{Session: p.last, Name: "db", Count: 1, TTLMS: KeepTTL})
	return p.last
}

// TestHoldersAfterAnyToken compares pages after every token, given or gone, with the whole list,
// while the list grows and shrinks at random places through the sizes at which its index begins
// and ends. check looks at the index after each step.
func TestHoldersAfterAnyToken(t *testing.T) {
	p, chance := newPages(t, 1<<20), rand.New(rand.NewPCG(1, 2))
	var held []uint64 // sessions, oldest first
	release := func(i int) {
		p.apply(Release{Session: held[i], Name: "db"})
		held = slices.Delete(held, i, i+1)
	}
	for step, target := range []int{192, 191, 260, 62, 300, 64, 66, 63, 150, 0, 70} {
		for len(held) != target {
			switch n := len(held); {
			case n < target || step > 3 && chance.IntN(4) == 0:
				held = append(held, p.join())
			case step <= 3:
				release(n - 1) // the newest, at the end of the index
			case chance.IntN(3) == 0:
				release(0)
			default:
				release(chance.IntN(n))
			}
			if err := p.m.check(); err != nil {
				t.Fatal(err)
			}
		}
		all := p.m.Holders("db", 0, 1<<20)
		if len(all) != target {
			t.Fatalf("%d holders, want %d", len(all), target)
		}
		for token := uint64(0); token <= p.m.tokens+1; token++ {
			want := slices.DeleteFunc(slices.Clone(all), func(l LeaseView) bool { return l.Token <= token })
			got := p.m.Holders("db", token, 7)
			if len(got) != min(7, len(want)) || len(got) > 0 && (got[0].Token != want[0].Token || got[len(got)-1].Session != want[len(got)-1].Session) {
				t.Fatalf("%d holders, after token %d: %+v", target, token, got)
			}
		}
		restored := p.restored()
		if got := restored.Holders("db", 0, 1<<20); len(got) != len(all) {
			t.Errorf("%d holders after a restore, want %d", len(got), len(all))
		}
	}
	if got := p.m.Holders("none", 0, 1); got != nil {
		t.Errorf("holders of no semaphore: %v", got)
	}
}

// restored is the machine that a snapshot makes.
func (p *pages) restored() *Machine {
	p.Helper()
	var snapshot bytes.Buffer
	err := p.m.Freeze().Write(&snapshot)
	if err != nil {
		p.Fatal(err)
	}
	m, err := Restore(&snapshot)
	if err != nil {
		p.Fatal(err)
	}
	if err := m.check(); err != nil {
		p.Fatal(err)
	}
	return m
}

// TestPagesAreBounded: a page far behind the first reads as many records as the first page does,
// and a walk of at most holderStride leases.
func TestPagesAreBounded(t *testing.T) {
	const holders, waiters, limit = 5000, 5000, 10
	p := newPages(t, holders)
	for range holders + waiters {
		p.join()
	}
	tokens := p.m.Holders("db", 0, holders)
	for i := 0; i < holders; i += 3 { // some tokens of the middle are gone
		p.apply(EndSession{Session: tokens[i].Session})
	}
	perHolder, perWaiter := 0, 0
	perHolder = touches(p.m, func() { p.m.Holders("db", 0, limit) })
	perWaiter = touches(p.m, func() { p.m.Waiters("db", LinePlace{}, limit) })
	for _, at := range []int{10, holders / 3 * 2, holders - 20, holders - 1} {
		for _, gone := range []int{0, 1} {
			token := tokens[min(at+gone, holders-1)].Token
			if n := touches(p.m, func() { p.m.Holders("db", token, limit) }); n > perHolder+2*holderStride+4 {
				t.Errorf("%d records read for the holders after the %dth, %d for the first", n, at, perHolder)
			}
		}
	}
	line := p.m.Waiters("db", LinePlace{}, waiters)
	for _, at := range []int{10, len(line) / 2, len(line) - 20} {
		got := []RequestView(nil)
		if n := touches(p.m, func() { got = p.m.Waiters("db", placeOf(line[at]), limit) }); n > perWaiter+4 {
			t.Errorf("%d records read for the waiters after the %dth, %d for the first", n, at, perWaiter)
		}
		if len(got) != limit || got[0].Place != line[at+1].Place || got[0].Position != int64(at)+2 || got[limit-1].Position != int64(at+limit)+1 {
			t.Errorf("%d waiters after the %dth, first %+v", len(got), at, got[:1])
		}
	}
	if got := p.m.Waiters("db", LinePlace{RankMS: p.m.nowMS, Place: p.m.places}, limit); len(got) > 0 {
		t.Errorf("waiters after the last one: %v", got)
	}
	if got := p.m.Waiters("db", LinePlace{RankMS: p.m.nowMS, Place: 1<<64 - 1}, limit); len(got) > 0 {
		t.Errorf("%d waiters after the highest number", len(got))
	}
}

func placeOf(r RequestView) LinePlace { return LinePlace{r.Group, r.RankMS, r.Place} }

// TestWaitersAfterOneThatIsGone: the place of a withdrawn request is still a place in the line.
func TestWaitersAfterOneThatIsGone(t *testing.T) {
	p := newPages(t, 1)
	for range 6 {
		p.join()
	}
	line := p.m.Waiters("db", LinePlace{}, 5)
	p.apply(EndSession{Session: line[2].Session})
	p.apply(EndSession{Session: line[0].Session})
	got := p.m.Waiters("db", placeOf(line[2]), 5)
	if len(got) != 2 || got[0].Place != line[3].Place || got[0].Position != 2 || got[1].Position != 3 {
		t.Errorf("after the third, which is gone: %+v", got)
	}
}

// TestLeasesAfter pages through the leases of a session, of which one is gone.
func TestLeasesAfter(t *testing.T) {
	p := newPages(t, 1)
	p.apply(OpenSession{Session: 7, TTLMS: MaxTTLMS})
	for _, name := range []string{"a", "b", "c", "d"} {
		p.apply(CreateSemaphore{Name: name, Permits: 1})
		p.apply(Acquire{Session: 7, Name: name, Count: 1, TTLMS: KeepTTL})
	}
	all := p.m.Leases(7)
	p.apply(Release{Session: 7, Name: "b"})
	after := func(sessionID, token uint64) (found string) {
		for l := range p.m.LeasesAfter(sessionID, token) {
			found += l.Semaphore
		}
		return found
	}
	if got := after(7, all[1].Token); len(all) != 4 || got != "cd" {
		t.Errorf("after b, which is gone: %s of %+v", got, all)
	}
	if got := after(7, all[3].Token) + after(8, 0); got != "" {
		t.Errorf("after the last one, and of no session: %s", got)
	}
}
