package cluster

// withdrawable is a proposal that may become void while it waits in the queue.
type withdrawable interface {
	// withdrawn returns why the command must not be logged any more, or nil. It must
	// not block.
	withdrawn() error
}

// fit takes those commands out of a batch that must not be logged any more. It is
// called at the last moment before the batch becomes an entry, so a proposal that
// became void before a call of tick is not behind that tick's entry.
func (b *batch) fit() {
	kept := 0
	for i, q := range b.proposals {
		if w, is := q.(withdrawable); is {
			if err := w.withdrawn(); err != nil {
				q.failed(err)
				continue
			}
		}
		b.proposals[kept], b.data[kept] = q, b.data[i]
		kept++
	}
	clear(b.proposals[kept:])
	b.proposals, b.data = b.proposals[:kept], b.data[:kept]
}

// empty reports whether there is no reason to make an entry of the batch.
func (b *batch) empty() bool { return len(b.proposals) == 0 && len(b.ticks) == 0 }
