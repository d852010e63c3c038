package requests

import "github.com/signalbox/signalbox/fsm"

// waits has the listeners for the end of each waiting request, by its place: callers
// of this node, and streams of nodes whose callers wait. Several may listen for one
// place. Registry.mu guards it.
type waits struct {
	callers map[uint64]map[*Listener]struct{}
	streams map[uint64]map[Stream]struct{}
	// places is streams the other way round. A stream that is gone has no entry: no
	// place is kept for it any more.
	places map[Stream]map[uint64]struct{}
}

// Listener is one caller that waits. It is made before the place is known.
type Listener struct {
	Wants     []fsm.Want       // of its command; empty for a down
	Concluded chan *Conclusion // gets at most one, which is not to be changed, and has room for it
	place     uint64           // 0 until it listens; guarded by Registry.mu
	session   uint64           // of the request; 0 until it listens; guarded by Registry.mu
	index     uint64           // of the entry that said that it waits; 0 until it listens; guarded by Registry.mu
}

// Conclusion is the end of a wait, with the entry that ended it.
type Conclusion struct {
	Result fsm.Result
	Index  uint64
	NowMS  int64
	// Lost: a snapshot hid the end of the wait, and the state does not show it.
	Lost bool
}

func newWaits() waits {
	return waits{
		callers: map[uint64]map[*Listener]struct{}{},
		streams: map[uint64]map[Stream]struct{}{},
		places:  map[Stream]map[uint64]struct{}{},
	}
}

// NewListener returns a listener that does not listen yet.
func NewListener(wants []fsm.Want) *Listener {
	return &Listener{Wants: wants, Concluded: make(chan *Conclusion, 1)}
}

// listen starts a Listener on the place of a Waiting result, which is of the entry with that index.
func (w *waits) listen(l *Listener, waiting *fsm.Result, index uint64) {
	l.place, l.session, l.index = waiting.Place, waiting.Session, index
	if w.callers[l.place] == nil {
		w.callers[l.place] = map[*Listener]struct{}{}
	}
	w.callers[l.place][l] = struct{}{}
}

// stop ends a listener.
func (w *waits) stop(l *Listener) {
	delete(w.callers[l.place], l)
	if len(w.callers[l.place]) == 0 {
		delete(w.callers, l.place)
	}
}

// watch makes a stream learn the end of a wait, once however often it asks, unless it
// has left.
func (w *waits) watch(place uint64, s Stream) {
	if w.places[s] == nil {
		return
	}
	if w.streams[place] == nil {
		w.streams[place] = map[Stream]struct{}{}
	}
	w.streams[place][s] = struct{}{}
	w.places[s][place] = struct{}{}
}

// release takes out the streams that watch a place and returns them.
func (w *waits) release(place uint64) map[Stream]struct{} {
	watching := w.streams[place]
	for s := range watching {
		delete(w.places[s], place)
	}
	delete(w.streams, place)
	return watching
}

// leave forgets a stream and the places that it watches.
func (w *waits) leave(s Stream) {
	for place := range w.places[s] {
		delete(w.streams[place], s)
		if len(w.streams[place]) == 0 {
			delete(w.streams, place)
		}
	}
	delete(w.places, s)
}

// conclude ends the listening of this node's callers for a place.
func (w *waits) conclude(place uint64, end Conclusion) {
	for l := range w.callers[place] {
		l.Concluded <- &end
	}
	delete(w.callers, place)
}

// lookUp looks up the open waits that began by the index of a state that came from a snapshot: one that still
// waits goes on; the state shows the ends of the others as far as it can. Of a wait that the leader has reported from
// behind that index it knows nothing: its session may have held, then, what it waits for now.
func (w *waits) lookUp(state *fsm.Machine, index uint64) {
	for _, listeners := range w.callers {
		for l := range listeners {
			if l.index > index {
				continue
			}
			if end, ended := endOf(state, l, index); ended {
				l.Concluded <- &end
				w.stop(l)
			}
		}
	}
}

// endOf returns how a wait ended, as far as a state shows it; ended is false while it
// goes on.
func endOf(state *fsm.Machine, l *Listener, index uint64) (end Conclusion, ended bool) {
	result, known := state.Outcome(l.session, l.place, l.Wants)
	if known && result.Code == fsm.Waiting {
		return Conclusion{}, false
	}
	return Conclusion{Result: result, Index: index, NowMS: state.NowMS(), Lost: !known}, true
}

// Enter lets a stream learn the ends of its waits, until it leaves.
func (r *Registry) Enter(s Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.places[s] = map[uint64]struct{}{}
}

// Leave forgets a stream.
func (r *Registry) Leave(s Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.leave(s)
}

// Conclude ends the waits of this node's callers at a place, as the leader reports.
func (r *Registry) Conclude(place uint64, end Conclusion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.conclude(place, end)
}

// Stop ends a listener. A conclusion that it has stays in its channel.
func (r *Registry) Stop(l *Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.stop(l)
}

// Recheck looks up a wait in the state if a snapshot may have hidden its end: its
// Waiting result came from the leader and is of index, which the machine has jumped
// over.
func (r *Registry) Recheck(l *Listener, index uint64) {
	if !r.JumpedOver(index) {
		return
	}
	var end Conclusion
	var ended bool
	r.replica.View(func(state *fsm.Machine) { end, ended = endOf(state, l, state.Index()) })
	if !ended {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, listens := r.waits.callers[l.place][l]; listens {
		l.Concluded <- &end
		r.waits.stop(l)
	}
}

// JumpedOver reports whether a snapshot may have hidden the end of a wait that began
// at index.
func (r *Registry) JumpedOver(index uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.restoredAt >= index
}

// OpenWaits returns how many callers of this node wait.
func (r *Registry) OpenWaits() (count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, listeners := range r.waits.callers {
		count += len(listeners)
	}
	return count
}
