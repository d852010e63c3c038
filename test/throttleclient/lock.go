package throttleclient

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

// ErrTimeout is the end of the time that a caller of Lock gave.
var ErrTimeout = errors.New("the lock was not acquired in time")

const (
	// DefaultLease is how long a peer lives without a sign from its client, and how
	// often the client gives one: at the very moment when the lease ends.
	DefaultLease = 5 * time.Minute
	// blockAtMost is how long one request of Lock blocks.
	blockAtMost = 5 * time.Second
)

// Thread is what one thread there has: one peer for all its locks, made with the
// first and deleted with the last. It is for one goroutine.
type Thread struct {
	Client *Client
	// Lease and Beat are DefaultLease unless set: how long the peer lives, and how
	// often it is heard of.
	Lease, Beat time.Duration

	peer *peer
}

// peer is what the heartbeat shares with its thread.
type peer struct {
	client *Client
	id     uint64
	lease  time.Duration

	mu       sync.Mutex
	acquired map[string]int64

	cancel context.CancelFunc // ends the heartbeat, nil without a heartbeat
	done   chan struct{}      // closed when the heartbeat has ended
	ill    error              // the refusal that ended the heartbeat
}

// Lock acquires a lock and returns a function that gives it back; it blocks for as long as
// timeout, or for ever if that is below 0. Locks are given back in any order, each
// once. After ErrTimeout the request stays in the line, as there.
func (t *Thread) Lock(ctx context.Context, semaphore string, count int64, timeout time.Duration) (unlock func(context.Context) error, err error) {
	if err := t.ensurePeer(ctx); err != nil {
		return nil, err
	}
	p := t.peer
	p.endBeat()
	began := time.Now()
	for {
		block := blockAtMost
		if timeout >= 0 {
			block = min(block, max(0, timeout-time.Since(began)))
		}
		acquired, err := p.client.Acquire(ctx, p.id, semaphore, count, block, p.lease)
		if errors.Is(err, ErrUnknownPeer) {
			err = p.restore(ctx)
		}
		switch {
		case err != nil:
			return nil, err
		case acquired:
			p.hold(semaphore, count)
			p.beat(ctx, t.beatEvery())
			return func(ctx context.Context) error { return t.unlock(ctx, semaphore) }, nil
		case timeout >= 0 && time.Since(began) >= timeout:
			return nil, ErrTimeout
		}
	}
}

func (t *Thread) ensurePeer(ctx context.Context) error {
	if t.peer != nil {
		return nil
	}
	lease := t.Lease
	if lease == 0 {
		lease = DefaultLease
	}
	id, err := t.Client.NewPeer(ctx, lease)
	if err == nil {
		t.peer = &peer{client: t.Client, id: id, lease: lease, acquired: map[string]int64{}}
	}
	return err
}

func (t *Thread) beatEvery() time.Duration {
	if t.Beat == 0 {
		return DefaultLease
	}
	return t.Beat
}

// unlock gives one lock back, or deletes the peer with its last one. Failures to
// reach the service are swallowed: the lease will end. It returns the error that
// ended the heartbeat, if there was one.
func (t *Thread) unlock(ctx context.Context, semaphore string) error {
	p := t.peer
	p.mu.Lock()
	delete(p.acquired, semaphore)
	last := len(p.acquired) == 0
	p.mu.Unlock()
	var err error
	if last {
		p.endBeat()
		t.peer = nil
		err = p.client.Release(ctx, p.id)
	} else {
		err = p.client.ReleaseLock(ctx, p.id, semaphore)
	}
	if !answered(err) {
		err = nil
	}
	return errors.Join(err, p.ill)
}

// answered reports whether an error is a reply of the service.
func answered(err error) bool {
	var value *ValueError
	var other *HTTPError
	return errors.Is(err, ErrUnknownPeer) || errors.As(err, &value) || errors.As(err, &other)
}

func (p *peer) hold(semaphore string, count int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acquired[semaphore] = count
}

func (p *peer) restore(ctx context.Context) error {
	p.mu.Lock()
	acquired := maps.Clone(p.acquired)
	p.mu.Unlock()
	return p.client.Restore(ctx, p.id, acquired, p.lease)
}

// beat starts the heartbeat: each time the peer is unknown, it is restored with
// what this side believes it holds. Any other refusal ends it silently.
func (p *peer) beat(ctx context.Context, every time.Duration) {
	ctx, p.cancel = context.WithCancel(ctx)
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			err := p.client.Heartbeat(ctx, p.id, p.lease)
			if errors.Is(err, ErrUnknownPeer) {
				err = p.restore(ctx)
			}
			if answered(err) {
				p.ill = err
				return
			}
		}
	}()
}

// endBeat ends the heartbeat and waits for it.
func (p *peer) endBeat() {
	if p.cancel != nil {
		p.cancel()
		<-p.done
		p.cancel = nil
	}
}
