package fsm

import (
	"bytes"
	"flag"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// The properties are checked for this many random sequences, or for as many as go test
// ./fsm -run TestProperty -rapid.checks=20000 says. A failure prints the seed that repeats
// it, and leaves no file behind.
func init() {
	for name, value := range map[string]string{"rapid.checks": "300", "rapid.nofailfile": "true", "rapid.shrinktime": "15s"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
}

// sequence is one random run of the machine beside the model.
type sequence struct {
	t       *rapid.T
	machine *Machine
	model   *model
	g       *generator
	token   uint64 // the last one used
	entries []sentEntry
}

func newSequence(t *rapid.T) *sequence {
	s := &sequence{t: t, model: newModel()}
	s.g = &generator{t: t, m: s.model}
	s.machine = New()
	s.model.budget = oneOf(s.g, []budget{defaultBudget(), {ended: 1, swept: 1, served: 1, kept: 2, lanes: 1},
		{ended: 3, swept: 1, served: 2, kept: 3, lanes: 2}, {ended: 2, swept: 3, served: 4, kept: 1, lanes: 3}})
	s.machine.budget = s.model.budget
	return s
}

// step applies an entry to both and compares all that can be seen.
func (s *sequence) step(e sentEntry) *Applied {
	s.entries = append(s.entries, e)
	applied := s.apply(e)
	results := s.model.apply(e.index, e.stampMS, e.commands)
	if err := s.model.saidDiffers(applied, results); err != nil {
		s.fail(err)
	}
	if err := s.model.differs(s.machine); err != nil {
		s.fail(err)
	}
	if err := s.machine.check(); err != nil {
		s.fail(fmt.Errorf("invariant: %w", err))
	}
	if err := modifiedUntold(s.machine, applied); err != nil {
		s.fail(err)
	}
	for _, c := range applied.Commands {
		if c.Result.Code == Waiting && c.Op.row().waits != mayWait {
			s.fail(fmt.Errorf("%v waits, against its row", c.Op))
		}
	}
	for _, effect := range applied.Effects {
		if effect.Token != 0 && effect.Kind == EffectGranted {
			if effect.Token <= s.token {
				s.fail(fmt.Errorf("token %d after %d", effect.Token, s.token))
			}
			s.token = effect.Token
		}
	}
	return applied
}

// modifiedUntold finds a semaphore that an entry modified without an effect that names it:
// callers that wait for its modified index would not be woken.
func modifiedUntold(m *Machine, applied *Applied) error {
	seen := map[string]bool{}
	for _, effect := range applied.Effects {
		seen[effect.Semaphore] = true
	}
	for name, r := range m.byName {
		if m.semaphores.at(r).modified == applied.Index && !seen[name] {
			return fmt.Errorf("%q was modified without an effect", name)
		}
	}
	return nil
}

// apply turns a halt into a failure that shows the entries before it.
func (s *sequence) apply(e sentEntry) *Applied {
	defer func() {
		if broken := recover(); broken != nil {
			s.fail(fmt.Errorf("%v", broken))
		}
	}()
	return s.machine.Apply(e.index, e.bytes)
}

// fail shows all entries that led to the failure.
func (s *sequence) fail(err error) {
	s.t.Helper()
	for _, e := range s.entries {
		for i, c := range e.commands {
			text := "bytes that are no command"
			if c.command != nil {
				text = show(c.command)
			}
			s.t.Logf("entry %d at %d, command %d: key %q %s", e.index, e.stampMS, i, c.key, text)
		}
	}
	last := s.entries[len(s.entries)-1]
	s.t.Fatalf("entry %d at %d: %v", last.index, last.stampMS, err)
}

// run applies a sequence of up to bound entries; after, which may be nil, is
// called after each.
func (s *sequence) run(bound int, after func(sentEntry, *Applied)) {
	e := s.g.setup()
	for range 1 + s.g.below(bound) {
		applied := s.step(e)
		if after != nil {
			after(e, applied)
		}
		e = s.g.entry()
	}
}

// TestPropertyModel: any sequence of entries has the results, conclusions, effects and
// state of the model, and breaks no invariant.
func TestPropertyModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { newSequence(t).run(100, nil) })
}

// TestSequencesReach keeps the random sequences useful: the first 400 seeds produce every
// code, rule, cause and end of a wait.
func TestSequencesReach(t *testing.T) {
	reached := map[string]int{}
	sequences := rapid.Custom(func(t *rapid.T) bool {
		s := newSequence(t)
		s.run(100, func(_ sentEntry, applied *Applied) { reach(reached, applied) })
		return true
	})
	for seed := range 400 {
		sequences.Example(seed)
	}
	for code := OK; code < codeCount; code++ {
		if reached["code "+code.String()] == 0 {
			t.Errorf("no command or wait ended with %v", code)
		}
	}
	for rule := RuleHolds; rule < ruleCount; rule++ {
		if rule == RuleNotices || rule == RuleItems || rule == RuleItemBytes || rule == RuleSessionItems || rule >= RuleOwnerSemaphores && rule < RuleGroup || rule == RuleOwnLimits || rule == RuleOwnerOwnLimits {
			continue // many of them: TestNoticesAreBounded, TestItemsAreBounded, TestSharesOfOwners
		}
		if reached["rule "+rule.String()] == 0 {
			t.Errorf("no refusal came from the rule %v", rule)
		}
	}
	for _, what := range []string{
		"released expired", "released released", "released revoked", "released deleted", "released resized",
		"withdrawn expired", "withdrawn released", "withdrawn revoked", "withdrawn deleted", "withdrawn never", "withdrawn elsewhere", "withdrawn timeout",
		"session-ended expired", "session-ended released", "session-ended revoked", "session-ended deleted", "session-ended never",
		"wait ended ok", "wait ended unavailable", "wait ended never", "wait ended deleted", "wait ended withdrawn",
		"list-ready ", "list-ready deleted", "notice-due ", "wait ended revoked", "wait ended expired-session", "wait ended unknown-session", "joined", "replayed",
		"item-changed ", "item-changed released", "item-changed expired", "item-changed revoked", "item-deleted deleted", "item-deleted released",
		"item-deleted expired", "group-changed ", "withdrawn superseded", "wait ended superseded",
		"returned ", "lost ", "freed ", "settled ", "released max-hold", "session-ended max-hold", "withdrawn max-hold", "granted in a window",
		"slots granted", "slots released", "slots returned", "slots lost", "slots freed", "slots between others",
		"comes back later", "never comes back", "time until enough is back", "settled too late",
	} {
		if reached[what] == 0 {
			t.Errorf("never reached: %s", what)
		}
		t.Log(what, reached[what])
	}
}

// reach counts the kinds of results that occurred.
func reach(reached map[string]int, applied *Applied) {
	for _, c := range applied.Commands {
		reached["code "+c.Result.Code.String()]++
		reached["rule "+c.Result.Rule.String()]++
		if c.Result.Joined {
			reached["joined"]++
		}
		if c.Result.Replayed {
			reached["replayed"]++
		}
		if c.Result.Code == Unavailable && c.Result.Why().DelayMS > 0 {
			reached["time until enough is back"]++
		}
		if c.Op == OpResizeLease && c.Result.Code == OK && !c.Result.Found {
			reached["settled too late"]++
		}
	}
	for _, c := range applied.Conclusions {
		reached["code "+c.Result.Code.String()]++
		reached["wait ended "+c.Result.Code.String()]++
	}
	for _, e := range applied.Effects {
		reached[e.Kind.String()+" "+e.Cause.String()]++
		if len(e.DetailsOrZero().Slots) > 0 {
			reached["slots "+e.Kind.String()]++
		}
		if len(e.DetailsOrZero().Slots) > 1 {
			reached["slots between others"]++
		}
		switch {
		case e.Kind == EffectGranted && e.DetailsOrZero().DueMS != 0:
			reached["granted in a window"]++
		case e.Kind == EffectReleased && e.DetailsOrZero().DueMS == NeverMS:
			reached["never comes back"]++
		case e.Kind == EffectReleased && e.DetailsOrZero().DueMS != 0:
			reached["comes back later"]++
		}
	}
}

// TestPropertyRestored: a machine that is restored from a snapshot after each entry goes on
// exactly like one that is not: same results, same state hash, same bytes of snapshot.
func TestPropertyRestored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSequence(t)
		often := 1 + s.g.below(5)
		other := New()
		other.budget = s.model.budget
		s.run(25, func(e sentEntry, applied *Applied) {
			if err := same("what a restored machine said", other.Apply(e.index, e.bytes), applied); err != nil {
				s.fail(err)
			}
			if other.Hash() != s.machine.Hash() {
				s.fail(fmt.Errorf("state hash %x, restored %x", s.machine.Hash(), other.Hash()))
			}
			if int(e.index)%often != 0 {
				return
			}
			want := snapshotOf(t, s.machine.Freeze())
			if !bytes.Equal(want, snapshotOf(t, other.Freeze())) {
				s.fail(fmt.Errorf("snapshots differ"))
			}
			restored, err := Restore(bytes.NewReader(want))
			if err != nil {
				s.fail(err)
			}
			if err := s.model.differs(restored); err != nil {
				s.fail(fmt.Errorf("restored: %w", err))
			}
			other = restored
			other.budget = s.model.budget
		})
	})
}

// TestPropertyReplayed: the same log on another machine gives the same results, the same
// state hash and the same bytes of snapshot.
func TestPropertyReplayed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSequence(t)
		var replies []*Applied
		s.run(25, func(_ sentEntry, applied *Applied) { replies = append(replies, applied) })
		other := New()
		other.budget = s.model.budget
		for i, e := range s.entries {
			if err := same("what the replay said", other.Apply(e.index, e.bytes), replies[i]); err != nil {
				s.fail(err)
			}
		}
		if other.Hash() != s.machine.Hash() || !bytes.Equal(snapshotOf(t, other.Freeze()), snapshotOf(t, s.machine.Freeze())) {
			s.fail(fmt.Errorf("the replay has another state"))
		}
	})
}

// TestPropertyFrozen: a frozen copy that is written late, while the machine went on, gives
// the same bytes as one written at once.
func TestPropertyFrozen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSequence(t)
		type kept struct {
			index  uint64
			frozen *Frozen
			bytes  []byte
		}
		var copies []kept
		s.run(30, func(e sentEntry, _ *Applied) {
			if s.g.chance(3) {
				copies = append(copies, kept{e.index, s.machine.Freeze(), snapshotOf(t, s.machine.Freeze())})
			}
		})
		for _, c := range copies {
			if c.frozen.index != c.index || !bytes.Equal(snapshotOf(t, c.frozen), c.bytes) {
				t.Fatalf("the copy frozen at entry %d changed while the machine went on", c.index)
			}
		}
	})
}

func snapshotOf(t interface{ Fatal(...any) }, frozen *Frozen) []byte {
	var out bytes.Buffer
	if err := frozen.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
