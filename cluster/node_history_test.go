package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/signalbox/signalbox/cluster/calls"
	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// historyClients is how many clients work on each of the semaphores.
const historyClients = 6

// historyInput is what a client asks of one semaphore.
type historyInput struct {
	semaphore string
	kind      string // acquire, release, read
	session   uint64
}

// historyOutput is the reply to it.
type historyOutput struct {
	open  bool // not known whether it was done
	done  bool // acquire: granted; release: there was a lease
	token uint64
	held  int64 // read
}

// historyState is a semaphore of two permits as clients see it.
type historyState struct {
	holders [2]uint64 // sessions, the lower first; 0: free
	token   uint64    // the last one in a reply
}

func (s historyState) held() (n int64) {
	for _, h := range s.holders {
		if h != 0 {
			n++
		}
	}
	return n
}

func (s historyState) with(session uint64) historyState {
	s.holders[0] = session
	s.sort()
	return s
}

func (s historyState) without(session uint64) historyState {
	for i, h := range s.holders {
		if h == session {
			s.holders[i] = 0
		}
	}
	s.sort()
	return s
}

func (s *historyState) sort() {
	if s.holders[0] > s.holders[1] {
		s.holders[0], s.holders[1] = s.holders[1], s.holders[0]
	}
}

func (s historyState) holds(session uint64) bool {
	return s.holders[0] == session || s.holders[1] == session
}

// historyModel is the replies that a semaphore may give, one at a time.
var historyModel = porcupine.NondeterministicModel{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, op := range all {
			name := op.Input.(historyInput).semaphore
			parts[name] = append(parts[name], op)
		}
		var list [][]porcupine.Operation
		for _, part := range parts {
			list = append(list, part)
		}
		return list
	},
	Init: func() []any { return []any{historyState{}} },
	Step: func(state, input, output any) []any {
		return historyStep(state.(historyState), input.(historyInput), output.(historyOutput))
	},
	Equal: func(a, b any) bool { return a == b },
}

func historyStep(s historyState, in historyInput, out historyOutput) []any {
	switch in.kind {
	case "read":
		if out.held == s.held() {
			return []any{s}
		}
	case "acquire":
		free := s.held() < 2
		switch {
		case out.open && free:
			return []any{s, s.with(in.session)} // its token is not known, but rises
		case out.open:
			return []any{s}
		case out.done && free && out.token > s.token:
			next := s.with(in.session)
			next.token = out.token
			return []any{next}
		case !out.done && !free:
			return []any{s}
		}
	case "release":
		held := s.holds(in.session)
		switch {
		case out.open:
			return []any{s, s.without(in.session)}
		case out.done == held:
			return []any{s.without(in.session)}
		}
	}
	return nil
}

// history is what clients saw.
type history struct {
	mu     sync.Mutex
	events []porcupine.Operation
	began  time.Time
	open   int
}

// add notes an operation. One that is open may take effect at any later time.
func (h *history) add(client int, in historyInput, out historyOutput, called time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	returned := int64(time.Since(h.began))
	if out.open {
		returned = int64(1 << 62)
		h.open++
	}
	h.events = append(h.events, porcupine.Operation{
		ClientId: client, Input: in, Call: int64(called.Sub(h.began)), Output: out, Return: returned,
	})
}

// TestHistoriesAreLinearizable: clients acquire, release and read through all
// nodes while a seeded schedule cuts, delays, resets and kills. SIGNALBOX_SEED
// repeats a schedule, SIGNALBOX_HISTORIES makes more of them.
func TestHistoriesAreLinearizable(t *testing.T) {
	histories := 2
	if n, err := strconv.Atoi(os.Getenv("SIGNALBOX_HISTORIES")); err == nil {
		histories = n
	}
	first := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("SIGNALBOX_SEED"), 10, 64); err == nil {
		first = n
	}
	for i := range histories {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { historyRun(t, seed) })
	}
}

func historyRun(t *testing.T, seed uint64) {
	h := &history{}
	inBubble(t, 3, func(t *testing.T, c *nodes) {
		h.began = time.Now()
		names := []string{"a", "b"}
		for _, name := range names {
			c.semaphore(name, 2)
		}
		stop := make(chan struct{})
		var clients sync.WaitGroup
		for i := range historyClients * len(names) {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			clients.Go(func() { h.client(t, i, c.all, names[i%len(names)], random, stop) })
		}
		historyFaults(c, rand.New(rand.NewPCG(seed, 1<<32)))
		close(stop)
		clients.Wait()
	})
	result, info := porcupine.CheckOperationsVerbose(historyModel.ToModel(), h.events, 30*time.Second)
	t.Logf("seed %d: %d operations, %d open: %v", seed, len(h.events), h.open, result)
	if result != porcupine.Ok {
		_ = info
		t.Errorf("seed %d: the history is %v", seed, result)
	}
	if len(h.events)-h.open < 300 {
		t.Errorf("seed %d: only %d operations were answered: the test shows little", seed, len(h.events)-h.open)
	}
}

// client works with one session after another, through any node.
func (h *history) client(t *testing.T, id int, all []*testNode, name string, random *rand.Rand, stop <-chan struct{}) {
	session, ok := uint64(0), false
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(random.IntN(120)) * time.Millisecond):
		}
		n := all[random.IntN(len(all))]
		if !ok {
			reply, err := n.Do(t.Context(), calls.Call{Command: fsm.OpenSession{Session: n.DrawSession(), TTLMS: 3_600_000}})
			session, ok = reply.Session, err == nil
			continue
		}
		in := historyInput{semaphore: name, kind: []string{"acquire", "acquire", "release", "read"}[random.IntN(4)], session: session}
		called := time.Now()
		out, known := historyAsk(t, n, in)
		if known {
			h.add(id, in, out, called)
		}
		// An open operation may be done later; a session that is never used again keeps the
		// model simple. The same goes for one that holds what it asks for.
		ok = !out.open && in.kind != "release"
		if in.kind == "acquire" && out.done {
			time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond) // virtual: how long it holds
			in.kind, called = "release", time.Now()
			out, known := historyAsk(t, all[random.IntN(len(all))], in)
			if known {
				h.add(id, in, out, called)
			}
			ok = false
		}
	}
}

// historyAsk does one operation; known is false when it was certainly not done.
func historyAsk(t *testing.T, n *testNode, in historyInput) (out historyOutput, known bool) {
	if in.kind == "read" {
		if _, err := n.Read(t.Context(), calls.Consistency{}); err != nil {
			return out, false
		}
		n.View(func(m *fsm.Machine) {
			view, _ := m.Semaphore(in.semaphore)
			out.held = view.Held
		})
		return out, true
	}
	var command fsm.Command = fsm.Release{Session: in.session, Name: in.semaphore}
	if in.kind == "acquire" {
		command = fsm.Acquire{Session: in.session, Name: in.semaphore, Count: 1, TTLMS: fsm.KeepTTL, Try: true}
	}
	reply, err := n.Do(t.Context(), calls.Call{Command: command})
	switch {
	case errors.Is(err, outcome.ErrOutcomeUnknown):
		return historyOutput{open: true}, true
	case err != nil:
		return out, false
	case in.kind == "release":
		return historyOutput{done: reply.Found}, true
	case reply.Code == fsm.OK:
		return historyOutput{done: true, token: reply.Grants[0].Token}, true
	case reply.Code == fsm.Unavailable:
		return out, true
	}
	t.Errorf("%s: %v", in.kind, reply.Code)
	return out, false
}

// historyFaults makes trouble of every kind for some seconds, and heals it.
func historyFaults(c *nodes, random *rand.Rand) {
	pick := func() *testNode { return c.all[random.IntN(len(c.all))] }
	for range 8 {
		n, other := pick(), pick()
		switch fault := random.IntN(6); {
		case fault == 0:
			c.net.Isolate(n.id)
		case fault == 1 && n != other:
			c.net.Cut(n.id, other.id)
		case fault == 2 && n != other:
			c.net.Reset(n.id, other.id)
			c.net.Partition(n.id, other.id)
		case fault == 3 && n != other:
			c.net.Delay(n.id, other.id, time.Duration(random.IntN(80))*time.Millisecond)
		case fault == 4:
			if n := c.leader(); n != nil {
				_ = n.raft().LeadershipTransfer().Error() // it may find no other node
			}
		default:
			c.net.Isolate(c.leader().id)
		}
		lasts := 200 + random.IntN(2000)
		if random.IntN(4) == 0 {
			lasts += 5000 // longer than anybody waits for an outcome
		}
		time.Sleep(time.Duration(lasts) * time.Millisecond) // virtual: how long it lasts
		for _, n := range c.all {
			c.net.Rejoin(n.id)
			for _, other := range c.others(n) {
				c.net.Delay(n.id, other.id, 0)
			}
		}
		c.leader()
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond) // virtual: between faults
	}
	time.Sleep(2 * time.Second) // virtual: all is well again
}
