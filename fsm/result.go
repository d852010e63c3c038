package fsm

// Code says how a command ended. A number is never reused, because results are stored in the log, in snapshots and on
// the peer port.
type Code uint8

// The codes. OK and Waiting are successes, all others are refusals. A refused command leaves the state as it was,
// except that an acquire gives its session the ttl.
const (
	OK               Code = 0
	Waiting          Code = 1  // queued; the place is in Result.Place
	Malformed        Code = 2  // the bytes or the combination of parameters are not a command
	InvalidCount     Code = 3  // count < 1
	UnknownSemaphore Code = 4  // never existed, or was deleted
	UnknownSession   Code = 5  // never existed, or its client ended it, or its end is forgotten
	ExpiredSession   Code = 6  // its deadline passed; remembered for a while
	Revoked          Code = 7  // an operator ended it, see Reason
	Never            Code = 8  // more than the semaphore could ever grant
	LeaseExists      Code = 9  // the session has or requests a lease with another count, see Holding
	Hierarchy        Code = 10 // breaks the rule of levels, see Rule
	Unavailable      Code = 11 // not free now, and the request does not wait or waits no longer
	AlreadyExists    Code = 12 // a create-only command, but the semaphore exists
	EpochMismatch    Code = 13 // the command names another epoch, see Epoch
	Overflow         Code = 14 // a counter would leave its range
	SessionExists    Code = 15 // restore: a living session with this id differs
	SessionIDTaken   Code = 16 // the drawn session id is in use: draw another id
	LimitReached     Code = 17 // a configured limit, see Rule
	KeyReused        Code = 18 // the key was used with another request
	Deleted          Code = 19 // the semaphore was deleted during the wait
	NotHeld          Code = 20 // the session has no lease of the semaphore
	Withdrawn        Code = 21 // the waiting request was withdrawn by its client
	MixedLevels      Code = 22 // the semaphores of an "all" request differ in level
	PermitsRequired  Code = 23 // a new semaphore needs permits
	NothingReady     Code = 24 // deliver: no entry of the wait list is ready, see Found
	VersionMismatch  Code = 25 // the command names another version, see Version
	Over             Code = 26 // the lease that was granted for this idempotency key has ended
	ItemDiffers      Code = 27 // the item does not meet a condition of the command, see Rule
	LineFull         Code = 28 // the line has Settings.MaxWaiting requests
	Superseded       Code = 29 // a newer request took the place of this request in a full line
	NoTotal          Code = 30 // the semaphore is a family: only its groups have permits
	RequestsWaiting  Code = 31 // groups and permits: null can change only while no request waits
	NotLost          Code = 32 // no lost lease of the semaphore has this token
	SlotsNeeded      Code = 33 // restore: a lease of a semaphore with slots must name Count slots
	SlotTaken        Code = 34 // restore: another lease or a return has the slot
	codeCount             = 35
)

var codeNames = [codeCount]string{
	"ok", "waiting", "malformed", "invalid-count", "unknown-semaphore", "unknown-session",
	"expired-session", "revoked", "never", "lease-exists", "hierarchy", "unavailable",
	"already-exists", "epoch-mismatch", "overflow", "session-exists", "session-id-taken",
	"limit-reached", "key-reused", "deleted", "not-held", "withdrawn", "mixed-levels",
	"permits-required", "nothing-ready", "version-mismatch", "over", "item-differs",
	"line-full", "superseded", "no-total", "requests-waiting", "not-lost", "slots-needed", "slot-taken",
}

// String returns the stable name of the code.
func (c Code) String() string { return nameOfNumber(int(c), codeNames[:]...) }

// Rule names the rule or limit that a refusal comes from.
type Rule uint8

// The rules. A number never changes its meaning, because results are stored.
const (
	RuleNone          Rule = 0
	RuleHolds         Rule = 1  // hierarchy: because of a lease of the session
	RuleWaits         Rule = 2  // hierarchy: because of a waiting request of the session
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
	RuleOwnerKeys     Rule = 13 // limit: one owner's idempotency keys
	RuleOwnerSessions Rule = 14 // limit: one owner's sessions, see OwnerLimits
	RuleOwnerLeases   Rule = 15 // limit: one owner's leases
	RuleOwnerWaiting  Rule = 16 // limit: one owner's waiting requests
	RuleItems         Rule = 17 // limit: how many items and tombstones
	RuleItemBytes     Rule = 18 // limit: bytes of items
	RuleSessionItems  Rule = 19 // limit: how many items one session holds
	RuleVersion       Rule = 20 // item-differs: the item has another version
	RuleAbsent        Rule = 21 // item-differs: the item does not exist
	RuleHeld          Rule = 22 // item-differs: another session holds the item
	RuleDelay         Rule = 23 // item-differs: no session may acquire the item yet, see DelayMS
	RuleNotHolder     Rule = 24 // item-differs: the session does not hold the item

	// Limits of one owner's share, see withinShare.
	RuleOwnerSemaphores Rule = 25 // limit: how many semaphores one owner made
	RuleOwnerNotices    Rule = 26 // limit: one owner's notices, in all or for one semaphore
	RuleOwnerItems      Rule = 27 // limit: one owner's items
	RuleOwnerItemBytes  Rule = 28 // limit: bytes of one owner's items

	RuleGroup       Rule = 29 // malformed: a plain semaphore has no groups
	RulePerGroup    Rule = 30 // malformed: per_group needs groups
	RulePermits     Rule = 31 // malformed: a family needs groups and per_group
	RulePaused      Rule = 32 // malformed: a family can't be paused; unavailable: the semaphore is paused, see Reason
	RuleWhenFull    Rule = 33 // malformed: when_full needs max_waiting
	RulePools       Rule = 34 // malformed: an "all" request lists two pools
	RuleGroupLimit  Rule = 35 // unavailable, never: the group's limit, see Limit and Used
	RuleOtherGroups Rule = 36 // unavailable: another group of the pool comes first
	RuleOwnLimits   Rule = 37 // limit: how many groups have limits of their own
	RuleWindow      Rule = 38 // malformed: window excludes slots, cooldown, on_lost and max_hold
	RuleSlots       Rule = 39 // malformed: a family has no slots

	RuleOwnerOwnLimits Rule = 40 // limit: groups to which one owner gave a limit, see withinShare
	RuleOwnerReturns   Rule = 41 // limit: one owner's permits that come back later, see withinShare
	ruleCount               = 42
)

var ruleNames = [ruleCount]string{
	"", "holds", "waits", "semaphores", "sessions", "leases", "session-leases",
	"waiting", "queue", "session-waiting", "keys", "wait-list", "notices", "owner-keys",
	"owner-sessions", "owner-leases", "owner-waiting",
	"items", "item-bytes", "session-items", "version", "absent", "held", "delay", "not-holder",
	"owner-semaphores", "owner-notices", "owner-items", "owner-item-bytes",
	"group", "per-group", "permits", "paused", "when-full", "pools", "group-limit", "other-groups", "own-limits", "window", "slots",
	"owner-own-limits", "owner-returns",
}

// String returns the stable name of the rule.
func (r Rule) String() string { return nameOfNumber(int(r), ruleNames[:]...) }

// Result is the outcome of one command. The operation and the code determine which members are set; the others are
// zero.
type Result struct {
	Code     Code
	Rule     Rule // explains a refusal
	Replayed bool // the recorded outcome of an idempotency key; the command was not applied again
	Joined   bool // the request of the same idempotency key still waits, at the same place
	Waiting  bool // the session still has a waiting request
	Created  bool // a new semaphore, session or item was made
	Found    bool // end, release, delete: the session, lease, semaphore or item was there
	OneShot  bool // Session ends with its last lease or request
	TookOver bool // the caller has become the owner of the session, which had no owner
	More     bool // item-delete-all: items are left

	Session    uint64
	TTLMS      int64 // the session's ttl
	DeadlineMS int64 // the session's deadline, in cluster time

	Place    uint64 // of the waiting request; 0: no request waits
	Position int64  // of the request in its (first) line, from 1

	Epoch   uint64 // of the semaphore
	Version uint64 // of the settings: put, create and VersionMismatch; or of an item; or of the change that opened a session
	Granted int64  // down: permits taken
	Value   int64  // up, down, set: the available permits after the grants that the command caused; item-delete-all: items deleted
	Locks   uint64 // how often a session acquired the item while no session held it

	Trace string // trace context of the command that caused the grant

	Grants    []Grant        // leases held by this request, in list order
	Semaphore *SemaphoreView // put, create
	Each      []Result       // renew: one for each renewal, in order
	Completed []Completion   // deliver: the ready entries of the wait list

	// The next members belong to a request that waits or is refused.
	Subject     string // the semaphore
	Asked       int64  // the count asked
	QueueLength int64
	Refusal     *Refusal // nil: no member is set; see [Result.Why]
}

// Refusal explains why a request is refused or waits. Its members are not part of Result because most results lack
// them.
type Refusal struct {
	Reason      string // the operator's, for Revoked
	Limit       int64  // the limit of the owner or of the group
	Holding     int64  // the count that the session already has or requests
	Permits     int64
	Full        int64 // permits + max(offset, 0): the largest grant possible
	Available   int64
	Level       *int32 // of the semaphore asked for
	LowestLevel *int32 // the lowest level held, or the level of the waiting request
	DelayMS     int64  // RuleDelay: the time left; Unavailable: the time until enough of a window comes back
	Group       string // Waiting, RuleGroupLimit, RuleOtherGroups: the group of the request
	Used        int64  // RuleGroupLimit: what the group uses
}

// Why returns the refusal of a result, the zero value if it has no refusal.
func (r *Result) Why() Refusal { return orZero(r.Refusal) }

// explain returns the refusal of a result for writing, and allocates it if needed.
func (r *Result) explain() *Refusal { return orNew(&r.Refusal) }

// ifSet returns nil if no member is set, so that encoding and decoding does not change which pointers are nil.
func (f Refusal) ifSet() *Refusal {
	if f == (Refusal{}) {
		return nil
	}
	set := f
	return &set
}

// Grant describes one lease in a result.
type Grant struct {
	Semaphore string
	Epoch     uint64
	Count     int64
	Token     uint64
	GrantedMS int64         // cluster time of the grant
	Details   *GrantDetails // nil: no member is set; read them with DetailsOrZero
}

// GrantDetails has the members that most grants lack.
type GrantDetails struct {
	Group  string    // of the semaphore
	DueMS  int64     // when the permits spent in a window come back, in cluster time; 0: the lease holds its permits
	EndsMS int64     // when max_hold ends the lease, in cluster time; 0: it ends with its session
	Slots  []SlotRun // which permits it has, ascending; immutable
}

// DetailsOrZero returns the details of a grant, the zero value if it has no details.
func (g *Grant) DetailsOrZero() GrantDetails { return orZero(g.Details) }

// details returns the details of a grant for writing, and allocates them if needed.
func (g *Grant) details() *GrantDetails { return orNew(&g.Details) }

// Completion describes one delivered entry of a wait list.
type Completion struct {
	Semaphore string
	Epoch     uint64
	Granted   int64
	Token     uint64 // the token of the last grant; 0: there was no grant
	Deleted   bool   // the semaphore is gone, and Granted is 0
	Group     string // of the semaphore
}

// Superseded reports whether the entry ended because a newer request took its place in a full line.
func (c *Completion) Superseded() bool { return c.Granted == 0 && !c.Deleted }

// Conclusion is the end of one waiting request: OK if it was granted, else the reason. It occurs once, in the entry
// that ended the wait.
type Conclusion struct {
	Place  uint64
	Result Result
}

// EffectKind says how a semaphore, a lease, a request, a session or a notice changed.
type EffectKind uint8

// The kinds; the numbers are part of the state hash and must never change meaning.
const (
	EffectCreated        EffectKind = 1  // a semaphore: Permits, Level, Metadata
	EffectChanged        EffectKind = 2  // its permits, offset, level or metadata: Permits, Offset, Level, Metadata after the change
	EffectDeleted        EffectKind = 3  // a semaphore was deleted
	EffectGranted        EffectKind = 4  // a lease, or (Unowned) permits taken by a waiting down
	EffectReleased       EffectKind = 5  // a lease ended or became smaller, see Cause; Count is 0 if it was revoked before
	EffectWaiting        EffectKind = 6  // a request joined a line, or (with its old Place) asks for another Count
	EffectWithdrawn      EffectKind = 7  // a request left a line without a grant, see Cause
	EffectSessionEnded   EffectKind = 8  // see Cause
	EffectSessionOpen    EffectKind = 9  // opened or restored: TTLMS, DeadlineMS, OneShot, Metadata
	EffectListReady      EffectKind = 10 // an entry of a wait list can be delivered
	EffectNoticeDue      EffectKind = 11 // a notice is to be delivered: Place is its id
	EffectSessionRenewed EffectKind = 12 // a ttl or deadline changed: TTLMS, DeadlineMS
	EffectListLeft       EffectKind = 13 // an entry left a wait list, delivered or removed
	EffectNoticeEnded    EffectKind = 14 // a notice did not become due in time: Place is its id
	EffectItemChanged    EffectKind = 15 // an item was made or changed, see Cause: Item, Version, Session holds it
	EffectItemDeleted    EffectKind = 16 // an item was deleted, see Cause: Item, Version of the delete, Session held it
	EffectGroupChanged   EffectKind = 17 // the limit of a group: Group, Limit
	EffectReturned       EffectKind = 18 // permits that no lease held came back: Count
	EffectLost           EffectKind = 19 // a lease was lost, and its permits do not come back yet: Token, Session, Count, DueMS
	EffectFreed          EffectKind = 20 // the permits of a lost lease came back by a FreeLost: Token, Session, Count, Reason
	EffectSettled        EffectKind = 21 // a receipt was settled: its lease has spent Count permits
)

// String returns the stable name of the kind.
func (k EffectKind) String() string {
	return nameOfNumber(int(k), "unknown", "created", "changed", "deleted", "granted", "released", "waiting",
		"withdrawn", "session-ended", "session-opened", "list-ready", "notice-due", "session-renewed", "list-left",
		"notice-ended", "item-changed", "item-deleted", "group-changed", "returned", "lost", "freed", "settled")
}

// Effect is one change of an entry; effects are in the order of the changes. The same log gives the same effects on
// every node. Effects, with the indexes and times of their entries, determine the views of semaphores and sessions. The
// comments of the members name the kinds of effects that set them.
type Effect struct {
	Kind       EffectKind
	Cause      Cause
	Mode       Mode // waiting: of the request; 0: a single semaphore
	Unowned    bool // granted, waiting: a down, which gets no lease
	Partial    bool // waiting: the grant may have fewer permits than Count
	Listed     bool // waiting: the request belongs to an entry of its session's wait list
	OneShot    bool // session opened: the session is a one-shot
	Semaphore  string
	Epoch      uint64
	Session    uint64
	Place      uint64 // of the waiting request, if there was one
	Token      uint64
	Count      int64          // the permits granted, released or requested
	SinceMS    int64          // granted: when the request began to wait; released: when the lease was granted
	TTLMS      int64          // session opened, renewed
	DeadlineMS int64          // session opened, renewed: in cluster time
	Trace      string         // granted: of the command that caused it
	Item       string         // the name of an item
	Version    uint64         // of an item
	Details    *EffectDetails // nil: no details. Immutable; read it with DetailsOrZero
}

// EffectDetails has the members that most effects lack.
type EffectDetails struct {
	Permits  int64 // created, changed
	Offset   int64 // created, changed
	Level    *int32
	Metadata []Pair // created, changed, session opened
	Reason   string
	Group    string    // of the semaphore: granted, released, waiting, withdrawn, list-ready, group-changed
	Limit    int64     // group-changed; NoLimit if it ended
	Settings *Settings // created, changed; nil: no settings
	Slots    []SlotRun // granted, released, lost, freed, returned
	DueMS    int64     // granted, released, lost, settled: when the permits come back, in cluster time, or NeverMS; 0: at once
}

// DetailsOrZero returns the details of an effect, the zero value if it has no details.
func (e *Effect) DetailsOrZero() EffectDetails { return orZero(e.Details) }

// detailsOf returns details of an effect, nil if all members are zero.
func detailsOf(group string, dueMS int64, slots []SlotRun, reason string) *EffectDetails {
	if group == "" && dueMS == 0 && len(slots) == 0 && reason == "" {
		return nil
	}
	return &EffectDetails{Group: group, DueMS: dueMS, Slots: slots, Reason: reason}
}

// AppliedCommand is one command of an entry with its result.
type AppliedCommand struct {
	Request RequestID
	Op      Op
	Result  Result
}

// Applied is everything that one entry did. It belongs to the caller of Apply and is immutable.
type Applied struct {
	Index       uint64
	NowMS       int64 // cluster time after the entry's stamp
	Commands    []AppliedCommand
	Conclusions []Conclusion
	Effects     []Effect
	Term        uint64 // of a StartTerm, else 0
	Passing     int    // grants of pools to other requests than the longest waiting one; for metrics, not in the state hash
	Jump        bool   // of a StartTerm: the counters of tokens, places and epochs skipped numbers
	MoreDue     bool   // work is left for the next entry, see Machine.MoreDue; the leader logs a tick
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// orNew returns a pointer, after it allocated the value if the pointer is nil.
func orNew[T any](p **T) *T {
	if *p == nil {
		*p = new(T)
	}
	return *p
}
