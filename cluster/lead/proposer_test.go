package lead

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/cluster/raftlib"
	"github.com/signalbox/signalbox/fsm"
)

// fakeRaft takes entries and completes them when a test says so.
type fakeRaft struct {
	Raft
	taken func() // called with each entry; may be nil

	mu      sync.Mutex
	entries []*fakeFuture
}

func (r *fakeRaft) Apply(entry []byte, _ time.Duration) raft.ApplyFuture {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken != nil {
		r.taken()
	}
	f := &fakeFuture{entry: entry, index: uint64(len(r.entries) + 1), answered: make(chan struct{}), at: time.Now()}
	r.entries = append(r.entries, f)
	return f
}

// logged returns the entries so far.
func (r *fakeRaft) logged() []*fakeFuture {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*fakeFuture(nil), r.entries...)
}

type fakeFuture struct {
	entry    []byte
	index    uint64
	at       time.Time
	answered chan struct{}
	err      error
	response any
}

func (f *fakeFuture) answer(err error) {
	f.err = err
	close(f.answered)
}

func (f *fakeFuture) Error() error          { <-f.answered; return f.err }
func (f *fakeFuture) Index() uint64         { return f.index }
func (f *fakeFuture) Response() interface{} { return f.response }

// commands returns how many commands an entry has, and its term and stamp.
func (f *fakeFuture) commands() (term uint64, stamp int64, count uint64) {
	term, size := binary.Uvarint(f.entry)
	rest := f.entry[size+1:]
	stamp, size = binary.Varint(rest)
	count, _ = binary.Uvarint(rest[size:])
	return term, stamp, count
}

// fakeProposal notes how it failed.
type fakeProposal struct {
	data   []byte
	class  Class // 0: a renewal
	weight int   // 0: 1
	failed chan outcome.Verdict

	withdrawn outcome.Verdict
}

func (p *fakeProposal) Command() []byte { return p.data }

func (p *fakeProposal) Failed(v outcome.Verdict) { p.failed <- v }

func (p *fakeProposal) Load() Load {
	return Load{Class: p.class, Weight: max(1, p.weight), Bytes: len(p.data)}
}

func (p *fakeProposal) WhyWithdrawn() outcome.Verdict { return p.withdrawn }

// fakeAdmission takes everything but commands of one length.
type fakeAdmission struct {
	refuses int    // bytes; 0: no command
	refused uint64 // the last term in which Raft has refused an entry
}

func (a *fakeAdmission) Refuses(command []byte) error {
	if len(command) == a.refuses {
		return outcome.ErrStorageFull
	}
	return nil
}

func joinsNothing([]byte) bool { return false }

func (a *fakeAdmission) RaftRefused(term uint64) { a.refused = term }

// proposerRun runs a proposer on a fake Raft in a bubble.
func proposerRun(t *testing.T, limit int, test func(t *testing.T, p *proposer, r *fakeRaft)) {
	t.Helper()
	tracedRun(t, limit, nil, test)
}

// tracedRun is proposerRun with a tracer.
func tracedRun(t *testing.T, limit int, tracer Tracer, test func(t *testing.T, p *proposer, r *fakeRaft)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRaft{}
		p := newProposer(7, newClock(5000, time.Now), r, limit, &fakeAdmission{}, joinsNothing, NewPulse(), tracer)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.run(ctx)
		}()
		test(t, p, r)
		cancel()
		<-done
		for _, f := range r.logged() {
			select {
			case <-f.answered:
			default:
				f.answer(raft.ErrLeadershipLost)
			}
		}
		p.inFlight.Wait()
	})
}

// fakes makes so many proposals of that many bytes.
func fakes(count, bytes int) (proposals []Proposal, all []*fakeProposal) {
	for range count {
		p := &fakeProposal{data: make([]byte, bytes), failed: make(chan outcome.Verdict, 1)}
		all = append(all, p)
		proposals = append(proposals, p)
	}
	return proposals, all
}

func TestProposerBatchesWhatWaits(t *testing.T) {
	proposerRun(t, 10_000, func(t *testing.T, p *proposer, r *fakeRaft) {
		expect := func(step string, want ...uint64) {
			t.Helper()
			synctest.Wait()
			entries := r.logged()
			var got []uint64
			for _, e := range entries {
				term, _, count := e.commands()
				if term != 7 {
					t.Fatalf("%s: an entry of term %d", step, term)
				}
				got = append(got, count)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s: entries of %v commands, want %v", step, got, want)
			}
		}
		began := time.Now()
		send := func(count, bytes int) {
			proposals, _ := fakes(count, bytes)
			if !p.Propose(proposals) {
				t.Fatal("not taken")
			}
		}
		send(1, 10)
		expect("alone it leaves at once", 1)
		send(1, 10)
		for range 50 {
			send(3, 10)
		}
		expect("the rest waits for the entry in flight", 1)
		r.logged()[0].answer(nil)
		expect("and shares the next one", 1, 151)
		send(1023, 10)
		expect("what would fit with one more waits", 1, 151)
		send(977, 10)
		expect("1,024 commands leave beside it", 1, 151, 1024)
		r.logged()[1].answer(nil)
		expect("the rest waits again", 1, 151, 1024)
		r.logged()[2].answer(nil)
		expect("and follows", 1, 151, 1024, 976)
		send(5, 100<<10)
		expect("256 KiB leave beside it, too", 1, 151, 1024, 976, 2)
		r.logged()[3].answer(nil)
		expect("and again", 1, 151, 1024, 976, 2, 2)
		send(1, 1<<20)
		r.logged()[4].answer(nil)
		expect("one command at least", 1, 151, 1024, 976, 2, 2, 1)
		r.logged()[5].answer(nil)
		expect("however large", 1, 151, 1024, 976, 2, 2, 1, 1)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the proposer waited %v on a timer", waited)
		}
	})
}

// TestProposerGathersWhatJoinsQueues: a command that only joins a queue leaves with the next
// other one, with a tick, or when there are many, and after queuePatience alone.
func TestProposerGathersWhatJoinsQueues(t *testing.T) {
	const joins, other = 33, 10 // bytes
	type sent struct {
		class        Class
		count, bytes int
	}
	for name, c := range map[string]struct {
		first int  // commands that join queues
		then  sent // after a millisecond
		tick  bool // after a millisecond
		want  int  // commands of the only entry
		after time.Duration
	}{
		"alone":                {first: 1, want: 1, after: queuePatience},
		"with more of them":    {first: 1, then: sent{ClassSingle, 2, joins}, want: 3, after: queuePatience},
		"with a release":       {first: 1, then: sent{ClassRelease, 1, other}, want: 2, after: time.Millisecond},
		"with any other":       {first: 2, then: sent{ClassSingle, 1, other}, want: 3, after: time.Millisecond},
		"with a tick":          {first: 1, tick: true, want: 1, after: time.Millisecond},
		"many":                 {first: patientCommands + 1, want: patientCommands + 1},
		"many after a while":   {first: 1, then: sent{ClassSingle, patientCommands, joins}, want: patientCommands + 1, after: time.Millisecond},
		"a list goes at once":  {then: sent{ClassListed, 1, joins}, want: 1, after: time.Millisecond},
		"all others do so too": {then: sent{ClassSingle, 1, other}, want: 1, after: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
				p.joins = func(command []byte) bool { return len(command) == joins } // state: before the first command
				began := time.Now()
				send := func(s sent) {
					proposals, all := fakes(s.count, s.bytes)
					for _, q := range all {
						q.class = s.class
					}
					if !p.Propose(proposals) {
						t.Fatal("not taken")
					}
				}
				send(sent{ClassSingle, c.first, joins})
				<-time.After(time.Millisecond) // virtual, as all of it
				send(c.then)
				if c.tick {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() { _, _ = p.ProposeTick(ctx) }()
				}
				<-time.After(2 * queuePatience)
				entries := r.logged()
				if len(entries) != 1 {
					t.Fatalf("%d entries", len(entries))
				}
				_, stamp, count := entries[0].commands()
				if count != uint64(c.want) || entries[0].at.Sub(began) != c.after {
					t.Errorf("%d commands after %v, want %d after %v", count, entries[0].at.Sub(began), c.want, c.after)
				}
				if stamp != 5000+c.after.Milliseconds() { // an earlier one would end leases early
					t.Errorf("stamped %d, which is not when the last of its commands came", stamp)
				}
			})
		})
	}
}

// TestProposerGathersNotBeyondItsTerm: a command that waits for others is refused when the
// term ends, and when the commands are given back.
func TestProposerGathersNotBeyondItsTerm(t *testing.T) {
	for name, end := range map[string]func(*proposer, context.CancelFunc){
		"the term ends": func(_ *proposer, cancel context.CancelFunc) { cancel() },
		"given back":    func(p *proposer, _ context.CancelFunc) { p.GiveBack() },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &fakeRaft{}
			p := newProposer(7, newClock(5000, time.Now), r, 10, &fakeAdmission{}, func(command []byte) bool { return len(command) == 33 }, NewPulse(), nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go p.run(ctx)
			proposals, all := fakes(1, 33)
			all[0].class = ClassSingle
			p.Propose(proposals)
			synctest.Wait()
			end(p, cancel)
			<-time.After(2 * queuePatience) // virtual
			if len(r.logged()) != 0 {
				t.Errorf("%s: it was logged", name)
			}
			select {
			case v := <-all[0].failed:
				if v.Fate != outcome.Refused {
					t.Errorf("%s: %v", name, v)
				}
			default:
				t.Errorf("%s: it was not refused", name)
			}
			cancel()
			synctest.Wait()
		})
	}
}

func TestProposerStampsOnceAnEntry(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		for i, want := range []int64{5000, 25_000, 45_000, 65_000} {
			single, _ := fakes(1, 10)
			p.Propose(single)
			synctest.Wait()
			r.logged()[i].answer(nil)
			if _, stamp, _ := r.logged()[i].commands(); stamp != want {
				t.Errorf("entry %d is stamped %d, want %d", i, stamp, want)
			}
			time.Sleep(20 * time.Second) // virtual: between entries
		}
	})
}

func TestProposerRefusesBeyondItsQueue(t *testing.T) {
	proposerRun(t, 10, func(t *testing.T, p *proposer, r *fakeRaft) {
		fill(p)
		proposals, all := fakes(14, 10)
		overloaded := outcome.Failed.Because(outcome.ErrOverloaded)
		expect := func(refused int) {
			t.Helper()
			for i, proposal := range all {
				select {
				case err := <-proposal.failed:
					if err != overloaded || i < len(all)-refused {
						t.Fatalf("%d: %v", i, err)
					}
				default:
					if i >= len(all)-refused {
						t.Fatalf("%d is taken", i)
					}
				}
			}
		}
		p.Propose(proposals)
		expect(4)
		p.Propose(proposals[10:])
		expect(4)
		r.logged()[0].answer(nil)
		synctest.Wait()
		p.Propose(proposals[10:])
		expect(0)
		mixed, all := fakes(3, 10)
		all[1].data = make([]byte, 11)
		p.admission.(*fakeAdmission).refuses = 11
		r.logged()[1].answer(nil)
		synctest.Wait()
		before := p.Waiting()
		if taken := p.Propose(mixed); !taken || p.Waiting() != before+2 {
			t.Fatalf("of three, one refused for what it is: %v, %d more wait", taken, p.Waiting()-before)
		}
		select {
		case err := <-all[1].failed:
			if err != outcome.Failed.Because(outcome.ErrStorageFull) {
				t.Fatalf("the refused one was told %v", err)
			}
		default:
			t.Fatal("the refused one was told nothing")
		}
	})
}

// TestProposerTellsFates: of each error of Raft, whether the commands may be sent
// again, or its outcome is unknown.
func TestProposerTellsFates(t *testing.T) {
	for _, fate := range []struct {
		err      error
		response any
		want     outcome.Fate
		refused  bool
	}{
		{raft.ErrNotLeader, nil, outcome.Refused, true},
		{raft.ErrEnqueueTimeout, nil, outcome.Refused, true},
		{raft.ErrLeadershipTransferInProgress, nil, outcome.Refused, true},
		{nil, outcome.ErrOtherTerm, outcome.Refused, true},
		{raft.ErrLeadershipLost, nil, outcome.Unknown, false},
		{raft.ErrRaftShutdown, nil, outcome.Unknown, false},
		{raft.ErrAbortedByRestore, nil, outcome.Unknown, false},
		{errors.New("disk"), nil, outcome.Unknown, false},
		{nil, fmt.Errorf("%w: why", outcome.ErrHalted), outcome.Unknown, false},
		{nil, nil, outcome.Applied, false},
	} {
		t.Run(fmt.Sprint(fate.err, fate.response), func(t *testing.T) {
			proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
				proposals, all := fakes(3, 10)
				p.Propose(proposals)
				synctest.Wait()
				r.logged()[0].response = fate.response
				r.logged()[0].answer(fate.err)
				synctest.Wait()
				for _, proposal := range all {
					select {
					case got := <-proposal.failed:
						if got.Fate != fate.want {
							t.Errorf("%v, want %v", got, fate.want)
						}
					default:
						if fate.want != outcome.Applied {
							t.Error("nothing was told")
						}
					}
				}
				if term := p.admission.(*fakeAdmission).refused; term == 7 != fate.refused {
					t.Errorf("Raft has refused an entry of term %d", term)
				}
			})
		})
	}
}

// TestProposerLogsNothingWithdrawn: a command that became void while it waited is
// failed when its turn comes, and takes no entry for itself.
func TestProposerLogsNothingWithdrawn(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		fill(p)
		waiting, all := fakes(3, 10)
		p.Propose(waiting)
		late := outcome.Verdict{Fate: outcome.Late}
		all[1].withdrawn = late
		r.logged()[0].answer(nil)
		synctest.Wait()
		entries := r.logged()
		if len(entries) != entriesInFlight+1 {
			t.Fatalf("%d entries", len(entries))
		}
		if _, _, count := entries[entriesInFlight].commands(); count != 2 || len(all[1].failed) != 1 || <-all[1].failed != late {
			t.Errorf("%d commands are logged, and the void one is not failed as late", count)
		}
		void, all := fakes(1, 10)
		all[0].withdrawn = late
		p.Propose(void)
		r.logged()[1].answer(nil)
		r.logged()[2].answer(nil)
		synctest.Wait()
		if len(r.logged()) != entriesInFlight+1 || len(all[0].failed) != 1 {
			t.Error("a void command alone makes an entry, or is not failed")
		}
	})
}

func TestProposerTick(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		type ticked struct {
			index uint64
			err   error
		}
		ticks := make(chan ticked, 10)
		tick := func() {
			index, err := p.ProposeTick(t.Context())
			ticks <- ticked{index, err}
		}
		go tick()
		synctest.Wait()
		if _, _, count := r.logged()[0].commands(); count != 0 {
			t.Fatalf("a tick has %d commands", count)
		}
		r.logged()[0].answer(nil)
		if got := <-ticks; got != (ticked{1, nil}) {
			t.Fatalf("%+v", got)
		}
		// With both slots taken, a call that comes must not get its reply from an
		// entry that was stamped before.
		fill(p)
		go tick()
		go tick()
		synctest.Wait()
		command, _ := fakes(1, 10)
		p.Propose(command)
		r.logged()[1].answer(nil)
		synctest.Wait()
		if len(ticks) != 0 {
			t.Fatal("an entry stamped before the tick answered it")
		}
		if len(r.logged()) != 4 {
			t.Fatalf("%d entries", len(r.logged()))
		}
		if _, _, count := r.logged()[3].commands(); count != 1 {
			t.Fatal("a command did not come along with the ticks")
		}
		r.logged()[3].answer(raft.ErrLeadershipLost)
		for range 2 {
			if got := <-ticks; !errors.Is(got.err, raft.ErrLeadershipLost) {
				t.Fatalf("%+v", got)
			}
		}
	})
}

// TestProposerRefusesAllBehindOneWithoutRoom: a smaller one of the same class might
// have room, and would overtake what comes before it in a list.
func TestProposerRefusesAllBehindOneWithoutRoom(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, _ *fakeRaft) {
		fill(p)
		p.queue.places.bytes = 80 // of which these may have seven eighths
		proposals, all := fakes(3, 30)
		all[1].data = make([]byte, 60)
		p.Propose(proposals)
		for i, refused := range []bool{false, true, true} {
			if (len(all[i].failed) > 0) != refused {
				t.Errorf("number %d is refused: %v", i, !refused)
			}
		}
	})
}

// TestProposerWaitsAfterASuspension: a caller that hung up while the process stood
// still is noticed before its command is logged.
func TestProposerWaitsAfterASuspension(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		beat := func() { p.pulse.beat(time.Since(p.pulse.epoch)) }
		time.Sleep(time.Second) // virtual: beats are counted from 1 on
		beat()
		time.Sleep(time.Second) // virtual: suspended
		single, _ := fakes(1, 10)
		p.Propose(single)
		synctest.Wait()
		beat()
		time.Sleep(hangUpGrace - time.Millisecond) // virtual
		if logged := len(r.logged()); logged != 0 {
			t.Error("logged at once")
		}
		beat()
		time.Sleep(hangUpGrace) // virtual
		synctest.Wait()
		if logged := len(r.logged()); logged != 1 {
			t.Errorf("%d entries after a while", logged)
		}
	})
}

// TestProposerEnds: a command that waits when a term ends was certainly not applied, and
// no command is taken after it.
func TestProposerEnds(t *testing.T) {
	for waitsFor, begin := range map[string]func(*proposer){"an entry in flight": send, "a slot": fill} {
		t.Run(waitsFor, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { proposerEnds(t, begin) })
		})
	}
}

// proposerEnds ends a term after its begin.
func proposerEnds(t *testing.T, begin func(*proposer)) {
	r := &fakeRaft{}
	p := newProposer(7, newClock(0, time.Now), r, 100, &fakeAdmission{}, joinsNothing, NewPulse(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx)
	}()
	begin(p)
	flying := len(r.logged())
	waiting, all := fakes(5, 10)
	p.Propose(waiting)
	ticked := make(chan error, 1)
	go func() {
		_, err := p.ProposeTick(t.Context())
		ticked <- err
	}()
	synctest.Wait()
	cancel()
	<-done // although Raft never replies
	for _, proposal := range all {
		if v := <-proposal.failed; v.Fate != outcome.Refused {
			t.Errorf("%v", v)
		}
	}
	if err := <-ticked; err != raftlib.ErrTermOver {
		t.Errorf("the tick: %v", err)
	}
	if p.Propose(waiting) {
		t.Error("commands are taken after the end")
	}
	if _, err := p.ProposeTick(t.Context()); err != raftlib.ErrTermOver {
		t.Errorf("a tick after the end: %v", err)
	}
	if logged := r.logged(); len(logged) != flying {
		t.Errorf("%d entries, want %d", len(logged), flying)
	}
	for _, f := range r.logged() {
		f.answer(nil)
	}
	p.inFlight.Wait()
}

// put adds so many commands of a class and expects that so many are taken.
func put(t *testing.T, q *queue, c Class, count, weight, bytes, want int) {
	t.Helper()
	taken := 0
	for range count {
		if q.add(&fakeProposal{class: c, weight: weight, data: make([]byte, bytes)}) {
			taken++
		}
	}
	if taken != want {
		t.Fatalf("%d of %d commands of class %d are taken, want %d", taken, count, c, want)
	}
}

// cutOf takes an entry, checks that it is within the bounds and in the order of
// classes, and returns how many commands of each class it has.
func cutOf(t *testing.T, q *queue) (count [classes]int) {
	t.Helper()
	cut := q.cut()
	weight, bytes, last := 0, 0, Class(0)
	for _, p := range cut {
		l := p.Load()
		if l.Class < last {
			t.Fatalf("class %d stands behind class %d", l.Class, last)
		}
		last, weight, bytes = l.Class, weight+l.Weight, bytes+l.Bytes
		count[l.Class]++
	}
	if len(cut) > 1 && (weight > fsm.EntryWeight || bytes > fsm.EntryBytes) {
		t.Fatalf("an entry weighs %d and has %d bytes", weight, bytes)
	}
	return count
}

func newQueue(commands, bytes int) *queue {
	return &queue{places: Places{commands: commands, bytes: bytes}}
}

func TestQueuePlaces(t *testing.T) {
	const commands, bytes = 800, 80_000
	t.Run("lists have half", func(t *testing.T) {
		q := newQueue(commands, bytes)
		put(t, q, ClassListed, 500, 1, 10, 400)
		put(t, q, ClassSingle, 500, 1, 10, 300)
		put(t, q, ClassRelease, 60, 1, 10, 60)
		put(t, q, ClassRenewal, 60, 1, 10, 40)
		put(t, q, ClassRenewal, 1, 1, 10, 0)
	})
	t.Run("of the bytes too", func(t *testing.T) {
		q := newQueue(commands, bytes)
		put(t, q, ClassListed, 10, 1, 10_000, 4)
		put(t, q, ClassSingle, 10, 1, 10_000, 3)
		put(t, q, ClassRelease, 10, 1, 10_000, 1)
		put(t, q, ClassRenewal, 1, 1, 1, 0)
	})
	t.Run("single requests leave an eighth", func(t *testing.T) {
		q := newQueue(commands, bytes)
		put(t, q, ClassSingle, 900, 1, 10, 700)
		put(t, q, ClassListed, 1, 1, 10, 0)
		put(t, q, ClassRelease, 1, 1, 10, 1)
	})
	t.Run("one command has room, whatever its size", func(t *testing.T) {
		put(t, newQueue(commands, bytes), ClassListed, 2, 1, 2*bytes, 1)
	})
	t.Run("places come back", func(t *testing.T) {
		q := newQueue(commands, bytes)
		for range 50 {
			put(t, q, ClassListed, 500, 1, 100, 400)
			put(t, q, ClassSingle, 500, 1, 100, 300)
			for q.len() > 0 {
				cutOf(t, q)
			}
		}
		put(t, q, ClassRelease, 900, 1, 10, 800)
		if len(q.empty()) != 800 || q.len() != 0 {
			t.Fatal("not all are taken out")
		}
		put(t, q, ClassRelease, 900, 1, 10, 800)
	})
}

func TestQueueOrder(t *testing.T) {
	const many, all = 10_000, fsm.EntryWeight
	const share = all / 8
	t.Run("by class", func(t *testing.T) {
		q := newQueue(many, 1<<30)
		for c := classes - 1; ; c-- {
			put(t, q, c, 100, 1, 10, 100)
			if c == 0 {
				break
			}
		}
		if got := cutOf(t, q); got != [classes]int{100, 100, 100, 100} {
			t.Fatalf("%v", got)
		}
	})
	t.Run("each class that waits has a share", func(t *testing.T) {
		q := newQueue(many, 1<<30)
		for _, c := range []Class{ClassRenewal, ClassRelease, ClassListed} {
			put(t, q, c, 2000, 1, 10, 2000)
		}
		put(t, q, ClassSingle, 10, 1, 10, 10)
		if got := cutOf(t, q); got != [classes]int{all - 2*share - 10, share, 10, share} {
			t.Fatalf("%v", got)
		}
		if got := cutOf(t, q); got != [classes]int{all - 2*share, share, 0, share} {
			t.Fatalf("%v", got)
		}
	})
	t.Run("of the bytes too", func(t *testing.T) {
		q := newQueue(many, 1<<30)
		put(t, q, ClassRelease, 2000, 1, 1024, 2000)
		put(t, q, ClassListed, 2000, 1, 1024, 2000)
		if got := cutOf(t, q); got != [classes]int{0, 224, 0, 32} {
			t.Fatalf("%v", got)
		}
	})
	t.Run("by weight", func(t *testing.T) {
		q := newQueue(many, 1<<30)
		put(t, q, ClassSingle, 100, 64, 10, 100)
		if got := cutOf(t, q); got != [classes]int{0, 0, all / 64, 0} {
			t.Fatalf("%v", got)
		}
		put(t, q, ClassRenewal, 1, 5*all, 10, 1)
		if got := cutOf(t, q); got != [classes]int{1, 0, 0, 0} {
			t.Fatalf("one that is larger than an entry: %v", got)
		}
	})
}

// TestQueueStarvesNoCommand: commands that are larger than their class's share are
// taken though others of all classes never cease to wait.
func TestQueueStarvesNoCommand(t *testing.T) {
	for _, weight := range []int{fsm.EntryWeight / 2, fsm.EntryWeight, 4 * fsm.EntryWeight} {
		for large := range classes {
			t.Run(fmt.Sprintf("weight %d of class %d", weight, large), func(t *testing.T) {
				q := newQueue(1<<20, 1<<30)
				for c := range classes {
					if c != large {
						put(t, q, c, 20*fsm.EntryWeight, 1, 10, 20*fsm.EntryWeight)
					}
				}
				put(t, q, large, 3, weight, 10, 3)
				entries, taken := 0, 0
				for taken < 3 {
					if entries++; entries > 9 {
						t.Fatalf("%d of 3 are taken by %d entries", taken, entries-1)
					}
					taken += cutOf(t, q)[large]
				}
			})
		}
	}
}

// TestQueueKeepsItsOrder: whatever comes and goes, each class keeps its order,
// no command is lost, and no entry exceeds its bounds.
func TestQueueKeepsItsOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	q := newQueue(5000, 4<<20)
	var waiting [classes][]Proposal
	took := 0
	for range 3000 {
		for range random.IntN(400) {
			c := Class(random.IntN(int(classes)))
			p := &fakeProposal{class: c, weight: 1 + random.IntN(80), data: make([]byte, random.IntN(9000))}
			if q.add(p) {
				waiting[c] = append(waiting[c], p)
			}
		}
		weight, bytes, cut := 0, 0, q.cut()
		for _, p := range cut {
			l := p.Load()
			if waiting[l.Class][0] != p {
				t.Fatalf("class %d is out of order", l.Class)
			}
			waiting[l.Class] = waiting[l.Class][1:]
			weight, bytes, took = weight+l.Weight, bytes+l.Bytes, took+1
		}
		if weight > fsm.EntryWeight || bytes > fsm.EntryBytes {
			t.Fatalf("an entry weighs %d and has %d bytes", weight, bytes)
		}
	}
	left := 0
	for c := range waiting {
		left += len(waiting[c])
	}
	if q.len() != left || took < 10_000 {
		t.Fatalf("%d wait, want %d; %d were taken", q.len(), left, took)
	}
}
