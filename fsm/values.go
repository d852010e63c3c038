package fsm

// Pair is one member of a metadata map. Lists of pairs are sorted by key, no
// key twice, and never changed once made.
type Pair struct{ Key, Value string }

// Want is a count of permits asked of one semaphore.
type Want struct {
	Semaphore string
	Count     int64
}

// Change is a member of a partial update: left alone unless Given, then set to
// Value, or to nothing when Value is the zero value of an optional type.
type Change[T any] struct {
	Given bool
	Value T
}

// KeepTTL is the ttl in milliseconds that leaves the session's ttl and deadline alone.
const KeepTTL int64 = -1

// MaxTTLMS is 100 years in milliseconds, the longest ttl or wait.
const MaxTTLMS int64 = 100 * 365 * 24 * 3600 * 1000

// Mode is how a list of semaphores is acquired.
type Mode uint8

// The modes of AcquireMany.
const (
	All Mode = 1 // every member in one step, or none yet
	Any Mode = 2 // the first member in the list's order that can serve it
)

// MaxMembers is how many semaphores one request may list.
const MaxMembers = 64

// MaxOwnerBytes and MaxTraceBytes bound an owner and a trace context.
const (
	MaxOwnerBytes = 64
	MaxTraceBytes = 64
)

// Cause says why a session or a lease ended, or a wait.
type Cause uint8

// The causes; the numbers are in snapshots and must never change meaning.
const (
	CauseNone      Cause = 0
	CauseExpired   Cause = 1 // the deadline passed
	CauseEnded     Cause = 2 // its client ended, released or withdrew it
	CauseRevoked   Cause = 3 // an operator ended it, with a reason
	CauseDeleted   Cause = 4 // the semaphore was deleted
	CauseNever     Cause = 5 // the semaphore became too small for the request
	CauseElsewhere Cause = 6 // an "any" request was served by another member
	CauseTimeout   Cause = 7 // a one-shot wait reached its end
	CauseResized   Cause = 8 // part of a lease was given back
)

// String is the stable name of the cause, as events and problems tell it.
func (c Cause) String() string {
	switch c {
	case CauseExpired:
		return "expired"
	case CauseEnded:
		return "released"
	case CauseRevoked:
		return "revoked"
	case CauseDeleted:
		return "deleted"
	case CauseNever:
		return "never"
	case CauseElsewhere:
		return "elsewhere"
	case CauseTimeout:
		return "timeout"
	case CauseResized:
		return "resized"
	}
	return ""
}

// RequestID names one proposed command for ever: which boot of which node
// proposed it, and its number there.
type RequestID struct {
	Origin   uint64 // drawn at random at each boot of a node
	Sequence uint64
}
