package fsm

import (
	"cmp"
	"math"
	"slices"

	"github.com/tidwall/btree"
)

// askedCounts finds the requests for leases of one line by the count that they ask
// for, so that those that have become impossible are found without a walk through
// the line.
type askedCounts struct {
	byCount btree.Map[int64, *btree.Map[uint64, ref]] // then by place
}

func (a *askedCounts) add(count int64, place uint64, waiting ref) {
	places, ok := a.byCount.Get(count)
	if !ok {
		places = &btree.Map[uint64, ref]{}
		a.byCount.Set(count, places)
	}
	places.Set(place, waiting)
}

func (a *askedCounts) remove(count int64, place uint64) {
	places, _ := a.byCount.Get(count)
	if places.Delete(place); places.Len() == 0 {
		a.byCount.Delete(count)
	}
}

// above returns up to most requests that ask for more than count, the largest
// first, in the order of their places. A negative most is no bound.
func (a *askedCounts) above(count int64, most int) (found []ref) {
	type waiter struct {
		place   uint64
		waiting ref
	}
	var list []waiter
	a.byCount.Reverse(func(asked int64, places *btree.Map[uint64, ref]) bool {
		if asked <= count {
			return false
		}
		places.Scan(func(place uint64, waiting ref) bool {
			list = append(list, waiter{place, waiting})
			return len(list) != most
		})
		return len(list) != most
	})
	slices.SortFunc(list, func(x, y waiter) int { return cmp.Compare(x.place, y.place) })
	for _, w := range list {
		found = append(found, w.waiting)
	}
	return found
}

// largest returns the largest count asked for, or math.MinInt64.
func (a *askedCounts) largest() int64 {
	if count, _, ok := a.byCount.Max(); ok {
		return count
	}
	return math.MinInt64
}
