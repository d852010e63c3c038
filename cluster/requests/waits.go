package requests

import "github.com/signalbox/signalbox/fsm"

// waits has the listeners for the end of each waiting request: callers of this node, and streams from nodes whose callers
// wait. The keys are places, the numbers that fsm gives to waiting requests. Registry.mu guards it.
type waits struct {
	callers sets[uint64, *Listener]
	streams sets[uint64, Stream]
	// places has the places of each stream in streams. A stream that has left is removed, so that no place is added for
	// it any more.
	places map[Stream]map[uint64]struct{}
}

// sets is a set of values for each key. No set is empty.
type sets[K, V comparable] map[K]map[V]struct{}

func (s sets[K, V]) add(key K, value V) {
	if s[key] == nil {
		s[key] = map[V]struct{}{}
	}
	s[key][value] = struct{}{}
}

func (s sets[K, V]) remove(key K, value V) {
	delete(s[key], value)
	if len(s[key]) == 0 {
		delete(s, key)
	}
}

func newWaits() waits {
	return waits{callers: sets[uint64, *Listener]{}, streams: sets[uint64, Stream]{}, places: map[Stream]map[uint64]struct{}{}}
}

// Listener is one caller that waits. It is made before the place is known.
type Listener struct {
	Wants     []fsm.Want       // of its command; empty for a down
	Concluded chan *Conclusion // gets at most one conclusion, which must not be changed; its buffer has room for it

	// These fields are set when the caller begins to listen; guarded by Registry.mu.
	place   uint64
	session uint64 // of the request
	index   uint64 // of the entry with the Waiting result
}

// NewListener returns a listener that does not listen yet.
func NewListener(wants []fsm.Want) *Listener {
	return &Listener{Wants: wants, Concluded: make(chan *Conclusion, 1)}
}

// Conclusion is the end of a wait, with the entry that ended it.
type Conclusion struct {
	Result fsm.Result
	Index  uint64
	NowMS  int64
	// Lost: a snapshot hid the end of the wait, and the state does not show it.
	Lost bool
}

// listen adds a listener at the place of a Waiting result. The result came from the entry at index.
func (w *waits) listen(l *Listener, waiting *fsm.Result, index uint64) {
	l.place, l.session, l.index = waiting.Place, waiting.Session, index
	w.callers.add(l.place, l)
}

// Stop removes a listener. A conclusion that it already has stays in its channel.
func (r *Registry) Stop(l *Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.callers.remove(l.place, l)
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

// Conclude ends the waits of this node's callers at a place, as the leader reports.
func (r *Registry) Conclude(place uint64, end Conclusion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.conclude(place, end)
}

// conclude ends the waits of this node's callers at a place. The caller holds mu.
func (w *waits) conclude(place uint64, end Conclusion) {
	for l := range w.callers[place] {
		l.Concluded <- &end
	}
	delete(w.callers, place)
}

// resolveFromSnapshot ends the waits that the snapshot at index shows as finished. It skips a wait that began after
// index (the leader has reported the wait before this node applied its entry): the snapshot may show that the session
// still held the permits that it waits for now.
func (w *waits) resolveFromSnapshot(state *fsm.Machine, index uint64) {
	for _, listeners := range w.callers {
		for l := range listeners {
			if l.index > index {
				continue
			}
			if end, finished := conclusionIn(state, l, index); finished {
				l.Concluded <- &end
				w.callers.remove(l.place, l)
			}
		}
	}
}

// conclusionIn returns the end of a wait as the state at index shows it; finished is false while the wait continues.
func conclusionIn(state *fsm.Machine, l *Listener, index uint64) (end Conclusion, finished bool) {
	result, known := state.Outcome(l.session, l.place, l.Wants)
	if known && result.Code == fsm.Waiting {
		return Conclusion{}, false
	}
	return Conclusion{Result: result, Index: index, NowMS: state.NowMS(), Lost: !known}, true
}

// Recheck ends a wait as the present state shows it, if a snapshot may have hidden its end. For example, the leader
// reports a Waiting result from the entry at index, and this machine jumps over that entry by a snapshot.
func (r *Registry) Recheck(l *Listener, index uint64) {
	if !r.JumpedOver(index) {
		return
	}
	var end Conclusion
	var finished bool
	r.replica.View(func(state *fsm.Machine) { end, finished = conclusionIn(state, l, state.Index()) })
	if !finished {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, listens := r.waits.callers[l.place][l]; listens {
		l.Concluded <- &end
		r.waits.callers.remove(l.place, l)
	}
}

// JumpedOver reports whether a snapshot may have hidden the end of a wait that began at index.
func (r *Registry) JumpedOver(index uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.restoredAt >= index
}

// AddStream adds a stream, which learns the ends of its waits until it leaves.
func (r *Registry) AddStream(s Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waits.places[s] = map[uint64]struct{}{}
}

// watch reports the end of a wait to a stream, once, even if the stream asks several times. It ignores a stream that
// has left.
func (w *waits) watch(place uint64, s Stream) {
	if w.places[s] == nil {
		return
	}
	w.streams.add(place, s)
	w.places[s][place] = struct{}{}
}

// release removes the streams that watch a place and returns them.
func (w *waits) release(place uint64) map[Stream]struct{} {
	watching := w.streams[place]
	for s := range watching {
		delete(w.places[s], place)
	}
	delete(w.streams, place)
	return watching
}

// RemoveStream removes a stream and the places that it watches.
func (r *Registry) RemoveStream(s Stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for place := range r.waits.places[s] {
		r.waits.streams.remove(place, s)
	}
	delete(r.waits.places, s)
}
