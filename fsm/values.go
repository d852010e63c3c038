package fsm

import (
	"encoding/hex"
	"fmt"
)

// Pair is one member of a metadata map. Lists of pairs are sorted by key, contain no duplicate key, and are immutable.
type Pair struct{ Key, Value string }

// Want is a count of permits requested of one semaphore.
type Want struct {
	Semaphore string
	Count     int64
	Group     string // of the semaphore; "" for a plain semaphore
}

// Change is a member of a partial update. If Given is false, the member stays. A zero Value clears a member of an
// optional type.
type Change[T any] struct {
	Given bool
	Value T
}

// KeepTTL in place of a ttl leaves the ttl and the deadline of the session unchanged.
const KeepTTL int64 = -1

// MaxTTLMS is 100 years in milliseconds, the longest ttl or wait.
const MaxTTLMS int64 = 100 * 365 * 24 * 3600 * 1000

// Mode says whether all or any of a list of semaphores is acquired.
type Mode uint8

// The modes of AcquireMany.
const (
	All Mode = 1 // every member, in one step
	Any Mode = 2 // the first member in the list's order that can serve it
)

// MaxMembers bounds the semaphores that one request may list.
const MaxMembers = 64

// MaxOwnerBytes and MaxTraceBytes bound the lengths of an owner and of a trace context.
const (
	MaxOwnerBytes = 64
	MaxTraceBytes = 64
)

// Cause says why a session, a lease or a wait ended.
type Cause uint8

// The causes. A number never changes its meaning, because snapshots contain it.
const (
	CauseNone      Cause = 0
	CauseExpired   Cause = 1 // the deadline passed
	CauseEnded     Cause = 2 // its client ended, released or withdrew it
	CauseRevoked   Cause = 3 // an operator ended it, with a reason
	CauseDeleted   Cause = 4 // the semaphore was deleted
	CauseNever     Cause = 5 // the semaphore became too small for the request
	CauseElsewhere Cause = 6 // another member of the "any" request was granted
	CauseTimeout   Cause = 7 // the wait of a one-shot's request timed out
	CauseResized   Cause = 8 // part of a lease was given back

	CauseSuperseded Cause = 9  // a newer request took the place of this request in a full line
	CauseMaxHold    Cause = 10 // the lease was held for Settings.MaxHoldMS
)

// String returns the stable name of the cause, as events and problems show it.
func (c Cause) String() string {
	return nameOfNumber(int(c), "", "expired", "released", "revoked", "deleted", "never", "elsewhere", "timeout", "resized",
		"superseded", "max-hold")
}

// nameOfNumber returns the name of a number; the first name is for 0.
func nameOfNumber(number int, names ...string) string {
	if number < len(names) {
		return names[number]
	}
	return "unknown"
}

// RequestID names one proposed command for ever.
type RequestID struct {
	Origin   uint64 // drawn at random at each start of a node
	Sequence uint64
}

// ClusterID names one cluster for ever: 128 random bits. Zero means that the cluster is unknown.
type ClusterID [16]byte

// String returns the id as 32 hexadecimal digits.
func (id ClusterID) String() string { return hex.EncodeToString(id[:]) }

// ParseClusterID parses the output of String.
func ParseClusterID(text string) (id ClusterID, err error) {
	decoded, err := hex.DecodeString(text)
	if err != nil || len(decoded) != len(id) {
		return ClusterID{}, fmt.Errorf("%q is no cluster id of %d hexadecimal digits", text, 2*len(id))
	}
	return ClusterID(decoded), nil
}
