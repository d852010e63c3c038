package fsm

import (
	"bytes"
	"fmt"
	"testing"
)

// bounded is a machine beside a restored copy, which is made anew for each entry: both must
// return the same and write the same snapshot.
type bounded struct {
	t     *testing.T
	m     *Machine
	index uint64
}

func newBounded(t *testing.T) *bounded { return &bounded{t: t, m: New()} }

// fill applies commands, in entries of 256, without looking at the results.
func (b *bounded) fill(commands ...Command) {
	for len(commands) > 0 {
		part := commands[:min(256, len(commands))]
		commands = commands[len(part):]
		b.index++
		b.m.Apply(b.index, EncodeEntry(0, encodeAll(plain(part...))))
	}
}

// apply applies one entry to the machine and to one restored from its snapshot.
func (b *bounded) apply(commands ...Command) *Applied {
	b.t.Helper()
	restored, err := Restore(bytes.NewReader(snapshotOf(b.t, b.m.Freeze())))
	if err != nil {
		b.t.Fatal(err)
	}
	b.index++
	entry := EncodeEntry(0, encodeAll(plain(commands...)))
	applied := b.m.Apply(b.index, entry)
	if err := same("what a restored machine did", restored.Apply(b.index, entry), applied); err != nil {
		b.t.Fatal("entry ", b.index, ": a restored machine did something else")
	}
	if err := b.m.check(); err != nil {
		b.t.Fatal(err)
	}
	if !bytes.Equal(snapshotOf(b.t, restored.Freeze()), snapshotOf(b.t, b.m.Freeze())) {
		b.t.Fatal("entry ", b.index, ": a restored machine has another state")
	}
	if bound := 2*b.m.budget.ended + b.m.budget.served; len(applied.Effects) > 2*bound {
		b.t.Fatalf("entry %d had %d effects", b.index, len(applied.Effects))
	}
	return applied
}

// rest applies entries without commands until no work is left over.
func (b *bounded) rest(applied *Applied) {
	b.t.Helper()
	for applied.MoreDue {
		applied = b.apply()
	}
}

// crowd opens n sessions, from 1 on, and lets each ask for one of a semaphore.
func crowd(n int, name string) (commands []Command) {
	for i := range uint64(n) {
		commands = append(commands, OpenSession{Session: i + 1, TTLMS: MaxTTLMS},
			Acquire{Session: i + 1, Name: name, Count: 1, TTLMS: KeepTTL})
	}
	return commands
}

// TestWaitsCountTheirMembers: limits bound the members of the requests of a session, and
// the keys that wait for them, since its end removes them all.
func TestWaitsCountTheirMembers(t *testing.T) {
	b := newBounded(t)
	commands := []Command{OpenSession{Session: 1, TTLMS: MaxTTLMS}, OpenSession{Session: 2, TTLMS: MaxTTLMS}}
	list := func(first int) (wants []Want) {
		for i := range MaxMembers {
			wants = append(wants, Want{Semaphore: fmt.Sprint(first + i), Count: 1})
		}
		return wants
	}
	for i := range 17 * MaxMembers {
		commands = append(commands, CreateSemaphore{Name: fmt.Sprint(i), Permits: 1}, Down{Name: fmt.Sprint(i), Count: 1})
	}
	for i := range 16 {
		commands = append(commands, AcquireMany{Session: 1, Wants: list(i * MaxMembers), Mode: Any})
	}
	b.fill(commands...)
	last := list(16 * MaxMembers)
	applied := b.apply(AcquireMany{Session: 1, Wants: last, Mode: Any}, Acquire{Session: 1, Name: last[0].Semaphore, Count: 1, TTLMS: KeepTTL})
	for i := range applied.Commands {
		if r := applied.Commands[i].Result; r.Code != LimitReached || r.Rule != RuleSessionWaits {
			t.Errorf("command %d, beyond 1,024 members: %v %v", i, r.Code, r.Rule)
		}
	}
	var encoded [][]byte
	for i := range 4097 {
		ask := Acquire{Session: 2, Name: fmt.Sprint(i % 16), Count: 1, TTLMS: KeepTTL}
		encoded = append(encoded, Envelope{Key: fmt.Sprint("key number ", i)}.Encode(ask))
	}
	b.index++
	applied = b.m.Apply(b.index, EncodeEntry(0, encoded))
	if r := applied.Commands[4095].Result; r.Code != Waiting {
		t.Errorf("key 4,096: %v", r.Code)
	}
	if r := applied.Commands[4096].Result; r.Code != LimitReached || r.Rule != RuleKeys {
		t.Errorf("key 4,097 that waits for a request of one session: %v %v", r.Code, r.Rule)
	}
	b.apply(EndSession{Session: 2})
}

// TestKeysBeyondASessionLeaveNothing: a request that is refused because too many keys wait
// in its session leaves no request behind.
func TestKeysBeyondASessionLeaveNothing(t *testing.T) {
	b := newBounded(t)
	commands := []Command{OpenSession{Session: 1, TTLMS: MaxTTLMS}}
	for i := range 5 {
		commands = append(commands, CreateSemaphore{Name: fmt.Sprint(i), Permits: 1}, Down{Name: fmt.Sprint(i), Count: 1})
	}
	b.fill(commands...)
	keyed := func(i int) []byte {
		ask := Acquire{Session: 1, Name: fmt.Sprint(i / maxRequestKeys), Count: 1, TTLMS: KeepTTL}
		return Envelope{Key: fmt.Sprint("key number ", i)}.Encode(ask)
	}
	var encoded [][]byte
	for i := range maxSessionKeys {
		encoded = append(encoded, keyed(i))
	}
	b.m.Apply(b.index+1, EncodeEntry(0, encoded))
	applied := b.m.Apply(b.index+2, EncodeEntry(0, [][]byte{keyed(maxSessionKeys)}))
	if r := applied.Commands[0].Result; r.Code != LimitReached || r.Rule != RuleKeys {
		t.Fatalf("a key more: %v %v", r.Code, r.Rule)
	}
	if s, _ := b.m.Semaphore("4"); s.Waiters != 0 || len(applied.Effects) != 0 {
		t.Errorf("%d wait for what was refused, %d effects", s.Waiters, len(applied.Effects))
	}
}

// TestATTLOfZeroEndsBesideAMassExpiry: while more sessions expire than an entry may end, a
// session that its client ends is still gone for the next command.
func TestATTLOfZeroEndsBesideAMassExpiry(t *testing.T) {
	const due = 10_000
	b := newBounded(t)
	commands := []Command{CreateSemaphore{Name: "a", Permits: 1}, CreateSemaphore{Name: "b", Permits: due},
		OpenSession{Session: due + 1, TTLMS: MaxTTLMS}, OpenSession{Session: due + 2, TTLMS: MaxTTLMS},
		Acquire{Session: due + 1, Name: "a", Count: 1, TTLMS: KeepTTL}}
	for i := range uint64(due) {
		commands = append(commands, OpenSession{Session: i + 1, TTLMS: 1000}, Acquire{Session: i + 1, Name: "b", Count: 1, TTLMS: KeepTTL})
	}
	b.fill(commands...)
	applied := b.m.Apply(b.index+1, EncodeEntry(1000, encodeAll(plain(
		Renew{Renewals: []Renewal{{due + 1, 0}}}, Acquire{Session: due + 2, Name: "a", Count: 1, TTLMS: KeepTTL}))))
	if !applied.MoreDue {
		t.Fatal("all that was due went with one entry")
	}
	if _, lives := b.m.Session(due + 1); lives || applied.Commands[1].Result.Code != OK {
		t.Errorf("the session lives on: %v; the next command: %v", lives, applied.Commands[1].Result.Code)
	}
}

// TestCostOfWhatMayEndASession: few commands that may end a large session, or walk through
// it, share an entry.
func TestCostOfWhatMayEndASession(t *testing.T) {
	const leases = 1000
	m := New()
	commands := []Command{CreateSemaphore{Name: "0", Permits: 1}, AcquireOnce{Name: "0", Count: 1, TTLMS: MaxTTLMS, Session: 1}}
	for i := range leases - 1 {
		name := fmt.Sprint(i + 1)
		commands = append(commands, CreateSemaphore{Name: name, Permits: 1}, Acquire{Session: 1, Name: name, Count: 1, TTLMS: KeepTTL})
	}
	m.Apply(1, EncodeEntry(0, encodeAll(plain(commands...))))
	for c, bound := range map[Command]int{EndSession{Session: 1}: 5, RevokeLease{Session: 1, Name: "0"}: 5, Acquire{Session: 1}: 512} {
		if fit := EntryWeight / Cost(c, m.SessionSize(CostlySession(c))); fit > bound {
			t.Errorf("%v: %d share an entry, beside %d records", c.Op(), fit, leases)
		}
	}
	if cost := Cost(RestoreSession{Session: 1}, m.SessionSize(CostlySession(RestoreSession{Session: 1}))); cost <= 1 {
		t.Errorf("restore: cost %d", cost)
	}
	applied := m.Apply(2, EncodeEntry(0, encodeAll(plain(RevokeLease{Session: 1, Name: "0"}))))
	if _, _, left, _ := m.Counts(); left != 0 || len(applied.Effects) <= leases {
		t.Errorf("%d leases are left after the revocation of one", left)
	}
}

// TestAskedAgainAfterADelete: the request for a list waits for a semaphore that is deleted
// and made again. A repeat, before the deletion ended the request, is a new request.
func TestAskedAgainAfterADelete(t *testing.T) {
	const waiting, again = 5000, 1 << 30
	for mode, other := range map[Mode]string{All: "b", Any: "c"} {
		b := newBounded(t)
		ask := AcquireMany{Session: again, Wants: []Want{{Semaphore: "a", Count: 1}, {Semaphore: other, Count: 1}}, Mode: mode}
		b.fill(CreateSemaphore{Name: "a", Permits: 1}, CreateSemaphore{Name: "b", Permits: 1}, CreateSemaphore{Name: "c", Permits: 1})
		b.fill(append(crowd(waiting, "a"), crowd(waiting, "c")...)...)
		b.fill(OpenSession{Session: again, TTLMS: MaxTTLMS}, ask)
		commands := []Command{DeleteSemaphore{Name: "a"}, ask, CreateSemaphore{Name: "a", Permits: 1}}
		if mode == Any { // it goes on while one of its semaphores exists
			commands = append(commands, DeleteSemaphore{Name: "c"}, CreateSemaphore{Name: "c", Permits: 1})
		}
		applied := b.apply(append(commands, ask)...)
		first, last := applied.Commands[1].Result, applied.Commands[len(commands)].Result
		if code := map[Mode]Code{All: UnknownSemaphore, Any: Waiting}[mode]; first.Code != code {
			t.Errorf("mode %d, after the first delete: %v", mode, first.Code)
		}
		if last.Code != OK || last.Grants[0].Semaphore != "a" {
			t.Errorf("mode %d, asked again: %v", mode, last.Code)
		}
		concluded := 0
		for _, c := range applied.Conclusions {
			if c.Result.Session == again && c.Result.Code == Deleted {
				concluded++
			}
		}
		b.rest(applied)
		if view, _ := b.m.Session(again); concluded != 1 || len(view.Waiting) != 0 || len(view.Leases) != len(last.Grants) {
			t.Errorf("mode %d: concluded %d times, %+v", mode, concluded, view)
		}
	}
}
