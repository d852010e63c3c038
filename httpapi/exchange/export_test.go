package exchange

// The budgets of an Exchange, for the tests of package exchange_test.

// UsedReplies returns the bytes of replies that are reserved.
func (x *Exchange) UsedReplies() int64 { return x.replies.used.Load() }

// MostReplies returns the budget of replies.
func (x *Exchange) MostReplies() int64 { return x.replies.most }

// InsistReplies reserves bytes of replies beyond the budget, or releases them.
func (x *Exchange) InsistReplies(bytes int64) { x.replies.insist(bytes) }

// UsedBodies returns the bytes of bodies that are reserved.
func (x *Exchange) UsedBodies() int64 { return x.bodySpace.used.Load() }

// InsistBodies reserves bytes of bodies beyond the budget, or releases them.
func (x *Exchange) InsistBodies(bytes int64) { x.bodySpace.insist(bytes) }

// TakeTurns takes all turns of building a large reply.
func (x *Exchange) TakeTurns() {
	for range cap(x.makers) {
		x.makers <- struct{}{}
	}
}

// ArrivingBodies returns how many bodies are arriving.
func (x *Exchange) ArrivingBodies() int {
	x.bodies.mu.Lock()
	defer x.bodies.mu.Unlock()
	return len(x.bodies.open)
}
