package checks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// SearchTimeout bounds the search for an order of the operations on one semaphore.
const SearchTimeout = 30 * time.Second

// view is a semaphore as clients see it: its holders, the sum of all changes of its offset, and the highest token that
// a client knows.
type view struct {
	holders string // ";lease=count" by lease
	held    int64
	offset  int64
	token   uint64
}

// of returns the permits of a lease.
func (v view) of(lease string) int64 {
	_, rest, found := strings.Cut(v.holders, ";"+lease+"=")
	if !found {
		return 0
	}
	count, _, _ := strings.Cut(rest, ";")
	n, _ := strconv.ParseInt(count, 10, 64)
	return n
}

// knows reports whether holders has an entry of a lease. The entry of a withdrawn acquire may have no permits.
func (v view) knows(lease string) bool { return strings.Contains(v.holders, ";"+lease+"=") }

func (v view) without(lease string) view {
	if v.knows(lease) {
		n := v.of(lease)
		v.holders = strings.Replace(v.holders, fmt.Sprintf(";%s=%d", lease, n), "", 1)
		v.held -= n
	}
	return v
}

func (v view) with(lease string, count int64) view {
	list := append(strings.FieldsFunc(v.holders, func(r rune) bool { return r == ';' }), fmt.Sprintf("%s=%d", lease, count))
	slices.Sort(list)
	v.holders = ";" + strings.Join(list, ";")
	v.held += count
	return v
}

// step returns the states to which an operation may lead, and nil if the operation is impossible in this state.
func step(v view, o Operation, permits int64) []any {
	available := permits + v.offset - v.held
	switch o.Kind {
	case "acquire":
		return stepAcquire(v, o, available)
	case "withdraw": // of the acquire and its withdrawal, the first in the order adds an entry, the second removes it
		if v.knows(o.Lease) {
			return []any{v.without(o.Lease)}
		}
		return []any{v.with(o.Lease, 0)}
	case "release":
		if v.of(o.Lease) > 0 {
			return []any{v.without(o.Lease)}
		}
	case "drop":
		if v.of(o.Lease) == 0 {
			return []any{v}
		}
		return []any{v, v.without(o.Lease)}
	case "read":
		if o.Held == v.held && o.Available == available {
			return []any{v}
		}
	default:
		return stepUnowned(v, o, available)
	}
	return nil
}

func stepAcquire(v view, o Operation, available int64) []any {
	fits := o.Count <= available && v.of(o.Lease) == 0
	switch {
	case o.Outcome == Withdrawn && v.knows(o.Lease):
		return []any{v.without(o.Lease)}
	case o.Outcome == Withdrawn && fits:
		return []any{v.with(o.Lease, 0), v.with(o.Lease, o.Count)}
	case o.Outcome == Withdrawn:
		return []any{v.with(o.Lease, 0)}
	case o.Outcome == Unknown && fits:
		return []any{v, v.with(o.Lease, o.Count)}
	case o.Outcome == Unknown:
		return []any{v}
	case o.Outcome == Done && fits && o.Token > v.token:
		next := v.with(o.Lease, o.Count)
		next.token = o.Token
		return []any{next}
	case o.Outcome == Refused && !(o.Exact && o.Count <= available):
		return []any{v}
	}
	return nil
}

// stepUnowned is step for up, down and set.
func stepUnowned(v view, o Operation, available int64) []any {
	next := v
	switch o.Kind {
	case "up":
		next.offset += o.Count
	case "down":
		next.offset -= o.Count
	case "set":
		next.offset += o.Count - available
	}
	after := available + next.offset - v.offset
	possible := o.Kind != "down" || o.Count <= available
	switch {
	case o.Outcome == Unknown && possible:
		return []any{v, next}
	case o.Outcome == Unknown:
		return []any{v}
	case o.Outcome == Done && possible && (!o.Exact || o.Available == after):
		return []any{next}
	case o.Outcome == Refused && !(o.Exact && possible):
		return []any{v}
	}
	return nil
}

// Linear returns the semaphores whose operations have no order that explains them, and the semaphores for which the
// search did not end in time.
func Linear(operations []Operation, permits map[string]int64, within time.Duration) (broken, undecided []string) {
	parts := map[string][]porcupine.Operation{}
	for _, o := range operations {
		parts[o.Semaphore] = append(parts[o.Semaphore], porcupine.Operation{ClientId: o.Client, Input: o, Call: o.Call, Return: o.Ret})
	}
	for name, part := range parts {
		model := porcupine.NondeterministicModel{
			Init:  func() []any { return []any{view{}} },
			Step:  func(state, input, _ any) []any { return step(state.(view), input.(Operation), permits[name]) },
			Equal: func(a, b any) bool { return a == b },
		}
		switch result, info := porcupine.CheckOperationsVerbose(model.ToModel(), part, within); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			undecided = append(undecided, name)
		default:
			broken = append(broken, fmt.Sprintf("%d operations of %s have no order; about where the longest ends:\n%s", len(part), name, around(part, info)))
		}
	}
	slices.Sort(broken)
	return broken, undecided
}

// around describes the operations near the end of the longest order that was found.
func around(part []porcupine.Operation, info porcupine.LinearizationInfo) string {
	longest := 0
	inOrder := map[int]bool{}
	for _, partial := range info.PartialLinearizations() {
		for _, order := range partial {
			if len(order) > longest {
				longest = len(order)
				clear(inOrder)
				for _, i := range order {
					inOrder[i] = true
				}
			}
		}
	}
	var near []string
	list := make([]Operation, 0, len(part))
	left := map[Operation]bool{}
	for i, p := range part {
		o := p.Input.(Operation)
		list = append(list, o)
		left[o] = !inOrder[i]
	}
	slices.SortFunc(list, func(a, b Operation) int { return int(a.Call - b.Call) })
	first := slices.IndexFunc(list, func(o Operation) bool { return left[o] })
	for i := max(0, first-25); i < min(len(list), first+10); i++ {
		mark := " "
		if left[list[i]] {
			mark = "?"
		}
		near = append(near, mark+" "+list[i].String())
	}
	return Tail(near, 40)
}
