package exchange

import (
	"context"
	"runtime"
	"sync/atomic"
)

// budget bounds the memory that concurrent requests use together. It is safe for concurrent use.
type budget struct {
	limit int64
	used  atomic.Int64

	rule, content, flag string // parts of the text of a refusal
}

// tryAdd adds bytes if they fit into the budget. 0 bytes always fit, even after add has exceeded the budget.
func (b *budget) tryAdd(bytes int64) bool {
	if bytes == 0 || b.used.Add(bytes) <= b.limit {
		return true
	}
	b.used.Add(-bytes)
	return false
}

// add adds bytes even if they exceed the budget, for a reply that can no longer be refused.
func (b *budget) add(bytes int64) { b.used.Add(bytes) }

func (b *budget) subtract(bytes int64) { b.used.Add(-bytes) }

// refusal returns the problem of a request for which the budget has no room.
func (b *budget) refusal() *Problem {
	return LimitReached(b.rule, b.limit, "This node has no room for more "+b.content+" at the moment (--"+b.flag+
		"). The request had no effect; try again later, or at another node.")
}

const (
	// The first bytes of each body and of each reply do not count for the budgets, so that small requests succeed even
	// if a budget is full. The number of connections bounds them.
	freeBodyBytes  = 4 << 10
	freeReplyBytes = 16 << 10
)

// ReplyMemory bounds the memory of all replies that clients have not taken, and of the
// large replies that are being built. It is safe for concurrent use.
type ReplyMemory struct {
	budget
	builders chan struct{} // holds a value for each large reply that is being built
}

// newReplyMemory returns an empty budget. Two requests for each processor may build a large reply at a time. Building is
// CPU work without waits and takes several times the reply's memory, so more of them would cost memory and save no time.
func newReplyMemory(limit int64) *ReplyMemory {
	return &ReplyMemory{budget{limit: limit, rule: "reply-memory", content: "large replies", flag: "max-reply-memory"},
		make(chan struct{}, 2*runtime.GOMAXPROCS(0))}
}

// Reserve reserves room for a reply of about this many bytes, before the reply is built. The caller passes reserved to
// Release.
func (m *ReplyMemory) Reserve(bytes int64) (reserved int64, ok bool) {
	reserved = countedReply(bytes)
	return reserved, m.tryAdd(reserved)
}

// Release releases the bytes that Reserve has reserved.
func (m *ReplyMemory) Release(reserved int64) { m.subtract(reserved) }

// CheckRoom returns a refusal if unread replies exceed the budget. A request that changes the state calls CheckRoom
// before the change, because its reply can't be refused afterwards.
func (m *ReplyMemory) CheckRoom() error {
	if m.used.Load() > m.limit {
		return m.refusal()
	}
	return nil
}

// BeginLarge blocks until this request may build a large reply, or fails with ctx's error if
// the client hangs up first. The caller calls EndLarge before the reply is sent.
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
