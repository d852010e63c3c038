package fsm

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// reread returns a machine read from the snapshot of another one, as from a backup.
func reread(t interface{ Fatal(...any) }, m *Machine) *Machine {
	var out bytes.Buffer
	if err := m.Freeze().Write(&out); err != nil {
		t.Fatal(err)
	}
	read, err := Restore(&out)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// lived returns a machine of a cluster after some commands, and the results of the last.
func lived(cluster byte, index uint64, nowMS int64, commands ...Command) (*Machine, []Result) {
	m := New()
	first := StartTerm{Term: uint64(cluster), Leader: "n1", Limits: DefaultLimits(), Cluster: ClusterID{cluster}, Level: FeatureLevel}
	m.Apply(1, EncodeEntry(nowMS, encodeAll(plain(first))))
	var results []Result
	for _, c := range m.Apply(index, EncodeEntry(nowMS, encodeAll(plain(commands...)))).Commands {
		results = append(results, c.Result)
	}
	return m, results
}

// TestSucceededStateContinuesBoth: counters, time, level and index go on from the later
// one, in either direction; the cluster's id and its limits stay.
func TestSucceededStateContinuesBoth(t *testing.T) {
	young, _ := lived(1, 5, 1_000, CreateSemaphore{Name: "db", Permits: 3})
	old, _ := lived(9, 700, 900_000, CreateSemaphore{Name: "a", Permits: 9}, CreateSemaphore{Name: "b", Permits: 9},
		OpenSession{Session: 4, TTLMS: 5_000}, Acquire{Session: 4, Name: "a", Count: 1, TTLMS: KeepTTL}, Acquire{Session: 4, Name: "b", Count: 9, TTLMS: KeepTTL},
		AcquireOnce{Session: 5, Name: "b", Count: 1, TTLMS: 1000, WaitMS: 1000})
	for name, c := range map[string]struct{ own, file *Machine }{"an older cluster": {old, young}, "a younger cluster": {young, old}} {
		m := reread(t, c.file)
		err := m.Succeed(Succession{Own: c.own.StateHeader(), Index: 701})
		if err != nil {
			t.Fatal(name, err)
		}
		if m.tokens != 2+1<<32 || m.places != 1+1<<32 || m.epochs != 2+1<<32 {
			t.Errorf("%s: token %d, place %d, epoch %d", name, m.tokens, m.places, m.epochs)
		}
		if m.Index() != 701 || m.NowMS() != 900_000 || m.ClusterID() != c.own.ClusterID() || m.Term() != c.own.Term() || !m.RestorePending() {
			t.Errorf("%s: index %d, time %d, cluster %v, term %d of %q", name, m.Index(), m.NowMS(), m.ClusterID(), m.Term(), m.Leader())
		}
		if m.Hash() == c.own.Hash() || m.Hash() == c.file.Hash() {
			t.Errorf("%s: the hash is that of another state", name)
		}
		m.Apply(702, EncodeEntry(0, encodeAll(plain(StartTerm{Term: c.own.Term(), Leader: "n2", Limits: DefaultLimits(), Cluster: c.own.ClusterID()}))))
		if m.RestorePending() || m.NowMS() != 900_000 {
			t.Errorf("%s: after the first entry: time %d, leader %q", name, m.NowMS(), m.Leader())
		}
	}
	if reread(t, old).Succeed(Succession{Own: young.StateHeader(), Index: 700}) == nil || reread(t, young).Succeed(Succession{Own: old.StateHeader(), Index: 700}) == nil {
		t.Error("a state has taken its place at an index that one of the two has come to")
	}
	if reread(t, young).Succeed(Succession{Own: old.StateHeader(), Index: math.MaxUint64}) == nil {
		t.Error("an index at which no log could go on")
	}
}

// TestJumpsPassLostJumps: a state that may lack entries gives out no number that a state after
// them has given out, though that one was a restored one, or had jumped itself.
func TestJumpsPassLostJumps(t *testing.T) {
	before, _ := lived(1, 5, 0, CreateSemaphore{Name: "db", Permits: 9})
	then := func(change func(m *Machine)) StateHeader {
		m := reread(t, before)
		change(m)
		m.Apply(m.Index()+1, EncodeEntry(0, encodeAll(plain(CreateSemaphore{Name: "next", Permits: 1}))))
		return m.StateHeader()
	}
	succeeded := then(func(m *Machine) {
		for i := range uint64(100) { // so many restores
			if err := m.Succeed(Succession{Own: m.StateHeader(), Index: 100 + i}); err != nil {
				t.Fatal(err)
			}
		}
	})
	putBack := then(func(m *Machine) {
		first := StartTerm{Term: 9, Leader: "n1", Limits: DefaultLimits(), Cluster: m.ClusterID(), Jump: true}
		m.Apply(6, EncodeEntry(0, encodeAll(plain(first))))
	})
	recovered := reread(t, before)
	recovered.Recovered(ClusterID{2})
	for _, c := range []struct{ lost, now StateHeader }{{succeeded, putBack}, {succeeded, recovered.StateHeader()}, {putBack, recovered.StateHeader()}} {
		if lost, now := c.lost.state, c.now.state; lost.tokens >= now.tokens || lost.places >= now.places || lost.epochs >= now.epochs {
			t.Errorf("lost: token %d, place %d, epoch %d; now: %d, %d, %d", lost.tokens, lost.places, lost.epochs, now.tokens, now.places, now.epochs)
		}
	}
}

// TestStatesThatNoClusterComesToAreRefused: counters that go on from them would wrap, or time
// would end.
func TestStatesThatNoClusterComesToAreRefused(t *testing.T) {
	followed, _ := lived(1, 9, 0)
	for name, counter := range map[string]func(m *Machine) *uint64{
		"place": func(m *Machine) *uint64 { return &m.places }, "epoch": func(m *Machine) *uint64 { return &m.epochs },
		"order": func(m *Machine) *uint64 { return &m.orders },
	} {
		for value, sound := range map[uint64]bool{1 << 52: true, 1<<52 + 1: false, math.MaxUint64: false} {
			m, _ := lived(2, 5, 0)
			*counter(m) = value
			if err := m.Succeed(Succession{Own: followed.StateHeader(), Index: 20}); (err == nil) != sound {
				t.Errorf("%s %d: %v", name, value, err)
			}
		}
	}
	late, _ := lived(2, 5, 1<<52+1)
	if late.Succeed(Succession{Own: followed.StateHeader(), Index: 20}) == nil {
		t.Error("a time that no cluster comes to")
	}
	far, _ := lived(2, 1<<52+1, 0)
	if far.Succeed(Succession{Own: followed.StateHeader(), Index: 1<<52 + 2}) == nil {
		t.Error("an index that no log comes to")
	}
}

// TestSettingsOfSucceededSemaphoresAreNew, unless the followed state can't have known them:
// a client that read one before the restore must not change another by its version.
func TestSettingsOfSucceededSemaphoresAreNew(t *testing.T) {
	file, _ := lived(1, 5, 0, CreateSemaphore{Name: "first", Permits: 3}, CreateSemaphore{Name: "second", Permits: 3})
	followed, _ := lived(1, 9, 0, CreateSemaphore{Name: "first", Permits: 3}, PutSemaphore{Name: "first", Permits: Change[int64]{true, 4}})
	m := reread(t, file)
	if err := m.Succeed(Succession{Own: followed.StateHeader(), Index: 20}); err != nil {
		t.Fatal(err)
	}
	for name, version := range map[string]uint64{"first": 1 + 1<<32, "second": 1} {
		if got, _ := m.Semaphore(name); got.Version != version || got.ModifiedIndex != 20 {
			t.Errorf("%s: version %d, modified at %d", name, got.Version, got.ModifiedIndex)
		}
	}
}

// TestSucceededTimesKeepTheirDistance from cluster time, in every kind of record.
func TestSucceededTimesKeepTheirDistance(t *testing.T) {
	const gap = 1_000_000
	followed, _ := lived(1, 9, gap+500)
	file, _ := lived(2, 9, 500, CreateSemaphore{Name: "db", Permits: 1}, CreateSemaphore{Name: "list", Permits: 0}, OpenSession{Session: 4, TTLMS: 5_000},
		Acquire{Session: 4, Name: "db", Count: 1, TTLMS: KeepTTL}, AcquireOnce{Session: 5, Name: "db", Count: 1, TTLMS: 70, WaitMS: 90},
		Down{Name: "db", Count: 1, Notice: "http://a.example/"}, OpenSession{Session: 6, TTLMS: 80}, EndSession{Session: 6},
		CreateSemaphore{Name: "taken", Permits: 1}, Acquire{Session: 4, Name: "taken", Count: 1, TTLMS: KeepTTL},
		RevokeLease{Session: 4, Name: "taken"}, Release{Session: 4, Name: "taken"},
		OpenHolder{Session: 8, TTLMS: 80, DeleteItems: true, DelayMS: 9}, ItemAcquire{Name: "a/b", Session: 8}, EndSession{Session: 8},
		CreateSemaphore{Name: "due"}, Down{Name: "due", Count: 1, Notice: "http://a.example/"}, Up{Name: "due", Count: 1})
	once := Envelope{Key: "over"}.Encode(AcquireOnce{Session: 9, Name: "due", Count: 1, TTLMS: 900})
	file.Apply(9, EncodeEntry(500, append([][]byte{once}, encodeAll(plain(EndSession{Session: 9}))...)))
	keyed := Envelope{Key: "k"}.Encode(AcquireOnce{Session: 7, Name: "new", Count: 1, TTLMS: 900})
	file.Apply(10, EncodeEntry(500, append(encodeAll(plain(CreateSemaphore{Name: "new", Permits: 2})), keyed)))
	m := reread(t, file)
	if err := m.Succeed(Succession{Own: followed.StateHeader(), Index: 50}); err != nil {
		t.Fatal(err)
	}
	before, after := timesOf(file), timesOf(m)
	if len(before) != 17 || len(before) != len(after) {
		t.Fatalf("times %v became %v", before, after)
	}
	for i := range before {
		if after[i] != before[i]+gap {
			t.Errorf("time %d of %v became %d", before[i], before, after[i])
		}
	}
	if k := m.keys.at(m.byKey[keyName{text: "k"}]); decodeResult(k.result).Grants[0].GrantedMS != gap+500 {
		t.Errorf("a stored outcome has a grant at %d", decodeResult(k.result).Grants[0].GrantedMS)
	}
	if reread(t, file).Succeed(Succession{Own: followed.StateHeader(), Index: 50, NowMS: math.MaxInt64 - 10}) == nil {
		t.Error("a deadline beyond the end of time")
	}
}

// timesOf lists the times in a state.
func timesOf(m *Machine) (all []int64) {
	note := func(ms int64) { all = append(all, ms) }
	changeEach(&m.sessions, func(s *session) { note(s.deadlineMS) })
	changeEach(&m.leases, func(l *lease) { note(l.grantedMS) })
	changeEach(&m.requests, func(r *request) { note(r.enqueuedMS) })
	changeEach(&m.ended, func(e *ended) { note(e.atMS) })
	changeEach(&m.revoked, func(v *revoked) { note(v.atMS) })
	changeEach(&m.notices, func(n *notice) {
		if note(n.endsMS); n.due {
			note(n.dueMS)
		}
	})
	m.marks.each(func(v *mark) { note(v.atMS) })
	changeEach(&m.items, func(i *item) { note(i.delayMS) })
	changeEach(&m.folders, func(f *folder) { note(f.atMS) })
	changeEach(&m.keys, func(k *key) { note(k.atMS) })
	return all
}

// TestSucceededStateCanEndAllSessions: their permits come back, no waiting request of
// theirs is granted on the way, and their clients learn that they have ended.
func TestSucceededStateCanEndAllSessions(t *testing.T) {
	followed, _ := lived(1, 9, 10)
	var commands []Command
	commands = append(commands, CreateSemaphore{Name: "db", Permits: 2})
	for id := uint64(1); id <= 5000; id++ { // more than one entry may end
		commands = append(commands, OpenSession{Session: id, TTLMS: 1 << 40}, Acquire{Session: id, Name: "db", Count: 1, TTLMS: KeepTTL})
	}
	file, _ := lived(2, 9, 500, commands...)
	m := reread(t, file)
	if err := m.Succeed(Succession{Own: followed.StateHeader(), Index: 50, EndSessions: true}); err != nil {
		t.Fatal(err)
	}
	if semaphores, sessions, leases, waiting := m.Counts(); semaphores != 1 || sessions+leases+waiting != 0 || m.MoreDue() {
		t.Errorf("left: %d sessions, %d leases, %d waiting requests", sessions, leases, waiting)
	}
	if m.tokens != 2+1<<32 {
		t.Errorf("a session that was to end got a token: %d", m.tokens)
	}
	if cause, _, known := m.Ended(5000); !known || cause != CauseExpired {
		t.Errorf("the end of a session: %v, %v", cause, known)
	}
	if next := m.Apply(51, EncodeEntry(0, nil)); len(next.Effects) > 0 {
		t.Errorf("the first entry has the effects of the succession: %+v", next.Effects[0])
	}
}

// TestPropertySucceededStatesAreSound: any state can follow any other one; the result
// breaks no invariant, is read again from its snapshot as it is, and goes on.
func TestPropertySucceededStatesAreSound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		followed, file := newSequence(t), newSequence(t)
		followed.run(30, nil)
		file.run(60, nil)
		index := max(followed.machine.Index(), file.machine.Index()) + 7
		m := reread(t, file.machine)
		by := Succession{Own: followed.machine.StateHeader(), Index: index, NowMS: followed.machine.NowMS() + int64(followed.g.below(5000)), EndSessions: followed.g.chance(3)}
		if err := m.Succeed(by); err != nil {
			t.Fatal(err)
		}
		copied := reread(t, m)
		for _, state := range []*Machine{m, copied} {
			state.Apply(index+1, EncodeEntry(by.NowMS+10_000, encodeAll(plain(StartTerm{Term: 3, Leader: "n1", Limits: DefaultLimits(), Cluster: state.ClusterID()}))))
			if err := state.check(); err != nil {
				t.Fatal(err)
			}
		}
		if m.Hash() != copied.Hash() {
			t.Fatal("a copy from the snapshot went on in another way")
		}
	})
}

// TestNoTokenIsGivenTwiceAfterASuccession, by whichever history: every token, place and
// epoch of the state that follows is above all that either one has given.
func TestNoTokenIsGivenTwiceAfterASuccession(t *testing.T) {
	acquires := func(count int) (all []Command) {
		all = append(all, CreateSemaphore{Name: "db", Permits: 1000}, OpenSession{Session: 1, TTLMS: 1 << 40})
		for range count {
			all = append(all, Acquire{Session: 1, Name: "db", Count: 1, TTLMS: KeepTTL}, Release{Session: 1, Name: "db"})
		}
		return all
	}
	tokens := func(results []Result) (all []uint64) {
		for _, r := range results {
			for _, g := range r.Grants {
				all = append(all, g.Token)
			}
		}
		return slices.Compact(all) // a release names the token as well
	}
	file, before := lived(1, 5, 0, acquires(3)...)
	followed, more := lived(1, 9, 0, acquires(8)...)
	seen := append(tokens(before), tokens(more)...)
	index := uint64(20)
	for range 3 { // the same file again and again
		m := reread(t, file)
		if err := m.Succeed(Succession{Own: followed.StateHeader(), Index: index}); err != nil {
			t.Fatal(err)
		}
		var results []Result
		for _, c := range m.Apply(index+1, EncodeEntry(0, encodeAll(plain(acquires(4)[2:]...)))).Commands {
			results = append(results, c.Result)
		}
		next := tokens(results)
		if len(next) != 4 || next[0] <= slices.Max(seen) {
			t.Fatalf("tokens %v after %v", next, seen)
		}
		seen = append(seen, next...)
		followed, index = m, index+10
	}
}
