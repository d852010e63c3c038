package fsm

// Code is how a command ended. The numbers are in the log's results, in the
// snapshot and on the peer port: never reused.
type Code uint8

// The codes. OK and Waiting are answers; the others are refusals: the command
// changed nothing, but for an acquire's ttl (semantics, Order of checks).
const (
	OK               Code = 0
	Waiting          Code = 1  // queued; the place is in Result.Place
	Malformed        Code = 2  // the bytes or the combination make no command
	InvalidCount     Code = 3  // count < 1
	UnknownSemaphore Code = 4  //
	UnknownSession   Code = 5  // never existed, or ended by its client, or forgotten
	ExpiredSession   Code = 6  // ended by its deadline, and still remembered
	Revoked          Code = 7  // ended by an operator, see Reason
	Never            Code = 8  // more than the semaphore could ever grant
	LeaseExists      Code = 9  // held or waited for otherwise, see Holding
	Hierarchy        Code = 10 // level rule, see Rule
	Unavailable      Code = 11 // not free now, and not to be queued (any longer)
	AlreadyExists    Code = 12 // create-only, and the semaphore exists
	EpochMismatch    Code = 13 // another epoch was meant, see Epoch
	Overflow         Code = 14 // a counter would leave its range
	SessionExists    Code = 15 // restore of a living session that differs
	SessionIDTaken   Code = 16 // the drawn id is in use: draw again
	LimitReached     Code = 17 // a configured limit, see Rule
	KeyReused        Code = 18 // the key was used with another request
	Deleted          Code = 19 // the semaphore was deleted during the wait
	NotHeld          Code = 20 // no lease there
	Withdrawn        Code = 21 // the waiting request was withdrawn by its client
	MixedLevels      Code = 22 // members of an "all" differ in level
	PermitsRequired  Code = 23 // a new semaphore needs permits
	NothingReady     Code = 24 // deliver: no entry of the wait list is ready, see Found
	VersionMismatch  Code = 25 // other settings were meant, see Version; level 1
	Over             Code = 26 // the lease that this key was granted is over; level 1
	codeCount             = 27
)

var codeNames = [codeCount]string{
	"ok", "waiting", "malformed", "invalid-count", "unknown-semaphore", "unknown-session",
	"expired-session", "revoked", "never", "lease-exists", "hierarchy", "unavailable",
	"already-exists", "epoch-mismatch", "overflow", "session-exists", "session-id-taken",
	"limit-reached", "key-reused", "deleted", "not-held", "withdrawn", "mixed-levels",
	"permits-required", "nothing-ready", "version-mismatch", "over",
}

// String is the code's stable name.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "unknown"
}

// Rule says which rule or limit a refusal comes from.
type Rule uint8

// The rules; the numbers are in stored results and must never change meaning.
const (
	RuleNone          Rule = 0
	RuleHolds         Rule = 1  // hierarchy: by what the session holds
	RuleWaits         Rule = 2  // hierarchy: by what the session waits for
	RuleSemaphores    Rule = 3  // limit: how many semaphores
	RuleSessions      Rule = 4  // limit: how many sessions
	RuleLeases        Rule = 5  // limit: how many leases
	RuleSessionLeases Rule = 6  // limit: how many leases in one session
	RuleWaiting       Rule = 7  // limit: how many waiting requests
	RuleQueue         Rule = 8  // limit: how many waiting requests on one semaphore
	RuleSessionWaits  Rule = 9  // limit: how many waiting requests in one session
	RuleKeys          Rule = 10 // limit: idempotency keys
	RuleWaitList      Rule = 11 // limit: how many entries in one wait list
	RuleNotices       Rule = 12 // limit: how many notices
	RuleOwnerKeys     Rule = 13 // limit: one owner's idempotency keys; level 1
	ruleCount              = 14
)

var ruleNames = [ruleCount]string{
	"", "holds", "waits", "semaphores", "sessions", "leases", "session-leases",
	"waiting", "queue", "session-waiting", "keys", "wait-list", "notices", "owner-keys",
}

// String is the rule's stable name.
func (r Rule) String() string {
	if int(r) < len(ruleNames) {
		return ruleNames[r]
	}
	return "unknown"
}

// Result is the outcome of one command: machine values, no text. Which members
// are set depends on the operation and the code; the rest are zero.
type Result struct {
	Code     Code
	Replayed bool // answered from an idempotency key, nothing changed
	Joined   bool // the key's request still waits: same place, nothing changed
	Waiting  bool // the session still waits for something
	Created  bool // a new semaphore was made
	Found    bool // end, release, delete: there was something
	OneShot  bool // Session ends with its last lease or request

	Session    uint64
	TTLMS      int64 // the session's ttl
	DeadlineMS int64 // the session's deadline, in cluster time

	Place    uint64 // of the waiting request, 0 when none
	Position int64  // of the request in its (first) line, from 1

	Epoch   uint64 // of the semaphore meant
	Version uint64 // of its settings: put, create and VersionMismatch, from level 1 on
	Granted int64  // down: permits taken
	Value   int64  // up, down, set: available after the grants that it caused

	Trace string // of the command that caused a waiting request's grant

	Grants    []Grant        // leases held by this request, in list order
	Semaphore *SemaphoreView // put, create
	Each      []Result       // renew: one for each renewal, in order
	Completed []Completion   // deliver: what the wait list had ready

	// Refusals say what stood in the way.
	Subject     string // the semaphore that the refusal is about
	Rule        Rule
	Reason      string // the operator's, for Revoked
	Asked       int64  // the count asked
	Holding     int64  // the count held or waited for
	Permits     int64
	Full        int64 // permits + max(offset, 0): the most that could be granted
	Available   int64
	QueueLength int64
	Level       *int32 // of the semaphore asked for
	LowestLevel *int32 // the lowest level held, or that of the request waited for
}

// Grant is one lease as a result tells it.
type Grant struct {
	Semaphore string
	Epoch     uint64
	Count     int64
	Token     uint64
	GrantedMS int64 // cluster time of the grant
}

// Completion is one entry of a wait list, delivered.
type Completion struct {
	Semaphore string
	Epoch     uint64
	Granted   int64
	Token     uint64 // of its last grant; 0 without one
	Deleted   bool   // the semaphore is gone, and Granted is 0
}

// Conclusion is the end of one waiting request: granted (OK), or why not. It
// is told once, in the entry that ended the wait.
type Conclusion struct {
	Place  uint64
	Result Result
}
