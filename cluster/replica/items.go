package replica

import (
	"sync"
	"sync/atomic"

	iradix "github.com/hashicorp/go-immutable-radix"

	"github.com/signalbox/signalbox/fsm"
	"github.com/signalbox/signalbox/internal/wake"
)

// ItemWatch follows the changes of one item, or of all items whose names begin with a
// prefix. It is safe for concurrent use.
type ItemWatch struct {
	news  wake.Signal
	index atomic.Uint64
	stop  func()
}

// News returns a signal that is set at each applied change of the watched items.
func (w *ItemWatch) News() <-chan struct{} { return w.news }

// Index returns the highest number of a change since the watch began, or 0 before the first change. After a restored
// snapshot it is the number of the last change of any item. It never falls.
func (w *ItemWatch) Index() uint64 { return w.index.Load() }

// Stop ends the watch. It may be called more than once.
func (w *ItemWatch) Stop() { w.stop() }

// changed sets the signal, and stores the number of a change.
func (w *ItemWatch) changed(number uint64) {
	if number > w.index.Load() { // the apply goroutine alone writes it
		w.index.Store(number)
	}
	w.news.Set()
}

// watched has the watches of one item name or of one prefix.
type watched struct {
	watches map[*ItemWatch]struct{}
	number  uint64 // the number of the last change by the current entry; 0: no change
}

// ItemWatches finds the watches of a changed item by one walk down a tree, and wakes each of them once for each entry.
// Use NewItemWatches. Its methods are safe for concurrent use and do not block.
type ItemWatches struct {
	mu    sync.Mutex
	names map[string]*watched
	below *iradix.Tree // of *watched, by prefix
	open  int          // watches
}

// NewItemWatches returns an ItemWatches without watches.
func NewItemWatches() *ItemWatches {
	return &ItemWatches{names: map[string]*watched{}, below: iradix.New()}
}

// Watch returns a watch of the item of that name or, with below, of all items whose names begin with it. A caller that
// calls Watch before it reads the state misses no change. The caller must call Stop once.
func (i *ItemWatches) Watch(name string, below bool) *ItemWatch {
	w := &ItemWatch{news: wake.NewSignal()}
	w.stop = func() { i.end(w, name, below) }
	i.mu.Lock()
	defer i.mu.Unlock()
	item := i.at(name, below)
	if item == nil {
		item = &watched{watches: map[*ItemWatch]struct{}{}}
		if below {
			i.below, _, _ = i.below.Insert([]byte(name), item) // state: the prefixes that are watched
		} else {
			i.names[name] = item
		}
	}
	item.watches[w] = struct{}{}
	i.open++
	return w
}

// Count returns how many watches there are.
func (i *ItemWatches) Count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.open
}

// at returns the watches of a name or of a prefix, or nil.
func (i *ItemWatches) at(name string, below bool) *watched {
	if !below {
		return i.names[name]
	}
	w, _ := i.below.Get([]byte(name))
	found, _ := w.(*watched)
	return found
}

func (i *ItemWatches) end(w *ItemWatch, name string, below bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	item := i.at(name, below)
	if item == nil {
		return
	}
	i.open -= len(item.watches)
	delete(item.watches, w)
	i.open += len(item.watches)
	switch {
	case len(item.watches) > 0:
	case below:
		i.below, _, _ = i.below.Delete([]byte(name)) // state: as in Watch
	default:
		delete(i.names, name)
	}
}

// Applied wakes the watches of all items that an entry has changed. Calls of Applied and Restored do not overlap.
func (i *ItemWatches) Applied(effects []fsm.Effect) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.names) == 0 && i.below.Len() == 0 {
		return
	}
	var concerned []*watched
	note := func(item *watched, number uint64) {
		if item.number == 0 {
			concerned = append(concerned, item)
		}
		item.number = max(item.number, number)
	}
	for e := range effects {
		change := &effects[e]
		if change.Item == "" {
			continue
		}
		if item := i.names[change.Item]; item != nil {
			note(item, change.Version)
		}
		i.below.Root().WalkPath([]byte(change.Item), func(_ []byte, value any) (stop bool) {
			note(value.(*watched), change.Version)
			return false
		})
	}
	for _, item := range concerned {
		for w := range item.watches {
			w.changed(item.number)
		}
		item.number = 0
	}
}

// Restored wakes all watches, since any item may have changed. number is the number of the last change of any item.
func (i *ItemWatches) Restored(number uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := func(item *watched) {
		for w := range item.watches {
			w.changed(number)
		}
	}
	for _, item := range i.names {
		all(item)
	}
	i.below.Root().Walk(func(_ []byte, value any) (stop bool) {
		all(value.(*watched))
		return false
	})
}
