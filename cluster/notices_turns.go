package cluster

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

const (
	// noticesAtOnce bounds the attempts under way.
	noticesAtOnce = 32
	// noticesToHost bounds those to one host.
	noticesToHost = 4
)

// turns is the room for attempts, in which a host that never answers takes up a
// small part: its notices wait for each other, and the others go past them. Safe
// for concurrent use.
type turns struct {
	all *semaphore.Weighted

	mu    sync.Mutex
	hosts map[string]*hostTurns // which somebody is in, or waits for; guarded by mu
}

// hostTurns is the room for the attempts to one host.
type hostTurns struct {
	*semaphore.Weighted
	users int // guarded by turns.mu
}

func newTurns() *turns {
	return &turns{all: semaphore.NewWeighted(noticesAtOnce), hosts: map[string]*hostTurns{}}
}

// enter waits, first come first served, until there is room for an attempt to a
// host. Without an error leave has to be called at its end.
func (t *turns) enter(ctx context.Context, host string) (leave func(), err error) {
	own := t.join(host)
	if err := own.Acquire(ctx, 1); err != nil {
		t.part(host)
		return nil, err
	}
	if err := t.all.Acquire(ctx, 1); err != nil {
		own.Release(1)
		t.part(host)
		return nil, err
	}
	return func() {
		t.all.Release(1)
		own.Release(1)
		t.part(host)
	}, nil
}

func (t *turns) join(host string) *hostTurns {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.hosts[host]
	if own == nil {
		own = &hostTurns{Weighted: semaphore.NewWeighted(noticesToHost)}
		t.hosts[host] = own
	}
	own.users++
	return own
}

// part forgets a host with the last attempt to it.
func (t *turns) part(host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own := t.hosts[host]; own.users > 1 {
		own.users--
		return
	}
	delete(t.hosts, host)
}
