package lead

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
)

// fill has a proposer send as many entries of one command as may be in flight.
func fill(p *proposer) {
	for range entriesInFlight {
		one, _ := fakes(1, 10)
		p.Propose(one)
		<-time.After(flightPatience) // virtual
		synctest.Wait()
	}
}

// TestProposerIsAlone: what comes while an entry is in flight leaves once that one has come back, with
// whatever outcome, or flightPatience after it was made.
func TestProposerIsAlone(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		comes, returns time.Duration // after the first entry was made
		outcome        error
		leaves         time.Duration
	}{
		"a usual entry":             {comes: ms, returns: 3 * ms, leaves: 3 * ms},
		"one that fails":            {comes: ms, returns: 3 * ms, outcome: raft.ErrLeadershipLost, leaves: 3 * ms},
		"a slow one":                {comes: ms, returns: 30 * ms, leaves: flightPatience},
		"late beside a slow one":    {comes: 20 * ms, returns: 30 * ms, leaves: 20 * ms},
		"a command after the entry": {comes: 5 * ms, returns: 4 * ms, leaves: 5 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
				first, _ := fakes(1, 10)
				p.Propose(first)
				synctest.Wait()
				began := r.logged()[0].at
				time.AfterFunc(c.returns, func() { r.logged()[0].answer(c.outcome) }) // virtual, as all of it
				<-time.After(c.comes)
				next, _ := fakes(1, 10)
				p.Propose(next)
				<-time.After(time.Second)
				entries := r.logged()
				if len(entries) != 2 {
					t.Fatalf("%d entries", len(entries))
				}
				if after := entries[1].at.Sub(began); after != c.leaves {
					t.Errorf("the second entry left %v after the first, want %v", after, c.leaves)
				}
			})
		})
	}
}

// TestProposerIsAloneAtOnce: a command that comes right after an entry was made, while the proposer is still busy,
// waits for that entry, too. (Here a suspension of the process keeps it busy.)
func TestProposerIsAloneAtOnce(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		<-time.After(time.Second) // virtual: beats are counted from 1 on
		r.taken = func() {
			p.pulse.beat(time.Since(p.pulse.epoch))
			p.pulse.resumed.Store(int64(time.Since(p.pulse.epoch) - hangUpGrace + time.Millisecond))
		}
		for range 2 {
			one, _ := fakes(1, 10)
			p.Propose(one)
			synctest.Wait()
		}
		<-time.After(flightPatience / 2) // virtual
		if logged := len(r.logged()); logged != 1 {
			t.Fatalf("%d entries", logged)
		}
		r.logged()[0].answer(nil)
		<-time.After(flightPatience / 2)
		if logged := len(r.logged()); logged != 2 {
			t.Fatalf("%d entries once the first one came back", logged)
		}
	})
}

// TestProposerCountsFromTheLastEntry: commands that became void make no entry, and so the ones that come after
// them wait no longer.
func TestProposerCountsFromTheLastEntry(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		first, _ := fakes(1, 10)
		p.Propose(first)
		synctest.Wait()
		void, all := fakes(1, 10)
		all[0].withdrawn = outcome.Verdict{Fate: outcome.Late}
		p.Propose(void)
		<-time.After(flightPatience + time.Millisecond) // virtual
		next, _ := fakes(1, 10)
		p.Propose(next)
		synctest.Wait()
		if logged := len(r.logged()); logged != 2 || len(all[0].failed) != 1 {
			t.Errorf("%d entries, %d void commands failed", logged, len(all[0].failed))
		}
	})
}

// TestProposerTicksAlone: a tick waits for the entry in flight, too, and then has one that was stamped after it.
func TestProposerTicksAlone(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		one, _ := fakes(1, 10)
		p.Propose(one)
		synctest.Wait()
		ticked := make(chan uint64, 1)
		go func() {
			index, _ := p.Tick(t.Context())
			ticked <- index
		}()
		synctest.Wait()
		if len(r.logged()) != 1 {
			t.Fatal("a tick has an entry of its own beside one in flight")
		}
		r.logged()[0].answer(nil)
		synctest.Wait()
		r.logged()[1].answer(nil)
		if index := <-ticked; index != 2 {
			t.Errorf("entry %d answers the tick", index)
		}
	})
}

// TestProposerIsAloneInItsTermOnly: the end of a term ends the wait for an entry in flight, and what waited
// is refused.
func TestProposerIsAloneInItsTermOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRaft{}
		p := newProposer(7, newClock(5000, time.Now), r, 10, &fakeAdmission{}, NewPulse(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.run(ctx)
		proposals, all := fakes(2, 10)
		p.Propose(proposals[:1])
		synctest.Wait()
		p.Propose(proposals[1:])
		synctest.Wait()
		cancel()
		if v := <-all[1].failed; v.Fate != outcome.Refused {
			t.Errorf("%v", v)
		}
		<-time.After(time.Second) // virtual
		if len(r.logged()) != 1 {
			t.Error("it was logged after the end")
		}
		r.logged()[0].answer(nil)
		p.flying.Wait()
	})
}
