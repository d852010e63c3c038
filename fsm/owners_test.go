package fsm

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestPropertyOwnersStayWithinTheirLimits: whatever is applied, an owner all of whose
// commands carry the same limits never has more than these, if every session has an owner.
func TestPropertyOwnersStayWithinTheirLimits(t *testing.T) {
	t.Parallel()
	reached := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		s := newSequence(t)
		may := OwnerLimits{Sessions: 1 + int64(s.g.below(4)), Leases: 1 + int64(s.g.below(4)), Waiting: 1 + int64(s.g.below(3))}
		s.step(s.g.setup())
		var ends []Command // of the sessions that were opened without an owner
		for id := range s.machine.sessions.live {
			ends = append(ends, EndSession{Session: uint64(id) + 1})
		}
		e := s.g.plain(ends)
		s.g.owners, s.g.bounds = []string{"ci", "ci", "ops"}, []OwnerLimits{may}
		for range 1 + s.g.below(80) {
			s.step(e)
			for owner, has := range s.machine.owned {
				if has.sessions > may.Sessions || has.leases > may.Leases || has.waiting > may.Waiting {
					s.fail(fmt.Errorf("%s has %+v, and may have %+v", owner, has, may))
				}
				reached["sessions"] = reached["sessions"] || has.sessions == may.Sessions
				reached["leases"] = reached["leases"] || has.leases == may.Leases
				reached["waiting"] = reached["waiting"] || has.waiting == may.Waiting
			}
			e = s.g.entry()
		}
	})
	if len(reached) != 3 || !reached["sessions"] || !reached["leases"] || !reached["waiting"] {
		t.Errorf("no owner came to its limit: %v", reached)
	}
}

// TestLimitsOnTheWire: limits have one encoding, which needs an owner. Other bytes are no
// command.
func TestLimitsOnTheWire(t *testing.T) {
	up := Up{Name: "a", Count: 1}
	plain := Envelope{Owner: "ci", Limits: OwnerLimits{}}.Encode(up)
	if string(plain) != string(Envelope{Owner: "ci"}.Encode(up)) {
		t.Error("limits that limit nothing are encoded")
	}
	if string(Envelope{Limits: OwnerLimits{Leases: 1}}.Encode(up)) != string(Envelope{}.Encode(up)) {
		t.Error("limits without an owner are encoded")
	}
	for _, limits := range []OwnerLimits{{Sessions: 1}, {Leases: math.MaxInt64}, {Waiting: 300}, {1, 2, 3}} {
		sent := Envelope{Request: RequestID{1, 2}, Key: "k", Owner: "ci", Limits: limits, Trace: "t"}
		c, err := decodeCommand(newDecoder(sent.Encode(up)))
		if err != nil || c.Envelope != sent || c.command != Command(up) {
			t.Errorf("%+v became %+v, %v", sent, c.Envelope, err)
		}
	}
	frame := func(flags byte, parts ...byte) []byte {
		head := append([]byte{1, 1, 1, byte(OpUp), flags}, parts...)
		return append(head, 1, 'a', 2, 0)
	}
	if _, err := CheckCommand(frame(flagOwner|flagLimits, 1, 'o', 1, 0, 0)); err != nil {
		t.Errorf("one session: %v", err)
	}
	for name, bytes := range map[string][]byte{
		"no limit at all":   frame(flagOwner|flagLimits, 1, 'o', 0, 0, 0),
		"no owner":          frame(flagLimits, 1, 0, 0),
		"two limits only":   frame(flagOwner|flagLimits, 1, 'o', 1, 0),
		"a negative number": frame(flagOwner|flagLimits, 1, 'o', 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0, 0),
		"an unknown flag":   frame(flagOwner|2*flagLimits, 1, 'o', 1, 0, 0),
	} {
		if c, err := CheckCommand(bytes); err == nil {
			t.Errorf("%s: taken as %+v", name, c)
		}
	}
}

// TestTraceOf: the trace context of a command is read without the command, whatever else its
// frame has.
func TestTraceOf(t *testing.T) {
	for _, frame := range []Envelope{
		{}, {Trace: "t"}, {Request: RequestID{1 << 60, 300}, Key: "k", Trace: "with a key"},
		{Key: "k", Owner: "ci", Limits: OwnerLimits{Sessions: 3}, Trace: "with all"}, {Owner: "ci", Limits: OwnerLimits{Leases: 1}},
	} {
		encoded := frame.Encode(Up{Name: "a", Count: 1})
		if got := TraceOf(encoded); got != frame.Trace {
			t.Errorf("%+v: %q", frame, got)
		}
		for cut := range len(encoded) {
			if got := TraceOf(encoded[:cut]); got != "" && got != frame.Trace {
				t.Errorf("%+v, cut at %d: %q", frame, cut, got)
			}
		}
	}
	if got := TraceOf(nil); got != "" {
		t.Errorf("no command has %q", got)
	}
}
