//go:build unix

package fsm

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
)

// fullLimits makes TestExhaustedLimits fill the default limits, which takes minutes:
//
//	go test ./fsm -run TestExhaustedLimits -full-limits -v
var fullLimits = flag.Bool("full-limits", false, "fill the default limits in TestExhaustedLimits")

// limitOf is one limit, and the commands that come up to it.
type limitOf struct {
	rule   Rule
	most   func(*Limits) *int64
	beside int64 // what counts and is there before
	fill   func(i int) (Command, string)
	room   func() Command // takes one away
}

// boundsOf are the limits that any client can reach. Everything is asked of semaphores and
// sessions that exhausted makes.
func boundsOf(size int) map[string]limitOf {
	lines := size/10 + 1
	session := func(i int) uint64 { return uint64(i) + 1000 }
	end := func() Command { return EndSession{Session: session(0)} }
	return map[string]limitOf{
		"names": {RuleSemaphores, func(l *Limits) *int64 { return &l.Semaphores }, int64(lines) + 3,
			func(i int) (Command, string) { return CreateSemaphore{Name: nameOf(i)}, "" }, func() Command { return DeleteSemaphore{Name: nameOf(0)} }},
		"sessions": {RuleSessions, func(l *Limits) *int64 { return &l.Sessions }, 1,
			func(i int) (Command, string) { return OpenSession{Session: session(i), TTLMS: MaxTTLMS}, "" }, end},
		"leases": {RuleLeases, func(l *Limits) *int64 { return &l.Leases }, 1,
			func(i int) (Command, string) {
				return AcquireOnce{Name: "many", Count: 1, TTLMS: MaxTTLMS, Session: session(i)}, ""
			}, end},
		"waiting requests": {RuleWaiting, func(l *Limits) *int64 { return &l.Waiting }, 0,
			func(i int) (Command, string) {
				return AcquireOnce{Name: fmt.Sprintf("line-%d", i%lines), Count: 1, TTLMS: 1000, WaitMS: MaxTTLMS, Session: session(i)}, ""
			}, end},
		"waiting requests in one line": {RuleQueue, func(l *Limits) *int64 { return &l.Queue }, 0,
			func(i int) (Command, string) {
				return AcquireOnce{Name: "none", Count: 1, TTLMS: 1000, WaitMS: MaxTTLMS, Session: session(i)}, ""
			}, end},
		"keys": {RuleKeys, func(l *Limits) *int64 { return &l.Keys }, 0,
			func(i int) (Command, string) { return Up{Name: "many", Count: 1}, fmt.Sprintf("key-%013d", i) }, nil},
		"notices": {RuleNotices, nil, 0,
			func(i int) (Command, string) {
				return Down{Name: fmt.Sprintf("line-%d", i/maxNoticesHere), Count: 1, Notice: "http://hooks.example/free"}, ""
			}, func() Command { return DeleteSemaphore{Name: "line-0"} }},
	}
}

// exhausted returns a machine whose limits are far away but for one, with a session that has a
// lease.
func exhausted(c limitOf, most, lines int) *loader {
	limits := DefaultLimits()
	for _, limit := range limits.fields() {
		*limit = 1 << 40
	}
	if c.most != nil {
		*c.most(&limits) = int64(most)
	}
	l := &loader{m: New()}
	l.add(StartTerm{Term: 1, Limits: limits})
	l.add(CreateSemaphore{Name: "many", Permits: 1 << 40})
	l.add(CreateSemaphore{Name: "none", Permits: 1})
	l.add(Down{Name: "none", Count: 1})
	l.add(CreateSemaphore{Name: "held", Permits: 1})
	for i := range lines {
		name := fmt.Sprintf("line-%d", i)
		l.add(CreateSemaphore{Name: name, Permits: 1})
		l.add(Down{Name: name, Count: 1})
	}
	l.add(OpenSession{Session: 1, TTLMS: 30_000})
	l.add(Acquire{Session: 1, Name: "held", Count: 1, TTLMS: KeepTTL})
	l.flush()
	return l
}

// sizes are what a refused command must not change.
func (l *loader) sizes() []int64 {
	m := l.m
	return []int64{int64(m.semaphores.live), int64(m.sessions.live), int64(m.leases.live), int64(m.requests.live), int64(m.keys.live),
		int64(m.notices.live), int64(m.marks.length), int64(m.ended.live), m.keyBytes, int64(m.members), int64(m.tokens), int64(m.places)}
}

// last applies what is pending with one command more, and returns its result.
func (l *loader) last(c Command, key string) Result {
	l.addBy(Envelope{Request: RequestID{1, 1}, Key: key}, c)
	if len(l.pending) == 0 {
		panic("the command was applied with others")
	}
	applied := l.flush()
	return applied.Commands[len(applied.Commands)-1].Result
}

// TestExhaustedLimits fills a machine to each limit. What is asked for beyond it is refused
// and changes nothing; a session from before renews, releases and acquires; and where
// something ends, as much is taken again.
func TestExhaustedLimits(t *testing.T) {
	size := 3000
	if *fullLimits {
		size = 1_000_000
	}
	all := boundsOf(size)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			c, bound := all[name], size
			switch {
			case c.most == nil:
				bound = maxNotices
			case *fullLimits:
				limits := DefaultLimits()
				bound = int(*c.most(&limits))
			}
			l := exhausted(c, bound, size/10+1)
			free := bound - int(c.beside)
			before := reachable()
			l.check = func(applied *Applied) {
				for i := range applied.Commands {
					if r := applied.Commands[i].Result; r.Code != OK && r.Code != Waiting && (c.rule != RuleNotices || r.Code != Unavailable) {
						t.Fatalf("within the limit: %v, rule %v", r.Code, r.Rule)
					}
				}
			}
			for i := range free {
				command, key := c.fill(i)
				l.addBy(Envelope{Request: RequestID{1, 1}, Key: key}, command)
			}
			l.flush()
			l.check = nil
			t.Logf("%d taken, %d bytes of each", free, (reachable()-before)/int64(free))
			full := l.sizes()
			for i := range 10 {
				if r := l.last(c.fill(free + i)); r.Code != LimitReached || r.Rule != c.rule || r.Why().Limit != 0 && r.Why().Limit != int64(bound) {
					t.Errorf("beyond the limit: %v, rule %v, limit %d", r.Code, r.Rule, r.Why().Limit)
				}
			}
			if now := l.sizes(); !slices.Equal(now, full) {
				t.Errorf("refused commands changed %d into %d", full, now)
			}
			for i, command := range []Command{Renew{Renewals: []Renewal{{1, KeepTTL}}}, Release{Session: 1, Name: "held"}, Acquire{Session: 1, Name: "held", Count: 1, TTLMS: KeepTTL}} {
				if r := l.last(command, ""); r.Code != OK || len(r.Each) > 0 && r.Each[0].Code != OK {
					t.Errorf("%d: a session from before: %v", i, r.Code)
				}
			}
			if c.room != nil {
				l.last(c.room(), "")
				if c.rule == RuleNotices { // notices of a deleted semaphore count until they are delivered
					l.last(NoticeDone{IDs: []uint64{l.m.DueNotices()[0].ID}}, "")
				}
				command, key := c.fill(free + 20)
				if r := l.last(command, key); r.Code == LimitReached {
					t.Errorf("after one has ended: %v, rule %v", r.Code, r.Rule)
				}
			} else { // keys end by time
				l.stampMS = keysKeptMS + 1
				l.last(Renew{Renewals: []Renewal{{1, KeepTTL}}}, "")
				if r := l.last(c.fill(free + 20)); r.Code != OK {
					t.Errorf("after their time: %v", r.Code)
				}
			}
			if err := l.m.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// reachable returns the bytes of the heap.
func reachable() int64 {
	runtime.GC()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}
