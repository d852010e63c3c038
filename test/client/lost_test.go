package client_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/client"
)

// trial is one life of a lease whose client is cut off from all nodes at some time.
type trial struct {
	random  *rand.Rand
	ttl     time.Duration
	slow    time.Duration // the most that a request or a reply takes
	oneShot bool
	lossy   bool  // replies are lost at times
	cut     fault // what happens to requests in the end
}

// below is a random time, in microseconds so that it falls between the nodes' ticks.
func (tr *trial) below(d time.Duration) time.Duration {
	return time.Duration(tr.random.Int64N(int64(d/time.Microsecond)+1)) * time.Microsecond
}

func newTrial(seed int) *trial {
	tr := &trial{random: newRandom(seed)}
	tr.ttl = []time.Duration{200 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second}[tr.random.IntN(4)]
	tr.slow = tr.below(tr.ttl / 16)
	tr.oneShot, tr.lossy = tr.random.IntN(2) == 0, tr.random.IntN(2) == 0
	tr.cut = []fault{{refused: true}, {hang: true}, {lose: true}, {status: 504, code: "outcome-unknown"}}[tr.random.IntN(4)]
	return tr
}

// network is what happens to a request: it is late, or lost, at times.
func (tr *trial) network(chance *rand.Rand) func(sent, int) fault {
	return func(sent, int) fault {
		late := func() time.Duration { return time.Duration(chance.Int64N(int64(tr.slow) + 1)) }
		return fault{there: late(), back: late(), lose: tr.lossy && chance.IntN(6) == 0}
	}
}

func (tr *trial) acquire(b *bed, name string) (*client.Lease, error) {
	if tr.oneShot {
		return b.c.Acquire(b.ctx, name, client.TTL(tr.ttl))
	}
	s, err := b.c.OpenSession(b.ctx, client.SessionOptions{TTL: tr.ttl})
	if err != nil {
		return nil, err
	}
	return s.Acquire(b.ctx, name)
}

// run returns how long before the next grant the lease was lost.
func (tr *trial) run(b *bed, name string, seed int) (early time.Duration, ok bool) {
	b.put(name, 1)
	time.Sleep(tr.below(time.Second)) // virtual
	free := b.occupy(name, 1)
	b.net.follow(tr.network(newRandom(-seed)))
	waits := later(func() (*client.Lease, error) { return tr.acquire(b, name) })
	time.Sleep(tr.below(2 * tr.ttl)) // virtual
	free()
	r := <-waits
	if r.err != nil { // the session did not survive the network
		b.is(r.err, client.ErrLost)
		return 0, false
	}
	granted := make(chan time.Time, 1)
	go func() {
		next, err := b.admin.Acquire(b.ctx, name)
		granted <- time.Now()
		if b.ok(err); next.Token <= r.lease.Token {
			b.Errorf("seed %d: token %d after %d", seed, next.Token, r.lease.Token)
		}
	}()
	time.AfterFunc(tr.below(2*tr.ttl), func() { b.net.follow(always(tr.cut)) })
	b.lost(r.lease.Lost())
	lost := time.Now()
	b.is(r.lease.Err(), client.ErrLost)
	return (<-granted).Sub(lost), true
}

// A client that is cut off from all nodes must know that its lease is lost before
// the cluster grants the permits to someone else; and not long before.
func TestLostBeforeGrantedAnew(t *testing.T) {
	var judged atomic.Int64
	many(t, lostTrials, func(b *bed, name string, seed int) {
		tr := newTrial(seed)
		early, ok := tr.run(b, name, seed)
		if !ok {
			return
		}
		judged.Add(1)
		if early <= 0 {
			b.Errorf("seed %d: lost %v after the next grant (ttl %v, one-shot %v, cut %+v)", seed, -early, tr.ttl, tr.oneShot, tr.cut)
		}
		unheard := tr.lossy || tr.cut.lose // renewals that the client never learned of
		if margin := tr.slow + tr.ttl/1000 + 6*time.Millisecond; early > margin && !unheard {
			b.Errorf("seed %d: lost %v before the next grant, more than %v (ttl %v, one-shot %v)", seed, early, margin, tr.ttl, tr.oneShot)
		}
	})
	if n := judged.Load(); n < lostTrials*9/10 {
		t.Errorf("only %d of %d trials came to a grant", n, lostTrials)
	}
}
