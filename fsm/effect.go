package fsm

// EffectKind is what happened to a semaphore, a lease, a request or a session.
type EffectKind uint8

// The kinds; the numbers are part of the state hash and must never change meaning.
const (
	EffectCreated      EffectKind = 1  // a semaphore: Permits, Level
	EffectChanged      EffectKind = 2  // its permits, offset, level or metadata
	EffectDeleted      EffectKind = 3  // a semaphore is gone, with its line
	EffectGranted      EffectKind = 4  // a lease (Token > 0), or permits taken by a waiting down
	EffectReleased     EffectKind = 5  // a lease ended, or became smaller, see Cause
	EffectWaiting      EffectKind = 6  // a request joined a line
	EffectWithdrawn    EffectKind = 7  // a request left a line without a grant, see Cause
	EffectSessionEnded EffectKind = 8  // see Cause
	EffectSessionOpen  EffectKind = 9  // opened or restored
	EffectListReady    EffectKind = 10 // an entry of a wait list can be delivered
	EffectNoticeDue    EffectKind = 11 // a notice is to be delivered: Place is its id
)

// String is the kind's stable name.
func (k EffectKind) String() string {
	switch k {
	case EffectCreated:
		return "created"
	case EffectChanged:
		return "changed"
	case EffectDeleted:
		return "deleted"
	case EffectGranted:
		return "granted"
	case EffectReleased:
		return "released"
	case EffectWaiting:
		return "waiting"
	case EffectWithdrawn:
		return "withdrawn"
	case EffectSessionEnded:
		return "session-ended"
	case EffectSessionOpen:
		return "session-opened"
	case EffectListReady:
		return "list-ready"
	case EffectNoticeDue:
		return "notice-due"
	}
	return "unknown"
}

// Effect is one change that an entry made, in the order in which it was made.
// The same log gives the same effects on every node.
type Effect struct {
	Kind      EffectKind
	Cause     Cause
	Semaphore string
	Epoch     uint64
	Session   uint64
	Place     uint64 // of the request, where one waited
	Token     uint64
	Count     int64 // granted, taken back, or asked
	Permits   int64 // created, changed
	Offset    int64 // created, changed
	Level     *int32
	Reason    string
}

// AppliedCommand is one command of an entry with its result.
type AppliedCommand struct {
	Request RequestID
	Op      Op
	Result  Result
}

// Applied is all that one entry did. It is the caller's, never changed again.
type Applied struct {
	Index       uint64
	NowMS       int64 // cluster time after the entry's stamp
	Commands    []AppliedCommand
	Conclusions []Conclusion
	Effects     []Effect
	Term        uint64 // of a reign entry, else 0
	MoreDue     bool   // sessions past their deadline are left: log a tick
}
