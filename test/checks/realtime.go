package checks

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Judge makes all checks of a run. rate is how much the clocks of the nodes may differ. It returns the violations, and
// the semaphores for whose operations an order was neither found nor excluded in time. If these are more than half of
// all, the run is void.
func Judge(h *History, events *EventLog, permits map[string]int64, rate float64) (broken, undecided []string) {
	entries, gap := events.All()
	log := Log(entries)
	disordered, undecided := Linear(h.Operations, permits, SearchTimeout)
	if len(undecided) > len(permits)/2 {
		disordered = append(disordered, fmt.Sprintf("void: no order was found or excluded within %v for %v", SearchTimeout, undecided))
	}
	broken = slices.Concat(events.Differ, log.Broken, h.lostEarly, Expiries(log.Ended, h.Deadlines, h.ttls, rate), Beliefs(h.Beliefs, permits),
		Writes(h.Writes, log.Grants), Indexes(h.Indexes), Grants(h.Beliefs, log.Grants), disordered)
	if gap > 0 {
		broken = append(broken, fmt.Sprintf("no node has shown the events of index %d", gap))
	}
	return broken, undecided
}

// Beliefs returns the moments at which clients count on more permits than exist.
func Beliefs(beliefs []Belief, permits map[string]int64) (broken []string) {
	type edge struct {
		at    int64
		count int64
		of    Belief
	}
	edges := map[string][]edge{}
	for _, b := range beliefs {
		if b.To > b.From {
			edges[b.Semaphore] = append(edges[b.Semaphore], edge{b.From, b.Count, b}, edge{b.To, -b.Count, b})
		}
	}
	for name, list := range edges {
		slices.SortFunc(list, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.count, b.count)) })
		held := int64(0)
		for _, e := range list {
			if held += e.count; held > permits[name] && e.count > 0 {
				broken = append(broken, fmt.Sprintf("at %v clients count on %d permits of %s, which has %d: the last is token %d of session %s",
					time.Duration(e.at), held, name, permits[name], e.of.Token, e.of.Session))
			}
		}
	}
	return broken
}

// Writes returns the writes that a resource accepted or refused wrongly. grants has the index of each grant.
func Writes(writes []Write, grants map[GrantKey]uint64) (broken []string) {
	newest := map[string]uint64{} // by resource: the index of the latest grant with an accepted write
	for _, w := range writes {
		granted, known := grants[GrantKey{w.Semaphore, w.Session, w.Token}]
		switch {
		case !known:
			broken = append(broken, fmt.Sprintf("at %v a write to %s with token %d of session %s, which no event has granted",
				time.Duration(w.At), w.Semaphore, w.Token, w.Session))
		case w.Accepted && granted < newest[w.Semaphore]:
			broken = append(broken, fmt.Sprintf("at %v the resource of %s took a stale write: token %d of session %s, granted at index %d, after one granted at %d",
				time.Duration(w.At), w.Semaphore, w.Token, w.Session, granted, newest[w.Semaphore]))
		case !w.Accepted && w.Valid:
			broken = append(broken, fmt.Sprintf("at %v the resource of %s refused a valid write: token %d of session %s",
				time.Duration(w.At), w.Semaphore, w.Token, w.Session))
		}
		if w.Accepted {
			newest[w.Semaphore] = max(newest[w.Semaphore], granted)
		}
	}
	return broken
}

// Indexes returns the reads that show an older state than a read that had returned before they were called.
func Indexes(reads []SeenIndex) (broken []string) {
	ended := slices.Clone(reads)
	slices.SortFunc(ended, func(a, b SeenIndex) int { return cmp.Compare(a.Ret, b.Ret) })
	called := slices.Clone(reads)
	slices.SortFunc(called, func(a, b SeenIndex) int { return cmp.Compare(a.Call, b.Call) })
	newest, next := map[string]uint64{}, 0
	for _, r := range called {
		for ; next < len(ended) && ended[next].Ret < r.Call; next++ {
			newest[ended[next].Semaphore] = max(newest[ended[next].Semaphore], ended[next].Index)
		}
		if r.Index < newest[r.Semaphore] {
			broken = append(broken, fmt.Sprintf("a read of %s, called at %v, shows index %d, after another one showed %d",
				r.Semaphore, time.Duration(r.Call), r.Index, newest[r.Semaphore]))
		}
	}
	return broken
}

// Grants returns the leases that clients got and that no event has granted.
func Grants(beliefs []Belief, grants map[GrantKey]uint64) (broken []string) {
	for _, b := range beliefs {
		if _, known := grants[GrantKey{b.Semaphore, b.Session, b.Token}]; !known {
			broken = append(broken, fmt.Sprintf("no event has granted token %d of %s to session %s, which a client got", b.Token, b.Semaphore, b.Session))
		}
	}
	return broken
}
