package exchange

import (
	"context"
	"testing"
)

// TestBudget: bytes are reserved while there is room. Forced bytes may exceed the budget; then only 0 bytes can be
// reserved.
func TestBudget(t *testing.T) {
	b := budget{limit: 10, rule: "body-memory", content: "bodies", flag: "max-body-memory"}
	if !b.tryAdd(10) || b.tryAdd(1) || b.used.Load() != 10 {
		t.Errorf("%d of 10 bytes are reserved", b.used.Load())
	}
	b.subtract(10)
	b.add(11)
	if b.tryAdd(1) || !b.tryAdd(0) {
		t.Error("a full budget takes a byte, or refuses none")
	}
	if p := b.refusal(); p.Code != "limit-reached" || p.Rule != "body-memory" || *p.Limit != 10 {
		t.Errorf("refused with %+v", p)
	}
}

// TestReplyMemory: the first bytes of a reply are free, and a large reply waits for its builder.
func TestReplyMemory(t *testing.T) {
	m := newReplyMemory(10)
	if reserved, ok := m.Reserve(freeReplyBytes + 10); reserved != 10 || !ok {
		t.Errorf("reserved %d, %v", reserved, ok)
	}
	if _, ok := m.Reserve(freeReplyBytes + 1); ok || m.CheckRoom() != nil {
		t.Error("a full budget takes a byte, or refuses a change")
	}
	m.add(1)
	if m.CheckRoom() == nil {
		t.Error("beyond the budget a change is taken")
	}
	for range cap(m.builders) {
		if err := m.BeginLarge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if m.BeginLarge(ended) == nil {
		t.Error("one more reply is built than there are builders")
	}
	m.EndLarge()
	if err := m.BeginLarge(t.Context()); err != nil {
		t.Error(err)
	}
}
