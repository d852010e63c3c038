package cluster

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/signalbox/signalbox/fsm"
)

// machine feeds package fsm's machine from Raft's log and tells the rest of the
// node what each entry did. Raft calls Apply, ApplyBatch, Snapshot and Restore
// from one goroutine, the apply goroutine; everything else is safe for
// concurrent use.
//
// An entry in Raft's log is the term of the reign that proposed it, as a
// varint, and then what fsm.EncodeEntry made. One that Raft logged in another
// term is skipped, alike on every node: a proposer whose leadership ended and
// came back between its last look and its call of Raft would else write under a
// reign that its entry does not belong to, after others were told that nothing
// of the old reign can come any more.
type machine struct {
	log hclog.Logger
	// deliver is told what each entry did, in the apply goroutine, before its
	// index shows in applied. It must be quick and must not block.
	deliver func(*fsm.Applied)
	// restored is told of a machine that came from a snapshot, likewise.
	restored func(*fsm.Machine, uint64)
	// fatal is told, once, that the machine has halted.
	fatal func(error)
	// snapshotDue is called when a snapshot is due, see snapshotMeter.
	snapshotDue func()

	level atomic.Uint32 // the state's feature level

	mu    sync.RWMutex // guards state and the fields below it
	state *fsm.Machine
	at    time.Time // when the last entry was applied, on the local clock

	progress progress
	meter    snapshotMeter
	halted   error // the apply goroutine's; nothing is applied once set
	unread   error // why the snapshot given last could not be read; Raft keeps it to itself
}

var _ raft.BatchingFSM = (*machine)(nil)

// newMachine answers an empty machine. The functions are set before Raft gets it.
func newMachine(log hclog.Logger) *machine {
	return &machine{
		log:         log,
		deliver:     func(*fsm.Applied) {},
		restored:    func(*fsm.Machine, uint64) {},
		fatal:       func(error) {},
		snapshotDue: func() {},
		state:       fsm.New(),
		at:          time.Now(),
		meter:       snapshotMeter{base: snapshotCost},
	}
}

// encodeEntry makes what goes into Raft's log.
func encodeEntry(term uint64, stampMS int64, commands [][]byte) []byte {
	entry := fsm.EncodeEntry(stampMS, commands)
	data := make([]byte, 0, binary.MaxVarintLen64+len(entry))
	data = binary.AppendUvarint(data, term)
	return append(data, entry...)
}

// Apply is ApplyBatch for one: RecoverCluster calls only this.
func (m *machine) Apply(entry *raft.Log) any {
	return m.ApplyBatch([]*raft.Log{entry})[0]
}

// ApplyBatch implements [raft.BatchingFSM]. What it answers for an entry is nil,
// or the error that says why it was not applied.
func (m *machine) ApplyBatch(entries []*raft.Log) []any {
	answers := make([]any, len(entries))
	for i, entry := range entries {
		if err := m.applyEntry(entry); err != nil {
			answers[i] = err
		}
	}
	return answers
}

// applyEntry applies an entry, or only notes its index: a configuration, or one
// of another term.
func (m *machine) applyEntry(entry *raft.Log) error {
	if m.halted != nil {
		return m.halted
	}
	var skipped error
	if entry.Type == raft.LogCommand {
		applied, err := m.applyCommand(entry)
		switch {
		case err == errOtherTerm:
			m.log.Warn("an entry of another reign was skipped", "index", entry.Index)
			skipped = err
		case err != nil:
			m.halt(err)
			return m.halted
		default:
			m.deliver(applied)
		}
		m.count(len(entry.Data))
	}
	m.progress.advance(entry.Index)
	return skipped
}

// applyCommand gives an entry to the state under the lock.
func (m *machine) applyCommand(entry *raft.Log) (applied *fsm.Applied, err error) {
	term, size := binary.Uvarint(entry.Data)
	if size <= 0 {
		return nil, fmt.Errorf("the entry at index %d has no term", entry.Index)
	}
	if term != entry.Term {
		return nil, errOtherTerm
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("%v", broken)
		}
	}()
	applied = m.state.Apply(entry.Index, entry.Data[size:])
	m.at = time.Now()
	m.level.Store(m.state.FeatureLevel())
	return applied, nil
}

// halt stops the machine for good: what it holds now is not to be trusted, so
// its index stays where it is, and no snapshot is made of it.
func (m *machine) halt(err error) {
	m.halted = fmt.Errorf("%w: %w", errHalted, err)
	m.log.Error("the state machine has halted", "error", err)
	m.fatal(m.halted)
}

// count triggers a snapshot by what was applied.
func (m *machine) count(bytes int) {
	if m.meter.count(bytes) {
		m.snapshotDue()
	}
}

// view calls read with the state, which must not be kept nor changed. Entries
// wait meanwhile.
func (m *machine) view(read func(*fsm.Machine)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	read(m.state)
}

// reading returns an index and the hash of the state there. An entry that the state
// has and whose index progress does not show yet counts; configurations, which
// progress alone knows, do not change the state.
func (m *machine) reading() (index uint64, hash [16]byte) {
	m.view(func(state *fsm.Machine) {
		index, hash = max(m.progress.reached.Load(), state.Index()), state.Hash()
	})
	return index, hash
}

// estimateMS answers cluster time as this node can guess it alone: the last
// entry's, and what has passed since, as far as a leader would count it.
func (m *machine) estimateMS() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.NowMS() + min(time.Since(m.at), maxStampStep).Milliseconds()
}

// nowMS answers cluster time as of the last entry.
func (m *machine) nowMS() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.NowMS()
}

// moreDue reports whether the last entry has left work over for the next.
func (m *machine) moreDue() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.MoreDue()
}

// nextDeadline answers the earliest deadline of a session, if there is one.
func (m *machine) nextDeadline() (ms int64, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.NextDeadline()
}
