package fsm

// Limits bound what the state may hold. They come with each reign entry from
// the leader's configuration, so that every replica refuses alike.
type Limits struct {
	Semaphores     int64
	Sessions       int64
	SessionLeases  int64 // in one session, revoked ones too
	SessionWaiting int64 // waiting requests in one session; from level 1 on their members
	Leases         int64
	Waiting        int64 // waiting requests; from level 1 on their members
	Queue          int64 // waiting requests on one semaphore
	WaitList       int64 // entries of one session's wait list
	Keys           int64 // idempotency keys
	KeyBytes       int64 // their keys and outcomes, those to come included
}

// DefaultLimits are in force before the first reign entry and unless
// configured otherwise.
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
		*v = d.int()
	}
	return l
}

// Bounds that are part of the machine, not of the configuration. They are rules of
// the feature level: a machine of another program applies the same entries, so that
// one of these may change only as a rule of a new level, beside the old value.
// testdata/constants.golden pins them.
const (
	maxEnded         = 100_000              // remembered ended sessions
	endedKeptMS      = 10 * 60 * 1000       // and for how long
	maxRevoked       = 100_000              // remembered revoked leases, as long as ended sessions; level 1
	keysKeptMS       = 10 * 60 * 1000       // an idempotency key's life
	marksPerKey      = 6                    // as many marks as this times the keys allowed; level 1
	keyOverhead      = 128                  // bytes that one key counts beside its texts
	maxRequestKeys   = 1_024                // keys that wait for the outcome of one request
	maxSessionKeys   = 4_096                // keys that wait for outcomes in one session, from level 1 on
	expireSessions   = 1_024                // sessions removed at one entry …
	expireRecords    = 8_192                // … or leases and requests, at level 0; then see budget
	forgetKeys       = 4_096                // keys and ended sessions forgotten at one entry
	maxToken         = 1<<53 - 1            // fencing tokens stay exact in JavaScript
	reignJump        = 1 << 32              // added to the counters after a recovery
	maxNotices       = 10_000               // in all
	noticesKeptMS    = 7 * 24 * 3600 * 1000 // a notice that does not become due, from level 1 on
	maxNoticesHere   = 100                  // for one semaphore
	maxNoticeBytes   = 2_048                // of its address
	maxNameBytes     = 512
	maxReasonBytes   = 1_024
	maxKeyBytes      = 1_024 // scope and key
	maxMetadataPairs = 16
	maxMetadataBytes = 1_024
)
