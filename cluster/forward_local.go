package cluster

import (
	"context"
	"sync"
)

// localLane leads to this node's own proposer while it leads.
type localLane struct {
	reign    *reign
	requests *requests
	current  func() *reign
	admits   func(command []byte) error
	confirm  func(context.Context, *reign) (index uint64, nowMS int64, err error)

	once  sync.Once
	ended chan struct{}
}

// ownCommand is one of this node's requests as a proposer sees it.
type ownCommand struct {
	*request
	lane *localLane
}

func (c ownCommand) command() []byte { return c.data }
func (c ownCommand) load() load      { return c.request.load }

// withdrawn implements withdrawable.
func (c ownCommand) withdrawn() error {
	if c.lane.requests.wanted(c.request) {
		return nil
	}
	return errRefused
}

// failed implements proposal. Of what is open the machine will tell.
func (c ownCommand) failed(err error) {
	if err != errOpen {
		c.lane.requests.failed(c.request, c.lane.reign.term, 0, err)
	}
}

func (l *localLane) send(reqs []*request) (back []*request) {
	live, ok := l.requests.markSent(reqs, l.reign.term, 0)
	if !ok {
		return reqs
	}
	proposals := make([]proposal, 0, len(live))
	for _, q := range live {
		c := ownCommand{q, l}
		if err := l.admits(q.data); err != nil {
			c.failed(err)
			continue
		}
		proposals = append(proposals, c)
	}
	if l.reign.proposer.enqueue(proposals) != nil {
		l.requests.unmark(live)
		return live
	}
	return nil
}

func (l *localLane) read(ctx context.Context) (uint64, int64, error) {
	return l.confirm(ctx, l.reign)
}

func (l *localLane) term() uint64          { return l.reign.term }
func (l *localLane) valid() bool           { return l.current() == l.reign }
func (l *localLane) done() <-chan struct{} { return l.ended }
func (l *localLane) close()                { l.once.Do(func() { close(l.ended) }) }
