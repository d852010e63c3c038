package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// fakeRaft takes entries and answers them when it is told to.
type fakeRaft struct {
	mu      sync.Mutex
	entries []*fakeFuture
}

func (r *fakeRaft) Apply(entry []byte, _ time.Duration) raft.ApplyFuture {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &fakeFuture{entry: entry, index: uint64(len(r.entries) + 1), answered: make(chan struct{}), at: time.Now()}
	r.entries = append(r.entries, f)
	return f
}

// logged answers the entries so far.
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

// commands answers how many commands an entry has, and its term and stamp.
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
	class  class // 0: a renewal
	weight int   // 0: 1
	failed chan error
}

func (p *fakeProposal) command() []byte { return p.data }

func (p *fakeProposal) load() load {
	return load{class: p.class, weight: max(1, p.weight), bytes: len(p.data)}
}

// proposerRun runs a proposer on a fake Raft in a bubble.
func proposerRun(t *testing.T, limit int, test func(t *testing.T, p *proposer, r *fakeRaft)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRaft{}
		p := newProposer(7, newClock(5000), r, limit)
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
		p.flying.Wait()
	})
}

type failure struct {
	*fakeProposal
}

func (f failure) failed(err error) { f.fakeProposal.failed <- err }

// fakes makes so many proposals of that many bytes.
func fakes(count, bytes int) (proposals []proposal, all []*fakeProposal) {
	for range count {
		p := &fakeProposal{data: make([]byte, bytes), failed: make(chan error, 1)}
		all = append(all, p)
		proposals = append(proposals, failure{p})
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
			if err := p.enqueue(proposals); err != nil {
				t.Fatal(err)
			}
		}
		send(1, 10)
		expect("alone it leaves at once", 1)
		send(1, 10)
		expect("a second one, too", 1, 1)
		for range 50 {
			send(3, 10)
		}
		expect("with two in flight the rest waits", 1, 1)
		r.logged()[0].answer(nil)
		expect("and shares an entry", 1, 1, 150)
		send(2000, 10)
		r.logged()[1].answer(nil)
		expect("of 1,024 commands at most", 1, 1, 150, 1024)
		r.logged()[2].answer(nil)
		expect("the rest follows", 1, 1, 150, 1024, 976)
		send(5, 100<<10)
		r.logged()[3].answer(nil)
		expect("of 256 KiB at most", 1, 1, 150, 1024, 976, 2)
		send(1, 1<<20)
		r.logged()[4].answer(nil)
		r.logged()[5].answer(nil)
		expect("but of one command at least", 1, 1, 150, 1024, 976, 2, 2, 1)
		r.logged()[6].answer(nil)
		expect("however large", 1, 1, 150, 1024, 976, 2, 2, 1, 1)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the proposer waited %v on a timer", waited)
		}
	})
}

func TestProposerStampsOnceAnEntry(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		for i, want := range []int64{5000, 25_000, 45_000, 65_000} {
			one, _ := fakes(1, 10)
			_ = p.enqueue(one)
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
		for range entriesInFlight {
			one, _ := fakes(1, 10)
			_ = p.enqueue(one)
			synctest.Wait()
		}
		proposals, all := fakes(14, 10)
		expect := func(refused int) {
			t.Helper()
			for i, one := range all {
				select {
				case err := <-one.failed:
					if err != ErrOverloaded || i < len(all)-refused {
						t.Fatalf("%d: %v", i, err)
					}
				default:
					if i >= len(all)-refused {
						t.Fatalf("%d is taken", i)
					}
				}
			}
		}
		_ = p.enqueue(proposals)
		expect(4)
		_ = p.enqueue(proposals[10:])
		expect(4)
		r.logged()[0].answer(nil)
		synctest.Wait()
		_ = p.enqueue(proposals[10:])
		expect(0)
		mixed, all := fakes(3, 10)
		all[1].data = make([]byte, 11)
		p.refuses = func(command []byte) error {
			if len(command) == 11 {
				return ErrStorageFull
			}
			return nil
		}
		r.logged()[1].answer(nil)
		synctest.Wait()
		before := p.waiting()
		if err := p.enqueue(mixed); err != nil || p.waiting() != before+2 {
			t.Fatalf("of three, one refused for what it is: %v, %d more wait", err, p.waiting()-before)
		}
		select {
		case err := <-all[1].failed:
			if err != ErrStorageFull {
				t.Fatalf("the refused one was told %v", err)
			}
		default:
			t.Fatal("the refused one was told nothing")
		}
	})
}

// TestProposerTellsFates: of each error of Raft, whether the commands may be sent
// again or nobody can tell.
func TestProposerTellsFates(t *testing.T) {
	for _, fate := range []struct {
		err      error
		response any
		want     error
		refused  bool
	}{
		{raft.ErrNotLeader, nil, errRefused, true},
		{raft.ErrEnqueueTimeout, nil, errRefused, true},
		{raft.ErrLeadershipTransferInProgress, nil, errRefused, true},
		{nil, errOtherTerm, errRefused, true},
		{raft.ErrLeadershipLost, nil, errOpen, false},
		{raft.ErrRaftShutdown, nil, errOpen, false},
		{raft.ErrAbortedByRestore, nil, errOpen, false},
		{errors.New("disk"), nil, errOpen, false},
		{nil, fmt.Errorf("%w: why", errHalted), errOpen, false},
		{nil, nil, nil, false},
	} {
		t.Run(fmt.Sprint(fate.err, fate.response), func(t *testing.T) {
			proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
				refused := false
				p.refused = func() { refused = true }
				proposals, all := fakes(3, 10)
				_ = p.enqueue(proposals)
				synctest.Wait()
				r.logged()[0].response = fate.response
				r.logged()[0].answer(fate.err)
				synctest.Wait()
				for _, one := range all {
					select {
					case got := <-one.failed:
						if got != fate.want {
							t.Errorf("%v, want %v", got, fate.want)
						}
					default:
						if fate.want != nil {
							t.Error("nothing was told")
						}
					}
				}
				if refused != fate.refused {
					t.Errorf("refused: %v", refused)
				}
			})
		})
	}
}

func TestProposerTick(t *testing.T) {
	proposerRun(t, 100, func(t *testing.T, p *proposer, r *fakeRaft) {
		type ticked struct {
			index uint64
			err   error
		}
		ticks := make(chan ticked, 10)
		tick := func() {
			index, err := p.tick(t.Context())
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
		// With both slots taken, one that comes must not be answered by an entry
		// that was stamped before.
		for range entriesInFlight {
			one, _ := fakes(1, 10)
			_ = p.enqueue(one)
			synctest.Wait()
		}
		go tick()
		go tick()
		synctest.Wait()
		command, _ := fakes(1, 10)
		_ = p.enqueue(command)
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

// TestProposerEnds: what waits when a reign ends was certainly not applied, and
// nothing is taken after it.
func TestProposerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRaft{}
		p := newProposer(7, newClock(0), r, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.run(ctx)
		}()
		for range entriesInFlight {
			one, _ := fakes(1, 10)
			_ = p.enqueue(one)
			synctest.Wait()
		}
		waiting, all := fakes(5, 10)
		_ = p.enqueue(waiting)
		ticked := make(chan error, 1)
		go func() {
			_, err := p.tick(t.Context())
			ticked <- err
		}()
		synctest.Wait()
		cancel()
		<-done // although Raft never answers
		for _, one := range all {
			if err := <-one.failed; err != errRefused {
				t.Errorf("%v", err)
			}
		}
		if err := <-ticked; err != errRefused {
			t.Errorf("the tick: %v", err)
		}
		if err := p.enqueue(waiting); err != errRefused {
			t.Errorf("after the end: %v", err)
		}
		if _, err := p.tick(t.Context()); err != errRefused {
			t.Errorf("a tick after the end: %v", err)
		}
		for _, f := range r.logged() {
			f.answer(nil)
		}
		p.flying.Wait()
	})
}

// TestEntryNamesItsTerm: what encodeEntry adds is the term alone.
func TestEntryNamesItsTerm(t *testing.T) {
	command := fsm.Envelope{Request: fsm.RequestID{Origin: 1, Sequence: 2}, Key: ""}.Encode(fsm.Up{Name: "a", Count: 1})
	term, size := binary.Uvarint(encodeEntry(300, 42, [][]byte{command}))
	if rest := encodeEntry(300, 42, [][]byte{command})[size:]; term != 300 || string(rest) != string(fsm.EncodeEntry(42, [][]byte{command})) {
		t.Fatalf("term %d, %d bytes", term, len(rest))
	}
}
