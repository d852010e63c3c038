package fsm

// EffectKind is what happened to a semaphore, a lease, a request or a session.
type EffectKind uint8

// The kinds; the numbers are part of the state hash and must never change meaning.
const (
	EffectCreated        EffectKind = 1  // a semaphore: Permits, Level, Metadata
	EffectChanged        EffectKind = 2  // its permits, offset, level or metadata: all of them as they are now
	EffectDeleted        EffectKind = 3  // a semaphore is gone, with its line
	EffectGranted        EffectKind = 4  // a lease, or (Unowned) permits taken by a waiting down
	EffectReleased       EffectKind = 5  // a lease ended, or became smaller, see Cause; Count is 0 once it was revoked
	EffectWaiting        EffectKind = 6  // a request joined a line, or (the same Place) asks for another Count
	EffectWithdrawn      EffectKind = 7  // a request left a line without a grant, see Cause
	EffectSessionEnded   EffectKind = 8  // see Cause
	EffectSessionOpen    EffectKind = 9  // opened or restored: TTLMS, DeadlineMS, OneShot, Metadata
	EffectListReady      EffectKind = 10 // an entry of a wait list can be delivered
	EffectNoticeDue      EffectKind = 11 // a notice is to be delivered: Place is its id
	EffectSessionRenewed EffectKind = 12 // another ttl or deadline: TTLMS, DeadlineMS
	EffectListLeft       EffectKind = 13 // an entry left a wait list, delivered or removed
	EffectNoticeEnded    EffectKind = 14 // a notice did not become due in time: Place is its id; level 1
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
	case EffectSessionRenewed:
		return "session-renewed"
	case EffectListLeft:
		return "list-left"
	case EffectNoticeEnded:
		return "notice-ended"
	}
	return "unknown"
}

// Effect is one change that an entry made, in the order in which it was made.
// The same log gives the same effects on every node, and with the entries'
// indexes and times they tell all that views of semaphores and sessions show.
type Effect struct {
	Kind       EffectKind
	Cause      Cause
	Mode       Mode // of a request that waits; 0: a single semaphore
	Unowned    bool // no lease: granted, waiting
	Partial    bool // waiting
	Listed     bool // waiting: for an entry of its session's wait list
	OneShot    bool // a session opened
	Semaphore  string
	Epoch      uint64
	Session    uint64
	Place      uint64 // of the request, where one waited
	Token      uint64
	Count      int64 // granted, taken back, or asked
	Permits    int64 // created, changed
	Offset     int64 // created, changed
	TTLMS      int64 // a session opened, renewed
	DeadlineMS int64 // a session opened, renewed: in cluster time
	Level      *int32
	Metadata   []Pair // created, changed, a session opened; immutable
	Reason     string
	Trace      string // granted: of the command that caused it
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
	Jump        bool   // of a reign entry: it skipped tokens, places and epochs
	MoreDue     bool   // work is left over, see Machine.MoreDue: log a tick
}
