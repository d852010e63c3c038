package logs

import (
	"math/rand/v2"
	"testing"
)

// TestSpans compares them with a set of indexes.
func TestSpans(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		var s spans
		set := map[uint64]bool{}
		for range 60 {
			index := 1 + r.Uint64N(30)
			if r.IntN(4) == 0 {
				last := index + r.Uint64N(10)
				s = s.without(index, last)
				for ; index <= last; index++ {
					delete(set, index)
				}
			} else {
				s, set[index] = s.with(index), true
			}
			first, last := uint64(0), uint64(0)
			for index := uint64(1); index < 50; index++ {
				if s.has(index) != set[index] {
					t.Fatalf("%v has %d: %t", s, index, s.has(index))
				}
				if set[index] && first == 0 {
					first = index
				}
				if set[index] {
					last = index
				}
			}
			if gotFirst, gotLast := s.ends(); gotFirst != first || gotLast != last {
				t.Fatalf("%v ends at %d and %d instead of %d and %d", s, gotFirst, gotLast, first, last)
			}
			for i := 1; i < len(s); i++ {
				if s[i-1].last+1 >= s[i].first {
					t.Fatalf("%v is not in order", s)
				}
			}
		}
	}
}

// TestExtent compares it with a set of indexes: what it is sure of is there, and it ends at or beyond what is there.
func TestExtent(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range 300 {
		var e Extent
		set := map[uint64]bool{}
		for range 60 {
			index := 1 + r.Uint64N(30)
			before := e
			if r.IntN(4) == 0 {
				last := index + r.Uint64N(10)
				e = e.without(index, last)
				for ; index <= last; index++ {
					delete(set, index)
				}
			} else {
				e, set[index] = e.with(index), true
				if adjacent := before.Last > 0 && before.sure() && (index == before.Last+1 || index+1 == before.From); adjacent && !(e.holds(index) && e.holds(before.From)) {
					t.Fatalf("%+v with %d is %+v", before, index, e)
				}
			}
			for index := uint64(1); index < 50; index++ {
				if e.holds(index) && !set[index] {
					t.Fatalf("%+v holds %d, which is not there", e, index)
				}
				if set[index] && (index < e.First || index > e.Last) {
					t.Fatalf("%+v leaves out %d", e, index)
				}
			}
		}
	}
}
