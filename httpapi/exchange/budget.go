package exchange

import (
	"context"
	"runtime"
	"sync/atomic"
)

// budget bounds the memory that concurrent requests may take together. It is safe for
// concurrent use.
type budget struct {
	max  int64
	used atomic.Int64

	rule, content, flag string // the words of a refusal
}

// reserve takes all of the bytes and reports whether there was room. 0 bytes always
// fit, even after force exceeded the budget.
func (b *budget) reserve(bytes int64) bool {
	if bytes == 0 || b.used.Add(bytes) <= b.max {
		return true
	}
	b.used.Add(-bytes)
	return false
}

// force takes bytes even without room, for a reply that can no longer be refused.
func (b *budget) force(bytes int64) { b.used.Add(bytes) }

// release gives reserved bytes back.
func (b *budget) release(bytes int64) { b.used.Add(-bytes) }

// refusal returns the problem of a request for which the budget has no room.
func (b *budget) refusal() *Problem {
	p := NewProblem("limit-reached", "This node has no room for more "+b.content+" at the moment (--"+b.flag+"). Nothing was done; try again later, or at another node.")
	limit := b.max
	p.Rule, p.Limit = b.rule, &limit
	return p
}

const (
	// freeBodyBytes of each body and freeReplyBytes of each reply do not count for the
	// budgets, so that a full budget stops no small request. The number of connections
	// bounds them.
	freeBodyBytes  = 4 << 10
	freeReplyBytes = 16 << 10
)

// ReplyMemory bounds the memory of replies: of all that clients have not taken, and of the large
// ones that are being built. It is safe for concurrent use.
type ReplyMemory struct {
	budget
	builders chan struct{} // holds a value for each large reply that is being built
}

// newReplyMemory returns an empty budget. Building a large reply takes a processor and several
// times the reply's memory, and never waits for a client: more builders than processors would
// cost memory and save no time.
func newReplyMemory(limit int64) *ReplyMemory {
	return &ReplyMemory{budget{max: limit, rule: "reply-memory", content: "large replies", flag: "max-reply-memory"},
		make(chan struct{}, 2*runtime.GOMAXPROCS(0))}
}

// Reserve reserves room for a reply of about so many bytes, before it is built.
// Release needs the result.
func (m *ReplyMemory) Reserve(bytes int64) (reserved int64, ok bool) {
	reserved = countedReply(bytes)
	return reserved, m.reserve(reserved)
}

// Release gives back what Reserve reserved.
func (m *ReplyMemory) Release(reserved int64) { m.release(reserved) }

// CheckRoom returns a refusal while the replies that clients have not taken exceed
// their budget. A request that changes something calls it before the change, since its
// reply can't be refused later.
func (m *ReplyMemory) CheckRoom() error {
	if m.used.Load() > m.max {
		return m.refusal()
	}
	return nil
}

// BeginLarge blocks until this request may build a large reply, or fails with ctx's error if the client hangs up
// first. EndLarge must follow, before the reply is sent.
func (m *ReplyMemory) BeginLarge(ctx context.Context) error {
	select {
	case m.builders <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// EndLarge lets the next request build a large reply.
func (m *ReplyMemory) EndLarge() { <-m.builders }

// countedReply returns how many bytes of a reply count for the budget.
func countedReply(bytes int64) int64 { return max(0, bytes-freeReplyBytes) }
