package lead

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
)

// send has a proposer make an entry of one command.
func send(p *proposer) {
	single, _ := fakes(1, 10)
	p.Propose(single)
	synctest.Wait()
}

// fill has a proposer make as many entries as may be in flight.
func fill(p *proposer) {
	for range entriesInFlight {
		send(p)
		<-time.After(flightPatience) // virtual
	}
}

// TestProposerAwaitsFlight: what comes while an entry is in flight leaves once that one has come back, with
// whatever outcome, or flightPatience after it was made.
func TestProposerAwaitsFlight(t *testing.T) {
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
				send(p)
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

// TestProposerAwaitsFlightAtOnce: a command that comes right after an entry was made, while the proposer is still busy,
// waits for that entry, too. (Here a suspension of the process keeps it busy.)
func TestProposerAwaitsFlightAtOnce(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		<-time.After(time.Second) // virtual: beats are counted from 1 on
		r.taken = func() {
			p.pulse.beat(time.Since(p.pulse.epoch))
			p.pulse.resumed.Store(int64(time.Since(p.pulse.epoch) - hangUpGrace + time.Millisecond))
		}
		send(p)
		send(p)
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

// TestProposerAwaitsFlightOfTheLastEntry: commands that became void make no entry, and so the ones that come after
// them wait no longer.
func TestProposerAwaitsFlightOfTheLastEntry(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		send(p)
		void, all := fakes(1, 10)
		all[0].withdrawn = outcome.Verdict{Fate: outcome.Late}
		p.Propose(void)
		<-time.After(flightPatience + time.Millisecond) // virtual
		send(p)
		if logged := len(r.logged()); logged != 2 || len(all[0].failed) != 1 {
			t.Errorf("%d entries, %d void commands failed", logged, len(all[0].failed))
		}
	})
}

// TestProposerAwaitsFlightWithTicks: a tick waits for the entry in flight, too, and then has one that was stamped after it.
func TestProposerAwaitsFlightWithTicks(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		send(p)
		ticked := make(chan uint64, 1)
		go func() {
			index, _ := p.ProposeTick(t.Context())
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
