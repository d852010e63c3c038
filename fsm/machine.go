package fsm

import (
	"fmt"
	"slices"

	"github.com/tidwall/btree"
)

// state is what a snapshot holds, beside the tables: plain values.
type state struct {
	index  uint64 // of the last entry applied
	term   uint64 // of the last reign entry
	leader string // of the last reign entry
	nowMS  int64  // cluster time: milliseconds since the cluster began; never goes back
	tokens uint64 // the last fencing token given; never goes back
	places uint64 // the last place given; never goes back
	epochs uint64 // the last epoch given; never goes back
	orders uint64 // the last order number of ended sessions and keys
	limits Limits
	hash   [16]byte // see chain

	feature uint32    // the feature level in force; never goes down
	cluster ClusterID // zero before the first reign entry of level 1
}

// tables are the primary records.
type tables struct {
	semaphores table[semaphore]
	sessions   table[session]
	leases     table[lease]
	requests   table[request]
	entries    table[entry]
	notices    table[notice]
	ended      table[ended]
	keys       table[key]
	marks      markQueue
	revoked    table[revoked]
}

// leaseKey finds the lease of a session on a semaphore: at most one.
type leaseKey struct{ session, semaphore ref }

// groupKey finds the request of a session for a list, see groupOf: at most one.
type groupKey struct {
	session ref
	group   uint64
}

// indexes are derived from the records: rebuilt at restore, never copied.
type indexes struct {
	byName       map[string]ref
	names        btree.Map[string, ref] // in order, for listings
	unswept      btree.Map[uint64, ref] // semaphores by epoch: deleted or shrunk
	unserved     btree.Map[uint64, ref] // requests by place: heads that could be granted, and an entry left over
	bySession    map[uint64]ref
	ids          btree.Map[uint64, ref] // sessions in order, for listings
	byLease      map[leaseKey]ref
	byWait       map[leaseKey]ref // requests for leases, by each of their members: at most one
	byGroup      map[groupKey]ref // requests that list semaphores
	byPlace      map[uint64]ref   // requests
	byEntry      map[leaseKey]ref // of wait lists, but for deleted semaphores
	byNotice     map[uint64]ref   // by id
	byEnded      map[uint64]ref
	byKey        map[keyName]ref
	byRevoked    map[revokedKey]ref
	marked       map[[16]byte]struct{} // the marks' hashes
	deadlines    deadlines
	endedFIFO    fifo
	patience     list                 // notices that end by time, the next one first
	revokedOrder list                 // the oldest first
	outcomes     list                 // the keys that have one, the oldest first
	owned        map[string]ownedKeys // by owner; not those of the empty one
	keyBytes     int64                // invariant: the sum of the keys' bytes
	reserved     int64                // invariant: how many leases the waiting requests may become
	members      int                  // invariant: of all waiting requests
}

// Machine is the state machine. See the package comment for who may call it.
type Machine struct {
	state
	tables
	indexes

	// What the entry or command under way has gathered.
	applied *Applied
	caller  Envelope // of the command under way; zero between commands
	done    work     // by the entry under way
	touched []ref    // semaphores whose line may have become servable
	freed   []ref    // semaphores whose notices may have become due
	endNow  []uint64 // sessions given a deadline that has passed: the last step
	output  encoder  // scratch, for the state hash

	budget budget // the same on all replicas; tests lower it
}

// New returns an empty machine at cluster time 0. Its first reign entry brings
// the feature level.
func New() *Machine { return NewAtLevel(0) }

// NewAtLevel returns an empty machine at a feature level, as it is after the
// first reign entry, but without a cluster id: for tests.
func NewAtLevel(level uint32) *Machine {
	m := &Machine{}
	m.feature = level
	m.limits = DefaultLimits()
	m.budget = defaultBudget()
	m.clearIndexes()
	return m
}

func (m *Machine) clearIndexes() {
	m.indexes = indexes{
		byName:    map[string]ref{},
		bySession: map[uint64]ref{},
		byLease:   map[leaseKey]ref{},
		byWait:    map[leaseKey]ref{},
		byGroup:   map[groupKey]ref{},
		byPlace:   map[uint64]ref{},
		byEntry:   map[leaseKey]ref{},
		byNotice:  map[uint64]ref{},
		byEnded:   map[uint64]ref{},
		byKey:     map[keyName]ref{},
		byRevoked: map[revokedKey]ref{},
		marked:    map[[16]byte]struct{}{},
		owned:     map[string]ownedKeys{},
	}
}

// Apply applies the entry at index and answers all that it did. It panics,
// naming index and operation, when an invariant is broken or the entry was
// written by a newer version: the node must not go on. It does not keep data.
func (m *Machine) Apply(index uint64, data []byte) *Applied {
	var op Op
	defer func() {
		if broken := recover(); broken != nil {
			panic(fmt.Sprintf("state machine halted at index %d, operation %v: %v", index, op, broken))
		}
	}()
	d := decoder{buf: data}
	version := d.byte()
	if version != entryVersion0 && version != entryVersion {
		panic(fmt.Sprintf("entry version %d, this program knows %d", version, entryVersion))
	}
	stamp, count := d.int(), d.count(1)
	m.index = index
	m.applied = &Applied{Index: index, Commands: make([]AppliedCommand, 0, count)}
	m.nowMS = max(m.nowMS, stamp)
	m.applied.NowMS = m.nowMS
	m.expire()
	for range count {
		c, err := decodeCommand(version, d.bytes(d.uint()))
		op = c.op
		if err != nil {
			panic(err)
		}
		m.applied.Commands = append(m.applied.Commands, AppliedCommand{c.Request, c.op, m.applyCommand(c)})
	}
	applied := m.applied
	m.applied = nil
	m.keepUnserved()
	applied.MoreDue = m.MoreDue()
	m.chain(index, data, applied)
	return applied
}

// applyCommand applies one command of an entry. One of a later level than the
// cluster's is refused; but the first reign entry brings a level.
func (m *Machine) applyCommand(c decoded) Result {
	if c.command == nil || c.level > m.feature && c.op != OpReign {
		return Result{Code: Malformed}
	}
	m.caller = c.Envelope
	result := m.applyKeyed(c)
	m.caller = Envelope{}
	return result
}

// effect tells one change.
func (m *Machine) effect(e Effect) { m.applied.Effects = append(m.applied.Effects, e) }

// fifo holds what is forgotten in the order of its recording. A record that
// was recorded anew stands in it twice: only the entry with its present order
// counts.
type fifo struct {
	entries []fifoEntry
	head    int
}

type fifoEntry struct {
	order  uint64
	record ref
}

func (f *fifo) push(order uint64, record ref) {
	f.entries = append(f.entries, fifoEntry{order, record})
}

func (f *fifo) front() (fifoEntry, bool) {
	if f.head == len(f.entries) {
		return fifoEntry{}, false
	}
	return f.entries[f.head], true
}

// compact drops the entries that stand for nothing any more.
func (f *fifo) compact(stands func(fifoEntry) bool) {
	f.entries = slices.DeleteFunc(f.entries[f.head:], func(e fifoEntry) bool { return !stands(e) })
	f.head = 0
}

func (f *fifo) pop() {
	f.head++
	if f.head > len(f.entries)/2 {
		f.entries = append(f.entries[:0], f.entries[f.head:]...)
		f.head = 0
	}
}
