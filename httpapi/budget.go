package httpapi

import (
	"context"
	"runtime"
	"sync/atomic"
)

// budget bounds the bytes that requests under way may take together. Safe for
// concurrent use.
type budget struct {
	most int64
	used atomic.Int64
}

// take reserves bytes, all or none. No bytes need no room, also where insist has
// taken more than there is.
func (b *budget) take(bytes int64) bool {
	if bytes == 0 || b.used.Add(bytes) <= b.most {
		return true
	}
	b.used.Add(-bytes)
	return false
}

// insist reserves bytes even where there is no room: for what can't be refused any
// more.
func (b *budget) insist(bytes int64) { b.used.Add(bytes) }

// over reports whether more is taken than there is.
func (b *budget) over() bool { return b.used.Load() > b.most }

func (b *budget) give(bytes int64) { b.used.Add(-bytes) }

// full refuses what a budget has no room for.
func (b *budget) full(rule, what, flag string) *problem {
	p := newProblem("limit-reached", "This node has no room for more "+what+" at the moment (--"+flag+"). Nothing was done; try again later, or at another node.")
	most := b.most
	p.Rule, p.Limit = rule, &most
	return p
}

const (
	// freeBodyBytes of each body, and freeReplyBytes of each reply, count for no
	// budget, so that those who fill it keep no small request out. The number of
	// connections bounds them.
	freeBodyBytes  = 4 << 10
	freeReplyBytes = 16 << 10
)

// makers bounds how many large replies are put together at a time. That takes a
// processor and memory of several times the reply's size, and never waits for a
// client, so that more at once would only take more memory.
type makers chan struct{}

func newMakers() makers { return make(makers, 2*runtime.GOMAXPROCS(0)) }

// begin waits for a turn. A client that hangs up meanwhile has none made.
func (m makers) begin(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m makers) end() { <-m }
