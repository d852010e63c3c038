package exchange

// What the tests of package exchange_test see of an Exchange: budgets, and parts.

// UsedReplies returns the bytes of replies that are reserved.
func (x *Exchange) UsedReplies() int64 { return x.ReplyMemory.used.Load() }

// MostReplies returns the budget of replies.
func (x *Exchange) MostReplies() int64 { return x.ReplyMemory.limit }

// InsistReplies reserves bytes of replies beyond the budget, or releases them.
func (x *Exchange) InsistReplies(bytes int64) { x.ReplyMemory.add(bytes) }

// UsedBodies returns the bytes of bodies that are reserved.
func (x *Exchange) UsedBodies() int64 { return x.Bodies.memory.used.Load() }

// InsistBodies reserves bytes of bodies beyond the budget, or releases them.
func (x *Exchange) InsistBodies(bytes int64) { x.Bodies.memory.add(bytes) }

// TakeTurns takes all turns of building a large reply.
func (x *Exchange) TakeTurns() {
	for range cap(x.ReplyMemory.builders) {
		x.ReplyMemory.builders <- struct{}{}
	}
}

// ArrivingBodies returns how many bodies are arriving.
func (x *Exchange) ArrivingBodies() int {
	x.Bodies.mu.Lock()
	defer x.Bodies.mu.Unlock()
	return len(x.Bodies.arriving)
}

// GroupIn returns the group that the audit log shows of a command.
var GroupIn = groupIn
