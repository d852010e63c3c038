package fsm

// Limits bound the size of the state. Each StartTerm carries the limits of the leader's
// configuration, so that all replicas refuse the same commands.
type Limits struct {
	Semaphores     int64
	Sessions       int64
	SessionLeases  int64 // leases in one session, including revoked leases
	SessionWaiting int64 // waiting requests in one session; a request for a list counts once for each semaphore of the list
	Leases         int64
	Waiting        int64 // waiting requests; a request for a list counts once for each semaphore of the list
	Queue          int64 // waiting requests on one semaphore
	WaitList       int64 // entries of one session's wait list
	Keys           int64 // idempotency keys
	KeyBytes       int64 // bytes of keys and outcomes, including space reserved for pending outcomes
}

// DefaultLimits returns the defaults of the configuration, which are in force before the first StartTerm.
func DefaultLimits() Limits {
	return Limits{
		Semaphores:     1_000_000,
		Sessions:       1_000_000,
		SessionLeases:  4_096,
		SessionWaiting: 1_024,
		Leases:         2_000_000,
		Waiting:        1_000_000,
		Queue:          100_000,
		WaitList:       64,
		Keys:           1_000_000,
		KeyBytes:       256 << 20,
	}
}

// MaxLimits returns the highest value of each limit, or 0 for no bound. The limits of one session are bounded because a
// session ends in one entry, which must apply within 50 ms. The limits of the whole state need no bound, because the
// machine bounds the work of an entry whatever the size of the state.
func MaxLimits() Limits {
	return Limits{SessionLeases: 4_096, SessionWaiting: 1_024, WaitList: 4_096}
}

func (l *Limits) fields() []*int64 {
	return []*int64{&l.Semaphores, &l.Sessions, &l.SessionLeases, &l.SessionWaiting,
		&l.Leases, &l.Waiting, &l.Queue, &l.WaitList, &l.Keys, &l.KeyBytes}
}

func (e *encoder) limits(l Limits) {
	for _, v := range l.fields() {
		e.int(*v)
	}
}

func (d *decoder) limits() Limits {
	var l Limits
	for _, v := range l.fields() {
		*v = d.Int()
	}
	return l
}

// Bounds that no configuration changes. All members apply an entry alike, so a bound may change only at a new feature
// level; older levels keep the old value. testdata/constants.golden pins the bounds.
const (
	maxEnded             = 100_000              // remembered ended sessions of each kind, see ends
	endedKeptMS          = 10 * 60 * 1000       // the time for which ended sessions are remembered
	maxRevoked           = 100_000              // remembered revoked leases, for the same time
	keysKeptMS           = 10 * 60 * 1000       // the time for which an idempotency key or a mark is kept
	marksPerKey          = 6                    // marks kept for each key that the limits allow
	keyOverhead          = 128                  // bytes that a key counts in addition to its texts
	maxRequestKeys       = 1_024                // keys that wait for the outcome of one request
	maxSessionKeys       = 4_096                // keys that wait for outcomes in one session
	expireSessions       = 1_024                // sessions removed at one entry
	forgetKeys           = 4_096                // records of each kind forgotten at one entry
	maxToken             = 1<<53 - 1            // fencing tokens stay exact in JavaScript
	maxSettled           = 1 << 53              // the largest count of a receipt
	succeededJump        = 1 << 32              // added to the counters by Succeed
	termJump             = 1 << 40              // added to the counters by a StartTerm with a jump; larger than succeededJump, which a lost entry may have added
	recoveredJump        = 1 << 44              // added to the counters by Recovered; larger than termJump, which a lost entry may have added
	maxItems             = 1_000_000            // items and tombstones
	maxItemBytes         = 256 << 20            // of names, values and session terms (abouts), with itemOverhead for each
	itemOverhead         = 96                   // bytes that an item or an about counts in addition to its texts
	MaxValueBytes        = 512 << 10            // of an item
	MaxAboutBytes        = 8 << 10              // of the about of a session
	MaxItemDelayMS       = 60_000               // of the items of a session
	maxSessionItems      = 4_096                // held by one session
	maxDeletedAtOnce     = 8_192                // items removed by one item-delete-all
	maxTombstonesDropped = 8_192                // tombstones removed at one entry
	maxFolders           = 100_000              // folders of deleted names
	maxFolderNames       = 64                   // deleted names of one folder
	maxDeletedNames      = 100_000              // deleted names of all folders
	deletesKeptMS        = 10 * 60 * 1000       // the time after its last delete for which a folder is kept
	maxNotices           = 10_000               // notices in all
	noticesKeptMS        = 7 * 24 * 3600 * 1000 // the time after which a notice that has not become due ends
	maxNoticesHere       = 100                  // notices for one semaphore
	maxNoticeBytes       = 2_048                // of its address
	maxOwnLimits         = 100_000              // groups that a group-put gave a limit
	maxNameBytes         = 512
	maxReasonBytes       = 1_024
	maxKeyBytes          = 1_024 // scope and key
	maxMetadataPairs     = 16
	maxMetadataBytes     = 1_024
)
