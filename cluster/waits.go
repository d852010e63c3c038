package cluster

import (
	"sync"

	"github.com/signalbox/signalbox/fsm"
)

// waits knows who listens for the end of which waiting request, by its place:
// callers of this node, and connections of nodes whose callers wait. Several may
// listen for one place. Safe for concurrent use; a caller that holds
// requests.mu may call it.
type waits struct {
	mu      sync.Mutex
	callers map[uint64]map[*listener]struct{}
	remote  map[uint64]map[remoteListener]struct{}
	// places is remote the other way round; a connection that is gone has no
	// entry, so that nothing is kept for it any more.
	places map[remoteListener]map[uint64]struct{}
	// restoredAt is the index of the last snapshot that the machine came from: a
	// request enqueued up to it may have ended unseen.
	restoredAt uint64
}

// listener is one caller that waits. It is made before the place is known.
type listener struct {
	wants     []fsm.Want      // what it asked for; none for a down
	concluded chan conclusion // has room for the one that comes
	place     uint64          // 0 until it listens; guarded by waits.mu
	session   uint64          // the request's, likewise
}

// conclusion is the end of a wait, with the entry that ended it.
type conclusion struct {
	result fsm.Result
	index  uint64
	nowMS  int64
	// lost: a snapshot hid the end of the wait, and the state does not tell it.
	lost bool
}

// remoteListener is a connection to a node that listens. conclude is called with
// waits.mu held and must not block.
type remoteListener interface {
	conclude(place uint64, end *conclusion)
}

func newWaits() *waits {
	return &waits{
		callers: map[uint64]map[*listener]struct{}{},
		remote:  map[uint64]map[remoteListener]struct{}{},
		places:  map[remoteListener]map[uint64]struct{}{},
	}
}

func newListener(wants []fsm.Want) *listener {
	return &listener{wants: wants, concluded: make(chan conclusion, 1)}
}

// listen starts a listener on the place of a Waiting result.
func (w *waits) listen(l *listener, waiting *fsm.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.place, l.session = waiting.Place, waiting.Session
	if w.callers[l.place] == nil {
		w.callers[l.place] = map[*listener]struct{}{}
	}
	w.callers[l.place][l] = struct{}{}
}

// stop ends a listener. What it was told stays in its channel.
func (w *waits) stop(l *listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.callers[l.place], l)
	if len(w.callers[l.place]) == 0 {
		delete(w.callers, l.place)
	}
}

// enter lets a connection watch places, until it leaves.
func (w *waits) enter(r remoteListener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places[r] = map[uint64]struct{}{}
}

// leave forgets a connection and what it watches.
func (w *waits) leave(r remoteListener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for place := range w.places[r] {
		delete(w.remote[place], r)
		if len(w.remote[place]) == 0 {
			delete(w.remote, place)
		}
	}
	delete(w.places, r)
}

// watch makes a connection be told the end of a wait, once however often it asks.
func (w *waits) watch(place uint64, r remoteListener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.places[r] == nil {
		return
	}
	if w.remote[place] == nil {
		w.remote[place] = map[remoteListener]struct{}{}
	}
	w.remote[place][r] = struct{}{}
	w.places[r][place] = struct{}{}
}

// deliver tells the conclusions of an entry. It is called in the apply
// goroutine, after the requests of the same entry were settled.
func (w *waits) deliver(applied *fsm.Applied) {
	if len(applied.Conclusions) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range applied.Conclusions {
		c := &applied.Conclusions[i]
		end := conclusion{result: c.Result, index: applied.Index, nowMS: applied.NowMS}
		w.tell(c.Place, &end)
		for r := range w.remote[c.Place] {
			r.conclude(c.Place, &end)
			delete(w.places[r], c.Place)
		}
		delete(w.remote, c.Place)
	}
}

// concluded tells the callers of this node what the leader said of a place.
func (w *waits) concluded(place uint64, end *conclusion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell(place, end)
}

// tell ends the listening of callers. The caller holds mu.
func (w *waits) tell(place uint64, end *conclusion) {
	for l := range w.callers[place] {
		l.concluded <- *end
	}
	delete(w.callers, place)
}

// restored looks every open wait up in a state that came from a snapshot: one
// that still waits goes on; of the others the state says what it can.
func (w *waits) restored(state *fsm.Machine, index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restoredAt = index
	for place, listeners := range w.callers {
		for l := range listeners {
			if end, ended := endOf(state, l, index); ended {
				l.concluded <- end
				delete(listeners, l)
			}
		}
		if len(listeners) == 0 {
			delete(w.callers, place)
		}
	}
}

// jumpedOver reports whether a snapshot may have hidden what became of a request
// that waited at index.
func (w *waits) jumpedOver(index uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.restoredAt >= index
}

// recheck is restored for one listener, whose Waiting result came from the
// leader about an index that the machine has jumped over.
func (w *waits) recheck(l *listener, state *fsm.Machine, index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, open := w.callers[l.place][l]; !open {
		return
	}
	if end, ended := endOf(state, l, index); ended {
		l.concluded <- end
		delete(w.callers[l.place], l)
	}
}

// endOf answers how a wait ended, as a state tells it; ended is false while it
// goes on.
func endOf(state *fsm.Machine, l *listener, index uint64) (end conclusion, ended bool) {
	result, known := state.Outcome(l.session, l.place, l.wants)
	if known && result.Code == fsm.Waiting {
		return conclusion{}, false
	}
	return conclusion{result: result, index: index, nowMS: state.NowMS(), lost: !known}, true
}
