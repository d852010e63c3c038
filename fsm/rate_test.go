package fsm

import (
	"math/rand/v2"
	"testing"
)

// rateRun is a semaphore with a window under steady demand, in virtual time.
type rateRun struct {
	m       *Machine
	nowMS   int64 // time in which there is a leader: clients see no less pass between two grants
	aheadMS int64 // cluster time is ahead by so much: a restore moves it on
	asked   uint64
	grants  []rateGrant
	settle  []Command // of receipts, with the next entry
}

type rateGrant struct {
	atMS, count int64
	group       string
	token       uint64
}

const (
	rateWindowMS = 60_000
	rateStepMS   = 50
)

func (r *rateRun) apply(commands ...Command) {
	commands = append(r.settle, commands...)
	r.settle = nil
	applied := r.m.Apply(r.m.Index()+1, EncodeEntry(r.nowMS+r.aheadMS, encodeAll(plain(commands...))))
	for _, e := range applied.Effects {
		switch e.Kind {
		case EffectGranted:
			r.grants = append(r.grants, rateGrant{r.nowMS, e.Count, e.DetailsOrZero().Group, e.Token})
			if e.Token%3 == 1 {
				r.settle = append(r.settle, ResizeLease{Session: e.Session, Name: "rate", Group: e.DetailsOrZero().Group, Count: e.Count - 1})
			}
		case EffectSettled:
			for i := range r.grants {
				if r.grants[i].token == e.Token {
					r.grants[i].count = e.Count
				}
			}
		}
	}
}

// disturb is an election after an outage, in which no time passes, a restart from a snapshot, or a
// restore from a backup.
func (r *rateRun) disturb(t *testing.T, which int) {
	term := StartTerm{Term: r.m.Term() + 1, Leader: "n1", Limits: DefaultLimits(), Jump: which%2 == 0}
	switch which % 3 {
	case 1:
		r.m = reread(t, r.m)
	case 2:
		restored := reread(t, r.m)
		if err := restored.Succeed(Succession{Own: r.m.StateHeader(), Index: r.m.Index() + 1, NowMS: r.m.NowMS() + 12_345}); err != nil {
			t.Fatal(err)
		}
		r.m, r.aheadMS = restored, r.aheadMS+12_345
	}
	r.apply(term)
}

// busiest returns the largest number of permits that any window has, of one group or, if all, of all.
func (r *rateRun) busiest(group string, all bool) (largest int64) {
	var sum int64
	first := 0
	for _, g := range r.grants {
		if !all && g.group != group {
			continue
		}
		for sum += g.count; r.grants[first].atMS <= g.atMS-rateWindowMS; first++ {
			if all || r.grants[first].group == group {
				sum -= r.grants[first].count
			}
		}
		largest = max(largest, sum)
	}
	return largest
}

// TestRate: no window has more grants than there are permits, in all and in each group, over
// elections, outages, restarts and restores; and steady demand gets 98 % of them.
func TestRate(t *testing.T) {
	const windows, disturbedMS = 12, 7_300
	groups := []string{"a", "b", "c", "d"}
	for _, c := range []struct {
		name          string
		settings      SettingsChange
		permits, each int64 // in a window: in all, of each group; 0: no limit
		groups        []string
		receipts      bool
		demand        float64 // requests in a step
	}{
		{name: "plain", permits: 600, groups: []string{""}, demand: 0.55},
		{name: "receipts", permits: 600, groups: []string{""}, receipts: true, demand: 0.55},
		{name: "pool", settings: SettingsChange{Groups: given(ByRequest), PerGroup: given[int64](200)}, permits: 600, each: 200, groups: groups, demand: 0.6},
		{name: "pool of receipts", settings: SettingsChange{Groups: given(ByRequest), PerGroup: given[int64](300)}, permits: 600, each: 300, groups: groups[:3], receipts: true, demand: 0.55},
		{name: "family", settings: SettingsChange{Groups: given(ByRequest), Family: true, PerGroup: given[int64](150)}, each: 150, groups: groups, demand: 0.6},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &rateRun{m: New(), nowMS: 17}
			c.settings.WindowMS = given[int64](rateWindowMS)
			r.apply(StartTerm{Term: 1, Limits: DefaultLimits()}, CreateSemaphore{Name: "rate", Permits: c.permits, Settings: c.settings})
			random := rand.New(rand.NewPCG(1, 2))
			disturbed, demand := 0, 0.0
			for r.nowMS < windows*rateWindowMS {
				r.nowMS += rateStepMS
				if r.nowMS/disturbedMS > int64(disturbed) {
					disturbed++
					r.disturb(t, disturbed)
				}
				var ask []Command
				for demand += c.demand; demand >= 1; demand-- {
					r.asked++
					group := c.groups[random.IntN(len(c.groups))]
					if c.receipts {
						ask = append(ask, AcquireOnce{Name: "rate", Group: group, Count: 1 + random.Int64N(2), TTLMS: 1000, WaitMS: 2_000, Session: r.asked})
					} else {
						ask = append(ask, Down{Name: "rate", Group: group, Count: 1, WaitMS: 2_000, Session: r.asked})
					}
				}
				r.apply(ask...)
			}
			if err := r.m.check(); err != nil {
				t.Fatal(err)
			}
			var granted int64
			for _, g := range r.grants {
				if g.atMS >= 2*rateWindowMS {
					granted += g.count
				}
			}
			measured := r.nowMS - 2*rateWindowMS
			share := c.permits
			if share == 0 {
				share = c.each * int64(len(c.groups))
			}
			if used := float64(granted) / (float64(share) * float64(measured) / rateWindowMS); used < 0.98 {
				t.Errorf("%.1f %% of the permits are used", 100*used)
			} else {
				t.Logf("%d requests, %.1f %% of the permits are used, at most %d in a window", r.asked, 100*used, r.busiest("", true))
			}
			if largest := r.busiest("", true); c.permits > 0 && largest > c.permits {
				t.Errorf("%d of %d permits are granted in a window", largest, c.permits)
			}
			for _, group := range c.groups {
				if largest := r.busiest(group, false); c.each > 0 && largest > c.each {
					t.Errorf("group %q is granted %d of %d in a window", group, largest, c.each)
				}
			}
		})
	}
}
