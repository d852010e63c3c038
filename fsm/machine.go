package fsm

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/tidwall/btree"

	"github.com/signalbox/signalbox/internal/wire"
)

// state has the fields of a snapshot outside of the tables.
type state struct {
	index  uint64 // of the last entry applied
	term   uint64 // of the last StartTerm
	leader string // of the last StartTerm
	nowMS  int64  // cluster time: milliseconds since the cluster began; never goes back
	tokens uint64 // the last fencing token used; never goes back
	places uint64 // the last place used; never goes back
	epochs uint64 // the last epoch used; never goes back
	orders uint64 // the last order number used, for ended sessions, keys, revoked leases and entries of wait lists
	limits Limits
	hash   [16]byte // see chain

	feature uint32    // the feature level in force; never goes down
	cluster ClusterID // zero before the first StartTerm

	changes       uint64 // the last change number, of items and of sessions that open-holder opened; never goes back
	itemChange    uint64 // the number of the last change of an item
	sessionChange uint64 // the number of the last open or end of a session that open-holder opened
	jumped        uint64 // the last change number that was skipped, see jumpChanges

	turns uint64 // the last turn number given to a group; among groups of equal use, a pool serves the lowest turn; never goes back
}

// tables hold the primary records.
type tables struct {
	semaphores table[semaphore]
	sessions   table[session]
	leases     table[lease]
	requests   table[request]
	entries    table[listEntry]
	notices    table[notice]
	ended      table[ended]
	keys       table[key]
	marks      markQueue
	revoked    table[revoked]
	items      table[item]
	folders    table[folder]
	lanes      table[lane]
	returns    table[timedReturn]
}

// leaseKey names a session and a semaphore or group. A session has at most one lease, one waiting request and one
// wait-list entry for each semaphore or group.
type leaseKey struct {
	session ref
	target  target
}

// listKey names a session and a list of semaphores, see listHashOf. A session has at most one waiting request for each
// list.
type listKey struct {
	session  ref
	listHash uint64
}

// indexes are derived from the records: Restore rebuilds them, a frozen copy lacks them.
type indexes struct {
	byName       map[string]ref
	names        btree.Map[string, ref] // in order, for listings
	unswept      btree.Map[uint64, ref] // semaphores with work left for later entries because they were deleted, shrunk or swept, by epoch
	unserved     *btree.BTreeG[waiter]  // heads of lines that can be granted, left for the next entry
	bySession    btree.Map[uint64, ref]
	byLease      map[leaseKey]ref // may lack the first lease of a session, see leaseOf
	byWait       map[leaseKey]ref // requests for leases, once for each semaphore of their list
	byList       map[listKey]ref  // requests that list semaphores
	byPlace      map[uint64]ref   // requests
	byEntry      map[leaseKey]ref // entries of wait lists, while they have a semaphore
	byNotice     map[uint64]ref   // by id
	byEnded      map[uint64]ref
	byKey        map[keyName]ref
	byRevoked    map[revokedKey]ref
	marked       map[[16]byte]struct{} // hashes of the marks, see marks.go
	holdersBy    map[ref]*holderIndex  // of the semaphores with at least holderStride leases
	deadlines    deadlines
	endedByKind  [4]*endedIndex         // ended sessions: by operators, by deadlines, by max_hold, others
	timedNotices list                   // notices with a time limit, the earliest first
	revokedOrder [2]list                // leases revoked by operators, and leases ended by max_hold; the oldest first
	outcomes     list                   // keys with an outcome, the oldest first
	owned        map[string]owned       // by owner; the empty owner is not counted
	itemNames    btree.Map[string, ref] // items, without tombstones
	tombstoneOf  map[string]ref         // tombstones (deleted items whose delay runs) by name
	tombstones   *btree.BTreeG[tombstone]
	byFolder     btree.Map[string, ref]
	folderOrder  list    // the folder with the oldest last delete first
	peaks        [15]int // the largest sizes of these maps since trim last copied each
	byReturn     returnIndex
	deletedNames int   // invariant: the names of all folders
	itemBytes    int64 // invariant: the sum of the bytes of items, tombstones and terms
	keyBytes     int64 // invariant: the sum of the keys' bytes
	reserved     int64 // invariant: the largest number of leases and returns that waiting requests can become
	members      int   // invariant: the semaphores that the waiting requests list, summed over the requests
	ownLimits    int64 // invariant: the number of groups that a group-put has given a limit
}

// Machine is the state machine. One goroutine at a time may use it.
type Machine struct {
	state
	tables
	indexes

	// These fields are used while an entry or a command is applied.
	applied      *Applied
	caller       Envelope // of the command under way; zero between commands
	done         work     // work that this entry has done
	touched      []target // lines and pools in which a request may now be grantable
	fresh        []ref    // lanes that this command created, see resolveMember
	noticeChecks []ref    // semaphores whose notices may now be due
	endNow       []uint64 // sessions whose new deadline has passed; finishCommand ends them last
	output       encoder  // scratch space for the state hash
	effects      []Effect // scratch space for the effects of the entry under way

	conclusions []Conclusion // scratch space for the ends of waits in the entry under way
	spareLines  []*line      // empty lines for reuse, see newLine

	budget budget // the bounds of an entry's work; equal on all replicas; tests lower it
}

// New returns an empty machine at cluster time 0 and the first feature level. The first StartTerm
// may raise the level.
func New() *Machine {
	m := &Machine{}
	m.feature = firstLevel
	m.limits = DefaultLimits()
	m.budget = defaultBudget()
	m.indexes = indexes{
		byName:      map[string]ref{},
		byLease:     map[leaseKey]ref{},
		byWait:      map[leaseKey]ref{},
		byList:      map[listKey]ref{},
		byPlace:     map[uint64]ref{},
		byEntry:     map[leaseKey]ref{},
		byNotice:    map[uint64]ref{},
		byEnded:     map[uint64]ref{},
		byKey:       map[keyName]ref{},
		byRevoked:   map[revokedKey]ref{},
		marked:      map[[16]byte]struct{}{},
		holdersBy:   map[ref]*holderIndex{},
		owned:       map[string]owned{},
		endedByKind: [4]*endedIndex{newEndedIndex(), newEndedIndex(), newEndedIndex(), newEndedIndex()},
		tombstoneOf: map[string]ref{},
		tombstones:  newTombstones(),
		unserved:    newWaiters(),
		byReturn:    newReturnIndex(),
	}
	return m
}

// Apply applies the log entry at index and returns its outcome. It panics with the index and the operation if an
// invariant is broken or a newer version wrote the entry: the node must stop then. Apply does not retain data.
func (m *Machine) Apply(index uint64, data []byte) *Applied {
	var op Op
	defer func() {
		if broken := recover(); broken != nil {
			panic(fmt.Sprintf("state machine halted at index %d, operation %v: %v", index, op, broken))
		}
	}()
	d := decoder{Decoder: wire.Decoder{Rest: data}}
	if version := d.Byte(); version != entryVersion {
		panic(fmt.Sprintf("entry version %d, this program knows %d", version, entryVersion))
	}
	stamp, count := d.Int(), d.Count(1)
	m.index = index
	m.applied = &Applied{Index: index, Commands: make([]AppliedCommand, 0, count)}
	m.nowMS = max(m.nowMS, stamp)
	m.applied.NowMS = m.nowMS
	m.expire()
	var command decoder // declared outside of the loop, because each decoder would be an allocation
	for range count {
		command = decoder{Decoder: wire.Decoder{Rest: d.Bytes(d.Uint())}}
		c, err := decodeCommand(&command)
		op = c.op
		if err != nil {
			panic(err)
		}
		m.applied.Commands = append(m.applied.Commands, AppliedCommand{c.Request, c.op, m.applyCommand(&c)})
	}
	applied := m.applied
	m.applied = nil
	applied.Conclusions, applied.Effects = drain(&m.conclusions, maxScratchConclusions), drain(&m.effects, maxScratchEffects)
	m.trimUnserved()
	m.trim()
	applied.MoreDue = m.MoreDue()
	m.chain(index, data, applied)
	return applied
}

// applyCommand applies one command of an entry. It refuses a command that needs a higher feature level than the cluster
// has. The first StartTerm is exempt because it sets the level.
func (m *Machine) applyCommand(c *decoded) (result Result) {
	if c.command == nil || c.level > m.feature && c.op != OpStartTerm {
		return Result{Code: Malformed}
	}
	m.caller = c.Envelope
	if c.Key == "" {
		result = c.command.apply(m)
	} else {
		result = m.applyKeyed(c)
	}
	if len(m.fresh) > 0 {
		m.dropFresh()
	}
	m.caller = Envelope{}
	return result
}

// chain advances the state hash: h ← H(h, index, entry, results, conclusions, effects), 128 bits of SHA-256. Two
// machines with the same hash applied the same entries with the same outcome. The cost depends on the entry alone.
func (m *Machine) chain(index uint64, data []byte, applied *Applied) {
	e := &m.output
	e.buf = append(e.buf[:0], m.hash[:]...)
	e.uint(index)
	e.uint(uint64(len(data)))
	e.buf = append(e.buf, data...)
	for i := range applied.Commands {
		e.result(&applied.Commands[i].Result)
	}
	e.uint(uint64(len(applied.Conclusions)))
	for i := range applied.Conclusions {
		e.uint(applied.Conclusions[i].Place)
		e.result(&applied.Conclusions[i].Result)
	}
	e.uint(uint64(len(applied.Effects)))
	e.feature = m.feature
	for i := range applied.Effects {
		e.effect(&applied.Effects[i])
	}
	sum := sha256.Sum256(e.buf)
	copy(m.hash[:], sum[:])
	if cap(e.buf) > 1<<20 {
		e.buf = nil // so that a huge entry does not keep its buffer allocated
	}
}

func (m *Machine) emit(e Effect) { m.effects = append(m.effects, e) }

// Above these lengths, drain returns the scratch buffer itself instead of a copy.
const (
	maxScratchEffects     = 8192
	maxScratchConclusions = 512
)

// drain empties a scratch buffer and returns its content: up to limit a copy, so that the next entry reuses the buffer.
func drain[T any](scratch *[]T, limit int) []T {
	all := *scratch
	if len(all) == 0 {
		return nil
	}
	if len(all) > limit { // too large to copy, or to keep for the next entry
		*scratch = nil
		return all
	}
	taken := slices.Clone(all)
	clear(all)
	*scratch = all[:0]
	return taken
}

// NowMS returns the cluster time of the last entry, in milliseconds.
func (m *Machine) NowMS() int64 { return m.nowMS }

// Index returns the index of the last entry applied.
func (m *Machine) Index() uint64 { return m.index }

// HoldersIndex returns the change number of the last open or end of a session that open-holder opened, 0 before the
// first such session.
func (m *Machine) HoldersIndex() uint64 { return m.sessionChange }

// Term returns the term of the last StartTerm, 0 before the first.
func (m *Machine) Term() uint64 { return m.term }

// Leader returns the node id in the last StartTerm.
func (m *Machine) Leader() string { return m.leader }

// Hash returns the state hash, see chain.
func (m *Machine) Hash() [16]byte { return m.hash }

// Limits returns the limits in force.
func (m *Machine) Limits() Limits { return m.limits }

// FeatureLevel returns the level in force. It never goes down.
func (m *Machine) FeatureLevel() uint32 { return m.feature }

// ClusterID returns the id of the cluster whose log this machine applies, zero before the
// first StartTerm.
func (m *Machine) ClusterID() ClusterID { return m.cluster }
