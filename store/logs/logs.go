package logs

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/signalbox/signalbox/store/damage"
	"github.com/signalbox/signalbox/store/journal"
)

const (
	// FileName is raft-boltdb's file of log and stable values in a data folder.
	FileName = "raft.db"
	// JournalFile is the journal of a data folder that has one.
	JournalFile = journal.FileName
	// memoryFile replaces the file name in messages about a log in memory.
	memoryFile = "memory"
	// cachedEntries is how many of the latest log entries are kept in memory.
	cachedEntries = 128
)

// Config has what the log and the stable values need. In memory, only Guard, Covered and Wrap are used.
type Config struct {
	Folder  string
	Guard   *damage.Guard
	Witness Witness
	Reserve Reserve
	Logger  hclog.Logger
	// Covered is the index of the newest snapshot. Logs refuses entries up to this index: see RefuseCovered. It may be
	// nil.
	Covered *atomic.Uint64
	// Journal says that the log has a journal before it; see Contents.
	Journal bool
	// Wrap is for tests: it replaces the lowest layer of the log, the log on the disk. It may be nil.
	Wrap func(raft.LogStore) raft.LogStore
}

// Witness keeps lower bounds of the content.
type Witness interface {
	// RaiseEntry and RaiseStable raise the bounds of the log's last index and of the stable values' generation. They
	// are called after the content is stored.
	RaiseEntry(index uint64)
	RaiseStable(generation uint64)
	// LowerEntry lowers the bound of the log to at most index, durably. It is called before entries above index are
	// removed. Its error has already passed through the guard.
	LowerEntry(index uint64) error
}

// Reserve is disk space that is reserved for a term or a vote.
type Reserve interface {
	// Release frees the space, and reports whether there was any.
	Release() bool
}

// Stores are the log and the stable values of a node.
type Stores struct {
	log    *checkedLog
	stable raft.StableStore
	bolt   *raftboltdb.BoltStore // nil in memory
	// journaled is the log with the journal, or nil without a journal.
	journaled *journaledLog
}

// Create makes the file for a new folder, with a stable record. So a missing record is damage, and does not mean "has
// never voted".
func Create(folder string) error {
	bolt, err := openBolt(folder)
	if err != nil {
		return err
	}
	return errors.Join(bolt.Set(stableKey, stableRecord{generation: 1}.encode()), bolt.Close())
}

func openBolt(folder string) (*raftboltdb.BoltStore, error) {
	return raftboltdb.New(raftboltdb.Options{Path: filepath.Join(folder, FileName), BoltOptions: damage.BoltOptions()})
}

// Open opens the file. found is the result of Read.
func Open(c Config, found Contents) (*Stores, error) {
	s := &Stores{}
	err := c.Guard.Open(FileName, func() (err error) {
		s.bolt, err = openBolt(c.Folder)
		return err
	})
	if err != nil {
		return nil, err
	}
	stable := &stableValues{
		bolt: s.bolt, guard: c.Guard, witness: c.Witness, reserve: c.Reserve, logger: c.Logger, now: found.stable,
	}
	s.stable = stable
	var bottom raft.LogStore
	if c.Journal {
		s.journaled, err = openJournaled(c, s.bolt, found, stable)
		bottom = s.journaled
	} else {
		bottom = &boltLog{bolt: s.bolt, guard: c.Guard, witness: c.Witness, logger: c.Logger, extent: found.inBolt}
	}
	if err == nil {
		s.log, err = newLog(c, bottom, FileName, cachedEntries)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func openJournaled(c Config, bolt raft.LogStore, found Contents, stable *stableValues) (*journaledLog, error) {
	file, err := journal.OpenFile(c.Folder)
	if err != nil {
		return nil, err
	}
	below := &boltLog{bolt: bolt, guard: c.Guard, witness: silent{}, logger: c.Logger, extent: found.inBolt}
	log, err := newJournaled(c, below, file, found, stable)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	log.start()
	return log, nil
}

// Drain copies all entries of the journal to raft-boltdb, so that the next start is fast. Without a journal it returns
// at once. Other goroutines may store entries during the call.
func (s *Stores) Drain() error {
	if s == nil || s.journaled == nil || s.journaled.guard.Refusal() != nil {
		return nil
	}
	return s.journaled.drain()
}

// CreateJournal makes a new journal for a log with the content found. The log must have no journal, or a drained
// journal. half is the size of a half in bytes, 0 for the default. It returns the new content. The journal is durable
// on return.
func CreateJournal(folder string, half int64, found Contents) (Contents, error) {
	if err := journal.Create(folder, cmp.Or(half, journal.DefaultHalf), found.stable.drained()); err != nil {
		return found, damage.AsFull(journal.FileName, err)
	}
	var err error
	found.journal, err = readJournal(folder, found.stable.drained())
	return found, err
}

// JournalSize returns the size of a journal in bytes. half is the parameter of CreateJournal.
func JournalSize(half int64) int64 { return 2 * cmp.Or(half, journal.DefaultHalf) }

// RemoveJournal removes the journal, if there is one, of a log that is recorded as without a journal.
func RemoveJournal(folder string) error {
	err := os.Remove(filepath.Join(folder, journal.FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// OpenMemory returns stores that keep everything in memory.
func OpenMemory(c Config) (*Stores, error) {
	log, err := newLog(c, &memoryLog{}, memoryFile, 0)
	return &Stores{log: log, stable: raft.NewInmemStore()}, err
}

// Logs returns the log. Entries are durable when StoreLogs returns. StoreLogs adds missing checksums. It refuses an
// entry that doesn't match its checksum (EntryError), and entries that the newest snapshot covers (ErrCovered). Other
// errors are damage.FullError, damage.Error and damage.ErrClosed; GetLog returns raft.ErrLogNotFound for an entry that
// isn't stored. The caller must not change entries that it has stored or read, since the cache shares their bytes.
func (s *Stores) Logs() raft.LogStore { return s.log }

// Stable returns the store of Raft's term and vote. Values are durable when Set returns, except the term of a vote,
// which is stored together with the candidate. The error for a missing key has the text "not found", which Raft
// expects.
func (s *Stores) Stable() raft.StableStore { return s.stable }

// UndoBootstrap resets a term that a crash in the middle of raft.BootstrapCluster has left: term 1, no vote and no log.
// It is only for a store without snapshots. With the term alone, Raft would refuse to bootstrap the node again, and the
// node would have no configuration. The reset is safe, since the node has not promised anything yet.
func (s *Stores) UndoBootstrap() error {
	stable, inFile := s.stable.(*stableValues)
	if last, err := s.log.LastIndex(); err != nil || last != 0 || !inFile || !stable.onlyTerm(1) {
		return nil
	}
	stable.logger.Info("an interrupted bootstrap is undone")
	return stable.SetUint64([]byte(keyCurrentTerm), 0)
}

// Close closes the files. After a panic in bbolt it may never return; see damage.Guard.
func (s *Stores) Close() error {
	if s.bolt == nil {
		return nil
	}
	var err error
	if s.journaled != nil {
		err = s.journaled.close()
	}
	return errors.Join(err, s.bolt.Close())
}
