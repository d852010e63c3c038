package lead

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox/signalbox/cluster/outcome"
	"github.com/signalbox/signalbox/fsm"
)

// fakeTracer notes what it learns.
type fakeTracer struct {
	mu   sync.Mutex
	seen []string
}

func (f *fakeTracer) Committed(trace string, left time.Time, term, index uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, fmt.Sprintf("%s after %v, term %d index %d", trace, time.Since(left), term, index))
}

// TestTracer: a tracer learns the trace contexts of the entries that are applied, neighbours
// once, and of no other command.
func TestTracer(t *testing.T) {
	tracer := &fakeTracer{}
	tracedRun(t, 100, tracer, func(t *testing.T, p *proposer, r *fakeRaft) {
		propose := func(traces ...string) {
			var list []Proposal
			for _, trace := range traces {
				data := fsm.Envelope{Trace: trace}.Encode(fsm.Up{Name: "a", Count: 1})
				list = append(list, &fakeProposal{data: data, failed: make(chan outcome.Verdict, 1)})
			}
			if !p.Propose(list) {
				t.Fatal("not taken")
			}
			synctest.Wait()
		}
		propose("one", "one", "", "two")
		time.Sleep(time.Second) // virtual
		r.logged()[0].answer(nil)
		synctest.Wait()
		propose("lost")
		r.logged()[1].answer(errors.New("lost"))
		synctest.Wait()
		propose("")
		r.logged()[2].answer(nil)
		synctest.Wait()
	})
	want := []string{"one after 1s, term 7 index 1", "two after 1s, term 7 index 1"}
	if !slices.Equal(tracer.seen, want) {
		t.Errorf("%q, want %q", tracer.seen, want)
	}
}
