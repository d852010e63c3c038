package cluster

import (
	"sync"

	"github.com/signalbox/signalbox/fsm"
)

// lists knows who listens to which session's wait list: the callers of this
// node's waiting deliveries. What it tells is news only, that it is worth a look;
// what can be delivered is said by the log. Safe for concurrent use.
type lists struct {
	mu        sync.Mutex
	listeners map[uint64]map[chan struct{}]struct{} // by session
}

func newLists() *lists {
	return &lists{listeners: map[uint64]map[chan struct{}]struct{}{}}
}

// listen answers a channel that has news of a session's wait list, until stop. To
// miss nothing, call it before looking.
func (l *lists) listen(session uint64) (news chan struct{}, stop func()) {
	news = make(chan struct{}, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listeners[session] == nil {
		l.listeners[session] = map[chan struct{}]struct{}{}
	}
	l.listeners[session][news] = struct{}{}
	return news, func() { l.stop(session, news) }
}

func (l *lists) stop(session uint64, news chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.listeners[session], news)
	if len(l.listeners[session]) == 0 {
		delete(l.listeners, session)
	}
}

// deliver tells of the lists that an entry made ready, of those that another call
// may have emptied, and of sessions that ended. It is called in the apply
// goroutine, once the state has the entry.
func (l *lists) deliver(applied *fsm.Applied) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.listeners) == 0 {
		return
	}
	for i := range applied.Effects {
		switch e := &applied.Effects[i]; e.Kind {
		case fsm.EffectListReady, fsm.EffectSessionEnded:
			l.wake(e.Session)
		}
	}
	for i := range applied.Commands {
		c := &applied.Commands[i]
		if c.Result.Code == fsm.OK && (c.Op == fsm.OpListRemove || c.Op == fsm.OpListDeliver) {
			l.wake(c.Result.Session)
		}
	}
}

// wakeAll tells everybody: after a restore anything may have changed.
func (l *lists) wakeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for session := range l.listeners {
		l.wake(session)
	}
}

// wake tells the listeners of one session. The caller holds mu.
func (l *lists) wake(session uint64) {
	for news := range l.listeners[session] {
		signal(news)
	}
}
