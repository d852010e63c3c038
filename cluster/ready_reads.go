package cluster

import (
	"context"
	"fmt"
	"time"
)

const (
	// readyEvery is how often a node looks whether it still knows a leader, and how
	// often at most it reads while it is not caught up.
	readyEvery = 100 * time.Millisecond
	// readyTimeout bounds one attempt to read; then it is tried again.
	readyTimeout = 2 * time.Second
	// readyProof is how often a node that is caught up reads to see that it still is.
	readyProof = time.Second
	// readyPatience is how long such reads may fail before the node is not ready any
	// more: as long as a client's read waits.
	readyPatience = readTimeout
)

// catchUp is whether a node's linearizable reads succeed, which says that it
// reaches the leader, and that its machine is not behind by more than a read waits.
// One goroutine changes it.
type catchUp struct {
	ok  bool
	why string // the error of the last read, unless ok
}

// checkCaughtUp reports what keepReady has found.
func (l *life) checkCaughtUp() Check {
	c := Check{Name: "caught-up", Detail: "this node has not yet applied what the leader had committed"}
	switch found := l.caughtUp.Load(); {
	case found == nil:
	case found.ok:
		c.OK, c.Detail = true, "this node has applied what the leader had committed"
	default:
		c.Detail = found.why
	}
	return c
}

// keepReady keeps caughtUp, until ctx ends: a linearizable read succeeded since this
// node came to know the leader, and again not long ago. After a restart Raft
// remembers neither what was committed nor what was applied, so that a node's own
// indexes prove nothing.
func (l *life) keepReady(ctx context.Context) {
	p := readProof{life: l, results: make(chan readResult, 1)}
	look := time.NewTicker(readyEvery)
	defer look.Stop()
	for {
		p.look(ctx)
		select {
		case r := <-p.results:
			p.judge(r)
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// readProof is the state of keepReady, for its goroutine.
type readProof struct {
	life    *life
	results chan readResult // of the read under way
	reading bool            // a read is under way
	lost    int             // how often no leader was known so far
	began   time.Time       // when the last read began
	proven  time.Time       // when a read succeeded last
}

// readResult is how a read came out that began when the leader had been lost so
// often.
type readResult struct {
	lost int
	err  error
}

// look begins a read when it is time for one.
func (p *readProof) look(ctx context.Context) {
	if !p.life.checkLeader().OK {
		p.lost++
		p.life.caughtUp.Store(nil)
		return
	}
	found := p.life.caughtUp.Load()
	pause := readyEvery // also between reads that fail at once
	if found != nil && found.ok {
		pause = readyProof
	}
	if p.reading || time.Since(p.began) < pause {
		return
	}
	p.reading, p.began = true, time.Now()
	lost, known := p.lost, found != nil && found.ok
	go func() {
		try, cancel := context.WithTimeout(ctx, p.life.node.times().of(readyTimeout))
		defer cancel()
		_, err := p.life.node.Read(try, Consistency{})
		if err == nil && !known {
			err = p.life.matchLeader(try)
		}
		p.results <- readResult{lost, err} // there is room: one read at a time
	}()
}

// judge takes in how a read came out, unless the leader was lost since it began.
func (p *readProof) judge(r readResult) {
	p.reading = false
	if r.lost != p.lost {
		return
	}
	found := p.life.caughtUp.Load()
	switch {
	case r.err == nil:
		p.proven = time.Now()
		p.life.caughtUp.Store(&catchUp{ok: true})
	case found != nil && time.Since(p.proven) >= p.life.node.times().of(readyPatience):
		if found.ok {
			p.life.node.log.Warn("not ready: linearizable reads fail here", "error", r.err)
		}
		p.life.caughtUp.Store(&catchUp{why: fmt.Sprintf("linearizable reads have failed on this node for %v: %v",
			time.Since(p.proven).Round(time.Second), r.err)})
	}
}
