package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkBeliefs finds moments at which clients count on more permits than exist.
func checkBeliefs(beliefs []belief, permits map[string]int64) (broken []string) {
	type edge struct {
		at    int64
		count int64
		of    belief
	}
	edges := map[string][]edge{}
	for _, b := range beliefs {
		if b.to > b.from {
			edges[b.semaphore] = append(edges[b.semaphore], edge{b.from, b.count, b}, edge{b.to, -b.count, b})
		}
	}
	for name, list := range edges {
		slices.SortFunc(list, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.count, b.count)) })
		held := int64(0)
		for _, e := range list {
			if held += e.count; held > permits[name] && e.count > 0 {
				broken = append(broken, fmt.Sprintf("at %v clients count on %d permits of %s, which has %d: the last is token %d of session %s",
					time.Duration(e.at), held, name, permits[name], e.of.token, e.of.session))
			}
		}
	}
	return broken
}

// checkWrites finds writes that a resource should not have taken, or not refused. grants
// has the index of each grant.
func checkWrites(writes []write, grants map[grantKey]uint64) (broken []string) {
	newest := map[string]uint64{} // the index of the latest grant that a resource has taken a write of
	for _, w := range writes {
		granted, known := grants[grantKey{w.semaphore, w.session, w.token}]
		switch {
		case !known:
			broken = append(broken, fmt.Sprintf("at %v a write to %s with token %d of session %s, which no event has granted",
				time.Duration(w.at), w.semaphore, w.token, w.session))
		case w.accepted && granted < newest[w.semaphore]:
			broken = append(broken, fmt.Sprintf("at %v the resource of %s took a stale write: token %d of session %s, granted at index %d, after one granted at %d",
				time.Duration(w.at), w.semaphore, w.token, w.session, granted, newest[w.semaphore]))
		case !w.accepted && w.valid:
			broken = append(broken, fmt.Sprintf("at %v the resource of %s refused a valid write: token %d of session %s",
				time.Duration(w.at), w.semaphore, w.token, w.session))
		}
		if w.accepted {
			newest[w.semaphore] = max(newest[w.semaphore], granted)
		}
	}
	return broken
}

// checkIndexes finds reads that show an older state than a read that had returned before
// they were called.
func checkIndexes(reads []seenIndex) (broken []string) {
	ended := slices.Clone(reads)
	slices.SortFunc(ended, func(a, b seenIndex) int { return cmp.Compare(a.ret, b.ret) })
	called := slices.Clone(reads)
	slices.SortFunc(called, func(a, b seenIndex) int { return cmp.Compare(a.call, b.call) })
	newest, next := map[string]uint64{}, 0
	for _, r := range called {
		for ; next < len(ended) && ended[next].ret < r.call; next++ {
			newest[ended[next].semaphore] = max(newest[ended[next].semaphore], ended[next].index)
		}
		if r.index < newest[r.semaphore] {
			broken = append(broken, fmt.Sprintf("a read of %s, called at %v, shows index %d, after another one showed %d",
				r.semaphore, time.Duration(r.call), r.index, newest[r.semaphore]))
		}
	}
	return broken
}

// checkGrants finds leases that clients were given and that no event has granted.
func checkGrants(beliefs []belief, grants map[grantKey]uint64) (broken []string) {
	for _, b := range beliefs {
		if _, known := grants[grantKey{b.semaphore, b.session, b.token}]; !known {
			broken = append(broken, fmt.Sprintf("no event has granted token %d of %s to session %s, which a client got", b.token, b.semaphore, b.session))
		}
	}
	return broken
}
