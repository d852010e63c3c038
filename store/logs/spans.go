package logs

import "slices"

// span is a range of indexes, both ends included.
type span struct{ first, last uint64 }

// spans are which entries a log has, in order; no two of them touch. There is one, or two with
// a hole between them where a snapshot took over.
type spans []span

// with returns the spans and an index. It may change them.
func (s spans) with(index uint64) spans {
	if n := len(s); n > 0 && index == s[n-1].last+1 {
		s[n-1].last = index
		return s
	}
	if s.has(index) {
		return s
	}
	at := slices.IndexFunc(s, func(p span) bool { return p.first > index })
	if at < 0 {
		at = len(s)
	}
	s = slices.Insert(s, at, span{index, index})
	for _, left := range []int{at, at - 1} {
		if left >= 0 && left+1 < len(s) && s[left].last+1 == s[left+1].first {
			s[left].last = s[left+1].last
			s = slices.Delete(s, left+1, left+2)
		}
	}
	return s
}

// without returns the spans less those from first to last. It does not change them.
func (s spans) without(first, last uint64) (left spans) {
	for _, p := range s {
		if p.first < first {
			left = append(left, span{p.first, min(p.last, first-1)})
		}
		if p.last > last {
			left = append(left, span{max(p.first, last+1), p.last})
		}
	}
	return left
}

// has reports whether the log has the entry.
func (s spans) has(index uint64) bool {
	for i := len(s) - 1; i >= 0; i-- { // most look at the end
		if s[i].first <= index {
			return index <= s[i].last
		}
	}
	return false
}

// ends returns the lowest and the highest index, 0 if there is none.
func (s spans) ends() (first, last uint64) {
	if len(s) == 0 {
		return 0, 0
	}
	return s[0].first, s[len(s)-1].last
}
