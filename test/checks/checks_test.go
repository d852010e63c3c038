package checks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/cluster/replica"
	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/test/noderedclient"
	"github.com/signalbox/signalbox/test/throttleclient"
)

// broke expects that a finding has the text want, or, for "", that there is no finding.
func broke(t *testing.T, found []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(found) > 0:
		t.Errorf("a sound history is refused:\n%s", strings.Join(found, "\n"))
	case want != "" && (len(found) == 0 || !strings.Contains(strings.Join(found, "\n"), want)):
		t.Errorf("%q is not found; found:\n%s", want, strings.Join(found, "\n"))
	}
}

// The effects of hand-made logs, on a semaphore of one permit.
func made() fsm.Effect { return created(1) }

func created(permits int64) fsm.Effect {
	return fsm.Effect{Kind: fsm.EffectCreated, Semaphore: "lock", Details: &fsm.EffectDetails{Permits: permits}}
}

func opened(session uint64, deadlineMS int64) fsm.Effect {
	return fsm.Effect{Kind: fsm.EffectSessionOpen, Session: session, DeadlineMS: deadlineMS}
}

func waits(session, place uint64) fsm.Effect {
	return fsm.Effect{Kind: fsm.EffectWaiting, Semaphore: "lock", Session: session, Place: place, Count: 1}
}

func granted(session, place, token uint64) fsm.Effect {
	return fsm.Effect{Kind: fsm.EffectGranted, Semaphore: "lock", Session: session, Place: place, Token: token, Count: 1}
}

func released(session, token uint64, cause fsm.Cause) fsm.Effect {
	return fsm.Effect{Kind: fsm.EffectReleased, Semaphore: "lock", Session: session, Token: token, Count: 1, Cause: cause}
}

func ended(session uint64, cause fsm.Cause) fsm.Effect {
	return fsm.Effect{Kind: fsm.EffectSessionEnded, Session: session, Cause: cause}
}

// logOf makes one entry of each list of effects, one second apart.
func logOf(entries ...[]fsm.Effect) (log []Logged) {
	for i, effects := range entries {
		log = append(log, Logged{EventEntry: replica.EventEntry{Index: uint64(i + 1), NowMS: int64(i+1) * 1000, Effects: effects}, seen: time.Unix(int64(i+1), 0)})
	}
	return log
}

type effects = []fsm.Effect

// TestLogChecker: each log but the first breaks one promise.
func TestLogChecker(t *testing.T) {
	begin := effects{made(), opened(1, 9000), opened(2, 9000), opened(3, 9000), granted(1, 0, 1)}
	for name, c := range map[string]struct {
		log  []Logged
		want string
	}{
		"sound": {logOf(begin, effects{waits(2, 1)}, effects{waits(3, 2)},
			effects{released(1, 1, fsm.CauseEnded), granted(2, 1, 2)}, effects{released(2, 2, fsm.CauseEnded), granted(3, 2, 3)}), ""},
		"a wake without a release": {logOf(begin, effects{waits(2, 1)}, effects{granted(2, 1, 2)}), "1 permits are missing"},
		"a token not raised":       {logOf(begin, effects{released(1, 1, fsm.CauseEnded), granted(2, 0, 1)}), "a token of 1 was given before"},
		"a line out of order": {logOf(begin, effects{waits(2, 1)}, effects{waits(3, 2)},
			effects{released(1, 1, fsm.CauseEnded), granted(3, 2, 2)}), "place 1 is before it"},
		"a newcomer before the line":          {logOf(begin, effects{waits(2, 1)}, effects{released(1, 1, fsm.CauseEnded), granted(3, 0, 2)}), "place 1 waits"},
		"no wake after a release":             {logOf(begin, effects{waits(2, 1)}, effects{released(1, 1, fsm.CauseEnded)}), "place 1 of lock wants 1 and waits"},
		"an expiry too early":                 {logOf(begin, effects{released(1, 1, fsm.CauseExpired), ended(1, fsm.CauseExpired)}), "lives until 9000 ms, and it is 2000"},
		"a session ends and leaves its lease": {logOf(begin, effects{ended(1, fsm.CauseEnded)}), "leaves a lease of lock behind"},
		"a renewal of the dead": {logOf(begin, effects{ended(2, fsm.CauseEnded)},
			effects{{Kind: fsm.EffectSessionRenewed, Session: 2, DeadlineMS: 9000}}), "does not live"},
		"a lease given back twice": {logOf(begin, effects{released(1, 1, fsm.CauseEnded)}, effects{released(1, 1, fsm.CauseEnded)}), "the session holds"},
		"a second lease":           {logOf(effects{created(2), opened(1, 9000), granted(1, 0, 1), granted(1, 0, 2)}), "has token 1 already"},
		"a place given before":     {logOf(begin, effects{waits(2, 2)}, effects{waits(3, 1)}), "place 2 was given before"},
		"a taken permit before the line": {logOf(begin, effects{waits(2, 1)},
			effects{{Kind: fsm.EffectChanged, Semaphore: "lock", Details: &fsm.EffectDetails{Permits: 1, Offset: -1}}}), "taken before those who wait"},
	} {
		t.Run(name, func(t *testing.T) {
			broke(t, Log(c.log).Broken, c.want)
		})
	}
	back := logOf(begin, effects{})
	back[1].Index, back[1].NowMS = 1, 500
	broke(t, Log(back).Broken, "the index before is 1")
	broke(t, Log(back).Broken, "cluster time falls")
}

// TestEventLogChecker: nodes that show different events, or between them not all.
func TestEventLogChecker(t *testing.T) {
	page := func(next uint64, entries ...Logged) (p replica.EventPage) {
		for _, e := range entries {
			p.Entries = append(p.Entries, e.EventEntry)
		}
		p.Next.Index = next
		return p
	}
	logged, differing := logOf(effects{made()}), logOf(effects{made()})
	differing[0].Effects[0].Details = &fsm.EffectDetails{Permits: 2}
	l := NewEventLog()
	l.Take("n1", page(5, logged...), replica.EventID{})
	l.Take("n2", page(5, logged...), replica.EventID{})
	l.Take("n3", page(9), replica.EventID{Index: 3})
	if _, gap := l.All(); gap != 0 || len(l.Differ) > 0 {
		t.Errorf("a gap at %d; %v", gap, l.Differ)
	}
	l.Take("n3", page(20), replica.EventID{Index: 12})
	if _, gap := l.All(); gap != 10 {
		t.Errorf("the gap is at %d, not at 10", gap)
	}
	l.Take("n3", page(5, differing...), replica.EventID{})
	broke(t, l.Differ, "index 1 is")
}

// TestLinearChecker: each history but the sound ones has no order.
func TestLinearChecker(t *testing.T) {
	acquire := func(lease string, token uint64, call, ret int64) Operation {
		return Operation{Kind: "acquire", Semaphore: "lock", Lease: lease, Count: 1, Exact: true, Outcome: Done, Token: token, Call: call, Ret: ret}
	}
	release := func(lease string, call, ret int64) Operation {
		return Operation{Kind: "release", Semaphore: "lock", Lease: lease, Outcome: Done, Call: call, Ret: ret}
	}
	drop := func(lease string, call int64) Operation {
		return Operation{Kind: "drop", Semaphore: "lock", Lease: lease, Outcome: Unknown, Call: call, Ret: endless}
	}
	read := func(held, call, ret int64) Operation {
		return Operation{Kind: "read", Semaphore: "lock", Outcome: Done, Held: held, Available: 1 - held, Call: call, Ret: ret}
	}
	refusal := func(call, ret int64) Operation {
		return Operation{Kind: "acquire", Semaphore: "lock", Lease: "x", Count: 1, Exact: true, Call: call, Ret: ret}
	}
	lostReply := acquire("a", 0, 1, endless)
	lostReply.Outcome = Unknown
	givenUp := func(call, ret int64) Operation {
		return Operation{Kind: "acquire", Semaphore: "lock", Lease: "w", Count: 1, Outcome: Withdrawn, Call: call, Ret: ret}
	}
	withdrawal := func(call, ret int64) Operation {
		return Operation{Kind: "withdraw", Semaphore: "lock", Lease: "w", Outcome: Withdrawn, Call: call, Ret: ret}
	}
	count := func(kind string, n, after, call, ret int64) Operation {
		return Operation{Kind: kind, Semaphore: "lock", Count: n, Exact: true, Outcome: Done, Available: after, Call: call, Ret: ret}
	}
	lostUp := count("up", 3, 0, 1, endless)
	lostUp.Outcome = Unknown
	const never = "have no order"
	for name, c := range map[string]struct {
		list []Operation
		want string
	}{
		"sound":                        {[]Operation{acquire("a", 1, 1, 2), refusal(3, 4), release("a", 5, 6), acquire("b", 2, 7, 8), read(1, 9, 10)}, ""},
		"sound: beside each other":     {[]Operation{acquire("a", 1, 1, 9), release("a", 10, 20), acquire("b", 2, 2, 15), read(1, 3, 8)}, ""},
		"sound: a lost reply":          {[]Operation{lostReply, read(0, 2, 3), refusal(4, 5), drop("a", 6), acquire("b", 2, 7, 8)}, ""},
		"sound: an expiry":             {[]Operation{acquire("a", 1, 1, 2), drop("a", 3), refusal(4, 5), acquire("b", 2, 6, 7)}, ""},
		"sound: counting":              {[]Operation{count("up", 2, 3, 1, 2), count("down", 3, 0, 3, 4), count("set", 7, 7, 5, 6), count("down", 1, 6, 7, 8)}, ""},
		"sound: a lost up":             {[]Operation{lostUp, count("down", 1, 0, 2, 3), count("down", 1, 2, 4, 5)}, ""},
		"sound: a withdrawn grant":     {[]Operation{givenUp(1, 9), withdrawal(1, 9), read(1, 2, 3), read(0, 4, 5), acquire("a", 1, 10, 11)}, ""},
		"sound: withdrawn from a line": {[]Operation{acquire("a", 1, 1, 2), givenUp(3, 9), withdrawal(3, 9), read(1, 10, 11)}, ""},
		"granted after a withdrawal":   {[]Operation{givenUp(1, 3), withdrawal(1, 3), read(1, 4, 5)}, never},
		"withdrawn, and granted twice": {[]Operation{givenUp(1, 9), withdrawal(1, 9), read(1, 2, 3), read(0, 4, 5), read(1, 6, 7)}, never},
		"two holders of one permit":    {[]Operation{acquire("a", 1, 1, 2), acquire("b", 2, 3, 4), release("a", 5, 6)}, never},
		"a token not raised":           {[]Operation{acquire("a", 2, 1, 2), release("a", 3, 4), acquire("b", 2, 5, 6)}, never},
		"an expiry before its time":    {[]Operation{acquire("a", 1, 1, 2), acquire("b", 2, 3, 4), drop("a", 5)}, never},
		"a stale read":                 {[]Operation{acquire("a", 1, 1, 2), read(0, 3, 4), release("a", 5, 6)}, never},
		"a refusal of a free permit":   {[]Operation{refusal(1, 2)}, never},
		"a lost lease":                 {[]Operation{acquire("a", 1, 1, 2), read(0, 3, 4), read(0, 5, 6)}, never},
		"a release of nothing":         {[]Operation{release("a", 1, 2)}, never},
		"a lost reply, granted late":   {[]Operation{lostReply, acquire("b", 1, 2, 3), read(0, 4, 5)}, never},
		"a value that is wrong":        {[]Operation{count("up", 2, 4, 1, 2)}, never},
		"an up twice":                  {[]Operation{lostUp, count("down", 1, 6, 2, 3)}, never},
		"more taken than there is":     {[]Operation{count("down", 2, -1, 1, 2)}, never},
		"a refused down that had room": {[]Operation{{Kind: "down", Semaphore: "lock", Count: 1, Exact: true, Call: 1, Ret: 2}}, never},
	} {
		t.Run(name, func(t *testing.T) {
			found, undecided := Linear(c.list, map[string]int64{"lock": 1}, 10*time.Second)
			if broke(t, found, c.want); len(undecided) > 0 {
				t.Errorf("not decided: %v", undecided)
			}
		})
	}
}

// TestRealTimeCheckers: leases that clients count on, writes, reads and expiries.
func TestRealTimeCheckers(t *testing.T) {
	permits := map[string]int64{"lock": 1, "db": 3}
	lease := func(semaphore string, count, from, to int64) Belief {
		return Belief{Semaphore: semaphore, Session: "1", Token: 1, Count: count, From: from, To: to}
	}
	broke(t, Beliefs([]Belief{lease("lock", 1, 1, 5), lease("lock", 1, 5, 7), lease("db", 2, 1, 9), lease("db", 1, 2, 3)}, permits), "")
	broke(t, Beliefs([]Belief{lease("lock", 1, 1, 5), lease("lock", 1, 4, 7)}, permits), "count on 2 permits of lock")
	broke(t, Beliefs([]Belief{lease("db", 2, 1, 5), lease("db", 2, 4, 7)}, permits), "count on 4 permits of db")

	grants := map[GrantKey]uint64{{"lock", "1", 1}: 10, {"lock", "2", 2}: 20, {"lock", "3", 2}: 30}
	broke(t, Grants([]Belief{lease("lock", 1, 1, 5)}, grants), "")
	broke(t, Grants([]Belief{lease("db", 1, 1, 5)}, grants), "no event has granted token 1 of db")

	sent := func(session string, token uint64, accepted, valid bool) Write {
		return Write{Semaphore: "lock", Session: session, Token: token, Accepted: accepted, Valid: valid}
	}
	broke(t, Writes([]Write{sent("1", 1, true, true), sent("2", 2, true, true), sent("1", 1, false, false)}, grants), "")
	broke(t, Writes([]Write{sent("2", 2, true, true), sent("1", 1, true, false)}, grants), "took a stale write")
	broke(t, Writes([]Write{sent("3", 2, true, true), sent("2", 2, true, false)}, grants), "took a stale write")
	broke(t, Writes([]Write{sent("2", 2, false, true)}, grants), "refused a valid write")
	broke(t, Writes([]Write{sent("9", 9, true, true)}, grants), "no event has granted")

	shown := func(index uint64, call, ret int64) SeenIndex { return SeenIndex{"lock", index, call, ret} }
	broke(t, Indexes([]SeenIndex{shown(5, 1, 2), shown(5, 3, 9), shown(7, 4, 5), shown(7, 10, 11)}), "")
	broke(t, Indexes([]SeenIndex{shown(7, 1, 2), shown(5, 3, 4)}), "shows index 5, after another one showed 7")

	began := time.Now()
	after := func(d time.Duration) map[string]time.Time {
		return map[string]time.Time{"4": began.Add(d), "5": began.Add(time.Hour)}
	}
	expired := map[uint64]Logged{4: {seen: began.Add(10 * time.Second)}}
	ttls := map[string]time.Duration{"4": 10 * time.Second}
	broke(t, Expiries(expired, after(10200*time.Millisecond), ttls, 0.03), "")
	broke(t, Expiries(expired, after(11*time.Second), ttls, 0.03), "session 4 was seen to expire 1s before")
}

// TestExpiriesAreJudged: Judge finds a session that expires before the last of its deadlines.
func TestExpiriesAreJudged(t *testing.T) {
	events := NewEventLog()
	h := NewHistory()
	h.NoteTTL("4", 10*time.Second)
	h.NoteDeadline("4", time.Now().Add(10*time.Second))
	h.NoteDeadline("4", time.Now().Add(-time.Second)) // takes nothing back
	events.Take("n1", replica.EventPage{Next: replica.EventID{Index: 3}, Entries: []replica.EventEntry{
		{Index: 1, Effects: effects{opened(4, 1000)}}, {Index: 2, NowMS: 1000, Effects: effects{ended(4, fsm.CauseExpired)}},
	}}, replica.EventID{})
	broken, _ := Judge(h, events, nil, 0)
	broke(t, broken, "session 4 was seen to expire")
}

// TestUnexpectedReplies: a fault explains lost connections and 5xx, and no other refusal.
func TestUnexpectedReplies(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{context.DeadlineExceeded, false},
		{&net.OpError{Op: "read", Err: io.EOF}, false},
		{fmt.Errorf("the body: %w", io.ErrUnexpectedEOF), false},
		{throttleclient.ErrUnknownPeer, false},
		{&noderedclient.StatusError{Status: 503}, false},
		{&throttleclient.HTTPError{Status: 429}, false},
		{&noderedclient.StatusError{Status: 404}, true},
		{&throttleclient.HTTPError{Status: 404}, true},
		{&throttleclient.ValueError{Text: "no"}, true},
		{noderedclient.ErrUnknown, true},
		{errors.New("an answer about another semaphore"), true},
	} {
		if got := unexpected(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}

// TestGaps: the longest time without a change after a loss, which has no end if no change comes after it.
func TestGaps(t *testing.T) {
	for _, test := range []struct {
		lost, until int64
		changes     []int64
		want        Gap
	}{
		{10, 20, []int64{5, 9, 12, 19, 29, 60, 99}, 10},
		{10, 20, []int64{5, 30, 99}, 25},
		{10, 20, []int64{2, 9, 12, 21}, 9},
		{10, 20, nil, NoEnd},
		{10, 20, []int64{5, 9}, NoEnd},
		{10, 20, []int64{5, 9, 19}, NoEnd},
		{10, 20, []int64{5, 9, 11, 20}, 9},
	} {
		h := NewHistory()
		for i := range test.changes {
			h.Add(Operation{Kind: "up", Outcome: Done, Ret: test.changes[len(test.changes)-1-i]})
			h.Add(Operation{Kind: "read", Outcome: Done, Ret: 15})
			h.Add(Operation{Kind: "up", Outcome: Unknown})
		}
		if got := h.LongestGap(test.lost, test.until); got != test.want {
			t.Errorf("lost at %d, changes %v: a gap of %v (%d)", test.lost, test.changes, got, got)
		}
	}
	if got := []string{NoEnd.String(), Gap(1_600_000).String()}; got[0] != "without end" || got[1] != "2ms" {
		t.Errorf("gaps are written %q", got)
	}
}
