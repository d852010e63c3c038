package fsm

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// records counts what a machine keeps, a request as its members, but for what is
// bounded and goes in time: keys, ended sessions and deleted items.
func records(m *Machine) int {
	count := m.semaphores.live + m.sessions.live + m.leases.live + m.entries.live + m.notices.live + m.items.live
	for _, r := range m.requests.refs(func(q *request) uint64 { return q.place }) {
		count += len(m.requests.at(r).members)
	}
	return count
}

// TestPropertyOnlyGrowingOperationsGrow: whatever the state, a command of an
// operation that must not grow it leaves no more records than it found, and one of an
// operation that takes nothing leaves no owner with more than that owner had.
func TestPropertyOnlyGrowingOperationsGrow(t *testing.T) {
	t.Parallel()
	seen := map[Op]bool{}
	rapid.Check(t, func(t *rapid.T) {
		s := newSequence(t)
		s.run(60, nil)
		adopt := Renew{Renewals: []Renewal{{Session: 1, TTLMS: KeepTTL}}} // no later command takes over a session without an owner
		for _, id := range s.machine.bySession.Keys() {
			adopt.Renewals = append(adopt.Renewals, Renewal{Session: id, TTLMS: KeepTTL})
		}
		for i := range 40 {
			c := s.g.command()
			for tries := 0; seen[c.Op()] && tries < 3; tries++ { // rare operations are tried, too
				c = s.g.command()
			}
			switch i {
			case 0:
				c = RaiseLevel{Level: FeatureLevel}
			case 1:
				c = adopt
			}
			s.g.index++
			s.g.seq++
			e := sentEntry{index: s.g.index, stampMS: s.g.m.nowMS, commands: []modelCommand{{command: c, owner: "ci"}}}
			e.bytes = EncodeEntry(e.stampMS, [][]byte{Envelope{Request: RequestID{Origin: 1, Sequence: s.g.seq}, Owner: "ci"}.Encode(c)})
			before, owners := records(s.machine), maps.Clone(s.machine.owned)
			s.step(e)
			for owner, has := range s.machine.owned {
				if had := owners[owner]; i > 1 && !c.Op().MayTake() && (has.sessions > had.sessions || has.leases > had.leases || has.waiting > had.waiting) {
					s.fail(fmt.Errorf("%v gave %s %+v of %+v", c.Op(), owner, has, had))
				}
			}
			if after := records(s.machine); after > before && !c.Op().MayGrow() {
				s.fail(fmt.Errorf("%v made %d records of %d", c.Op(), after, before))
			}
			seen[c.Op()] = true
		}
	})
	for op := Op(1); op < opCount; op++ {
		if !op.MayTake() && !seen[op] {
			t.Errorf("%v was never tried", op)
		}
	}
}

// TestRowsAreComplete: the row of each operation agrees with the methods and the members of its
// command. A trait that was forgotten in either is named here.
func TestRowsAreComplete(t *testing.T) {
	for op := Op(1); op < opCount; op++ {
		row := op.row()
		for member := range reflect.TypeFor[operation]().NumField() {
			if name := reflect.TypeFor[operation]().Field(member).Name; name != "since" && reflect.ValueOf(*row).Field(member).IsZero() {
				t.Errorf("%v has no %s in its row", op, name)
			}
		}
		zero := row.decode(newDecoder(nil))
		filled := reflect.New(reflect.TypeOf(zero)).Elem()
		filled.Set(reflect.ValueOf(zero))
		for member := range filled.NumField() {
			switch field := filled.Field(member); field.Interface().(type) {
			case string:
				field.SetString("db")
			case uint64:
				field.SetUint(7)
			case []Want:
				field.Set(reflect.ValueOf([]Want{{Semaphore: "db", Count: 2}}))
			case []Renewal:
				field.Set(reflect.ValueOf([]Renewal{{Session: 7}}))
			}
		}
		c := filled.Interface().(Command)
		if c.Op() != op {
			t.Errorf("%v is decoded as %v", op, c.Op())
		}
		has := func(member string) bool { return filled.FieldByName(member).IsValid() }
		_, draws := c.(interface{ redrawn(uint64) Command })
		reason, explains := Reason(c)
		for trait, ok := range map[string]bool{
			"object: it has names, or none": (row.object != ObjectNone) == (len(c.names()) == 1 && c.names()[0] == "db"),
			"names":                         len(c.names()) > 0 == (has("Name") || has("Prefix") || has("Wants") || has("Leases")),
			"session in its row":            (row.session != noSession && row.session != frees) == (c.session() == 7),
			"session":                       (c.session() == 7) == (has("Session") || has("Renewals")),
			"redrawn":                       draws == op.Opens(),
			"wants, though it waits":        len(Wants(c)) == 0 || row.waits == mayWait,
			"growth: it takes what it makes or requests": row.growth == takes || !op.Opens() && len(Wants(c)) == 0 && row.waits == noWait,
			"reason":              explains == has("Reason") && explains == (reason == "db"),
			"session of its cost": CostlySession(c) == 0 || CostlySession(c) == SessionOf(c),
		} {
			if !ok {
				t.Errorf("%v: look at its %s", op, trait)
			}
		}
	}
}

// TestOpOf: the operation is read from the head of a command alone, with a key and
// without.
func TestOpOf(t *testing.T) {
	id := RequestID{Origin: 1 << 60, Sequence: 300}
	for _, c := range []Command{Renew{Renewals: []Renewal{{Session: 7, TTLMS: 1}}}, Release{Session: 1, Name: "a"}, Up{Name: "a", Count: 1}} {
		for _, key := range []string{"", "key"} {
			if got := OpOf(Envelope{Request: id, Key: key}.Encode(c)); got != c.Op() {
				t.Errorf("%v with key %q: %v", c.Op(), key, got)
			}
		}
	}
	for _, bad := range [][]byte{nil, {1}, {1, 2}, {0x80, 0x80, 0x80, 0x80}} {
		if got := OpOf(bad); got != 0 || !got.MayGrow() {
			t.Errorf("%x: %v", bad, got)
		}
	}
}

// TestMayWait: only acquires that may wait have a name, at every level and with a key.
func TestMayWait(t *testing.T) {
	all := Want{Semaphore: "a", Count: 1}
	for _, c := range []struct {
		command Command
		name    string
		session uint64
	}{
		{Acquire{Session: 7, Name: "a", Count: 1}, "a", 7},
		{Acquire{Session: 7, Name: "a", Count: 1, Try: true}, "", 0},
		{AcquireOnce{Session: 7, Name: "a", Count: 1, WaitMS: 1}, "a", 0},
		{AcquireOnce{Session: 7, Name: "a", Count: 1}, "", 0},
		{AcquireMany{Session: 7, Mode: All, Wants: []Want{all}}, "", 0},
		{Release{Session: 7, Name: "a"}, "", 0},
	} {
		for _, frame := range []Envelope{{}, {Key: "key"}, {Owner: "o", Limits: OwnerLimits{Leases: 3}}} {
			if want, sessionID := MayWait(frame.Encode(c.command)); want.Semaphore != c.name || sessionID != c.session {
				t.Errorf("%+v in %+v: %v, %d", c.command, frame, want, sessionID)
			}
		}
	}
	cut := Envelope{}.Encode(Acquire{Session: 7, Name: "a", Count: 1})
	for end := range cut {
		if want, _ := MayWait(cut[:end]); want.Semaphore != "" {
			t.Errorf("%x: %v", cut[:end], want)
		}
	}
}

// TestTimesAndTextsOutOfRangeAreMalformed: each command that has a time takes the shortest and
// the longest, and refuses what is beyond, and metadata and sessions that can't be.
func TestTimesAndTextsOutOfRangeAreMalformed(t *testing.T) {
	bad := []Pair{{"\xff", "v"}}
	for i, c := range []struct{ sound, broken []Command }{
		{[]Command{OpenSession{Session: 1}, OpenSession{Session: 2, TTLMS: MaxTTLMS}},
			[]Command{OpenSession{}, OpenSession{Session: 3, TTLMS: -1}, OpenSession{Session: 3, TTLMS: MaxTTLMS + 1}, OpenSession{Session: 3, Metadata: bad}}},
		{[]Command{OpenHolder{Session: 1, DelayMS: MaxItemDelayMS}, OpenHolder{Session: 2, TTLMS: MaxTTLMS}},
			[]Command{OpenHolder{}, OpenHolder{Session: 3, TTLMS: -1}, OpenHolder{Session: 3, TTLMS: MaxTTLMS + 1}, OpenHolder{Session: 3, DelayMS: -1},
				OpenHolder{Session: 3, DelayMS: MaxItemDelayMS + 1}, OpenHolder{Session: 3, About: "\xff"}}},
		{[]Command{Acquire{Session: 9, Name: "db", Count: 1, TTLMS: KeepTTL}, Acquire{Session: 9, Name: "db", Count: 1, TTLMS: MaxTTLMS}},
			[]Command{Acquire{Session: 9, Name: "db", Count: 1, TTLMS: KeepTTL - 1}, Acquire{Session: 9, Name: "db", Count: 1, TTLMS: MaxTTLMS + 1}}},
		{[]Command{AcquireOnce{Session: 1, Name: "db", Count: 1, TTLMS: MaxTTLMS, WaitMS: MaxTTLMS}},
			[]Command{AcquireOnce{Name: "db", Count: 1}, AcquireOnce{Session: 3, Name: "db", Count: 1, TTLMS: -1}, AcquireOnce{Session: 3, Name: "db", Count: 1, TTLMS: MaxTTLMS + 1},
				AcquireOnce{Session: 3, Name: "db", Count: 1, WaitMS: -1}, AcquireOnce{Session: 3, Name: "db", Count: 1, WaitMS: MaxTTLMS + 1}, AcquireOnce{Session: 3, Name: "db", Count: 1, Metadata: bad}}},
		{[]Command{Renew{Renewals: []Renewal{{9, MaxTTLMS}}}},
			[]Command{Renew{Renewals: []Renewal{{9, KeepTTL - 1}}}, Renew{Renewals: []Renewal{{9, MaxTTLMS + 1}}}}},
		{[]Command{RestoreSession{Session: 1, TTLMS: MaxTTLMS}},
			[]Command{RestoreSession{}, RestoreSession{Session: 3, TTLMS: -1}, RestoreSession{Session: 3, TTLMS: MaxTTLMS + 1}, RestoreSession{Session: 3, Metadata: bad},
				RestoreSession{Session: 3, TTLMS: 1, Leases: []Want{{Semaphore: "db", Count: 1}, {Semaphore: "db", Count: 1}}}}},
	} {
		l := &stampedLog{t: t, m: New()}
		l.do("", CreateSemaphore{Name: "db", Permits: 5}, OpenSession{Session: 9, TTLMS: MaxTTLMS})
		for j, command := range append(c.sound, c.broken...) {
			index := l.m.Index() + 1
			result := l.m.Apply(index, EncodeEntry(0, [][]byte{Envelope{}.Encode(command)})).Commands[0].Result
			if len(result.Each) == 1 {
				result = result.Each[0]
			}
			if (result.Code == Malformed) != (j >= len(c.sound)) {
				t.Errorf("%d: %+v: %v", i, command, result.Code)
			}
		}
	}
}
