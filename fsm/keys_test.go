package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// keyLog applies one command an entry.
type keyLog struct {
	m     *Machine
	index uint64
}

func (l *keyLog) do(key string, c Command) Result {
	l.index++
	return l.m.Apply(l.index, EncodeEntry(0, [][]byte{Envelope{Request: RequestID{1, l.index}, Key: key}.Encode(c)})).Commands[0].Result
}

// TestKeysOfOneRequest: a client that draws a new key at each poll meets a limit. All keys
// within the limit have the outcome, after a snapshot too.
func TestKeysOfOneRequest(t *testing.T) {
	l := &keyLog{m: New()}
	l.do("", CreateSemaphore{Name: "a", Permits: 1})
	l.do("", OpenSession{Session: 1, TTLMS: MaxTTLMS})
	l.do("", OpenSession{Session: 2, TTLMS: MaxTTLMS})
	l.do("", Acquire{Session: 1, Name: "a", Count: 1, TTLMS: KeepTTL})
	poll := Acquire{Session: 2, Name: "a", Count: 1, TTLMS: KeepTTL}
	key := func(i int) string { return fmt.Sprintf("%0*d", maxKeyBytes, i) }
	for i := range maxRequestKeys {
		if got := l.do(key(i), poll); got.Code != Waiting {
			t.Fatalf("key %d: %v %v", i, got.Code, got.Rule)
		}
	}
	if got := l.do(key(maxRequestKeys), poll); got.Code != LimitReached || got.Rule != RuleKeys {
		t.Fatalf("one key more: %v %v", got.Code, got.Rule)
	}
	if got := l.do(key(7), poll); got.Code != Waiting || !got.Joined {
		t.Fatalf("a known key: %+v", got)
	}
	before := snapshotOf(t, l.m.Freeze())
	restored, err := Restore(bytes.NewReader(before))
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]*Machine{"the machine": l.m, "restored": restored} {
		again := &keyLog{m: m, index: l.index}
		again.do("", EndSession{Session: 1})
		for _, i := range []int{0, 1, maxRequestKeys - 1} {
			if got := again.do(key(i), poll); got.Code != OK || !got.Replayed {
				t.Errorf("%s, key %d after the grant: %+v", name, i, got)
			}
		}
	}
	if l.m.Hash() != restored.Hash() || !bytes.Equal(snapshotOf(t, l.m.Freeze()), snapshotOf(t, restored.Freeze())) {
		t.Error("the restored machine has another state")
	}
}

// TestKeyBytesAreReserved: there is room for the outcomes of waits, however many end at
// once.
func TestKeyBytesAreReserved(t *testing.T) {
	l := &keyLog{m: New()}
	limits := DefaultLimits()
	limits.KeyBytes = 1 << 20
	l.do("", StartTerm{Term: 1, Leader: "n1", Limits: limits})
	wants := make([]Want, MaxMembers)
	for i := range wants {
		wants[i] = Want{Semaphore: fmt.Sprintf("%s%d", strings.Repeat("x", 500), i), Count: 1}
		l.do("", CreateSemaphore{Name: wants[i].Semaphore, Permits: 1})
		l.do("", Down{Name: wants[i].Semaphore, Count: 1})
	}
	waiting := 0
	for id := uint64(1); ; id++ {
		l.do("", OpenSession{Session: id, TTLMS: MaxTTLMS})
		got := l.do(fmt.Sprintf("key %d", id), AcquireMany{Session: id, Wants: wants, Mode: All})
		if got.Code == LimitReached && got.Rule == RuleKeys {
			break
		}
		if got.Code != Waiting {
			t.Fatalf("session %d: %v %v", id, got.Code, got.Rule)
		}
		waiting++
	}
	if waiting < 20 {
		t.Errorf("only %d may wait", waiting)
	}
	for _, want := range wants {
		l.do("", Up{Name: want.Semaphore, Count: 1000})
	}
	if l.m.keyBytes > limits.KeyBytes || l.m.keyBytes < limits.KeyBytes/2 {
		t.Errorf("%d outcomes take %d bytes, of %d", waiting, l.m.keyBytes, limits.KeyBytes)
	}
	if err := l.m.check(); err != nil {
		t.Error(err)
	}
}

// TestOutcomesFitTheirRoom: no outcome takes more bytes than were reserved for it.
func TestOutcomesFitTheirRoom(t *testing.T) {
	long := func(i int) string { return fmt.Sprintf("%0*d", maxNameBytes, i) }
	l := &keyLog{m: New()}
	var wants []Want
	for i := range MaxMembers {
		l.do("", CreateSemaphore{Name: long(i), Permits: 1 << 62, Metadata: []Pair{{"k", strings.Repeat("v", maxMetadataBytes-1)}}})
		wants = append(wants, Want{Semaphore: long(i), Count: 1 << 61})
	}
	l.do("", OpenSession{Session: 1, TTLMS: MaxTTLMS})
	var renewals []Renewal
	for id := range uint64(100) {
		l.do("", OpenSession{Session: 1000 + id, TTLMS: MaxTTLMS})
		l.do("", EndSession{Session: 1000 + id, Operator: true, Reason: strings.Repeat("r", maxReasonBytes)})
		renewals = append(renewals, Renewal{1000 + id, KeepTTL})
	}
	for i, want := range wants {
		l.do("", ListAdd{Session: 1, Name: want.Semaphore, Count: int64(i) + 1<<40})
	}
	for name, c := range map[string]Command{
		"list": ListDeliver{Session: 1}, "many": AcquireMany{Session: 1, Wants: wants, Mode: All}, "renew": Renew{renewals},
		"restore": RestoreSession{Session: 1<<64 - 1, TTLMS: MaxTTLMS, Leases: wants},
		"put":     PutSemaphore{Name: long(1), Permits: Change[int64]{true, 1<<62 + 1}},
		"revoked": RestoreSession{Session: 1000, TTLMS: MaxTTLMS},
	} {
		before := l.m.keyBytes
		if got := l.do(name, c); !got.recorded() {
			t.Fatalf("%s: %v %v", name, got.Code, got.Rule)
		}
		took, room := l.m.keyBytes-before-int64(len(name)+keyOverhead), outcomeBytes(c, &l.m.limits)
		if took > room {
			t.Errorf("%s takes %d bytes, of %d", name, took, room)
		}
	}
}

// TestSnapshotThatCouldNotBeReadIsNotWritten: Raft keeps its log then.
func TestSnapshotThatCouldNotBeReadIsNotWritten(t *testing.T) {
	l := &keyLog{m: New()}
	l.do("", CreateSemaphore{Name: "a", Permits: 1})
	l.m.semaphores.mut(l.m.byName["a"]).metadata = []Pair{{"k", strings.Repeat("v", maxRecordBytes)}}
	if err := l.m.Freeze().Write(new(bytes.Buffer)); err == nil {
		t.Error("it was written")
	}
}

// TestEndedSessionsAreRememberedOnce: an id that ends again and again leaves one record.
func TestEndedSessionsAreRememberedOnce(t *testing.T) {
	l := &keyLog{m: New()}
	l.do("", OpenSession{Session: 1, TTLMS: 0}) // the oldest one
	var list [][]byte
	for range 1000 {
		list = append(list, Envelope{}.Encode(RestoreSession{Session: 7, TTLMS: 0}))
	}
	l.index++
	l.m.Apply(l.index, EncodeEntry(0, list))
	if l.m.ended.live != 2 || len(l.m.ended.pages) != 1 {
		t.Errorf("%d are remembered, in %d pages", l.m.ended.live, len(l.m.ended.pages))
	}
	if err := l.m.check(); err != nil {
		t.Error(err)
	}
}
